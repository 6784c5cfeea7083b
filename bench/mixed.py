#!/usr/bin/env python3
"""A small stream of records at `sync` beside a broad one at `os`, each alone and then both together.

The small one: 2,000 records/s of 100 B, one by one as they come (no linger), latency from produce to acknowledgement.
The broad one: Kafka's ProducerPerformance with records of 10,000 B at 200 MB/s to another topic of 6 partitions.
"""

import argparse
import os
import re
import subprocess
import time

import common

common.in_venv()

import load  # noqa: E402
from confluent_kafka import Producer  # noqa: E402

RECORD_BYTES = 10_000
SUMMARY = re.compile(r"([\d.]+) records/sec .* ([\d.]+) ms 99th")


def topic_config(subject, level):
    """Kafka has no such dial; flushing after each message is its nearest."""
    if subject == "kafka":
        return {"flush.messages": "1"} if level == "sync" else {}
    return {"stafett.durability": level}


def small_stream(address, rate, seconds):
    """Milliseconds from produce to acknowledgement, paced by the clock."""
    latencies = []

    def on_delivery(error, message):
        if error is not None:
            raise RuntimeError(error)
        latencies.append(message.latency() * 1000)

    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0})
    value = bytes(100)
    start = time.monotonic()
    for number in range(int(rate * seconds)):
        due = start + number / rate
        while (left := due - time.monotonic()) > 0:
            producer.poll(left)
        producer.produce("small", value, partition=0, on_delivery=on_delivery)
        producer.poll(0)
    producer.flush(60)
    # The first second is left out: connecting is not what is measured.
    return latencies[int(rate) :]


def broad_stream(address, megabytes, seconds):
    records = int(megabytes * 1e6 / RECORD_BYTES * seconds)
    command = ["ProducerPerformance", "--topic", "broad", "--num-records", records, "--record-size", RECORD_BYTES]
    command += ["--throughput", int(megabytes * 1e6 / RECORD_BYTES), "--bootstrap-server", address]
    command += ["--command-property", "acks=all", "linger.ms=5", "batch.size=262144"]
    return subprocess.Popen([str(common.LAUNCHER), "run", *map(str, command)], stdout=subprocess.PIPE, text=True)


def broad_rate(process):
    output = process.communicate()[0]
    return float(SUMMARY.search(output.splitlines()[-1]).group(1)) * RECORD_BYTES / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subject", default="stafett", help="stafett or kafka")
    parser.add_argument("--rate", type=float, default=2000, help="records/s of the small stream")
    parser.add_argument("--megabytes", type=float, default=200, help="MB/s of the broad stream")
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    subject = "kafka" if options.subject == "kafka" else "stafett-sync"
    broker = common.Broker(subject, common.work_folder())
    load.create(broker.address, ["small"], topic_config(subject, "sync"))
    load.create(broker.address, ["broad"], topic_config(subject, "os"), partitions=6)
    print(common.machine())

    def show(what, latencies):
        p50, p99, p999 = (common.quantile(latencies, share) for share in (0.5, 0.99, 0.999))
        print(f"small stream at sync, {what}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, p99.9 {p999:.2f} ms", flush=True)

    show("alone", small_stream(broker.address, options.rate, options.seconds))
    alone = broad_rate(broad_stream(broker.address, options.megabytes, options.seconds))
    print(f"broad stream at os, alone: {alone:.1f} MB/s of {options.megabytes:g} asked for", flush=True)
    os.sync()
    broad = broad_stream(broker.address, options.megabytes, options.seconds)
    # The JVM takes a second to start; the small stream ends before the broad one does.
    time.sleep(2)
    show("beside the broad one", small_stream(broker.address, options.rate, options.seconds - 3))
    together = broad_rate(broad)
    print(f"broad stream at os, beside the small one: {together:.1f} MB/s, {together / alone:.2f} of alone", flush=True)


main()
