#!/usr/bin/env python3
"""Deliveries of live messages to 100,000 subscriptions, with 100 distinct filters and without.

Clients of some connections subscribe to one topic each, and all filters are true: both turns deliver the same. Messages are published
one behind the other, a few ahead of those that have arrived everywhere. The same clients listen with filters and without, in turn.
"""

import argparse
import base64
import json
import os
import selectors
import socket
import statistics
import struct
import time

import common

PAYLOAD = {"station": "Radio 1", "title": "99 Luftballons", "artist": "Nena", "price": 100, "tags": ["pop", "ndw"], "note": "x" * 100}


class Connection:
    """A WebSocket that sends commands, and reads what comes."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        key = base64.b64encode(os.urandom(16)).decode()
        head = f"GET /live HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        self.socket.sendall(f"{head}Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        self.left = b""
        while b"\r\n\r\n" not in self.left:
            self.left += self.socket.recv(65536)
        self.left = self.left.split(b"\r\n\r\n", 1)[1]
        self.sizes = set()

    def send(self, *commands):
        out = bytearray()
        for command in commands:
            text = json.dumps(command, separators=(",", ":")).encode()
            # A mask of zeros leaves the bytes as they are.
            size = struct.pack("!B", 0x80 | len(text)) if len(text) < 126 else struct.pack("!BH", 0xFE, len(text))
            out += b"\x81" + size + b"\0\0\0\0" + text
        self.socket.sendall(out)

    def answers(self, count):
        """The next messages, whole."""
        found = []
        while len(found) < count:
            if len(self.left) >= 2:
                size, begin = self.left[1], 2
                if size == 126 and len(self.left) >= 4:
                    size, begin = struct.unpack_from("!H", self.left, 2)[0], 4
                if size != 126 and len(self.left) >= begin + size:
                    found.append(json.loads(self.left[begin : begin + size]))
                    self.sizes.add(begin + size)
                    self.left = self.left[begin + size :]
                    continue
            more = self.socket.recv(1 << 20)
            assert more, "the broker ended a connection"
            self.left += more
        return found

    def ask(self, commands):
        for begin in range(0, len(commands), 500):
            some = commands[begin : begin + 500]
            self.send(*some)
            for answer in self.answers(len(some)):
                assert answer["result"] == "success", answer


def listen(connections, clients, filters):
    for connection, ids in zip(connections, clients, strict=True):
        more = lambda number: {"filter": f"value.price > {number % filters}"} if filters else {}  # noqa: E731
        connection.ask([{"command": "listen", "client_id": number, "outbox_bytes": 64 << 20, **more(number)} for number in ids])


def turn(connections, publisher, topics, seconds, per_topic, size):
    """Deliveries, and the seconds that they took."""
    selector = selectors.DefaultSelector()
    for connection in connections:
        connection.socket.setblocking(False)
        selector.register(connection.socket, selectors.EVENT_READ)
    command = {"command": "publish", "client_id": "publisher", "payload": PAYLOAD, "timestamp": 1_700_000_000_000}
    sent = arrived = 0
    ahead = max(2, 20_000 // per_topic)
    begun = time.monotonic()
    is_over = False
    while not is_over or arrived < sent * per_topic * size:
        while not is_over and (sent - arrived / (per_topic * size)) < ahead:
            publisher.send({**command, "topic": f"topic-{sent % topics:04}"})
            sent += 1
        for key, _ in selector.select(5) or [(None, None)]:
            assert key, f"{arrived / size} of {sent * per_topic} deliveries came"
            more = key.fileobj.recv(1 << 20)
            assert more, "the broker ended a connection"
            arrived += len(more)
        is_over = time.monotonic() - begun > seconds
    took = time.monotonic() - begun
    for connection in connections:
        selector.unregister(connection.socket)
        connection.socket.setblocking(True)
    assert arrived == sent * per_topic * size, (arrived, sent, per_topic, size)
    return sent * per_topic, took


def main(options):
    broker = common.Broker(f"stafett-{options.durability}", common.work_folder())
    publisher = Connection(broker.http)
    connections = [Connection(broker.http) for _ in range(options.connections)]
    each = options.clients // options.connections
    # Ids of as many digits: all deliveries of a topic have the same size.
    clients = [range(1_000_000 + at * each, 1_000_000 + (at + 1) * each) for at in range(options.connections)]
    for topics in options.topics:
        for connection, ids in zip(connections, clients, strict=True):
            connection.ask([{"command": "unsubscribe", "client_id": number, "all": True} for number in ids])
            connection.ask([{"command": "subscribe", "client_id": number, "topic": f"topic-{number % topics:04}"} for number in ids])
        per_topic = options.clients // topics
        listen(connections, clients, 0)
        first = clients[0][0]
        publisher.send({"command": "publish", "client_id": "publisher", "topic": f"topic-{first % topics:04}", "payload": PAYLOAD, "timestamp": 1_700_000_000_000})
        sizes = set()
        for connection, ids in zip(connections, clients, strict=True):
            count = sum(number % topics == first % topics for number in ids)
            connection.sizes.clear()
            connection.answers(count)
            sizes |= connection.sizes
        assert len(sizes) == 1, sizes
        rates = {0: [], options.filters: []}
        for _ in range(options.runs):
            for filters, found in rates.items():
                listen(connections, clients, filters)
                cpu = broker.cpu_seconds()
                count, took = turn(connections, publisher, topics, options.seconds, per_topic, *sizes)
                cpu = broker.cpu_seconds() - cpu
                found.append((count / took, count / cpu))
                print(f"{topics} topics, {filters} filters: {count / took:,.0f} deliveries/s, {cpu / took:.2f} cores of the broker", flush=True)
        for what, place in (("second", 0), ("second of the broker's processor", 1)):
            ratios = sorted(two[place] / one[place] for one, two in zip(*rates.values(), strict=True))
            middle, ends = statistics.median(ratios), f"{ratios[0]:.0%} to {ratios[-1]:.0%}"
            print(f"{topics} topics of {per_topic} subscriptions: {middle:.0%} ({ends}) of the deliveries without filters in a {what}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=10)
    parser.add_argument("--topics", type=int, nargs="+", default=[1, 100])
    parser.add_argument("--filters", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--durability", default="os")
    given = parser.parse_args()
    if not 0 < given.filters <= PAYLOAD["price"]:
        parser.error(f"--filters is from 1 to {PAYLOAD['price']}: all are true")
    main(given)
