"""A cluster over PostgreSQL and an object store: latency, statements, take-over, and kills.

    python3 bench/cluster_store.py latency  [--put 60,250] [--inline 64KiB] [--rate 2000] [--producers 1] [--seconds 30]
    python3 bench/cluster_store.py bulk     [--seconds 20]          1 KiB records, against one node on disk at `sync`
    python3 bench/cluster_store.py statements                        per commit time, at 10 and 10,000 partitions
    python3 bench/cluster_store.py takeover [--bytes 268435456]      of a cell with so much to replay
    python3 bench/cluster_store.py kills    [--rounds 20]            kill -9 of the owner in turn; counts what is lost

PostgreSQL is started as its own user with fsync on, on the disk that target/ is on. The object store is
`s3_store.py` (in memory, with delays) or a folder.
"""

import argparse
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

from common import in_venv, stafett_binary, work_folder

in_venv()

from confluent_kafka import Consumer, Producer, TopicPartition  # noqa: E402
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402

CHILDREN = []


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))]


class Postgres:
    def __init__(self, folder):
        self.bin = max(Path("/usr/lib/postgresql").iterdir()) / "bin"
        self.port = free_port()
        data = folder / "pg"
        data.mkdir()
        for parent in [folder, *folder.parents]:
            if parent == Path("/"):
                break
            os.chmod(parent, os.stat(parent).st_mode | 0o055)
        user = pwd.getpwnam("postgres") if os.getuid() == 0 else pwd.getpwuid(os.getuid())
        os.chown(data, user.pw_uid, user.pw_gid)

        def become():
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(user.pw_gid)
                os.setuid(user.pw_uid)

        run = {"preexec_fn": become, "cwd": data, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(
            [self.bin / "initdb", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-D", data],
            check=True,
            **run,
        )
        settings = ["max_wal_size=4GB", "shared_preload_libraries=pg_stat_statements", "listen_addresses=127.0.0.1"]
        options = [part for setting in settings for part in ("-c", setting)]
        self.process = subprocess.Popen(
            [self.bin / "postgres", "-D", data, "-k", data, "-p", str(self.port), *options], **run
        )
        CHILDREN.append(self.process)
        while subprocess.run([self.bin / "pg_isready", "-h", "127.0.0.1", "-p", str(self.port)], **run).returncode:
            time.sleep(0.1)
        self.sql("CREATE EXTENSION pg_stat_statements")

    def sql(self, text, database="postgres"):
        asked = subprocess.run(
            [self.bin / "psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-At", "-d", database]
            + ["-c", text],
            capture_output=True,
            text=True,
            check=True,
        )
        return asked.stdout.strip()

    def url(self):
        return f"postgres://postgres@127.0.0.1:{self.port}/postgres"


class Store:
    def __init__(self, put, get):
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).parent / "s3_store.py", "--put", put, "--get", get],
            stdout=subprocess.PIPE,
            text=True,
        )
        CHILDREN.append(self.process)
        self.address = self.process.stdout.readline().strip()

    def counts(self):
        with urllib.request.urlopen(f"{self.address}/counts") as answer:
            return eval(answer.read().decode())  # noqa: S307, of this program's own server

    def location(self):
        return f"s3://b/x?endpoint={self.address}"


