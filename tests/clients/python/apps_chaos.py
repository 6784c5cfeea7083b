"""Sums by key under every kind of trouble: apps_chaos.py HTTP SECONDS. Meanwhile the broker is killed from outside.

Workers stop and come back under their names, go on after their lease, answer revokes or not, repeat commits, cut requests
in half; two have one name. Tasks are split and merged. In the end each record has counted once, in the state, in a topic
and in a queue, and whoever may read the state was never told that it cannot be read."""

import http.client
import json
import random
import socket
import sys
import threading
import time
from collections import Counter
from urllib.parse import quote

HOST, PORT = sys.argv[1].split(":")
SECONDS = float(sys.argv[2])
PARTITIONS, KEYS = 2, 30
APP = "/v1/apps/sums"
stats, said = Counter(), set()
producing, working = threading.Event(), threading.Event()


def ask(method, path, body=None, token=None, timeout=20, kind="application/json"):
    """Returns the status and the answer; 0 while the broker is down."""
    headers = {"Content-Type": kind} | ({"Stafett-Worker": token} if token else {})
    connection = http.client.HTTPConnection(HOST, int(PORT), timeout=timeout)
    try:
        connection.request(method, path, body if body is None or isinstance(body, str) else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"{}")
    except (OSError, http.client.HTTPException, ValueError):
        return 0, {}
    finally:
        connection.close()


def code(status, answer):
    # A broker that starts or stops says so; everything else of a server is a fault.
    word = answer.get("code", str(status))
    if status >= 500 and word != "not_serving":
        said.add(f"{status} {word}: {answer.get('detail')}")
    return word


class Worker:
    # Names that are taken: two workers of one name take the session from each other for as long as they both run.
    names = set()

    def __init__(self, name, seed):
        # The second of a name ends when the app drains: else neither may come to its commits on a busy machine.
        self.ends = producing if name in self.names else working
        self.names.add(name)
        self.name, self.random, self.claims, self.zombie = name, random.Random(seed), {}, 0

    def ask(self, command, body, timeout=20):
        return ask("POST", f"{APP}/workers/{self.name}/{command}", body, self.token, timeout)

    def run(self):
        while not self.ends.is_set():
            self.token = None
            status, joined = self.ask("join", {})
            if status != 200:
                code(status, joined)
                time.sleep(0.1)
                continue
            self.token, self.after = joined["token"], 0
            self.claims = {held["task"]: held["epoch"] for held in joined["resumed"]}
            while not self.ends.is_set() and self.turn():
                if self.random.random() < 0.02:
                    stats["a worker dies"] += 1
                    time.sleep(self.random.choice([0, 2.2]))
                    break

    def turn(self):
        """Takes events, and works on each task. False if the session is over."""
        status, polled = self.ask("poll", {"after": self.after, "wait_ms": 0 if self.claims else 300})
        if status == 0:
            time.sleep(0.1)
            return True
        if status != 200:
            return code(status, polled) == "not_serving"
        for event in polled["events"]:
            self.after = event["number"]
            task, epoch = event["task"], event["epoch"]
            if event["event"] == "claimed":
                self.claims[task] = epoch
            elif self.claims.pop(task, None) and event["event"] == "revoke" and self.random.random() < 0.8:
                self.ask("release", {"task": task, "epoch": epoch})
        return all(self.work(task, epoch) for task, epoch in list(self.claims.items()))

    def work(self, task, epoch):
        of = {"task": task, "epoch": epoch}
        first, _ = begun = self.ask("get", of | {"table": "sum", "keys": []})
        status, fetched = self.ask("fetch", of | {"wait_ms": 50})
        if first != 200 or status != 200:
            return self.refused(task, *begun) and self.refused(task, status, fetched)
        records = fetched["records"][: self.random.randint(1, 20)]
        if not records:
            return True
        keys = sorted({record["key"] for record in records})
        status, known = self.ask("get", of | {"table": "sum", "keys": keys})
        if status != 200:
            return self.refused(task, status, known)
        if known["seq"] != begun[1]["seq"]:
            return True  # another session of the name has committed
        sums = {key: value["value"] if value else [0, 0] for key, value in zip(keys, known["values"], strict=True)}
        for record in records:
            total, count = sums[record["key"]]
            sums[record["key"]] = [total + record["value"], count + 1]
        all_of_it = len(records) == len(fetched["records"])
        places = [f"{task.split('.')[0]}:{record['offset']}" for record in records]
        commit = of | {
            "seq": known["seq"] + 1,
            "next": fetched["next"] if all_of_it else records[-1]["offset"] + 1,
            "put": {"sum": list(sums.items())},
            "emit": [{"topic": "out", "value": place} for place in places] + [{"queue": "results", "value": place} for place in places],
        }
        self.rest()
        while True:
            if self.random.random() < 0.05:
                self.cut_off(commit)
            status, stored = self.ask("commit", commit)
            if status != 0:
                break
            time.sleep(0.1)
        stats["commits" if status == 200 else "commits refused"] += 1
        if status == 200 and self.random.random() < 0.1:
            again, _ = self.ask("commit", commit)
            stats[f"again {again}"] += 1
        return status == 200 or self.refused(task, status, stored)

    def refused(self, task, status, answer):
        word = "" if status in (0, 200) else code(status, answer)
        if word in ("lost_claim", "no_such_task"):
            self.claims.pop(task, None)
        return word not in ("no_such_worker", "taken_over")

    def rest(self):
        """A pause between work and commit, now and then longer than the lease."""
        self.zombie += 1
        if self.random.random() < 0.05:
            time.sleep(self.random.random() * 0.3)
        if self.zombie % 60 == 0:
            stats["zombies"] += 1
            time.sleep(2.5)

    def cut_off(self, commit):
        body = json.dumps(commit)
        head = f"POST {APP}/workers/{self.name}/commit HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        request = f"{head}Stafett-Worker: {self.token}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        try:
            with socket.create_connection((HOST, int(PORT)), 2) as connection:
                connection.sendall(request[: self.random.randint(1, len(request))])
        except OSError:
            pass


