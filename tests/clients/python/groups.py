"""Two consumers share a topic, one leaves, and later consumers continue at the position of the group.

The second argument selects the part: `share` first, then `resume` any number of times, with stops of the broker in between.
"""

import sys
import time

from confluent_kafka import TopicPartition

from common import LIMIT, create, consumer, deliver, producer

TOPIC, GROUP, PARTITIONS = "shared", "readers", 4


def member(**settings):
    client = consumer(group_id=GROUP, auto_offset_reset="earliest", enable_partition_eof=False, **settings)
    client.subscribe([TOPIC])
    return client


def produce(first, count):
    values = [f"{number}" for number in range(first, first + count)]
    deliver(producer(), TOPIC, [{"value": value, "partition": int(value) % PARTITIONS} for value in values])
    return values


def read(clients, wanted):
    """Reads until every wanted record has come, once; commits the offsets of each client."""
    missing, deadline = set(wanted), time.monotonic() + LIMIT
    while missing:
        assert time.monotonic() < deadline, f"{len(missing)} records never came"
        for client in clients:
            for message in client.consume(1000, timeout=0.05):
                assert message.error() is None, message.error()
                value = message.value().decode()
                assert value in missing, f"{value} came twice or was read before"
                missing.remove(value)
                client.store_offsets(message)
    for client in clients:
        if client.assignment():
            client.commit(asynchronous=False)


def settle(clients, counts):
    """Polls until each client has its count of partitions."""
    deadline = time.monotonic() + LIMIT
    while [len(client.assignment()) for client in clients] != counts:
        assert time.monotonic() < deadline, [client.assignment() for client in clients]
        for client in clients:
            assert client.poll(0.05) is None, "nothing was produced yet"


def committed():
    client = consumer(group_id=GROUP)
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    offsets = [partition.offset for partition in client.committed(partitions, timeout=LIMIT)]
    ends = [client.get_watermark_offsets(partition, timeout=LIMIT)[1] for partition in partitions]
    client.close()
    return offsets, ends


def share():
    create(TOPIC, PARTITIONS)
    first, second = member(client_id="first"), member(client_id="second")
    settle([first, second], [2, 2])
    read([first, second], produce(0, 400))
    second.close()
    settle([first], [4])
    read([first], produce(400, 40))
    first.close()


def resume():
    offsets, ends = committed()
    assert offsets == ends, (offsets, ends)
    client = member()
    settle([client], [4])
    read([client], produce(sum(ends), 40))
    client.close()
    offsets, ends = committed()
    assert offsets == ends, (offsets, ends)


{"share": share, "resume": resume}[sys.argv[2]]()