class Node:
    def __init__(self, folder, settings, env=None):
        self.folder = folder
        self.settings = settings
        self.env = {**os.environ, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", **(env or {})}
        self.kafka, self.amqp, self.http = free_port(), free_port(), free_port()
        self.process = None

    def start(self):
        settings = [part for name, value in self.settings.items() for part in ("--set", f"{name}={value}")]
        log = open(f"{self.folder}.log", "ab")
        self.process = subprocess.Popen(
            [stafett_binary(), "serve", "--data-dir", self.folder, "--kafka", f"127.0.0.1:{self.kafka}"]
            + ["--amqp", f"127.0.0.1:{self.amqp}", "--http", f"127.0.0.1:{self.http}", *settings],
            stdout=log,
            stderr=log,
            env=self.env,
        )
        CHILDREN.append(self.process)
        return self

    def serves(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/health", timeout=1) as answer:
                return answer.status == 200
        except OSError:
            return False

    def wait(self, patience=120):
        end = time.time() + patience
        while not self.serves():
            if time.time() > end or self.process.poll() is not None:
                sys.exit(f"{self.folder} does not serve; see {self.folder}.log")
            time.sleep(0.01)
        return self

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        found = {}
        for line in lines:
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                found[name] = float(value)
        return found

    def cpu_seconds(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait()


def end_all():
    for child in CHILDREN:
        if child.poll() is None:
            child.kill()
            child.wait()


def make_topic(servers, name, partitions):
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(name, partitions, 1)], request_timeout=60).values():
        future.result(90)


def paced(servers, topic, partitions, rate, seconds, size=100, producers=1):
    """Milliseconds from each record's hand-over to its acknowledgement. A producer has five requests under way at most."""
    took = []
    settings = {"bootstrap.servers": servers, "acks": "all", "linger.ms": 0, "enable.idempotence": True}
    producers = [Producer(settings) for _ in range(producers)]
    value = os.urandom(size)

    def sent(at):
        def on_delivery(error, _):
            if error is None:
                took.append((time.perf_counter() - at) * 1000)
            else:
                print("failed:", error)

        return on_delivery

    began = time.perf_counter()
    number = 0
    while (now := time.perf_counter()) - began < seconds:
        due = int((now - began) * rate)
        while number < due:
            producer = producers[number % len(producers)]
            producer.produce(topic, value, partition=number % partitions, on_delivery=sent(time.perf_counter()))
            number += 1
        for producer in producers:
            producer.poll(0.0005)
    for producer in producers:
        producer.flush(60)
    return took[len(took) // 10 :]


def load():
    return f"load {os.getloadavg()[0]:.1f}"


def cluster_settings(database, options, location):
    settings = {"cluster.database": database.url(), "log.level": "info"}
    if location:
        settings |= {
            "cluster.objects": location,
            "cluster.inline_bytes_max": options.inline,
            "cluster.linger_ms": options.linger,
        }
    return settings


def latency(options, folder):
    database = Postgres(folder)
    store = Store(options.put, options.get) if options.put else None
    location = store and store.location()
    node = Node(folder / "one", cluster_settings(database, options, location)).start().wait()
    servers = f"127.0.0.1:{node.kafka}"
    make_topic(servers, "t", 6)
    paced(servers, "t", 6, options.rate, 3)
    before, used = node.metrics(), node.cpu_seconds()
    took = paced(servers, "t", 6, options.rate, options.seconds, producers=options.producers)
    after = node.metrics()
    commits = after.get("stafett_cluster_commits_total", 0) - before.get("stafett_cluster_commits_total", 0)
    print(
        f"latency: put {options.put or 'none'}, inline {options.inline}, {options.producers} producers: {len(took)} records, "
        f"p50 {percentile(took, 0.5):.1f} ms, p99 {percentile(took, 0.99):.1f} ms, p99.9 {percentile(took, 0.999):.1f} ms; "
        f"{commits / options.seconds:.0f} commits/s, {(node.cpu_seconds() - used) / options.seconds:.2f} cores"
        f"{', puts ' + str(store.counts()['PUT']) if store else ''}; {load()}"
    )


def flood(servers, topic, partitions, seconds, size=1024):
    """Records a second, acknowledged."""
    done = [0]
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "linger.ms": 20,
            "batch.size": 1 << 20,
            "queue.buffering.max.kbytes": 65_536,
            "message.timeout.ms": 300_000,
        }
    )
    value = os.urandom(size)

    def on_delivery(error, _):
        done[0] += error is None

    began = time.perf_counter()
    number = 0
    while time.perf_counter() - began < seconds:
        for _ in range(1000):
            try:
                producer.produce(topic, value, partition=number % partitions, on_delivery=on_delivery)
                number += 1
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    producer.flush(300)
    return done[0] / (time.perf_counter() - began)


def bulk(options, folder):
    rates = {}
    objects = folder / "objects"
    database = Postgres(folder)
    for name, settings in {
        "one node at sync": {},
        "cluster, all in PostgreSQL": cluster_settings(database, options, None),
        "cluster, objects in a folder": cluster_settings(database, options, f"file://{objects}"),
    }.items():
        database.sql("DROP SCHEMA IF EXISTS stafett CASCADE")
        node = Node(folder / re.sub(r"\W+", "-", name), settings).start().wait()
        servers = f"127.0.0.1:{node.kafka}"
        make_topic(servers, "t", 6)
        flood(servers, "t", 6, 3)
        used = node.cpu_seconds()
        rates[name] = flood(servers, "t", 6, options.seconds)
        cpu = (node.cpu_seconds() - used) / (rates[name] * options.seconds) * 1e6
        ratio = rates[name] / rates["one node at sync"]
        print(f"bulk: {name}: {rates[name]:,.0f} records/s ({ratio:.2f}), {cpu:.1f} CPU-s per million; {load()}", flush=True)
        node.kill(signal.SIGTERM)
        shutil.rmtree(node.folder, ignore_errors=True)


def statements(options, folder):
    database = Postgres(folder)
    store = Store("0,0", "0,0")
    node = Node(folder / "one", cluster_settings(database, options, store.location())).start().wait()
    servers = f"127.0.0.1:{node.kafka}"
    for partitions in (10, 10_000):
        topic = f"t{partitions}"
        make_topic(servers, topic, partitions)
        paced(servers, topic, partitions, options.rate, 3)
        database.sql("SELECT pg_stat_statements_reset()")
        before = node.metrics()
        began = time.time()
        took = paced(servers, topic, partitions, options.rate, options.seconds)
        passed = time.time() - began
        after = node.metrics()
        calls = int(database.sql("SELECT sum(calls) FROM pg_stat_statements WHERE query ILIKE '%stafett%'"))
        commits = after["stafett_cluster_commits_total"] - before["stafett_cluster_commits_total"]
        spent = after["stafett_cluster_commit_seconds_sum"] - before["stafett_cluster_commit_seconds_sum"]
        print(
            f"statements: {partitions} partitions, {options.rate}/s: {calls / passed:.0f} statements/s, {commits / passed:.0f} "
            f"commits/s of {spent / commits * 1000:.2f} ms: {calls / passed * spent / commits:.2f} statements per commit time; "
            f"p50 {percentile(took, 0.5):.1f} ms, p99 {percentile(took, 0.99):.1f} ms; {load()}",
            flush=True,
        )


