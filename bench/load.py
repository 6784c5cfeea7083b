"""Writing much to many topics through one librdkafka producer."""

import os

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic


def create(address, topics, config=None, partitions=1, settings=None):
    """Creates topics, a few thousand to a request; `settings` are more of the client's."""
    admin = AdminClient({"bootstrap.servers": address, **(settings or {})})
    for start in range(0, len(topics), 2000):
        new = [NewTopic(name, partitions, 1, config=config or {}) for name in topics[start : start + 2000]]
        for future in admin.create_topics(new, operation_timeout=60, request_timeout=120).values():
            future.result(180)


def produce(address, records, **settings):
    """Sends (topic, value) pairs, partition 0; every one must be acknowledged."""
    failed = []

    def on_delivery(error, _):
        if error is not None:
            failed.append(error)

    settings = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer(
        {
            "bootstrap.servers": address,
            "acks": "all",
            "linger.ms": 5,
            "queue.buffering.max.kbytes": 262_144,
            "queue.buffering.max.messages": 1_000_000,
            "message.timeout.ms": 600_000,
            **settings,
        }
    )
    for topic, value in records:
        while True:
            try:
                producer.produce(topic, value, partition=0, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    producer.flush(600)
    if failed:
        raise RuntimeError(f"{len(failed)} records were refused, the first with {failed[0]}")


def fill(address, count, total_bytes, record_bytes=16_384):
    """`total_bytes` spread evenly over `count` topics, one record to each in turn."""
    topics = [f"fill-{number}" for number in range(count)]
    create(address, topics)
    value = os.urandom(record_bytes)
    rounds = max(total_bytes // record_bytes // count, 1)
    produce(address, ((topic, value) for _ in range(rounds) for topic in topics))
