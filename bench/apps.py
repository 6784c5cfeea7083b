#!/usr/bin/env python3
"""Apps: take-over, balance, latency of state, and the rate of the Python library.

    takeover   four workers share 288 tasks and some state, with a time-out of 2 s; one is killed: the time until the
               others have its tasks
    balance    20 workers and 288 tasks: the time until shares are even after one more joins, and after it leaves
    latency    one worker: commits of one key, one at a time, and gets of keys that are not in memory
    rate       running totals by one process of the Python library
    keys       an app with ten million keys: memory of the broker beside that before, and the time of a take-over
    move       a task with 10 MB of state goes from one process to another: the time without results

Everything is at durability `sync`, over HTTP, against one broker that is started for it (--binary).
"""

import argparse
import asyncio
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "clients/python"))

from stafett import App, Emit, Record, Refused, State  # noqa: E402
from stafett.http import Client  # noqa: E402

TASKS = 288


class Broker:
    def __init__(self, binary):
        self.folder = tempfile.TemporaryDirectory(prefix="bench-apps-")
        ports = [free_port() for _ in range(3)]
        self.http = f"http://127.0.0.1:{ports[0]}"
        listeners = [f"--http=127.0.0.1:{ports[0]}", f"--kafka=127.0.0.1:{ports[1]}", f"--amqp=127.0.0.1:{ports[2]}"]
        command = [binary, "serve", "--data-dir", self.folder.name, *listeners]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    async def ready(self):
        client = Client(self.http)
        while True:
            try:
                return await client.ask("GET", "/v1/apps")
            except (OSError, Refused):
                await asyncio.sleep(0.05)

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def topics(client, **partitions):
    for name, count in partitions.items():
        await client.ask("PUT", f"/v1/topics/{name}", {"partitions": count})


async def store(client, topic, records):
    for at in range(0, len(records), 5000):
        await client.ask("POST", f"/v1/topics/{topic}/records?as=record", records[at : at + 5000])


class Worker:
    """A worker that takes events, and gives tasks back when it is asked to."""

    def __init__(self, server, app, name):
        self.client, self.path = Client(server), f"/v1/apps/{app}/workers/{name}/"
        self.claims = {}

    async def ask(self, command, **body):
        return await self.client.ask("POST", self.path + command, body, self.headers)

    async def join(self):
        joined = await self.client.ask("POST", self.path + "join", {})
        self.headers = {"Stafett-Worker": joined["token"]}
        self.polling = asyncio.create_task(self.poll())

    async def poll(self):
        after = 0
        while True:
            for event in (await self.ask("poll", after=after, wait_ms=5000, events_max=1000))["events"]:
                after = event["number"]
                if event["event"] == "claimed":
                    self.claims[event["task"]] = event["epoch"]
                else:
                    self.claims.pop(event["task"], None)
                    if event["event"] == "revoke":
                        await self.ask("release", task=event["task"], epoch=event["epoch"])

    async def leave(self):
        self.polling.cancel()
        await self.ask("leave")
        self.claims.clear()


async def until(is_so, limit=120.0):
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() - began < limit, "it does not become so"
        await asyncio.sleep(0.005)
    return time.monotonic() - began


async def balance(broker, options):
    client = Client(broker.http)
    await topics(client, parts=TASKS)
    await client.ask("PUT", "/v1/apps/balanced", {"topics": ["parts"]})
    workers = [Worker(broker.http, "balanced", f"w-{number}") for number in range(20)]
    for worker in workers:
        await worker.join()

    def is_even(workers):
        counts = [len(worker.claims) for worker in workers]
        return sum(counts) == TASKS and max(counts) - min(counts) <= 1

    await until(lambda: is_even(workers))
    joins, leaves = [], []
    for number in range(options.runs):
        new = Worker(broker.http, "balanced", f"new-{number}")
        began = time.monotonic()
        await new.join()
        await until(lambda: is_even([*workers, new]))
        joins.append(time.monotonic() - began)
        began = time.monotonic()
        await new.leave()
        await until(lambda: is_even(workers))
        leaves.append(time.monotonic() - began)
    for worker in workers:
        await worker.leave()
    print(f"balance after a join {statistics.median(joins):.3f} s, after a leave {statistics.median(leaves):.3f} s")


