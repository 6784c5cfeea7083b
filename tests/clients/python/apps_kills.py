"""Sessions and transfers while workers and the broker are killed: apps_kills.py BROKER [--fragments N] [--every S].

Fragments of sessions, ten to each, are stored and assembled by workers of examples/apps/python/sessions.py. Beside them an
account pays to another one for each hundredth fragment; its app takes the amount from the one, and passes it on in a record
for the other. Meanwhile, about every S seconds, a worker is killed, or stopped until its tasks are another's, or the broker
is killed. In the end each session has come out once, with its fragments in their order; each payment has arrived once; and
the sum of all accounts is 0.

The broker is a program of this project, started here on free ports and a folder of its own."""

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "clients/python"))

from stafett import App, Emit, Record, State  # noqa: E402

PARTITIONS, PARTS, OPEN, ACCOUNTS, PAGE = 6, 10, 200, 40, 2000
"""OPEN sessions are fed between each other."""
HANGS = 300
"""Seconds without progress after which the run has failed."""


def bank(server):
    """Accounts: of a transfer one gives, and what it gives reaches the other in a record of its own."""
    app = App("bank", topics=["transfers", "deposits"], tables=["balance"], server=server, worker_timeout_ms=2000)

    @app.record
    async def move(record: Record, state: State) -> Emit | None:
        if record.topic == "deposits":
            state["balance"] = state.get("balance", 0) + record.value
            return None
        state["balance"] = state.get("balance", 0) - record.value["amount"]
        return Emit("deposits", record.value["amount"], key=record.value["to"])

    return app


def free_ports(count):
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