def produce():
    chance = random.Random(1)
    while not producing.is_set():
        lines = [json.dumps({"key": f"k{chance.randrange(KEYS)}", "value": chance.randint(1, 9)}) for _ in range(chance.randint(1, 30))]
        ask("POST", "/v1/topics/in/records?as=record", "\n".join(lines), kind="application/x-ndjson")
        time.sleep(0.05)


def cut():
    """Splits and merges tasks."""
    chance = random.Random(2)
    while not producing.is_set():
        time.sleep(chance.random() * 0.6)
        status, shown = ask("GET", APP)
        if status != 200:
            continue
        task = chance.choice([task["task"] for task in shown["tasks"]])
        if "." in task and (chance.random() < 0.5 or len(task) > 4):
            status, answer = ask("POST", f"{APP}/tasks/{task.split('.')[0]}/merge", {})
        else:
            status, answer = ask("POST", f"{APP}/tasks/{task}/split", {"into": chance.choice([2, 4])})
        stats[f"cuts {status}"] += 1
        if status:
            code(status, answer)


def watch():
    """Reads the state from outside."""
    while not working.is_set():
        for path in ("/state/sum/k1", "/state/sum/k2", ""):
            status, answer = ask("GET", APP + path)
            if status >= 400:
                code(status, answer)


def read(topic, partition):
    found, after = [], 0
    while True:
        _, page = ask("GET", f"/v1/topics/{topic}/partitions/{partition}/records?from={after}&count=1000&as=json")
        if not page["records"]:
            return found
        found += page["records"]
        after = page["next"]


def verify():
    wanted, places = {}, set()
    dead = {f"{letter['headers']['stafett-partition']}:{letter['headers']['stafett-offset']}" for letter in read("dead", 0)}
    for partition in range(PARTITIONS):
        for record in read("in", partition):
            place = f"{partition}:{record['offset']}"
            if place not in dead:
                places.add(place)
                total, count = wanted.get((partition, record["key"]), [0, 0])
                wanted[partition, record["key"]] = [total + record["value"], count + 1]
    found, after = {}, ""
    while after is not None:
        _, page = ask("GET", f"{APP}/state/sum?count=1000" + (f"&after={quote(after)}" if after else ""))
        for item in page["items"]:
            key = int(item["task"].split(".")[0]), item["key"]
            assert key not in found, f"{key} is there twice"
            found[key] = item["value"]
        after = page["next"]
    assert found == wanted, {key: (wanted.get(key), found.get(key)) for key in wanted.keys() | found if wanted.get(key) != found.get(key)}
    once = Counter(places)
    out = Counter(record["value"] for record in read("out", 0))
    assert out == once, (out - once, once - out)
    queued = Counter()
    while True:
        _, answer = ask("POST", "/v1/queues/results/receive?count=1000&settled=stored")
        messages = answer.get("messages") or answer.get("items")
        if not messages:
            break
        queued.update(message["content"] for message in messages)
    assert queued == once, (queued - once, once - queued)
    assert not said, said
    print(f"{len(places)} records, {len(dead)} dead letters:", ", ".join(f"{name} {count}" for name, count in sorted(stats.items())))


def main():
    for topic, partitions in [("in", PARTITIONS), ("out", 1), ("dead", 1)]:
        ask("PUT", f"/v1/topics/{topic}", {"partitions": partitions})
    ask("PUT", "/v1/queues/results", {})
    rules = {"topics": ["in"], "tables": {"sum": {}}, "worker_timeout_ms": 2000, "revoke_ms": 1500, "dead_letter": "dead"}
    status, declared = ask("PUT", APP, rules)
    assert status == 201, declared
    print("begun", flush=True)
    workers = [Worker(name, seed) for seed, name in enumerate(["w0", "w1", "w2", "w0"])]
    feeding = [threading.Thread(target=run, daemon=True) for run in (produce, cut)]
    serving = [threading.Thread(target=run, daemon=True) for run in [watch, *(worker.run for worker in workers)]]
    for thread in feeding + serving:
        thread.start()
    time.sleep(SECONDS)
    producing.set()
    for thread in feeding:
        thread.join()
    print("drains", flush=True)
    least, since = None, time.monotonic()
    while True:
        status, shown = ask("GET", APP)
        lag = shown["lag"] if status == 200 else least
        if lag == 0:
            break
        if least is None or lag is not None and lag < least:
            least, since = lag, time.monotonic()
        assert time.monotonic() - since < 60, shown
        time.sleep(0.1)
    working.set()
    for thread in serving:
        thread.join()
    verify()


main()
