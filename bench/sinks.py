#!/usr/bin/env python3
"""Sinks and ingestion: PostgreSQL against COPY, files per core, posted events, roll-ups, receivers against themselves, transforms.

    bench/sinks.py                                        # all rows, some ten minutes
    bench/sinks.py --rows postgres files --records 1000000
    bench/sinks.py --profile debug --records 20000 --seconds 1   # a trial: do the rows work

Records are JSON of about 300 bytes. The parts of a sink, from memory, are measured by crates/sinks/examples; those that
end in `whole` are `stafett sink run` over a topic of the broker, from its start to the last record in the store, with the
processor's time of that process.
"""

import argparse
import atexit
import base64
import hashlib
import hmac
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from common import ROOT, TARGET, TICKS, Broker, in_venv, stafett_binary, work_folder

in_venv()

from cluster_store import Postgres  # noqa: E402

KEY = "a key of sixteen bytes or more"
COLUMNS = """
[sink.rate.columns]
id = { type = "bigint", null = false }
event_type = { from = "eventType", type = "text" }
retention = { from = "retentionTime", type = "bigint" }
application = { from = "applicationId", type = "text" }
country = { type = "text" }
platform = { type = "text" }
score = { type = "double" }
at = { type = "timestamptz" }
active = { type = "boolean" }
message = { type = "text" }
"""
ROLLUP = """
[sink.sums]
from = "log"
to = "postgres"
url = "{address}"
table = "sums"
create = true
mode = "rollup"
flush = {{ every = "1s" }}
[sink.sums.rollup]
time = {{ field = "at", zone = "UTC" }}
every = ["day", "month"]
by = [[], ["application"]]
[sink.sums.rollup.attributes]
application = "applicationId"
[sink.sums.rollup.values]
visits = {{ count = true }}
seconds = {{ sum = "retentionTime" }}
"""
ENDPOINTS = """
[ingest.stored]
path = "/bench/stored"
topic = "events"
ack = "stored"
token = "query:sessionKey"
check = { hmac = "env:EVENT_KEY" }
body_bytes_max = 1048576

[ingest.sent]
path = "/bench/sent"
topic = "events"
token = "query:sessionKey"
check = { hmac = "env:EVENT_KEY" }
body_bytes_max = 1048576
"""


def example(options, name):
    folder = options.profile if options.profile != "dev" else "debug"
    command = ["cargo", "build", "--quiet", "--locked", "--package", "stafett-sinks", "--example", name]
    subprocess.run(command + (["--release"] if folder == "release" else []), cwd=ROOT, check=True)
    return TARGET / folder / "examples" / name


def say(line):
    print(line, flush=True)


def measured(command, **environment):
    output = subprocess.run([str(part) for part in command], capture_output=True, text=True, env={**os.environ, **environment})
    if output.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {output.stderr[-2000:]}")
    return output.stdout.strip()


def event(number):
    return json.dumps(
        {
            "id": number,
            "eventType": "QUIT",
            "retentionTime": number % 1000,
            "applicationId": f"app-{number % 7}",
            "country": "SE",
            "platform": "android",
            "score": number % 100 + 0.25,
            "at": f"2026-11-22T10:{number // 60 % 60:02}:{number % 60:02}Z",
            "active": True,
            "message": "a line of a log, as applications write them, long enough to make up three hundred bytes of a whole record",
        },
        separators=(",", ":"),
    )


def definition(topic, name, fields):
    """The text of a sink with the columns of the bench."""
    return f'[sink.{name}]\nfrom = "{topic}"\n{fields}\n{COLUMNS.replace("sink.rate", f"sink.{name}")}'


