#!/usr/bin/env python3
"""Kafka's own tools against Stafett and against Apache Kafka in turn, in one run.

Prints a Markdown table of medians, with the durability beside every subject and ratios to Kafka. Every single
measurement goes to target/bench/kafka.tsv.
"""

import argparse
import itertools
import os
import re
import statistics
import sys

import common

common.in_venv()

from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402

ROWS = ["produce100", "produce1k", "consume100", "sequential", "consumegroup", "latency", "roundtrip", "commits", "commitspiped"]
# About ten seconds each on two cores.
RECORDS = {
    "produce100": 8_000_000,
    "produce1k": 1_600_000,
    "consume100": 8_000_000,
    "sequential": 20_000,
    "consumegroup": 8_000_000,
    "latency": 20_000,
    "roundtrip": 20_000,
    "commits": 20_000,
    "commitspiped": 100_000,
}
TITLES = {
    ("produce100", "records_per_s"): ("produce 100 B, records/s", "{:,.0f}"),
    ("produce100", "mb_per_s"): ("— MB/s", "{:.1f}"),
    ("produce100", "cpu_s_per_million"): ("— broker CPU-s per million", "{:.2f}"),
    ("produce100", "p99_ms"): ("— p99 at full speed, ms", "{:.0f}"),
    ("produce1k", "records_per_s"): ("produce 1 KiB, records/s", "{:,.0f}"),
    ("produce1k", "mb_per_s"): ("— MB/s", "{:.1f}"),
    ("produce1k", "cpu_s_per_million"): ("— broker CPU-s per million", "{:.2f}"),
    ("produce1k", "p99_ms"): ("— p99 at full speed, ms", "{:.0f}"),
    ("consume100", "records_per_s"): ("consume 100 B (assign), records/s", "{:,.0f}"),
    ("consume100", "mb_per_s"): ("— MB/s", "{:.1f}"),
    ("consume100", "cpu_s_per_million"): ("— broker CPU-s per million", "{:.2f}"),
    ("sequential", "p50_ms"): ("sequential produce of 100 B, p50 ms", "{:.3f}"),
    ("sequential", "p99_ms"): ("— p99 ms", "{:.3f}"),
    ("sequential", "p999_ms"): ("— p99.9 ms", "{:.3f}"),
    ("sequential", "mean_ms"): ("— mean ms", "{:.3f}"),
    ("consumegroup", "records_per_s"): ("consume 100 B (group), records/s", "{:,.0f}"),
    ("consumegroup", "fetch_per_s"): ("— without the time of joining", "{:,.0f}"),
    ("consumegroup", "cpu_s_per_million"): ("— broker CPU-s per million", "{:.2f}"),
    ("latency", "mean_ms"): ("EndToEndLatency of 100 B, mean ms", "{:.3f}"),
    ("latency", "p99_ms"): ("— p99, whole ms", "{:.0f}"),
    ("latency", "p999_ms"): ("— p99.9, whole ms", "{:.0f}"),
    ("roundtrip", "p50_ms"): ("there and back, 100 B, p50 ms", "{:.3f}"),
    ("roundtrip", "p99_ms"): ("— p99 ms", "{:.3f}"),
    ("roundtrip", "p999_ms"): ("— p99.9 ms", "{:.3f}"),
    ("commits", "commits_per_s"): ("offset commits, one at a time, per s", "{:,.0f}"),
    ("commits", "cpu_s_per_million"): ("— broker CPU-s per million", "{:.2f}"),
    ("commitspiped", "commits_per_s"): ("offset commits, 50 under way, per s", "{:,.0f}"),
    ("commitspiped", "cpu_s_per_million"): ("— broker CPU-s per million", "{:.2f}"),
    ("after", "resident_mib"): ("resident memory after these, MiB", "{:.0f}"),
}
SUMMARY = re.compile(r"([\d.]+) records/sec \(([\d.]+) MB/sec\).* ([\d.]+) ms 99th")
LATENCY = re.compile(r"Avg latency: ([\d.]+) ms.*50th = ([\d.]+), 99th = ([\d.]+), 99.9th = ([\d.]+)")
# What the stub cannot do.
GROUP_ROWS = ["consumegroup", "latency", "roundtrip", "commits", "commitspiped"]
names = (f"bench-{number}" for number in itertools.count())


