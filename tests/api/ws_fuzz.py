"""Contract fuzzing of `/v1/ws`: commands made of good ones by changes, against a broker of its own.

Each command is answered once, in its turn, with its id: with `ok`, or with an `error` whose code and status the document of the API has,
and that is no failure of the broker but a documented one. Between the answers there may be pushed messages. The connection stays open.

    ws_fuzz.py BROKER [--cases N] [--seed N]

N changed commands for each operation. A failure prints the command.
"""

import argparse
import copy
import json
import pathlib
import random
import sys
import tempfile
import urllib.request

from fuzz import broker, fill, fill_topics
from websockets.sync.client import connect

TIME = 30
# Commands that succeed, with everything that they can have.
GOOD = [
    {"op": "register", "client": "ann"},
    {"op": "send", "to": {"queues": ["orders"]}, "content": {"a": 1}, "priority": 7, "ttl_ms": 60000, "headers": {"a": "b"}},
    {"op": "call", "client": "ann", "content": "ping", "wait": "1ms"},
    {"op": "receive", "queue": "orders", "count": 1, "ack": "lease:30s", "order": "oldest", "wait": "1ms"},
    {"op": "peek", "queue": "orders", "count": 2, "priority_min": 1, "as": "base64"},
    {"op": "pending", "count": 3},
    {"op": "settle", "queue": "orders", "complete": ["0-1-0000000000000000"], "requeue": [], "discard": []},
    {"op": "publish", "exchange": "amq.fanout", "routing_key": "a.b", "content": "x"},
    {"op": "produce", "topic": "orders", "key": "a", "value": {"amount": 12}},
    {"op": "consume", "queue": "orders", "credit": 3, "ack": "settle"},
    {"op": "settle", "consumer": 1, "complete": ["1-0-0"], "requeue": [], "discard": []},
    {"op": "cancel", "consumer": 1},
    {"op": "watch", "what": [{"list": "queues", "query": "count=1"}, {"of": "queues/orders"}], "every_ms": 60000},
    {"op": "unwatch", "watch": 1},
    {"op": "ping"},
]
ODD = [
    None, True, False, 0, -1, 1.5, 2**53, 2**64, -(2**63) - 1, 1e308, "", "a", "\x00", "ü€", "..", "0", "true", "x" * 5000, [], {}, [[]],
    [None], {"a": None}, {"queues": []}, {"queues": ["absent"]}, ["orders"] * 5000, "lease:", "lease:0s", "1h", "orders",
]  # fmt: skip
NAMES = ["", "id", "op", "namespace", "idempotency_key", "wait", "count", "after", "queue", "client", "header.a", "no such field"]
TEXTS = ["", "{", "null", "[]", '"ping"', '{"op": "ping"} {}', '{"id": 1}', '{"op": "none", "id": 2}', '{"op": "ping", "op": "ping"}', "[" * 3000]


def places(value, path=()):
    """All places in a command."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from places(part, (*path, name))


def changed(random, good):
    """A copy of a command with some changes."""
    command = copy.deepcopy(good)
    for _ in range(random.choice([0, 1, 1, 1, 2, 3])):
        path = random.choice([place for place in places(command) if place and place[0] != "op"] or [()])
        if not path or random.random() < 0.2:
            command[random.choice(NAMES[3:])] = copy.deepcopy(random.choice(ODD))
            continue
        holder = command
        for part in path[:-1]:
            holder = holder[part]
        if random.random() < 0.2:
            del holder[path[-1]]
        else:
            holder[path[-1]] = copy.deepcopy(random.choice(ODD))
    return command


class Contract:
    """A connection, and what its answers may be."""

    def __init__(self, address):
        self.address = address
        with urllib.request.urlopen(f"http://{address}/v1/openapi.json") as answer:
            self.problems = json.load(answer)["x-problems"]
        self.number = 0
        self.open()

    def open(self):
        self.socket = connect(f"ws://{self.address}/v1/ws?client=ann", subprotocols=["stafett.v1.json"], max_size=None)

    def send(self, command):
        self.number += 1
        text = json.dumps({**command, "id": self.number})
        self.socket.send(text)
        return text

    def answer(self, text, number):
        """Takes the answer of a command; pushed messages stand between."""
        while True:
            answer = self.receive(text)
            if "consumer" in answer or "watch" in answer:
                continue
            assert answer.get("id") == number, f"{text}: {answer}"
            assert ("ok" in answer) != ("error" in answer), f"{text}: {answer}"
            if error := answer.get("error"):
                self.check(text, error)
            return answer

    def receive(self, text):
        received = self.socket.recv(TIME)
        try:
            return json.loads(received)
        except ValueError as error:
            raise AssertionError(f"{text}: not JSON: {received}") from error

    def check(self, text, error):
        known = self.problems.get(error["code"])
        assert known and known["status"] == error["status"], f"{text}: {error}"
        assert error["status"] < 500 or error["status"] in (503, 504, 507), f"{text}: {error}"
        assert error["detail"], f"{text}: {error}"

    def ask(self, command):
        return self.answer(self.send(command), self.number)


def rounds(contract, cases, seed):
    chance = random.Random(seed)
    for good in GOOD:
        answer = contract.ask(good)
        # There is no such consumer any more when its messages are settled.
        assert "ok" in answer or good["op"] == "settle", f"{good}: {answer}"
    for text in TEXTS:
        contract.socket.send(text)
        answer = contract.receive(text)
        contract.check(text, answer["error"]) if "error" in answer else answer["ok"]
    for good in GOOD:
        for _ in range(cases // 10 or 1):
            # Commands are sent ahead; answers come in their order.
            commands = [changed(chance, good) for _ in range(10)]
            sent = [(contract.send(command), contract.number) for command in commands]
            for text, number in sent:
                contract.answer(text, number)
        # Consumers and watches do not gather.
        contract.socket.close()
        contract.open()
        assert contract.ask({"op": "ping"}).get("ok") is not None, good


def bind(address):
    """Has messages of an exchange lead somewhere."""
    body = json.dumps({"source": "amq.fanout", "to": {"queue": "orders"}}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"http://{address}/v1/bindings", body)) as answer:
        assert answer.status == 201, answer.status


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("broker")
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", default="1")
    given = parser.parse_args()
    program = pathlib.Path(given.broker).resolve()
    with tempfile.TemporaryDirectory() as name:
        with broker(program, pathlib.Path(name)) as addresses:
            fill(addresses["amqp"])
            fill_topics(addresses["http"])
            bind(addresses["http"])
            contract = Contract(addresses["http"])
            rounds(contract, given.cases, given.seed)
            contract.socket.close()
    print(f"ws_fuzz: {contract.number} commands were answered as the document says")
    sys.exit(0)


if __name__ == "__main__":
    main()
