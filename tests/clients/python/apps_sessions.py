"""Fragments of sessions fed, and the sessions counted and compared: apps_sessions.py HTTP create | feed FROM TO | end |
count | verify COUNT | verify-at-least COUNT. Each fourth session has no last fragment: it ends by silence."""

import json
import sys
import urllib.request
from collections import Counter
from datetime import UTC, datetime, timedelta

PARTITIONS, PARTS = 4, 5
BASE = "http://" + sys.argv[1]


def ask(method, path, body=None):
    request = urllib.request.Request(BASE + path, body and body.encode(), {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def store(records):
    ask("POST", "/v1/topics/fragments/records?as=record", json.dumps(records))


def fragment(session, part):
    record = {"key": f"s{session}", "value": part, "partition": session % PARTITIONS}
    if part == PARTS - 1 and session % 4 != 3:
        record["headers"] = {"type": "END"}
    return record


def sessions():
    found, after = [], 0
    while True:
        page = ask("GET", f"/v1/topics/sessions/partitions/0/records?from={after}&count=1000&as=json")
        found += page["records"]
        if not page["records"]:
            return found
        after = found[-1]["offset"] + 1


def parts(session):
    return [part for part in range(PARTS) if not (session % 4 == 3 and part == PARTS - 1)]


match sys.argv[2:]:
    case ["create"]:
        ask("PUT", "/v1/topics/fragments", json.dumps({"partitions": PARTITIONS}))
        ask("PUT", "/v1/topics/sessions", json.dumps({"partitions": 1}))
    case ["feed", first, last]:
        numbers = range(int(first), int(last))
        # Fragments of different sessions stand between each other.
        for part in range(PARTS):
            store([fragment(number, part) for number in numbers if part in parts(number)])
    case ["end"]:
        # Records of nearly an hour later let what is open time out: by the clock that would take half an hour.
        later = datetime.now(UTC) + timedelta(minutes=55)
        record = {"value": 0, "headers": {"type": "END"}, "timestamp": later.isoformat()}
        store([record | {"key": f"late{partition}", "partition": partition} for partition in range(PARTITIONS)])
    case ["count"]:
        print(len({record["key"] for record in sessions() if record["key"].startswith("s")}))
    case ["verify" | "verify-at-least" as how, count]:
        found = [record for record in sessions() if record["key"].startswith("s")]
        times = Counter(record["key"] for record in found)
        once = Counter({f"s{number}": 1 for number in range(int(count))})
        assert times == once if how == "verify" else times.keys() == once.keys(), times
        for record in found:
            number = int(record["key"][1:])
            expected = {"parts": parts(number), "timed_out": number % 4 == 3}
            assert record["value"] == expected, (record, expected)
