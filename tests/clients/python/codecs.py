"""Every codec, from an idempotent producer: all that a record carries comes back as it was sent.

librdkafka sends uncompressed where the versions that a broker offers make it doubt the codec, so the bytes that went
out are counted too.
"""

import json

from confluent_kafka import TIMESTAMP_CREATE_TIME

from common import create, deliver, eventually, producer, read_all

START_MS = 1_700_000_000_000


def record(number):
    return {
        "partition": number % 3,
        "key": None if number % 5 == 0 else f"key {number % 7}".encode(),
        "value": None if number % 11 == 0 else (b"" if number % 13 == 0 else f"value {number} ".encode() * (number % 90 + 1)),
        "timestamp": START_MS + number,
        "headers": [("number", str(number).encode()), ("number", b"again"), ("none", None), ("empty", b"")]
        if number % 2
        else None,
    }


def seen(message):
    return {
        "partition": message.partition(),
        "key": message.key(),
        "value": message.value(),
        "timestamp": message.timestamp()[1],
        "headers": message.headers(),
    }


def sent_bytes(client, statistics):
    """Bytes that the producer has written to its sockets, by its own statistics, once all is delivered."""
    statistics.clear()
    eventually(lambda: client.poll(0.1) or statistics)
    return sum(broker["txbytes"] for broker in json.loads(statistics[-1])["brokers"].values())


def main():
    sent = [record(number) for number in range(6000)]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = f"codec.{codec}"
        create(topic, partitions=3)
        statistics = []
        client = producer(compression_type=codec, linger_ms=20, statistics_interval_ms=100, stats_cb=statistics.append)
        assert len(deliver(client, topic, sent)) == len(sent)
        wire, values = sent_bytes(client, statistics), sum(len(record["value"] or b"") for record in sent)
        assert wire > values if codec == "none" else wire < values / 2, f"{codec}: {wire} bytes sent for {values}"
        received = read_all(topic, range(3))
        assert all(message.timestamp()[0] == TIMESTAMP_CREATE_TIME for message in received)
        for partition in range(3):
            of_partition = [message for message in received if message.partition() == partition]
            assert [message.offset() for message in of_partition] == list(range(2000)), codec
            assert [seen(message) for message in of_partition] == sent[partition::3], codec


main()
