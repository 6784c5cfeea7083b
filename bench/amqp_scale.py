#!/usr/bin/env python3
"""AMQP with very many of one thing: bindings of an exchange, queues, messages that wait in one queue.

The frames are laid out before the clock starts, so that the client only sends and reads; it waits for confirms, or for the
answer to a last question. Messages have 100 bytes.
"""

import argparse
import random
import socket
import struct
import threading
import time
import urllib.request

import common

CHANNEL = 1
ACK_BYTES = 21
EXCHANGE = "scale"


def short(text):
    data = text.encode()
    return bytes([len(data)]) + data


def method(class_id, method_id, arguments=b"", channel=CHANNEL):
    payload = struct.pack(">HH", class_id, method_id) + arguments
    return struct.pack(">BHI", 1, channel, len(payload)) + payload + b"\xce"


def declare_queue(name, nowait=True, durable=True, arguments=b""):
    bits = (2 if durable else 0) | (16 if nowait else 0)
    return method(50, 10, struct.pack(">H", 0) + short(name) + bytes([bits]) + struct.pack(">I", len(arguments)) + arguments)


def bind(queue, exchange, key, nowait=True):
    names = short(queue) + short(exchange) + short(key)
    return method(50, 20, struct.pack(">H", 0) + names + bytes([1 if nowait else 0]) + struct.pack(">I", 0))


def publish(exchange, key, body, persistent=False):
    head = method(60, 40, struct.pack(">H", 0) + short(exchange) + short(key) + b"\0")
    properties = struct.pack(">HHQH", 60, 0, len(body), 0x1000) + bytes([2 if persistent else 1])
    header = struct.pack(">BHI", 2, CHANNEL, len(properties)) + properties + b"\xce"
    return head + header + struct.pack(">BHI", 3, CHANNEL, len(body)) + body + b"\xce"