def cpu_of(pid):
    """Returns the seconds of processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Scene:
    """A broker with a topic of records."""

    def __init__(self, options):
        self.folder = work_folder()
        endpoints = self.folder / "endpoints.toml"
        endpoints.write_text(ENDPOINTS)
        os.environ["EVENT_KEY"] = KEY
        self.broker = Broker(f"stafett-{options.durability}", self.folder / "broker", ["--set", f"ingest.endpoints={endpoints}"])
        for topic in ("log", "events"):
            self.stafett("topic", "create", topic, "-p", "2")
        self.records = {}

    def stafett(self, *arguments):
        return measured([stafett_binary(), *arguments], STAFETT_SERVER=self.broker.address)

    def fill(self, records, topic="log"):
        """Stores records in a topic of the sinks, once."""
        connection = http.client.HTTPConnection(self.broker.http)
        for begin in range(self.records.get(topic, 0), records, 2000):
            lines = "\n".join(event(number) for number in range(begin, min(begin + 2000, records)))
            connection.request("POST", f"/v1/topics/{topic}/records", lines, {"Content-Type": "application/x-ndjson"})
            answer = connection.getresponse()
            said = answer.read()
            if answer.status != 200:
                sys.exit(f"{answer.status}: {said.decode()}")
        self.records[topic] = max(self.records.get(topic, 0), records)

    def file(self, *sinks):
        """Writes a file of sinks: from, name, fields."""
        file = self.folder / f"{sinks[0][1]}.toml"
        file.write_text("\n".join(definition(*sink) for sink in sinks))
        return file

    def begin_file(self, file):
        """Applies and begins the sinks of a file. Returns the process, and a function of the rows so far."""
        arguments = ["-f", str(file), "--http", self.broker.http]
        self.stafett("sink", "apply", *arguments)
        command = [str(stafett_binary()), "sink", "run", *arguments, "--metrics", "127.0.0.1:0"]
        environment = {**os.environ, "STAFETT_SERVER": self.broker.address}
        log = open(file.with_suffix(".log"), "wb")
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        metrics = running.stdout.readline().split()[-1]

        def rows():
            if running.poll() is not None:
                sys.exit(f"the sinks ended: see {log.name}")
            connection = http.client.HTTPConnection(metrics)
            connection.request("GET", "/metrics")
            found = re.findall(r"^stafett_sink_rows_total\{[^}]*\} (\d+)", connection.getresponse().read().decode(), re.MULTILINE)
            return sum(map(int, found))

        return running, rows

    def sinks(self, file, records):
        """Runs the sinks of a file from the begin of their topics to the end. Returns the seconds, and those of their processor."""
        begun = time.monotonic()
        running, rows = self.begin_file(file)
        while rows() < records:
            time.sleep(0.05)
        seconds = time.monotonic() - begun
        cpu = cpu_of(running.pid)
        running.send_signal(signal.SIGTERM)
        running.wait()
        return seconds, cpu

    def whole(self, name, fields, records):
        seconds, cpu = self.sinks(self.file(("log", name, fields)), records)
        say(f"{name}, whole: {records / seconds / 1000:.0f} k/s, {records / cpu / 1000:.0f} k/s per core of the sink")


def store(scene, name):
    """A PostgreSQL server of its own, and its address."""
    folder = scene.folder / name
    folder.mkdir()
    server = Postgres(folder)
    atexit.register(server.process.kill)
    return server, f"host=127.0.0.1 port={server.port} user=postgres dbname=postgres"


def backlog(options, scene):
    """A backlog of six topics into PostgreSQL and files at once (P1 drained six queues into two stores)."""
    server, address = store(scene, "backlog")
    topics, sinks = [f"backlog{number}" for number in range(6)], []
    for topic in topics:
        scene.stafett("topic", "create", topic, "-p", "1")
        scene.fill(options.records // 6, topic)
        folder = scene.folder / f"{topic}-files"
        folder.mkdir()
        sinks.append((topic, f"{topic}_pg", f'to = "postgres"\nurl = "{address}"\ntable = "{topic}"\ncreate = true'))
        sinks.append((topic, f"{topic}_files", f'to = "files"\npath = "{folder}"\nformat = "csv"\ncompression = "gzip"'))
    records = options.records // 6 * 6
    seconds, cpu = scene.sinks(scene.file(*sinks), 2 * records)
    say(f"backlog of six topics into PostgreSQL and files: {records / seconds / 1000:.0f} k/s into both, sinks {cpu / seconds:.1f} cores")
    server.process.terminate()
    server.process.wait()


def stopped(options, scene):
    """The broker's processor time while a sink waits for its store."""
    server, address = store(scene, "stopped")
    scene.fill(options.records)
    running, rows = scene.begin_file(scene.file(("log", "stopped", f'to = "postgres"\nurl = "{address}"\ntable = "events"\ncreate = true')))
    while rows() == 0:
        time.sleep(0.01)
    backends = [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if is_below(folder, server.process.pid)]
    for process in [server.process.pid, *backends]:
        os.kill(process, signal.SIGSTOP)
    time.sleep(2)  # what is under way comes to rest
    before, at = scene.broker.cpu_seconds(), time.monotonic()
    time.sleep(options.seconds)
    share = (scene.broker.cpu_seconds() - before) / (time.monotonic() - at)
    say(f"a sink whose store is stopped, after {rows()} of {options.records} rows: {100 * share:.2f} % of a core of the broker")
    for process in [server.process.pid, *backends]:
        os.kill(process, signal.SIGCONT)
    running.send_signal(signal.SIGTERM)
    running.wait()
    server.process.terminate()
    server.process.wait()


