#!/usr/bin/env python3
"""Users and rules at a size, and logins by the thousand.

    restart   users with both verifiers of SCRAM and rules, made by Kafka's requests in batches; memory and the time until
              the broker is ready, after a clean stop and after a kill, beside a broker without any
    hot       processor time of the broker per request of a user with two rules, with many, and without a login: the same
              bytes over one connection each, in short turns, the least of which is without other work of the machine
    logins    logins offered each second on connections of their own beside a producer: its rate, the broker's CPU per
              login, and how many were let in
"""

import argparse
import asyncio
import base64
import hashlib
import hmac
import os
import secrets
import socket
import statistics
import struct
import subprocess
import time
from itertools import islice

import common

SCRAM_UPSERT, CREATE_ACLS, PRODUCE, FETCH, METADATA, HANDSHAKE, AUTHENTICATE = 51, 30, 0, 1, 3, 17, 36
HASHES = {1: ("sha256", 32), 2: ("sha512", 64)}
ITERATIONS = 8192
TOPIC, READ, WRITE, ALLOW, LITERAL, PREFIXED = 2, 3, 4, 3, 3, 4
BATCH = 2000
SALT = b"a salt of 16 byt"


def number(value):
    """An unsigned varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def compact(data):
    data = data.encode() if isinstance(data, str) else data
    return number(len(data) + 1) + data


def batched(items, count):
    items = iter(items)
    while some := list(islice(items, count)):
        yield some


def many(items):
    return number(len(items) + 1) + b"".join(items)


def text(value):
    return struct.pack(">h", len(value)) + value.encode()


def frame(api, version, body, flexible):
    header = struct.pack(">hhi", api, version, 7) + text("bench") + (b"\0" if flexible else b"")
    return struct.pack(">i", len(header) + len(body)) + header + body


class Wire:
    """A connection that waits for each answer."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request):
        self.socket.sendall(request)
        return self.take(struct.unpack(">i", self.take(4))[0])

    def take(self, count):
        data = bytearray()
        while len(data) < count:
            some = self.socket.recv(count - len(data))
            if not some:
                raise ConnectionError("the broker closed the connection")
            data += some
        return bytes(data)

    def login(self, user, password):
        self.ask(frame(HANDSHAKE, 1, text("PLAIN"), False))
        proof = f"\0{user}\0{password}".encode()
        answer = self.ask(frame(AUTHENTICATE, 1, struct.pack(">i", len(proof)) + proof, False))
        assert answer[4:6] == b"\0\0", answer


def salted(name, digest):
    """Stands for the salted password of a user: what a password costs to salt is not the broker's."""
    return hashlib.new(digest, name.encode()).digest()


