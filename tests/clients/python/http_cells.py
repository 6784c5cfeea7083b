"""The HTTP API over several cells: a topic that is spread is written and read through any node, and an app works on it, while
the node of two cells is killed.

Arguments: the addresses of Kafka's protocol and of HTTP, with commas between nodes. Says "ready" and waits for a line once all
cells have records, and goes on to write.
"""

import http.client
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from pathlib import Path

nodes = sys.argv[2].split(",")
PARTITIONS, BATCH, COUNT = 8, 100, 4000
ROOT = Path(__file__).resolve().parents[3]
WORKER = """
import sys
sys.path.insert(0, sys.argv[2])
from stafett import App, Emit, Record, State
app = App("count", topics=["wide"], tables=["seen"], server=sys.argv[1])
@app.record
async def count(record: Record, state: State) -> Emit:
    state["seen"] = state.get("seen", 0) + 1
    return Emit("counted", {"n": record.value["n"], "seen": state["seen"]}, key=record.key)
app.run()
"""


def ask(method, path, body=None, **headers):
    """Asks the nodes in turn until one answers. What is sent may be sent twice: it has a key."""
    headers = {"Content-Type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    end, turn = time.monotonic() + 60, 0
    while True:
        address = "http://" + nodes[turn % len(nodes)]
        turn += 1
        request = urllib.request.Request(address + path, body and body.encode(), headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            text = error.read().decode()
            assert error.code == 503, (method, path, error.code, text)
        except (OSError, http.client.HTTPException) as error:
            text = repr(error)
        assert time.monotonic() < end, (method, path, text)
        time.sleep(0.1)


def refused(method, path, body):
    request = urllib.request.Request(f"http://{nodes[0]}{path}", body.encode(), {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            raise SystemExit(f"{method} {path} is taken: {answer.read()}")
    except urllib.error.HTTPError as error:
        return json.loads(error.read())["detail"]


def write(numbers):
    """Writes records, each request all of it or again."""
    for first in range(numbers.start, numbers.stop, BATCH):
        lines = "\n".join(json.dumps({"k": f"k{n % 100}", "n": n}) for n in range(first, first + BATCH))
        key = {"Idempotency_Key": str(uuid.uuid4())}
        answer = ask("POST", "/v1/topics/wide/records?key_field=k", lines, Content_Type="application/x-ndjson", **key)
        assert (answer["stored"], answer["keyed"]) == (BATCH, BATCH), answer
        written.update(place["partition"] for place in answer["places"])


def read(topic, partitions):
    found = []
    for partition in range(partitions):
        after = 0
        while True:
            page = ask("GET", f"/v1/topics/{topic}/partitions/{partition}/records?from={after}&count=1000&as=json")
            assert page["gap"] is None, page["gap"]
            if not page["records"]:
                break
            found += page["records"]
            after = page["next"]
    return found


def wait_for(what, is_so):
    end = time.monotonic() + 90
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.2)


def lag():
    return ask("GET", "/v1/apps/count")["lag"]


written = Counter()
ask("PUT", "/v1/topics/wide", json.dumps({"partitions": PARTITIONS, "settings": {"spread": True}}))
ask("PUT", "/v1/topics/counted", json.dumps({"partitions": 2}))
ask("PUT", "/v1/apps/count", json.dumps({"topics": ["wide"], "tables": {"seen": {}}}))
assert "several cells" in refused("PUT", "/v1/apps/letters", json.dumps({"topics": ["wide"], "dead_letter": "wide"}))

write(range(COUNT // 2))
assert len(written) == PARTITIONS, written
shown = ask("GET", "/v1/topics/wide/partitions")["items"]
assert [one["state"] for one in shown] == ["ok"] * PARTITIONS, shown
assert sum(one["records"] for one in shown) == COUNT // 2, shown
assert ask("GET", "/v1/topics/wide")["records"] == COUNT // 2
numbers = [record["value"]["n"] for record in read("wide", PARTITIONS)]
assert sorted(numbers) == list(range(COUNT // 2)), len(numbers)
found = ask("GET", "/v1/topics/wide/records?order=newest&count=5")["records"]
assert len(found) == 5, found

# A group, whose ends are in all cells.
offsets = [{"topic": "wide", "partition": partition, "offset": 1} for partition in range(PARTITIONS)]
ask("PUT", "/v1/groups/readers/offsets", json.dumps({"offsets": offsets}))
commits = ask("GET", "/v1/groups/readers")["commits"]
assert sum(one["end"] for one in commits) == COUNT // 2, commits
assert sum(one["lag"] for one in commits) == COUNT // 2 - PARTITIONS, commits

worker = subprocess.Popen([sys.executable, "-c", WORKER, f"http://{nodes[0]}", str(ROOT / "clients/python")])
try:
    wait_for("the app works", lambda: lag() < COUNT // 2)
    print("ready", flush=True)
    sys.stdin.readline()
    write(range(COUNT // 2, COUNT))
    wait_for("the app is done", lambda: lag() == 0)
finally:
    worker.terminate()
    worker.wait()

numbers = [record["value"]["n"] for record in read("wide", PARTITIONS)]
assert sorted(numbers) == list(range(COUNT)), (len(numbers), len(set(numbers)))
counted = [record["value"] for record in read("counted", 2)]
assert sorted(one["n"] for one in counted) == list(range(COUNT)), len(counted)
assert Counter(one["seen"] for one in counted) == Counter({seen: 100 for seen in range(1, COUNT // 100 + 1)})