def is_below(folder, parent):
    try:
        return int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1]) == parent
    except OSError:
        return False


def postgres(options, scene):
    server, address = store(scene, "postgres")
    say(measured([example(options, "rate"), options.records, address]))
    scene.fill(options.records)
    server.sql("DROP TABLE IF EXISTS rate, rate_copy")
    scene.whole("pg", f'to = "postgres"\nurl = "{address}"\ntable = "events"\ncreate = true', options.records)
    server.process.terminate()
    server.process.wait()


def files(options, scene):
    say(measured([example(options, "rate"), options.records]))
    scene.fill(options.records)
    for name, form in (("csv-gzip", 'format = "csv"\ncompression = "gzip"'), ("parquet-zstd", 'format = "parquet"')):
        folder = scene.folder / name
        folder.mkdir()
        scene.whole(name, f'to = "files"\npath = "{folder}"\n{form}', options.records)


def connect(options, scene):
    """Values as they are into one file of lines: Kafka Connect's file sink, and the sink, each from its start."""
    scene.fill(options.records)
    folder = scene.folder / "lines"
    folder.mkdir()
    plain = scene.folder / "lines.toml"
    plain.write_text(f'[sink.lines]\nfrom = "log"\nto = "files"\npath = "{folder}"\nformat = "ndjson"\n')
    seconds, cpu = scene.sinks(plain, options.records)
    say(f"lines, whole: {options.records / seconds / 1000:.0f} k/s, {options.records / cpu / 1000:.0f} k/s per core of the sink")
    worker, sink, out = (scene.folder / name for name in ("worker.properties", "sink.properties", "lines.txt"))
    strings = [f"{side}.converter=org.apache.kafka.connect.storage.StringConverter" for side in ("key", "value")]
    offsets = f"offset.storage.file.filename={scene.folder}/offsets"
    worker.write_text("\n".join([f"bootstrap.servers={scene.broker.address}", offsets, "listeners=http://127.0.0.1:0", *strings]))
    kind = "connector.class=org.apache.kafka.connect.file.FileStreamSinkConnector"
    sink.write_text("\n".join(["name=lines", kind, "topics=log", f"file={out}", "tasks.max=1", "consumer.override.auto.offset.reset=earliest"]))
    total = sum(len(event(number)) + 1 for number in range(options.records))
    subprocess.run([ROOT / "tools/peers/kafka", "connect"], capture_output=True, check=False)  # fetches
    begun = time.monotonic()
    with open(scene.folder / "connect.log", "wb") as log:
        running = subprocess.Popen([ROOT / "tools/peers/kafka", "connect", worker, sink], stdout=log, stderr=log)
    while not out.exists() or out.stat().st_size == 0:
        if running.poll() is not None:
            sys.exit(f"Kafka Connect ended: see {log.name}")
        time.sleep(0.01)
    first = time.monotonic()
    while out.stat().st_size < total:
        time.sleep(0.05)
    ended = time.monotonic()
    cpu = cpu_of(running.pid)
    running.kill()
    say(f"Kafka Connect, whole: {options.records / (ended - begun) / 1000:.0f} k/s, from its first line on {options.records / (ended - first) / 1000:.0f} k/s, {options.records / cpu / 1000:.0f} k/s per core")