class External:
    """A server that someone else started: it can be measured, but not looked into."""

    subject = "stub"

    def __init__(self, address):
        self.address = address

    def cpu_seconds(self):
        return float("nan")

    def resident_mib(self):
        return float("nan")


class Topic:
    """A fresh topic of six partitions, deleted at the end."""

    def __init__(self, broker):
        self.name = next(names)
        self.stub = broker.subject == "stub"
        self.admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})

    def __enter__(self):
        if not self.stub:
            self.admin.create_topics([NewTopic(self.name, 6, 1)])[self.name].result(60)
        return self.name

    def __exit__(self, *_):
        if not self.stub:
            self.admin.delete_topics([self.name])[self.name].result(60)


def metered(broker, records, work):
    """What `work` returns, and the broker's CPU for it. Earlier writes are flushed first: they are not its doing."""
    os.sync()
    before = broker.cpu_seconds()
    result = work()
    return {**result, "cpu_s_per_million": (broker.cpu_seconds() - before) / records * 1e6}


def producer_performance(broker, topic, records, size):
    output = common.tool(
        "ProducerPerformance", "--topic", topic, "--num-records", records, "--record-size", size, "--throughput", -1,
        "--bootstrap-server", broker.address,
        "--command-property", "acks=all", "linger.ms=5", "batch.size=65536",
    )
    rate, megabytes, p99 = SUMMARY.search(output.splitlines()[-1]).groups()
    return {"records_per_s": float(rate), "mb_per_s": float(megabytes), "p99_ms": float(p99)}


def produce(broker, records, size):
    with Topic(broker) as topic:
        return metered(broker, records, lambda: producer_performance(broker, topic, records, size))


def sequential(broker, records):
    with Topic(broker) as topic:
        return common.pairs(common.tool("SequentialProduce", broker.address, topic, records))


def latency(broker, records):
    """Kafka's tool, which knows whole milliseconds only."""
    with Topic(broker) as topic:
        output = common.tool("EndToEndLatency", broker.address, topic, records, "all", 100)
    mean, p50, p99, p999 = LATENCY.search(output.replace("\n", " ")).groups()
    return {"mean_ms": float(mean), "p50_ms": float(p50), "p99_ms": float(p99), "p999_ms": float(p999)}


def round_trip(broker, records):
    with Topic(broker) as topic:
        return common.pairs(common.tool("RoundTrip", broker.address, topic, records))


def commits(broker, records, under_way):
    with Topic(broker) as topic:
        work = ("OffsetCommits", broker.address, topic, f"group-of-{topic}", records, under_way)
        return metered(broker, records * 1.1, lambda: common.pairs(common.tool(*work)))


def consume_in_group(broker, topic, records):
    output = common.tool(
        "ConsumerPerformance", "--bootstrap-server", broker.address, "--topic", topic, "--num-records", records,
        "--hide-header", "--group", next(names), "--timeout", 60_000,
    )
    columns = [column.strip() for column in output.strip().splitlines()[-1].split(",")]
    return {"records_per_s": float(columns[5]), "fetch_per_s": float(columns[9])}


def measure(row, brokers, records, runs, report):
    """Each run takes the subjects in turn, beginning with another one each time."""
    if row in GROUP_ROWS:
        brokers = [broker for broker in brokers if broker.subject != "stub"]
    if row not in ("consume100", "consumegroup"):
        work = {
            "produce100": lambda broker: produce(broker, records, 100),
            "produce1k": lambda broker: produce(broker, records, 1024),
            "sequential": lambda broker: sequential(broker, records),
            "latency": lambda broker: latency(broker, records),
            "roundtrip": lambda broker: round_trip(broker, records),
            "commits": lambda broker: commits(broker, records, 1),
            "commitspiped": lambda broker: commits(broker, records, 50),
        }[row]
        in_turn(row, brokers, runs, work, report)
        return
    topics = {broker: Topic(broker) for broker in brokers}
    for broker, topic in topics.items():
        name = topic.__enter__()
        if not topic.stub:
            producer_performance(broker, name, records, 100)

    def consume(broker):
        if row == "consumegroup":
            return metered(broker, records, lambda: consume_in_group(broker, topics[broker].name, records))
        read = ("AssignConsumer", broker.address, topics[broker].name, records)
        return metered(broker, records, lambda: common.pairs(common.tool(*read)))

    in_turn(row, list(topics), runs, consume, report)
    for topic in topics.values():
        topic.__exit__()


