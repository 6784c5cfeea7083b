#!/usr/bin/env python3
"""Session assembly by an app of Stafett and by Kafka Streams on Apache Kafka: the same fragments, the same sessions, one check.

rate: fragments that wait are assembled by one process; the time from the first session to the last. Kafka Streams (`exactly_once_v2`,
examples/streams) has each number of threads, the best one counts; the app has one worker in Java (examples/apps/java), on a broker of
each durability. recovery: fragments come at a steady rate to two processes, one is killed; the longest time in which nothing
came out of a partition, with and without the time-out by which both miss a member.
"""

import argparse
import statistics
import subprocess
import sys
import time

import common

common.in_venv()

from confluent_kafka import Consumer, TopicPartition  # noqa: E402

PARTITIONS = 4
LIBS = common.ROOT / "target/examples/streams/libs"
JAR = common.ROOT / "target/examples/streams/sessions.jar"
WORKER = common.ROOT / "examples/apps/java/Sessions.java"
# Sessions that tell the time to others.
LATER = "later"


def java(*arguments, log=None, **options):
    out = open(log, "ab") if log else subprocess.DEVNULL
    return subprocess.Popen(["java", *map(str, arguments)], stdout=out, stderr=subprocess.STDOUT, **options)


def produce(broker, sessions, rate, wait=True):
    process = java("-jar", JAR, "produce", "--broker", broker.address, "--sessions", sessions, "--rate", rate, log=broker.folder / "produce.log")
    if wait:
        assert process.wait() == 0, f"see {broker.folder}/produce.log"
    return process