def rollups(options, scene):
    """Sums by day and month, of all and by application: as records come, computed again, and from Parquet."""
    server, address = store(scene, "rollups")
    scene.fill(options.records)
    folder = scene.folder / "rollups-parquet"
    folder.mkdir()
    # A roll-up takes columns of files for fields: they have the names of those.
    parquet = definition("log", "parquet", f'to = "files"\npath = "{folder}"\nformat = "parquet"')
    parquet = re.sub(r'^\w+ = \{ from = "(\w+)", ', r"\1 = { ", parquet, flags=re.MULTILINE)
    file = scene.folder / "rollups.toml"
    file.write_text(parquet)
    scene.sinks(file, options.records)
    file.write_text(parquet + ROLLUP.format(address=address))
    begun = time.monotonic()
    running, _ = scene.begin_file(file)
    counted = "SELECT coalesce(sum(visits), 0) FROM sums WHERE every = 'day' AND by = ''"
    while server.sql("SELECT to_regclass('sums')") == "" or int(server.sql(counted)) < options.records:
        time.sleep(0.1)
    say(f"roll-up as records come: {options.records / (time.monotonic() - begun) / 1000:.0f} k/s")
    running.send_signal(signal.SIGTERM)
    running.wait()
    rollup = lambda word, *more: ["rollup", word, "-f", str(file), "--http", scene.broker.http, "sums", *more]
    scene.stafett("sink", "pause", "-f", str(file), "--http", scene.broker.http, "sums")
    for name, arguments in (
        ("computed again from JSON", rollup("recompute")),
        ("verified against JSON", rollup("verify")),
        ("verified against Parquet", rollup("verify", "--files", "parquet")),
    ):
        begun = time.monotonic()
        scene.stafett(*arguments)
        say(f"roll-up {name}: {options.records / (time.monotonic() - begun) / 1000:.0f} k/s")
    server.process.terminate()
    server.process.wait()


def session_key():
    def encoded(raw):
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    claims = encoded(json.dumps({"sub": "bench", "exp": int(time.time()) + 86400}).encode())
    return claims + "." + encoded(hmac.new(KEY.encode(), claims.encode(), hashlib.sha256).digest())


def ingest(options, scene):
    posts, key = example(options, "posts"), session_key()
    wrong = key[:-4] + "AAAA"
    for what, path, token, lines, connections in (
        ("one event, answered when it is on its way, 64 connections", "sent", key, 1, 64),
        ("one event, answered when it is stored, 64 connections", "stored", key, 1, 64),
        ("1,000 events a request, stored, 4 connections", "stored", key, 1000, 4),
        ("wrong tokens, 64 connections", "stored", wrong, 1, 64),
    ):
        target = f"/bench/{path}?sessionKey={token}"
        before = scene.broker.cpu_seconds()
        told = measured([posts, scene.broker.http, target, lines, connections, options.seconds])
        cpu = scene.broker.cpu_seconds() - before
        say(f"POST, {what}: {' '.join(told.splitlines()[1:])} broker_cpu_s={cpu:.1f}")
    records = "\n".join(event(number) for number in range(1000)).encode()
    say(f"(bodies of 1,000 events have {len(records)} bytes)")


def receiver(options, _):
    say(measured([example(options, "rate"), options.records, "receiver"]))


def mongodb(options, scene):
    from bson.raw_bson import RawBSONDocument
    import bson
    from pymongo import MongoClient

    program = ROOT / "tools/peers/mongodb"
    subprocess.run([program, "fetch"], check=True)
    server = subprocess.Popen([program, "run"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        address = f"mongodb://127.0.0.1:{server.stdout.readline().strip()}/bench"
        count = min(options.records, 200_000)
        documents = [RawBSONDocument(bson.encode({"_id": f"log/0@{n}", **json.loads(event(n))})) for n in range(count)]
        collection = MongoClient(address).bench.alone
        # The virtual machine of the stand-in warms up.
        for _ in range(2):
            begun = time.monotonic()
            for begin in range(0, count, 500):
                collection.insert_many(documents[begin : begin + 500], ordered=False)
            seconds = time.monotonic() - begun
            collection.drop()
        say(f"the stand-in of MongoDB itself, 500 documents at a time: {count / seconds / 1000:.1f} k/s")
        say(measured([example(options, "rate"), count, address]))
    finally:
        server.stdin.close()
        server.wait()


def transforms(options, _):
    say(measured([example(options, "transforms"), options.records]))


ROWS = {
    "postgres": postgres,
    "backlog": backlog,
    "stopped": stopped,
    "files": files,
    "connect": connect,
    "rollups": rollups,
    "ingest": ingest,
    "receiver": receiver,
    "mongodb": mongodb,
    "transforms": transforms,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int, default=10, help="of each row that posts")
    parser.add_argument("--durability", default="sync")
    parser.add_argument("--profile", choices=("release", "debug"), default="release", help="of the programs that are measured")
    options = parser.parse_args()
    if options.profile == "debug":
        os.environ.setdefault("STAFETT_BIN", str(TARGET / "debug/stafett"))
    needs_broker = {"postgres", "backlog", "stopped", "files", "connect", "rollups", "ingest"} & set(options.rows)
    scene = Scene(options) if needs_broker else None
    for row in options.rows:
        ROWS[row](options, scene)


if __name__ == "__main__":
    main()