def in_turn(row, brokers, runs, work, report):
    for run in range(runs):
        first = run % len(brokers)
        for broker in brokers[first:] + brokers[:first]:
            try:
                report(row, run, broker.subject, work(broker))
            except RuntimeError as error:
                if broker.subject != "stub":
                    raise
                print(f"the stub is left out of {row}: {error}", file=sys.stderr)


def table(results, subjects):
    """Medians, and for all but Kafka the ratio to Kafka."""
    heads = []
    for subject in subjects:
        name = {"kafka": "Kafka 4.3.1", "stub": "stub"}.get(subject, "Stafett")
        heads.append(f"{name} (`{common.durability(subject)}`)")
        if subject != "kafka" and "kafka" in subjects:
            heads.append("ratio")
    print("| |", " | ".join(heads), "|\n|---|" + "---:|" * len(heads))
    for key, (title, form) in TITLES.items():
        medians = {subject: statistics.median(results[(*key, subject)]) for subject in subjects if (*key, subject) in results}
        cells = []
        for subject in subjects:
            value = medians.get(subject, float("nan"))
            cells.append(form.format(value) if value == value else "")
            if subject != "kafka" and "kafka" in subjects:
                kafka = medians.get("kafka", 0)
                cells.append(f"{value / kafka:.2f}" if kafka and value == value else "")
        if any(cells):
            print(f"| {title} |", " | ".join(cells), "|")


def arguments():
    parser = argparse.ArgumentParser(prog="bench/kafka.sh", description=__doc__)
    parser.add_argument("--rows", default=",".join(ROWS), help="of " + ",".join(ROWS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--subjects", default="kafka stafett-os stafett-sync stub", help="separated by spaces; see common.py")
    parser.add_argument("--stub", metavar="ADDR", help="a stub that already listens there, instead of one of our own")
    parser.add_argument("--quick", action="store_true", help="one run with a tenth of the records")
    return parser.parse_args()


def main():
    options = arguments()
    rows = options.rows.split(",")
    if unknown := set(rows) - set(ROWS):
        sys.exit(f"no such row: {', '.join(unknown)}")
    runs = 1 if options.quick else options.runs
    folder = common.work_folder()
    brokers = []
    for subject in options.subjects.split():
        if subject == "stub" and options.stub:
            brokers.append(External(options.stub))
        elif why := common.available(subject):
            print(f"{subject} is left out: {why}", file=sys.stderr)
        else:
            brokers.append(common.Broker(subject, folder / subject))
    results = {}
    raw = open(common.TARGET / "bench/kafka.tsv", "w", encoding="ascii")

    def report(row, run, subject, values):
        for metric, value in values.items():
            results.setdefault((row, metric, subject), []).append(value)
            print(row, run, subject, metric, value, sep="\t", file=raw, flush=True)
        shown = " ".join(f"{metric}={value:g}" for metric, value in values.items())
        print(f"{row} run {run + 1} {subject}: {shown}", file=sys.stderr)

    for broker in list(brokers):
        # A JVM is slow until it has compiled its code; that is not measured here.
        try:
            produce(broker, 200_000 if options.quick else 2_000_000, 100)
        except RuntimeError as error:
            if broker.subject != "stub":
                raise
            print(f"the stub is left out: {error}", file=sys.stderr)
            brokers.remove(broker)
    for row in rows:
        measure(row, brokers, RECORDS[row] // (10 if options.quick else 1), runs, report)
    for broker in brokers:
        report("after", 0, broker.subject, {"resident_mib": broker.resident_mib()})
    print(f"{common.machine()}; medians of {runs} interleaved run(s); the durability stands in brackets\n")
    table(results, [broker.subject for broker in brokers])


main()
