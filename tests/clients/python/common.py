"""Shared by the scripts: clients with the settings of these tests, and reading a topic to its end."""

import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = sys.argv[1]
# Guards against a hanging test, in seconds; no step here needs to be quick.
LIMIT = 240


# One for the whole script: its answers come to nothing once it is collected.
ADMIN = AdminClient({"bootstrap.servers": BOOTSTRAP})


def dotted(settings):
    """`linger_ms` for `linger.ms`, so that settings can be arguments; the names of callbacks stay."""
    return {name if name.endswith("_cb") else name.replace("_", "."): value for name, value in settings.items()}


def producer(**settings):
    return Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True, **dotted(settings)})


def consumer(**settings):
    """A consumer without a group: the id is demanded by the library, and never reaches the broker."""
    return Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            **dotted(settings),
        }
    )


def create(topic, partitions=1, **config):
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dotted(config))
    ADMIN.create_topics([new])[topic].result(LIMIT)


def deliver(client, topic, records):
    """Produces dictionaries of the arguments of `produce`, and returns the messages as they were acknowledged."""
    delivered = []

    def on_delivery(error, message):
        assert error is None, error
        delivered.append(message)

    for record in records:
        while True:
            try:
                client.produce(topic, on_delivery=on_delivery, **record)
                break
            except BufferError:
                client.poll(0.1)
        client.poll(0)
    assert client.flush(LIMIT) == 0, "not everything was delivered"
    return delivered


def read_all(topic, partitions, start=0, **settings):
    """Every message of the partitions from `start` to their ends, in the order of arrival."""
    client = consumer(**settings)
    client.assign([TopicPartition(topic, partition, start) for partition in partitions])
    open_partitions = set(partitions)
    messages = []
    deadline = time.monotonic() + LIMIT
    while open_partitions:
        # Waits until it has the maximum count, or for its timeout.
        batch = client.consume(10000, timeout=0.05)
        if batch:
            deadline = time.monotonic() + LIMIT
        assert time.monotonic() < deadline, f"nothing arrived from {topic} {open_partitions}"
        for message in batch:
            if message.error() is None:
                messages.append(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
            else:
                raise AssertionError(message.error())
    client.close()
    return messages


def fails_with(code, future):
    """The future ends in a Kafka error of that code."""
    try:
        future.result(LIMIT)
    except KafkaException as error:
        assert error.args[0].code() == code, error
    else:
        raise AssertionError(f"error {code} was expected")


def eventually(condition):
    """Waits for an effect that may come a little after the answer."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