class Broker:
    def __init__(self, program, folder):
        ports = free_ports(3)
        self.port = ports[0]
        named = zip(["--http", "--kafka", "--amqp"], ports, strict=True)
        self.command = [program, "serve", "--data-dir", folder, *(f"{name}=127.0.0.1:{port}" for name, port in named)]
        self.log = open(Path(folder).parent / "broker.log", "ab")  # noqa: SIM115
        self.start()

    @property
    def server(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
        began = time.monotonic()
        while self.try_ask("GET", "/v1/apps")[0] != 200:
            if self.process.poll() is not None:
                # A port may have been taken for a moment while it was down.
                self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
            assert time.monotonic() - began < HANGS, "the broker does not start"
            time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.start()

    def try_ask(self, method, path, body=None, kind="application/json"):
        """Returns status and answer; 0 while the broker is down."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, {"Content-Type": kind})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"{}")
        except (OSError, HTTPException, ValueError):
            return 0, {}
        finally:
            connection.close()

    def ask(self, method, path, body=None):
        """Asks until the broker is up."""
        while True:
            status, answer = self.try_ask(method, path, body and json.dumps(body))
            if status == 200 or status == 201:
                return answer
            assert status in (0, 503), answer
            time.sleep(0.05)


class Run:
    def __init__(self, broker, options):
        self.broker, self.options, self.random = broker, options, random.Random(options.seed)
        self.sessions = options.fragments // PARTS
        self.feeding = threading.Lock()  # the outcome of a store is always known
        self.over = threading.Event()
        self.kills = Counter()
        self.workers = {}
        self.paid, self.wanted = 0, Counter()

    def begin(self, name):
        if name.startswith("s"):
            command = [sys.executable, str(ROOT / "examples/apps/python/sessions.py"), self.broker.server, name]
        else:
            command = [sys.executable, __file__, "bank", self.broker.server, name]
        environment = os.environ | {"PYTHONPATH": str(ROOT / "clients/python"), "PYTHONDONTWRITEBYTECODE": "1"}
        self.workers[name] = subprocess.Popen(command, env=environment, stderr=self.broker.log)

    def store(self, topic, records):
        lines = "\n".join(json.dumps(record, separators=(",", ":")) for record in records)
        with self.feeding:
            status, answer = self.broker.try_ask("POST", f"/v1/topics/{topic}/records?as=record", lines, "application/x-ndjson")
        assert status == 200, (status, answer)

    def feed(self):
        for first in range(0, self.sessions, OPEN):
            numbers = range(first, min(first + OPEN, self.sessions))
            fragments = [fragment(number, part) for part in range(PARTS) for number in numbers if part in parts(number)]
            for at in range(0, len(fragments), PAGE):
                self.store("fragments", fragments[at : at + PAGE])
            self.store("transfers", [self.transfer() for _ in range(max(1, len(fragments) // 100))])

    def transfer(self):
        one, other = self.random.sample(range(ACCOUNTS), 2)
        amount = self.random.randint(1, 9)
        self.paid += 1
        self.wanted[f"a{one}"] -= amount
        self.wanted[f"a{other}"] += amount
        return {"key": f"a{one}", "value": {"to": f"a{other}", "amount": amount}}

    def trouble(self):
        """Kills and stops until the run is over."""
        while not self.over.wait(self.random.uniform(0.5, 1.5) * self.options.every):
            chance = self.random.random()
            if chance < 0.3:
                self.kills["broker"] += 1
                with self.feeding:
                    self.broker.kill()
                continue
            name = self.random.choice(sorted(self.workers))
            if chance < 0.8:
                self.kills["worker"] += 1
                self.workers[name].kill()
                self.workers[name].wait()
                self.begin(name)
            else:
                # It goes on when its tasks are another's.
                self.kills["stopped"] += 1
                self.workers[name].send_signal(signal.SIGSTOP)
                self.over.wait(2.5)
                self.workers[name].send_signal(signal.SIGCONT)

    def drain(self, names):
        """Waits until the apps have done all records."""
        least, since = None, time.monotonic()
        while True:
            lags = [self.broker.ask("GET", f"/v1/apps/{name}")["lag"] for name in names]
            if not any(lags):
                return
            if least is None or sum(lags) < least:
                least, since = sum(lags), time.monotonic()
            assert time.monotonic() - since < HANGS, {name: self.broker.ask("GET", f"/v1/apps/{name}") for name in names}
            time.sleep(0.1)

    def read(self, topic, partitions):
        for partition in range(partitions):
            after = 0
            while True:
                page = self.broker.ask("GET", f"/v1/topics/{topic}/partitions/{partition}/records?from={after}&count=1000&as=json")
                if not page["records"]:
                    break
                yield from page["records"]
                after = page["next"]

    def end_sessions(self):
        """Records of nearly an hour later, one in each partition, let what is open time out."""
        later = (datetime.now(UTC) + timedelta(minutes=55)).isoformat()
        record = {"value": 0, "headers": {"type": "END"}, "timestamp": later}
        self.store("fragments", [record | {"key": f"late{partition}", "partition": partition} for partition in range(PARTITIONS)])

    def play(self):
        for topic, count in [("fragments", PARTITIONS), ("sessions", 2), ("transfers", PARTITIONS), ("deposits", PARTITIONS)]:
            self.broker.ask("PUT", f"/v1/topics/{topic}", {"partitions": count})
        for name in ("s1", "s2", "s3", "b1", "b2"):
            self.begin(name)
        # Each worker declares its app.
        while len(self.broker.ask("GET", "/v1/apps")["items"]) < 2:
            time.sleep(0.05)
        began = time.monotonic()
        troubles = threading.Thread(target=self.trouble, daemon=True)
        troubles.start()
        self.feed()
        self.end_sessions()
        self.drain(["sessions", "bank"])
        while sum(1 for _ in self.read("sessions", 2)) < self.sessions + PARTITIONS:
            # The last ones come by timers.
            assert time.monotonic() - began < 3600, "sessions do not come out"
            time.sleep(0.2)
        while sum(self.kills.values()) < self.options.kills:
            self.store("transfers", [self.transfer()])
            time.sleep(0.05)
        took = time.monotonic() - began
        self.over.set()
        troubles.join()
        self.drain(["sessions", "bank"])
        return took

    def verify(self):
        found = [record for record in self.read("sessions", 2) if record["key"].startswith("s")]
        times = Counter(record["key"] for record in found)
        wrong = {key: times[key] for key in times.keys() | {f"s{number}" for number in range(self.sessions)} if times[key] != 1}
        assert not wrong and len(times) == self.sessions, wrong
        for record in found:
            number = int(record["key"][1:])
            expected = {"parts": parts(number), "timed_out": number % 10 == 9}
            assert record["value"] == expected, (record, expected)
        assert sum(1 for _ in self.read("deposits", PARTITIONS)) == self.paid, "each payment is passed on once"
        balances, after = {}, ""
        while after is not None:
            page = self.broker.ask("GET", "/v1/apps/bank/state/balance?count=1000" + (f"&after={quote(after)}" if after else ""))
            for item in page["items"]:
                assert item["key"] not in balances, item
                balances[item["key"]] = item["value"]
            after = page["next"]
        assert sum(balances.values()) == 0, balances
        assert balances == dict(self.wanted), (balances, self.wanted)

    def end(self):
        for worker in self.workers.values():
            worker.send_signal(signal.SIGCONT)
            # One that was begun a moment ago may not be as far.
            while worker.poll() is None and not catches(worker.pid, signal.SIGTERM):
                time.sleep(0.02)
            worker.terminate()
        for name, worker in self.workers.items():
            assert worker.wait(60) == 0, (name, worker.returncode, "a worker ends by itself when it is asked to")
        self.broker.process.terminate()
        assert self.broker.process.wait(60) == 0

    def drop(self):
        for process in [*self.workers.values(), self.broker.process]:
            process.kill()
            process.wait()


def catches(process, number):
    """Whether the process has a handler for the signal (proc(5): SigCgt)."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    caught = next(line.split()[1] for line in lines if line.startswith("SigCgt:"))
    return int(caught, 16) >> (number - 1) & 1 == 1


def fragment(session, part):
    record = {"key": f"s{session}", "value": part}
    if part == PARTS - 1:
        record["headers"] = {"type": "END"}
    return record


def parts(session):
    """Each tenth session has no last fragment: it ends by silence."""
    return [part for part in range(PARTS) if not (session % 10 == 9 and part == PARTS - 1)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("broker", help="the program stafett")
    parser.add_argument("--fragments", type=int, default=1_000_000)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between two kills, about")
    parser.add_argument("--kills", type=int, default=0, help="least number of them")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="apps-kills-") as folder:
        run = Run(Broker(options.broker, f"{folder}/data"), options)
        try:
            took = run.play()
            run.verify()
            run.end()
        finally:
            run.drop()
    kills = ", ".join(f"{name} {count}" for name, count in sorted(run.kills.items()))
    print(f"{run.sessions:,} sessions and {run.paid:,} payments in {took:.0f} s, each once; killed or stopped: {kills}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["bank"]:
        bank(sys.argv[2]).run(sys.argv[3])
    else:
        main()