def make_users(wire, names):
    for some in batched(names, BATCH // 2):
        upserts = []
        for name in some:
            for mechanism, (digest, _) in HASHES.items():
                key = salted(name, digest)
                upserts.append(compact(name) + struct.pack(">bi", mechanism, ITERATIONS) + compact(SALT) + compact(key) + b"\0")
        wire.ask(frame(SCRAM_UPSERT, 0, number(1) + many(upserts) + b"\0", True))


def make_rules(wire, rules):
    """Rules from (user, form, name)."""
    for some in batched(rules, BATCH):
        acls = [
            struct.pack(">b", TOPIC) + compact(name) + struct.pack(">b", form) + compact(f"User:{user}") + compact("*")
            + struct.pack(">bb", (READ, WRITE)[at % 2], ALLOW) + b"\0"
            for at, (user, form, name) in enumerate(some)
        ]  # fmt: skip
        answer = wire.ask(frame(CREATE_ACLS, 2, many(acls) + b"\0", True))
        # Correlation, tags, throttle time; then each result: an error, no message, no tags.
        expected = number(len(some) + 1) + bytes(4) * len(some) + b"\0"
        assert answer[9:] == expected, answer[:200]


def rules_of(user, count, about):
    for rule in range(count):
        yield user, (LITERAL, PREFIXED)[rule % 2], f"{about}-orders-{rule}"


def restart(arguments, folder):
    broker = common.Broker("stafett-sync", folder / "filled", ["--log-level", "warn"])
    wire = Wire(broker.address)
    names = [f"user-{number}" for number in range(arguments.users)]
    each = arguments.rules // max(arguments.users, 1)
    start = time.monotonic()
    make_users(wire, names)
    users_in = time.monotonic() - start
    make_rules(wire, (rule for name in names for rule in rules_of(name, each, f"department-of-{name}")))
    print(f"{len(names):,} users in {users_in:.1f} s, {len(names) * each:,} rules in {time.monotonic() - start - users_in:.1f} s (sync)")
    show("made", broker, None)
    empty = common.Broker("stafett-sync", folder / "empty", ["--log-level", "warn"])
    for how in ("stop", "kill") * arguments.runs:
        for what, one in (("empty", empty), ("filled", broker)):
            getattr(one, how)()
            start = time.monotonic()
            one.start()
            show(f"{what}, after a {how}", one, time.monotonic() - start)


def show(what, broker, seconds):
    ready = "" if seconds is None else f"ready in {seconds:.2f} s, "
    print(f"{what}: {ready}resident {broker.resident_mib():.0f} MiB, at most {broker.status_kib('VmHWM') / 1024:.0f} MiB", flush=True)


def crc_row(value):
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


CRC = [crc_row(value) for value in range(256)]


def crc32c(data):
    crc = 0xFFFFFFFF
    for value in data:
        crc = CRC[(crc ^ value) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def zigzag(value):
    return number(value << 1 if value >= 0 else (-value << 1) - 1)


def batch(count, size):
    records = b""
    for at in range(count):
        record = b"\0" + zigzag(0) + zigzag(at) + zigzag(-1) + zigzag(size) + bytes(size) + zigzag(0)
        records += zigzag(len(record)) + record
    body = struct.pack(">hiqqqhii", 0, count - 1, 0, 0, -1, -1, -1, count) + records
    return struct.pack(">qiibI", 0, len(body) + 9, -1, 2, crc32c(body)) + body


def produce_request(topic, records):
    partition = struct.pack(">ii", 0, len(records)) + records
    body = struct.pack(">hhi", -1, -1, 30_000) + struct.pack(">i", 1) + text(topic) + struct.pack(">i", 1) + partition
    return frame(PRODUCE, 7, body, False)


def fetch_request(topic):
    partition = struct.pack(">iqi", 0, 0, 4096)
    body = struct.pack(">iiiib", -1, 0, 1, 1 << 20, 0) + struct.pack(">i", 1) + text(topic) + struct.pack(">i", 1) + partition
    return frame(FETCH, 4, body, False)


def create(wire, topic):
    """Asking for a topic makes it."""
    body = struct.pack(">i", 1) + text(topic) + b"\1"
    for _ in range(100):
        answer = wire.ask(frame(METADATA, 4, body, False))
        if topic.encode() in answer and struct.pack(">h", 0) + text(topic) in answer:
            return
        time.sleep(0.05)
    raise RuntimeError(f"{topic} was not made")


def cpu_us(broker):
    """Time of all threads on processors."""
    tasks = (broker.proc / "task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1000


def closed(folder, rules):
    """A broker with an administrator, and the user `bench` with some rules; an open one without rules."""
    broker = common.Broker("stafett-os", folder, ["--log-level", "warn"])
    if rules is None:
        wire = Wire(broker.address)
        create(wire, "load")
        return broker, wire
    wire = Wire(broker.address)
    create(wire, "load")

    def add(*user):
        command = [str(common.stafett_binary()), "user", "add", *user, "--http", broker.http]
        subprocess.run(command, input="secret", text=True, check=True, stdout=subprocess.DEVNULL)

    add("bench")
    make_rules(wire, [("bench", LITERAL, "load"), ("bench", PREFIXED, "load"), *rules_of("bench", rules, "other")])
    add("root", "--tag", "superuser")
    wire = Wire(broker.address)
    wire.login("bench", "secret")
    return broker, wire


def hot(arguments, folder):
    subjects = {
        "no login": closed(folder / "open", None),
        "2 rules": closed(folder / "few", 0),
        f"{arguments.hot_rules:,} rules": closed(folder / "many", arguments.hot_rules),
    }
    loads = {
        "produce of 1 record": (produce_request("load", batch(1, 100)), 1000),
        "produce of 64 KiB": (produce_request("load", batch(590, 100)), 300),
        "fetch of 1 batch": (fetch_request("load"), 1000),
    }
    for load, (request, count) in loads.items():
        found = {name: [] for name in subjects}
        for run in range(10 * arguments.runs + 1):
            for name in sorted(subjects, key=lambda name: (list(subjects).index(name) + run) % len(subjects)):
                broker, wire = subjects[name]
                before = cpu_us(broker)
                for _ in range(count):
                    wire.ask(request)
                # The first run warms up.
                if run:
                    found[name].append((cpu_us(broker) - before) / count)
        base, typical = min(found["2 rules"]), statistics.median(found["2 rules"])
        for name, each in found.items():
            least, median = min(each), statistics.median(each)
            print(f"{load}, {name}: {least:.2f} us of CPU each at least ({least / base - 1:+.2%}), median {median:.2f} ({median / typical - 1:+.2%})", flush=True)


async def exchange(reader, writer, request):
    writer.write(request)
    size = struct.unpack(">i", await reader.readexactly(4))[0]
    return await reader.readexactly(size)


def authenticate(message):
    return frame(AUTHENTICATE, 1, struct.pack(">i", len(message)) + message, False)


def reply(answer):
    """Error and message of an answer to an authentication."""
    error, length = struct.unpack_from(">hh", answer, 4)
    at = 8 + max(length, 0)
    size = struct.unpack_from(">i", answer, at)[0]
    return error, answer[at + 4 : at + 4 + max(size, 0)].decode()


async def scram(reader, writer, user):
    await exchange(reader, writer, frame(HANDSHAKE, 1, text("SCRAM-SHA-256"), False))
    nonce = secrets.token_urlsafe(18)
    bare = f"n={user},r={nonce}"
    error, first = reply(await exchange(reader, writer, authenticate(f"n,,{bare}".encode())))
    if error:
        return False
    fields = dict(part.split("=", 1) for part in first.split(","))
    last = f"c=biws,r={fields['r']}"
    key = hmac.digest(salted(user, "sha256"), b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(key).digest(), f"{bare},{first},{last}".encode(), "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature))).decode()
    return reply(await exchange(reader, writer, authenticate(f"{last},p={proof}".encode())))[0] == 0


async def plain(reader, writer, user):
    await exchange(reader, writer, frame(HANDSHAKE, 1, text("PLAIN"), False))
    return reply(await exchange(reader, writer, authenticate(f"\0{user}\0wrong".encode())))[0] == 0


async def offer(address, kind, rate, seconds, users):
    host, port = address.rsplit(":", 1)
    ends = {"let in": 0, "refused": 0, "failed": 0}

    async def one(user):
        writer = None
        try:
            reader, writer = await asyncio.open_connection(host, int(port))
            ends["let in" if await kind(reader, writer, user) else "refused"] += 1
        except (OSError, asyncio.IncompleteReadError):
            ends["failed"] += 1
        finally:
            if writer:
                writer.close()

    loop, tasks, start = asyncio.get_running_loop(), set(), time.monotonic()
    for at in range(int(rate * seconds)):
        wait = start + at / rate - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        task = loop.create_task(one(users[at % len(users)]))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    took = time.monotonic() - start
    if tasks:
        await asyncio.wait(tasks, timeout=15)
    return ends, took


def producing(address, seconds):
    """Batches per second of a producer that waits for each answer."""
    wire = Wire(address)
    wire.login("bench", "secret")
    request, count, start = produce_request("load", batch(590, 100)), 0, time.monotonic()
    while time.monotonic() - start < seconds:
        wire.ask(request)
        count += 1
    return count / (time.monotonic() - start)


def beside(address, seconds):
    """A producer in a process of its own; the function awaits its rate."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, str(producing(address, seconds)).encode())
        os._exit(0)
    os.close(writing)

    def rate():
        with os.fdopen(reading) as pipe:
            found = float(pipe.read())
        os.waitpid(child, 0)
        return found

    return rate


def logins(arguments, folder):
    """The same logins to another broker show what their client takes from the producer."""
    brokers = {name: closed(folder / name, 0)[0] for name in ("same", "other")}
    users = [f"user-{number}" for number in range(1000)]
    for broker in brokers.values():
        root = Wire(broker.address)
        root.login("root", "secret")
        make_users(root, users)
    measured, seconds = brokers["same"], arguments.seconds
    for name, kind in (("SCRAM-SHA-256", scram), ("PLAIN, wrong", plain)):
        for _ in range(arguments.runs):
            rates, costs = {"alone": beside(measured.address, seconds)()}, {}
            for place, broker in sorted(brokers.items()):
                before = broker.cpu_seconds()
                rate = beside(measured.address, seconds)
                ends, took = asyncio.run(offer(broker.address, kind, arguments.rate, seconds, users))
                rates[place] = rate()
                costs[place] = broker.cpu_seconds() - before
            print(
                f"{name}: {arguments.rate * seconds / took:,.0f} logins/s offered, {ends}; producer {rates['alone']:,.0f} batches/s alone, "
                f"{rates['other']:,.0f} with logins to another broker, {rates['same']:,.0f} with logins to its own ({rates['same'] / rates['other']:.0%}; of the rate alone {rates['same'] / rates['alone']:.0%}); "
                f"CPU of the other broker {1000 * costs['other'] / (arguments.rate * seconds):.2f} ms per login",
                flush=True,
            )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["restart", "hot", "logins"])
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--rules", type=int, default=1_000_000)
    parser.add_argument("--hot-rules", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    print(common.machine(), flush=True)
    {"restart": restart, "hot": hot, "logins": logins}[arguments.what](arguments, common.work_folder())


main()
