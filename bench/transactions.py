#!/usr/bin/env python3
"""Transactions and share groups with Kafka's own tools, the brokers in turn; and what open transactions cost.

copier: `TransactionalMessageCopier` copies records of 100 B from one partition to another, with their offsets, 100 to a
transaction; its time is from its first line to its last. share: `ShareConsumerPerformance` with 4 consumers reads records of
100 B from four partitions. open: 1,000 producers (librdkafka) with a transaction each of a record and an offset.
"""

import argparse
import json
import statistics
import subprocess
import time

import common

common.in_venv()

import load  # noqa: E402
from confluent_kafka import Consumer, Producer, TopicPartition  # noqa: E402

WARM_UP = 5_000


def produce(broker, topic, records, partitions):
    load.create(broker.address, [topic], partitions=partitions)
    settings = [f"bootstrap.servers={broker.address}", "acks=all", "linger.ms=5", "batch.size=65536"]
    common.tool(
        "ProducerPerformance", "--topic", topic, "--num-records", records, "--record-size", 100, "--throughput", -1,
        "--producer-props", *settings,
    )  # fmt: skip


def copy(broker, name, records):
    """Copies them; returns transactions per second and the broker's CPU seconds per thousand of them."""
    produce(broker, f"{name}-in", records, 1)
    load.create(broker.address, [f"{name}-out"])
    arguments = {
        "--input-topic": f"{name}-in",
        "--input-partition": "0",
        "--output-topic": f"{name}-out",
        "--broker-list": broker.address,
        "--consumer-group": name,
        "--transactional-id": name,
        "--transaction-size": "100",
        "--max-messages": str(records),
    }
    words = [word for pair in arguments.items() for word in pair]
    command = [str(common.LAUNCHER), "run", "org.apache.kafka.tools.TransactionalMessageCopier", *words]
    first, cpu, copied = None, 0, 0
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for line in process.stdout:
        # Other lines are not of the copier.
        if not line.startswith("{"):
            continue
        copied = json.loads(line).get("totalProcessed", copied)
        if first is None:
            first, cpu, before = time.monotonic(), broker.cpu_seconds(), copied
        last, cpu_then = time.monotonic(), broker.cpu_seconds()
    assert process.wait() == 0 and copied == records, f"{copied} of {records} were copied"
    transactions = (copied - before) / 100
    return transactions / (last - first), 1000 * (cpu_then - cpu) / transactions


def share(broker, name, records):
    """Reads them; returns records per second and the broker's CPU seconds per million of them."""
    produce(broker, name, records, 4)
    group = ["--entity-type", "groups", "--entity-name", name]
    change = ["--alter", "--add-config", "share.auto.offset.reset=earliest"]
    common.tool("kafka.admin.ConfigCommand", "--bootstrap-server", broker.address, *group, *change)
    cpu = broker.cpu_seconds()
    words = ["--topic", name, "--group", name, "--messages", records, "--threads", 4, "--timeout", 60_000]
    output = common.tool("ShareConsumerPerformance", "--bootstrap-server", broker.address, *words)
    cpu = broker.cpu_seconds() - cpu
    header, values = (line.split(", ") for line in output.strip().splitlines()[-2:])
    told = dict(zip(header, values))
    return float(told["nMsg.sec"]), 1e6 * cpu / records


def hold_open(broker, count):
    """Opens transactions; prints the memory that they take."""
    load.create(broker.address, ["open"], partitions=4)
    load.produce(broker.address, [("open", b"warm")] * 1000)
    broker.await_idle(quiet=3, limit=60)
    idle = broker.resident_mib()
    reader = Consumer({"bootstrap.servers": broker.address, "group.id": "open"})
    metadata = reader.consumer_group_metadata()
    producers = []
    for number in range(count):
        producer = Producer(
            {"bootstrap.servers": broker.address, "transactional.id": f"open-{number}", "transaction.timeout.ms": 600_000}
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("open", b"x" * 100, partition=number % 4)
        producer.send_offsets_to_transaction([TopicPartition("open", number % 4, number)], metadata, 60)
        assert producer.flush(60) == 0
        producers.append(producer)
    broker.await_idle(quiet=3, limit=60)
    beside = broker.resident_mib()
    print(f"{count} open transactions: {beside - idle:.1f} MiB beyond the {idle:.1f} MiB of an idle broker", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="copier,share,open")
    parser.add_argument("--subjects", nargs="+", default=["kafka", "stafett-os", "stafett-sync"])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--copied", type=int, default=60_000)
    parser.add_argument("--shared", type=int, default=500_000)
    parser.add_argument("--open", type=int, default=1000)
    options = parser.parse_args()
    rows = options.rows.split(",")
    folder = common.work_folder()
    print(common.machine(), flush=True)
    measures = {"copier": (copy, options.copied, "transactions/s, CPU-s per 1,000"), "share": (share, options.shared, "records/s, CPU-s per million")}
    if measures.keys() & set(rows):
        brokers = {subject: common.Broker(subject, folder / subject) for subject in options.subjects}
        for row in [row for row in measures if row in rows]:
            measure, records, units = measures[row]
            found = {subject: [] for subject in brokers}
            for subject, broker in brokers.items():
                measure(broker, f"{row}-warm", WARM_UP)
            for run in range(options.runs):
                # Another one begins each time.
                order = list(brokers)[run % len(brokers) :] + list(brokers)[: run % len(brokers)]
                for subject in order:
                    found[subject].append(measure(brokers[subject], f"{row}-{run}", records))
            for subject, measured in found.items():
                rate, cpu = (statistics.median(column) for column in zip(*measured))
                each = "; ".join(f"{one[0]:,.0f} {one[1]:.3f}" for one in measured)
                print(f"{row}, {subject} ({common.durability(subject)}), {units}: median {rate:,.0f} {cpu:.3f} ({each})", flush=True)
        for broker in brokers.values():
            broker.kill()
    if "open" in rows:
        for subject in options.subjects:
            if subject != "kafka":
                hold_open(common.Broker(subject, folder / f"open-{subject}"), options.open)


main()
