#!/usr/bin/env python3
"""Messages received by sender, context or priority out of a queue in which a million wait, and lists of 100,000 queues.

One connection that stays open, one request at a time; each message has 200 bytes. The first request of a kind builds the
index of its header. `--queues` makes as many queues instead, and reads their list in pages of 1,000.
"""

import argparse
import http.client
import json
import random
import time

import common

LINES = 10_000
SENDERS = 100


class Client:
    """A connection that stays open."""

    def __init__(self, address):
        self.connection = http.client.HTTPConnection(address)

    def ask(self, method, path, body=None, headers=None):
        self.connection.request(method, path, body, headers or {})
        response = self.connection.getresponse()
        text = response.read()
        if response.status >= 300:
            raise RuntimeError(f"{method} {path}: {response.status} {text[:500]}")
        return json.loads(text) if text else None


def fill(client, count):
    """Sends the messages: each has a context of its own, and one of a hundred senders and ten priorities."""
    client.ask("PUT", "/v1/queues/q", json.dumps({"priority_max": 9}))
    for sender in range(SENDERS):
        client.ask("PUT", f"/v1/clients/s{sender}")
    content = "x" * 200
    for first in range(0, count, LINES):
        lines = [
            json.dumps({"to": {"queues": ["q"]}, "content": content, "context": number, "priority": number % 10})
            for number in range(first, min(first + LINES, count))
        ]
        sender = f"s{first // LINES % SENDERS}"
        headers = {"Content-Type": "application/x-ndjson", "Stafett-Client": sender}
        client.ask("POST", "/v1/messages", "\n".join(lines), headers)


def timed(client, query):
    start = time.perf_counter()
    found = client.ask("POST", f"/v1/queues/q/receive?{query}")
    return time.perf_counter() - start, len(found["messages"])


def select(broker, count, requests):
    client = Client(broker.http)
    fill(client, count)
    print(f"{count} messages wait, {broker.resident_mib():.0f} MiB resident")
    senders = min(SENDERS, -(-count // LINES))
    contexts = random.sample(range(count), requests + 1)
    kinds = {
        "context": lambda at: f"context={contexts[at]}",
        "sender": lambda at: f"sender=s{at % senders}",
        "priority": lambda at: f"priority={at % 10}",
        "context that is not there": lambda at: f"context={count + at}",
    }
    for kind, query in kinds.items():
        first, _ = timed(client, query(0))
        taken = [timed(client, query(at)) for at in range(1, requests + 1)]
        times = [seconds for seconds, _ in taken]
        found = sum(messages for _, messages in taken)
        print(
            f"by {kind}: first {first:.3f} s; then {found} of {requests} found, p50 {1e3 * common.quantile(times, 0.5):.2f} ms, "
            f"p99 {1e3 * common.quantile(times, 0.99):.2f} ms, most {1e3 * max(times):.2f} ms; {broker.resident_mib():.0f} MiB resident"
        )


def lists(broker, count):
    client = Client(broker.http)
    start = time.perf_counter()
    for number in range(count):
        client.ask("PUT", f"/v1/queues/q{number}")
    print(f"{count} queues are made in {time.perf_counter() - start:.1f} s")
    for sort in ["", "&sort=-name"]:
        times, after = [], ""
        while after is not None:
            start = time.perf_counter()
            page = client.ask("GET", f"/v1/queues?count=1000{sort}{after and '&after=' + after}")
            times.append(time.perf_counter() - start)
            after = page["next"]
        print(f"read in pages of 1,000{sort}: {sum(times):.2f} s; first {1e3 * times[0]:.1f} ms, last {1e3 * times[-1]:.1f} ms")
    for path in ["/v1/queues?count=50", "/v1/queues?count=50&sort=-ready", "/v1/queues?ready=true", "/v1/pending"]:
        times = []
        for _ in range(20):
            start = time.perf_counter()
            client.ask("GET", path)
            times.append(time.perf_counter() - start)
        print(f"{path}: p50 {1e3 * common.quantile(times, 0.5):.2f} ms, most {1e3 * max(times):.2f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--queues", type=int)
    parser.add_argument("--subject", default="stafett-os")
    arguments = parser.parse_args()
    broker = common.Broker(arguments.subject, common.work_folder())
    if arguments.queues:
        lists(broker, arguments.queues)
    else:
        select(broker, arguments.messages, arguments.requests)
    broker.stop()


main()