def takeover(options, folder):
    database = Postgres(folder)
    store = Store("0,0", options.get)
    settings = cluster_settings(database, options, store.location())
    one = Node(folder / "one", settings).start().wait()
    servers = f"127.0.0.1:{one.kafka}"
    make_topic(servers, "t", 6)
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 20, "batch.size": 1 << 20})
    value = os.urandom(1024)
    for number in range(options.bytes // 1024):
        while True:
            try:
                producer.produce("t", value, partition=number % 6)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush(300)
    rows = database.sql("SELECT count(*), count(object), sum(bytes), sum(length(body)) FROM stafett.range")
    two = Node(folder / "two", settings).start()
    time.sleep(5)
    one.kill()
    if not options.plain:
        # Without its checkpoint all of the journal is replayed.
        for table in ("file", "block"):
            database.sql(f"DELETE FROM stafett.{table} WHERE name LIKE 'checkpoint%'")
    killed = time.time()
    two.wait()
    log = Path(f"{two.folder}.log").read_text()
    print(f"takeover: rows, in objects, bytes, inline bytes: {rows}; {time.time() - killed:.2f} s after the kill; {load()}")
    for line in log.splitlines():
        if "owns the cell" in line or "journal is open" in line or "recover" in line:
            print("   ", re.sub(r"\x1b\[[0-9;]*m", "", line)[:200])


def kills(options, folder):
    database = Postgres(folder)
    store = Store(options.put or "20,100", options.get)
    settings = cluster_settings(database, options, store.location()) | {
        "journal.segment_bytes": "1MiB",
        "cluster.lease_ms": "1000ms",
        "cluster.garbage_after_ms": "1s",
    }
    nodes = [Node(folder / f"n{number}", settings).start() for number in range(3)]
    servers = ",".join(f"127.0.0.1:{node.kafka}" for node in nodes)

    def owner():
        while True:
            for node in nodes:
                if node.process.poll() is None and node.serves():
                    return node
            time.sleep(0.02)

    owner()
    make_topic(servers, "t", 4)
    acknowledged, failed, stop = {}, [], threading.Event()
    gaps, last = [], [time.time()]

    def produce():
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        number = 0

        def on_delivery(number):
            def note(error, message):
                now = time.time()
                if now - last[0] > 0.5:
                    gaps.append(now - last[0])
                last[0] = now
                if error is None:
                    acknowledged[number] = (message.partition(), message.offset())
                else:
                    failed.append(str(error))

            return note

        while not stop.is_set():
            for _ in range(10):
                size = random.choice((50, 200, 2000, 20_000))
                body = f"{number:012d}".encode() + b"x" * size
                try:
                    producer.produce("t", body, partition=number % 4, on_delivery=on_delivery(number))
                    number += 1
                except BufferError:
                    pass
            producer.poll(0.02)
        producer.flush(120)

    thread = threading.Thread(target=produce)
    thread.start()
    for _ in range(options.rounds):
        time.sleep(random.uniform(0.5, 2))
        node = owner()
        node.kill()
        node.start()
    owner()
    time.sleep(2)
    stop.set()
    thread.join()
    found = {}
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "check", "enable.auto.commit": False})
    for partition in range(4):
        at = TopicPartition("t", partition, 0)
        _, end = consumer.get_watermark_offsets(at, timeout=30)
        consumer.assign([at])
        while True:
            message = consumer.poll(10)
            if message is None:
                break
            if message.error() is None:
                found.setdefault(int(message.value()[:12]), []).append((partition, message.offset()))
                if message.offset() + 1 >= end:
                    break
    lost = [number for number, place in acknowledged.items() if place not in found.get(number, [])]
    doubled = [number for number, places in found.items() if len(places) > 1]
    print(
        f"kills: {options.rounds} kills, {len(acknowledged)} acknowledged, {len(failed)} failed, lost {len(lost)}, "
        f"doubled {len(doubled)}; silence p50 {percentile(gaps, 0.5):.2f} s, max {max(gaps):.2f} s; {store.counts()}; {load()}"
    )
    if failed:
        print("   ", failed[:3])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["latency", "bulk", "statements", "takeover", "kills"])
    parser.add_argument("--put", default="")
    parser.add_argument("--get", default="30,120")
    parser.add_argument("--inline", default="64KiB")
    parser.add_argument("--linger", default="50ms")
    parser.add_argument("--rate", type=int, default=2000)
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--bytes", type=int, default=256 << 20)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--plain", action="store_true", help="takeover: with the checkpoint, as usual")
    options = parser.parse_args()
    try:
        globals()[options.what](options, work_folder())
    finally:
        end_all()


if __name__ == "__main__":
    main()