def check(broker, sessions):
    command = ["java", "-jar", str(JAR), "check", "--broker", broker.address, "--sessions", str(sessions), "--wait", "60"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


class Streams:
    """Instances of the application on Kafka Streams."""

    def __init__(self, broker, threads, timeout_ms):
        self.broker, self.threads, self.timeout_ms = broker, threads, timeout_ms

    def start(self, name):
        settings = [f"num.stream.threads={self.threads}", f"consumer.session.timeout.ms={self.timeout_ms}"]
        settings.append(f"consumer.heartbeat.interval.ms={self.timeout_ms // 3}")
        words = [word for setting in settings for word in ("--set", setting)]
        arguments = ["assemble", "--broker", self.broker.address, "--name", name, "--state", self.broker.folder / "state", *words]
        return java("-jar", JAR, *arguments, log=self.broker.folder / f"{name}.log")


class App:
    """Workers of an app."""

    def __init__(self, broker, timeout_ms):
        self.broker, self.timeout_ms = broker, timeout_ms
        classes = broker.folder / "classes"
        subprocess.run(["javac", "-d", classes, "-cp", f"{LIBS}/*", WORKER], check=True)
        self.classpath = f"{classes}:{LIBS}/*"

    def start(self, name):
        where = [f"http://{self.broker.http}", self.broker.address, name, self.timeout_ms]
        return java("-cp", self.classpath, "Sessions", *where, log=self.broker.folder / f"{name}.log")


class Results:
    """Records that come out, with the moments at which they are seen."""

    def __init__(self, broker):
        self.consumer = Consumer(
            {"bootstrap.servers": broker.address, "group.id": "results", "isolation.level": "read_committed", "fetch.wait.max.ms": 20}
        )
        self.consumer.assign([TopicPartition("sessions", partition, 0) for partition in range(PARTITIONS)])
        self.count = 0

    def read(self, timeout=0.5, at_most=5000):
        """The names of sessions that have come, and the time: that of the last one, or of the end of the wait."""
        messages = self.consumer.consume(at_most, timeout=timeout)
        names = [message.key().decode() for message in messages if not message.error()]
        names = [name for name in names if not name.startswith(LATER)]
        self.count += len(names)
        return names, time.monotonic()

    def until(self, count, limit=600):
        """Reads on until this many sessions are there. Returns the times of the first and of the last."""
        began, first = time.monotonic(), None
        while self.count < count:
            names, now = self.read()
            first = first or (now if names else None)
            assert now - began < limit, f"{self.count} of {count} sessions came"
        return first, now


def rate(make, subject, sessions, folder):
    """Fragments per second."""
    broker = common.Broker(subject, folder)
    produce(broker, sessions, 0)
    assembling = make(broker)
    results, cpu = Results(broker), broker.cpu_seconds()
    process = assembling.start("a")
    try:
        first, last = results.until(sessions)
        cpu = broker.cpu_seconds() - cpu
    finally:
        process.kill()
        process.wait()
    check(broker, sessions)
    broker.kill()
    fragments = sum(2 + number * 7 % 12 for number in range(sessions))
    return fragments / (last - first), cpu / fragments * 1e6


def partition_of_sessions(broker, count):
    """The partition of the fragments of each session."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "where"})
    consumer.assign([TopicPartition("fragments", partition, 0) for partition in range(PARTITIONS)])
    found = {}
    while len(found) < count:
        for message in consumer.consume(5000, timeout=1):
            name = message.value().decode().split(" ", 1)[0]
            if not name.startswith(LATER):
                found[name] = message.partition()
    consumer.close()
    return found


def recovery(make, subject, options, folder):
    """Seconds in which nothing came out of a partition after a process was killed."""
    broker = common.Broker(subject, folder)
    seconds = options.timeout_ms / 1000 * 3 + 30
    sessions = int(options.rate * seconds / 7.5)
    produce(broker, 1, 0)
    assembling = make(broker)
    results = Results(broker)
    processes = {name: assembling.start(name) for name in ("a", "b")}
    seen = []

    def watch(until):
        while time.monotonic() < until:
            # One by one: several are waited for until the time is over.
            names, now = results.read(0.05, at_most=1)
            seen.extend((now, name) for name in names)

    feeding = None
    try:
        watch(time.monotonic() + 15)  # both have their share
        feeding = produce(broker, sessions, options.rate, wait=False)
        watch(time.monotonic() + 10)
        killed = time.monotonic()
        processes["a"].kill()
        processes["a"].wait()
        watch(killed + options.timeout_ms / 1000 * 2 + 15)
        assert feeding.poll() is None, "fragments came to an end too early"
        ended = time.monotonic()
    finally:
        for process in [*processes.values(), *([feeding] if feeding else [])]:
            process.kill()
            process.wait()
    where = partition_of_sessions(broker, len({name for _, name in seen}))
    broker.kill()
    gaps = []
    for partition in range(PARTITIONS):
        times = [now for now, name in seen if where.get(name) == partition and now > killed - 2] + [ended]
        assert len(times) > 1, f"nothing came out of partition {partition}"
        gaps.append(max(after - before for before, after in zip(times, times[1:], strict=False)))
    return max(gaps)


def main(options):
    folder = common.work_folder()
    number = iter(range(1000))

    def fresh():
        return folder / str(next(number))

    subjects = {f"Kafka Streams, {threads} threads": ("kafka", lambda broker, threads=threads: Streams(broker, threads, options.timeout_ms)) for threads in options.threads}
    for level in options.durability:
        subjects[f"app at {level}"] = (f"stafett-{level}", lambda broker: App(broker, options.timeout_ms))
    print(f"{options.sessions} sessions, {options.runs} runs, time-out {options.timeout_ms / 1000:g} s; Kafka acknowledges at os\n")
    if "rate" in options.what:
        rates = {}
        for run in range(options.runs):
            for name, (subject, make) in subjects.items():
                rates.setdefault(name, []).append(rate(make, subject, options.sessions, fresh()))
                print(f"  {name}: {rates[name][run][0]:,.0f} fragments/s, {rates[name][run][1]:.1f} CPU-s of the broker per million", file=sys.stderr)
        medians = {name: statistics.median(rate for rate, _ in runs) for name, runs in rates.items()}
        best = max(value for name, value in medians.items() if name.startswith("Kafka"))
        print("| | fragments/s | to the best of Kafka Streams |\n|---|---|---|")
        for name, value in medians.items():
            print(f"| {name} | {value:,.0f} | {value / best:.2f} |")
    if "recovery" in options.what:
        print("\n| | nothing came out after a kill, s | of this, behind the time-out |\n|---|---|---|")
        chosen = [name for name in subjects if name.endswith(f"{options.recovery_threads} threads") or name.startswith("app")]
        for name in chosen:
            subject, make = subjects[name]
            took = statistics.median(recovery(make, subject, options, fresh()) for _ in range(options.runs))
            print(f"| {name} | {took:.2f} | {took - options.timeout_ms / 1000:.2f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=["rate", "recovery", []], default=[])
    parser.add_argument("--sessions", type=int, default=60_000)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--recovery-threads", type=int, default=2)
    parser.add_argument("--durability", nargs="+", default=["sync", "os"])
    parser.add_argument("--timeout-ms", type=int, default=6000)
    parser.add_argument("--rate", type=int, default=2000, help="fragments per second while a process is killed")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    given.what = given.what or ["rate", "recovery"]
    for needed in (JAR, LIBS):
        if not needed.exists():
            sys.exit("run examples/build streams first")
    main(given)
