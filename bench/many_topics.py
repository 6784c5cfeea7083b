#!/usr/bin/env python3
"""One record to each of N topics that are not there yet, through librdkafka; then all are read back.

librdkafka looks a topic up by walking the list of those that it knows: the cost of its own grows with the square of
their number (some 2,000 records/s at 20,000 topics, whatever the broker). So a producer is given --per-client topics
and then followed by another one, which fills while the one before flushes; `--subject stub` shows what that can reach.
Topics come into being by the producer's metadata request. Each record names its topic, and each is checked.
"""

import argparse
import time

import common

common.in_venv()

from coldstart import Timed  # noqa: E402
from confluent_kafka import Consumer, Producer, TopicPartition  # noqa: E402


def name(number):
    # As long as names in use are; with very short ones librdkafka 2.16 fails to parse large metadata answers.
    return f"many-topics-{number:012d}"


def publish(address, count, per_client):
    refused = []

    def on_delivery(error, _):
        if error is not None:
            refused.append(error)

    settings = {"bootstrap.servers": address, "acks": "all", "linger.ms": 0, "message.timeout.ms": 3_600_000}
    flushing = None
    for start in range(0, count, per_client):
        producer = Producer({**settings, "queue.buffering.max.messages": max(per_client, 1000)})
        for number in range(start, min(start + per_client, count)):
            topic = name(number)
            producer.produce(topic, topic.ljust(100), partition=0, on_delivery=on_delivery)
            if number % 1000 == 999:
                producer.poll(0)
        if flushing:
            flushing.flush()
        flushing = producer
    flushing.flush()
    if refused:
        raise RuntimeError(f"{len(refused)} of {count} records were refused, the first with {refused[0]}")


def read_back(address, count, per_client, limit=120):
    settings = {
        "bootstrap.servers": address,
        "group.id": "unused",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 10,
        "log_level": 2,
    }
    for start in range(0, count, per_client):
        awaited = {name(number) for number in range(start, min(start + per_client, count))}
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(topic, 0, 0) for topic in awaited])
        deadline = time.monotonic() + limit
        while awaited:
            for message in consumer.consume(len(awaited), timeout=0.01):
                if message.error() is not None:
                    raise RuntimeError(message.error())
                if message.value().decode().rstrip() != message.topic():
                    raise RuntimeError(f"{message.topic()} holds another topic's record")
                awaited.remove(message.topic())
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(awaited)} topics gave nothing within {limit} s, {min(awaited)} for one")
        consumer.close()


def rate(what, count, work):
    start = time.monotonic()
    work()
    seconds = time.monotonic() - start
    print(f"{what}: {count / seconds:,.0f}/s ({seconds:.1f} s)", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subject", default="stafett-sync")
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--per-client", type=int, default=500, help="topics known to one librdkafka client; 0: all")
    options = parser.parse_args()
    count = options.topics
    per_client = options.per_client or count
    broker = Timed(options.subject, common.work_folder())
    level = common.durability(options.subject)
    print(f"{common.machine()}\n{count} topics, {per_client} to a client, {options.subject}, durability {level}", flush=True)

    def state(when):
        print(f"{when}: {broker.resident_mib():.0f} MiB resident, {broker.open_files()} open files", flush=True)

    state("before")
    cpu = broker.cpu_seconds()
    rate("published", count, lambda: publish(broker.address, count, per_client))
    print(f"broker CPU: {(broker.cpu_seconds() - cpu) / count * 1e6:.1f} s per million topics")
    state("after publishing")
    if options.subject == "stub":
        return
    rate("read back", count, lambda: read_back(broker.address, count, per_client))
    state("after reading")
    stopped = broker.stop()
    broker.start()
    print(f"clean stop {stopped:.2f} s, start to the first metadata answer {broker.seconds:.2f} s")
    state("after the restart")
    rate("read back after the restart", count, lambda: read_back(broker.address, count, per_client))
    broker.kill()
    broker.start()
    print(f"after a kill: start to the first metadata answer {broker.seconds:.2f} s")
    state("after the kill")


if __name__ == "__main__":
    main()