async def latency(broker, options):
    client = Client(broker.http)
    await topics(client, single=1)
    await client.ask("PUT", "/v1/apps/latency", {"topics": ["single"], "tables": {"t": {}}})
    worker = Worker(broker.http, "latency", "w")
    await worker.join()
    await until(lambda: worker.claims)
    seq, count = 0, options.keys
    for at in range(0, count, 2000):
        seq += 1
        put = {"t": [[f"k{key}", "x" * 100] for key in range(at, at + 2000)]}
        await worker.ask("commit", task="0", epoch=1, seq=seq, put=put)

    async def timed(ask):
        times = []
        for _ in range(options.requests):
            began = time.perf_counter()
            await ask()
            times.append((time.perf_counter() - began) * 1000)
        times.sort()
        return times[len(times) // 2], times[len(times) * 99 // 100]

    async def get():
        key = f"k{random.randrange(count)}"
        await worker.ask("get", task="0", epoch=1, table="t", keys=[key])

    async def commit():
        nonlocal seq
        seq += 1
        key = f"k{random.randrange(count)}"
        await worker.ask("commit", task="0", epoch=1, seq=seq, put={"t": [[key, "y" * 100]]})

    async def nothing():
        await worker.ask("beat")

    for name, ask in [("beat", nothing), ("get", get), ("commit of one key", commit)]:
        half, most = await timed(ask)
        print(f"{name}: p50 {half:.3f} ms, p99 {most:.3f} ms, of {options.requests}, {count} keys")
    await worker.leave()


def totals(server):
    app = App("totals", topics=["orders"], tables=["sums"], server=server)

    @app.record
    async def add(record: Record, state: State) -> Emit:
        total = state.get("sums", 0) + record.value
        state["sums"] = total
        return Emit("totals", total, key=record.key)

    return app


def resident_mb(broker):
    for line in Path(f"/proc/{broker.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1000
    return 0.0


async def keys(broker, options):
    """Commits of 50,000 keys each, by turns to eight tasks. The same keys again and again come before, so that memory for
    requests and recent appends is not counted."""
    tasks, each = 8, 50_000
    client = Client(broker.http)
    await topics(client, many=tasks)
    await client.ask("PUT", "/v1/apps/keys", {"topics": ["many"], "tables": {"t": {}}})
    worker = Worker(broker.http, "keys", "w")
    await worker.join()
    await until(lambda: len(worker.claims) == tasks)
    count, warm = options.many_keys // each, 3 * tasks
    for at in range(count + warm):
        if at == warm:
            await asyncio.sleep(5)
            before = resident_mb(broker)
        task = str(at % tasks)
        first = max(at - warm, 0) * each
        put = {"t": [[f"key-{first + number:09}", number] for number in range(each)]}
        await worker.ask("commit", task=task, epoch=worker.claims[task], seq=at // tasks + 1, put=put)
    await asyncio.sleep(5)
    after = resident_mb(broker)
    shown = await client.ask("GET", "/v1/apps/keys")
    entries = sum(task["position"]["entries"] for task in shown["tasks"])
    print(f"{entries:,} keys: {after - before:.0f} MB more than the {before:.0f} MB before, {after:.0f} MB in all")
    other = Worker(broker.http, "keys", "other")
    await other.join()
    began = time.monotonic()
    await worker.leave()
    await until(lambda: len(other.claims) == tasks)
    print(f"all of it handed over in {time.monotonic() - began:.3f} s; {resident_mb(broker):.0f} MB in all")
    await other.leave()


def mover(server, eager="eager"):
    app = App("moved", topics=["ticks"], tables=["blobs"], server=server, eager=eager == "eager")

    @app.record
    async def keep(record: Record, state: State) -> Emit | None:
        if record.key.startswith("blob"):
            state["blobs"] = "x" * record.value
            return None
        state["blobs"] = record.value
        return Emit("ticked", record.value, key=record.key)

    return app


async def move(broker, options):
    """A pin moves the task to and fro, while a record comes each 5 ms."""
    client = Client(broker.http)
    await topics(client, ticks=1, ticked=1)
    await store(client, "ticks", [{"key": f"blob{number}", "value": 10_000} for number in range(options.moved_mb * 100)])
    await client.ask("PUT", "/v1/apps/moved", mover(broker.http).definition)
    workers = {name: subprocess.Popen([sys.executable, __file__, "move", broker.http, name, options.state]) for name in ("one", "two")}
    seen, over = [], asyncio.Event()

    async def feed():
        number = 0
        while not over.is_set():
            number += 1
            await store(client, "ticks", [{"key": f"k{number % 10}", "value": number}])
            await asyncio.sleep(0.005)

    async def watch():
        reader, after = Client(broker.http), 0
        while not over.is_set():
            path = f"/v1/topics/ticked/partitions/0/records?from={after}&count=1000&as=json"
            page = await reader.ask("GET", path)
            after = page["next"]
            seen.extend([time.monotonic()] * len(page["records"]))
            await asyncio.sleep(0.002)

    try:
        while await lag(client, "moved") > 0:
            await asyncio.sleep(0.2)
        running = [asyncio.create_task(feed()), asyncio.create_task(watch())]
        await until(lambda: len(seen) > 100)
        gaps, usual = [], []
        for at in range(options.runs * 2):
            began = time.monotonic()
            await client.ask("PUT", "/v1/apps/moved/tasks/0/worker", {"worker": ("one", "two")[at % 2]})
            await asyncio.sleep(1.5)
            times = [moment for moment in seen if moment > began - 0.05]
            steps = sorted(after - before for before, after in zip(times, times[1:], strict=False))
            # The first pin may name the worker that has the task.
            if at > 0:
                gaps.append(steps[-1])
                usual.append(steps[len(steps) * 99 // 100])
        over.set()
        await asyncio.gather(*running)
        shown = (await client.ask("GET", "/v1/apps/moved"))["tasks"][0]
        size, moves = shown["position"]["bytes"] / 1e6, shown["moves"]
        print(f"{moves} moves of a task with {size:.0f} MB: {statistics.median(gaps) * 1000:.0f} ms without results, {max(gaps) * 1000:.0f} at most;"
              f" p99 between two results {statistics.median(usual) * 1000:.0f} ms")  # fmt: skip
    finally:
        for worker in workers.values():
            worker.kill()
            worker.wait()


async def lag(client, app):
    return (await client.ask("GET", f"/v1/apps/{app}"))["lag"]


async def rate(broker, options):
    client = Client(broker.http)
    await topics(client, orders=4, totals=1)
    records = [{"key": f"k{random.randrange(10_000)}", "value": 1} for _ in range(options.records)]
    await store(client, "orders", records)
    app, stop = totals(broker.http), asyncio.Event()
    await client.ask("PUT", "/v1/apps/totals", app.definition)
    began = time.monotonic()
    worker = subprocess.Popen([sys.executable, __file__, "work", broker.http])
    while await lag(client, "totals") > 0:
        await asyncio.sleep(0.05)
    took = time.monotonic() - began
    worker.terminate()
    worker.wait()
    stop.set()
    print(f"totals by one process: {options.records / took:,.0f} records/s, with its start")


def holder(server):
    app = App("held", topics=["fills"], tables=["blobs"], server=server, worker_timeout_ms=2000)

    @app.record
    async def keep(record: Record, state: State) -> None:
        state["blobs"] = "x" * record.value

    return app


async def takeover(broker, options):
    client = Client(broker.http)
    await topics(client, fills=TASKS)
    size = options.state_mb * 1_000_000 // 100_000
    await store(client, "fills", [{"key": f"k{key}", "value": size} for key in range(100_000)])
    await client.ask("PUT", "/v1/apps/held", holder(broker.http).definition)
    workers = {f"w-{number}": subprocess.Popen([sys.executable, __file__, "hold", broker.http, f"w-{number}"]) for number in range(4)}
    try:
        while await lag(client, "held") > 0:
            await asyncio.sleep(0.2)

        async def shares():
            shown = await client.ask("GET", "/v1/apps/held")
            held = [task["worker"] for task in shown["tasks"] if task["state"] == "held"]
            return {name: held.count(name) for name in workers}, sum(task["position"]["bytes"] or 0 for task in shown["tasks"])

        while set((await shares())[0].values()) != {TASKS // 4}:
            await asyncio.sleep(0.1)
        _, state = await shares()
        took = []
        for victim in list(workers)[:1]:
            workers[victim].send_signal(signal.SIGKILL)
            began = time.monotonic()
            while True:
                counts, _ = await shares()
                if counts[victim] == 0 and sum(counts.values()) == TASKS:
                    break
                await asyncio.sleep(0.02)
            took.append(time.monotonic() - began)
        print(f"take-over of {TASKS // 4} of {TASKS} tasks, {state / 1e6:.0f} MB of state in all: {took[0]:.2f} s, time-out 2 s")
    finally:
        for worker in workers.values():
            worker.kill()
            worker.wait()


async def main(options):
    broker = Broker(options.binary)
    try:
        await broker.ready()
        for name in options.what or ["balance", "latency", "rate", "keys", "move", "takeover"]:
            await globals()[name](broker, options)
    finally:
        broker.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        totals(sys.argv[2]).run("w")
    elif sys.argv[1:2] == ["move"]:
        mover(sys.argv[2], sys.argv[4]).run(sys.argv[3])
    elif sys.argv[1:2] == ["hold"]:
        holder(sys.argv[2]).run(sys.argv[3])
    else:
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("what", nargs="*", choices=["balance", "latency", "rate", "keys", "move", "takeover", []], default=[])
        parser.add_argument("--binary", default=str(ROOT / "target/release/stafett"))
        parser.add_argument("--runs", type=int, default=5)
        parser.add_argument("--keys", type=int, default=200_000)
        parser.add_argument("--requests", type=int, default=3000)
        parser.add_argument("--records", type=int, default=200_000)
        parser.add_argument("--many-keys", type=int, default=10_000_000)
        parser.add_argument("--moved-mb", type=int, default=10)
        parser.add_argument("--state", choices=["eager", "lazy"], default="eager", help="of the workers of a move")
        parser.add_argument("--state-mb", type=int, default=100)
        asyncio.run(main(parser.parse_args()))