class Connection:
    """One connection with one channel that confirms."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.input = self.socket.makefile("rb", buffering=1 << 20)
        self.socket.sendall(b"AMQP\0\0\x09\x01")
        self.expect(10, 10)
        login = struct.pack(">I", 0) + short("PLAIN") + struct.pack(">I", 12) + b"\0guest\0guest" + short("en_US")
        self.socket.sendall(method(10, 11, login, channel=0))
        self.expect(10, 30)
        self.socket.sendall(method(10, 31, struct.pack(">HIH", 2047, 131072, 0), channel=0))
        self.ask(method(10, 40, short("/") + b"\0\0", channel=0), 10, 41)
        self.ask(method(20, 10, short("")), 20, 11)
        self.ask(method(85, 10, b"\0"), 85, 11)
        self.tag = 0

    def expect(self, class_id, method_id):
        kind, _, size = struct.unpack(">BHI", self.input.read(7))
        payload = self.input.read(size + 1)
        got = struct.unpack(">HH", payload[:4])
        if kind != 1 or got != (class_id, method_id):
            raise SystemExit(f"expected {class_id}.{method_id}, got {got}: {payload[4:200]!r}")

    def ask(self, frames, class_id, method_id):
        self.socket.sendall(frames)
        self.expect(class_id, method_id)

    def do(self, frames):
        """Sends methods that are not answered, and waits until they are done."""
        self.ask(frames + method(60, 10, struct.pack(">IHB", 0, 0, 0)), 60, 11)

    def publish(self, frames, count, rounds):
        """Sends what was laid out so many times; the seconds until the last is confirmed."""
        begun = time.monotonic()
        sender = threading.Thread(target=lambda: [self.socket.sendall(frames) for _ in range(rounds)], daemon=True)
        sender.start()
        last = self.tag + count * rounds
        while self.tag < last:
            kind, _, size, class_id, method_id, tag = struct.unpack(">BHIHHQ", self.input.read(ACK_BYTES)[:19])
            if (kind, class_id, method_id) != (1, 60, 80):
                raise SystemExit(f"expected a confirm, got {class_id}.{method_id} (frame {kind}, {size} bytes)")
            self.tag = max(self.tag, tag)
        sender.join()
        return time.monotonic() - begun


def rate(count, seconds):
    return f"{count / seconds:,.0f}/s"


def started(options):
    return common.Broker(f"stafett-{options.durability}", common.work_folder())


def restart(broker):
    stopped = broker.stop()
    begun = time.monotonic()
    broker.start()
    ready = time.monotonic() - begun
    Connection(broker.amqp)
    print(f"stopped in {stopped:.2f} s, ready {ready:.2f} s after the start, {broker.resident_mib():.0f} MiB then", flush=True)


def bindings(options):
    """A topic exchange bound to ten queues: with ten bindings, and with many."""
    broker = started(options)
    connection = Connection(broker.amqp)
    queues = [f"q{number}" for number in range(10)]
    declared = method(40, 10, struct.pack(">H", 0) + short(EXCHANGE) + short("topic") + b"\x12" + struct.pack(">I", 0))
    connection.do(declared + b"".join(declare_queue(name) for name in queues))
    before = broker.resident_mib()
    count, bound = 100_000, 0
    body = b"x" * 100
    for want in (10, options.count):
        frames = b"".join(bind(queues[n % 10], EXCHANGE, f"station.{n:07}.*") for n in range(bound, want))
        begun = time.monotonic()
        connection.do(frames)
        seconds = time.monotonic() - begun
        print(f"{want - bound:,} bindings more: {rate(want - bound, seconds)}, {broker.resident_mib() - before:.0f} MiB in all", flush=True)
        bound = want
        ways = random.Random(1)
        frames = b"".join(publish(EXCHANGE, f"station.{ways.randrange(bound):07}.song", body) for _ in range(count))
        connection.publish(frames, count, 2)
        cpu = broker.cpu_seconds()
        seconds = connection.publish(frames, count, options.rounds)
        cpu = (broker.cpu_seconds() - cpu) * 1e6 / (count * options.rounds)
        print(f"published with {bound:,} bindings: {rate(count * options.rounds, seconds)}, {cpu:.2f} broker CPU-s per million", flush=True)
        connection.do(b"".join(method(50, 30, struct.pack(">H", 0) + short(name) + b"\1") for name in queues))
    restart(broker)
    connection = Connection(broker.amqp)
    begun = time.monotonic()
    connection.do(method(40, 20, struct.pack(">H", 0) + short(EXCHANGE) + b"\2"))
    print(f"exchange deleted in {time.monotonic() - begun:.2f} s", flush=True)
    broker.stop()


def queues(options):
    """Durable queues, declared by one connection that does not wait for each."""
    broker = started(options)
    connection = Connection(broker.amqp)
    before = broker.resident_mib()
    frames = b"".join(declare_queue(f"queue-{n:07}") for n in range(options.count))
    begun = time.monotonic()
    connection.do(frames)
    seconds = time.monotonic() - begun
    grown = broker.resident_mib() - before
    print(f"{options.count:,} queues declared: {rate(options.count, seconds)}, {grown:.0f} MiB more, {broker.open_files()} open files", flush=True)
    body = b"x" * 100
    frames = b"".join(publish("", f"queue-{n:07}", body, persistent=True) for n in range(options.count))
    seconds = connection.publish(frames, options.count, 1)
    print(f"a persistent message to each: {rate(options.count, seconds)}, {broker.resident_mib():.0f} MiB in all", flush=True)
    restart(broker)
    broker.stop()


def counted(options):
    """Counters, histories and pages of many queues, of which a part changes all the time."""
    warm = min(options.warm, options.count)
    memory = {}
    for history_bytes in ("0", "64MiB"):
        broker = common.Broker(
            f"stafett-{options.durability}", common.work_folder(), ["--set", f"history.bytes_max={history_bytes}"]
        )
        connection = Connection(broker.amqp)
        connection.do(b"".join(declare_queue(f"queue-{n:07}") for n in range(options.count)))
        body = b"x" * 100
        frames = b"".join(publish("", f"queue-{n:07}", body) for n in range(warm))
        connection.publish(frames, warm, 1)
        time.sleep(11)
        memory[history_bytes] = broker.resident_mib()
        if history_bytes == "0":
            broker.stop()
    print(f"{warm:,} of {options.count:,} queues warm: histories take {memory['64MiB'] - memory['0']:.0f} MiB", flush=True)
    sender = threading.Thread(target=lambda: connection.publish(frames, warm, options.rounds), daemon=True)
    sender.start()
    time.sleep(6)
    for sort in ("name", "-ready", "-published_rate", "-delivered_rate"):
        seconds = []
        for _ in range(20):
            begun = time.monotonic()
            with urllib.request.urlopen(f"http://{broker.http}/v1/queues?count=100&sort={sort}") as answer:
                answer.read()
            seconds.append(time.monotonic() - begun)
        print(
            f"a page of 100 of {options.count:,} queues by {sort}: "
            f"median {common.quantile(seconds, 0.5) * 1000:.1f} ms, best {min(seconds) * 1000:.1f} ms",
            flush=True,
        )
    broker.kill()


def waiting(options):
    """Messages that nobody takes, in one queue: the rate into it as it fills."""
    broker = started(options)
    connection = Connection(broker.amqp)
    connection.do(declare_queue("waiting"))
    count = 100_000
    frames = b"".join(publish("", "waiting", b"x" * 100, persistent=not options.transient) for _ in range(count))
    connection.publish(frames, count, 5)
    connection.do(method(50, 30, struct.pack(">H", 0) + short("waiting") + b"\1"))
    steps = 10
    for step in range(1, steps + 1):
        rounds = options.count // steps // count
        seconds = connection.publish(frames, count, rounds)
        print(f"{rounds * count * step:,} waiting: {rate(count * rounds, seconds)}, {broker.resident_mib():.0f} MiB", flush=True)
    restart(broker)
    broker.kill()
    begun = time.monotonic()
    broker.start()
    print(f"ready {time.monotonic() - begun:.2f} s after a kill", flush=True)
    broker.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["bindings", "queues", "counted", "waiting"])
    parser.add_argument("--count", type=int, help="how many of it (100,000; 10,000,000 messages)")
    parser.add_argument("--durability", default="os", help="of the broker (os)")
    parser.add_argument("--rounds", type=int, default=20, help="times 100,000 messages, for bindings (20)")
    parser.add_argument("--warm", type=int, default=8_000, help="queues that are used, for counted (8,000)")
    parser.add_argument("--transient", action="store_true", help="messages that wait are transient")
    options = parser.parse_args()
    options.count = options.count or {"waiting": 10_000_000}.get(options.what, 100_000)
    print(f"stafett, durability {options.durability}", flush=True)
    {"bindings": bindings, "queues": queues, "counted": counted, "waiting": waiting}[options.what](options)


if __name__ == "__main__":
    main()
