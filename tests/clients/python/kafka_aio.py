"""aiokafka: everyday use."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
)
from aiokafka.structs import OffsetAndMetadata

SERVER = {"bootstrap_servers": sys.argv[1]}
# Guard against a hanging test, in seconds; no step here needs to be quick.
LIMIT = 240
PARTITIONS = 4
START_MS = 1_700_000_000_000


def member(group, topic):
    return AIOKafkaConsumer(
        topic,
        **SERVER,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        fetch_max_wait_ms=200,
    )


async def produce(topic, messages, **settings):
    async with AIOKafkaProducer(**SERVER, **settings) as producer:
        for sent in [await producer.send(topic, **message) for message in messages]:
            await sent


async def read(consumers, count):
    """Reads and commits `count` messages from all consumers together; returns them by partition and offset."""
    messages = []
    while len(messages) < count:
        for consumer in consumers:
            for some in (await consumer.getmany(timeout_ms=50)).values():
                messages += some
    for consumer in consumers:
        await consumer.commit()
    return sorted(messages, key=lambda message: (message.partition, message.offset))


async def settle(consumers, counts):
    """Polls until each consumer has its count of partitions."""
    while [len(consumer.assignment()) for consumer in consumers] != counts:
        for consumer in consumers:
            assert not await consumer.getmany(timeout_ms=50), "nothing was produced yet"


async def administration(admin):
    topic = "aio.admin"
    created = await admin.create_topics([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "70000"})])
    assert created.topic_errors[0][1] == 0, created
    assert topic in await admin.list_topics()
    await admin.create_partitions({topic: NewPartitions(3)})
    (described,) = await admin.describe_topics([topic])
    assert len(described["partitions"]) == 3, described
    (configs,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    values = {entry[0]: entry[1] for entry in configs.resources[0][4]}
    assert values["retention.ms"] == "70000", values
    await produce(topic, [{"value": b"x", "partition": 0}] * 10)
    deleted = await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(4)})
    assert deleted == {TopicPartition(topic, 0): 4}, deleted
    assert (await admin.describe_cluster())["controller_id"] == 1
    gone = await admin.delete_topics([topic])
    assert gone.topic_error_codes[0][1] == 0, gone
    assert topic not in await admin.list_topics()


async def codecs(admin, config):
    """Where the broker leaves batches as they are, and where it compresses them anew."""
    topic = f"aio.codecs.{config}"
    await admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"compression.type": config})])
    sent = [
        {
            "partition": 0,
            # One of both is there.
            "key": None if number % 5 == 0 and number % 11 else b"key %d" % (number % 7),
            "value": None if number % 11 == 0 else b"%d " % number * (number % 50),
            "timestamp_ms": START_MS + number,
            "headers": [("number", b"%d" % number), ("number", b"again"), ("empty", b"")],
        }
        for number in range(500)
    ]
    for number, codec in enumerate([None, "gzip", "snappy", "lz4", "zstd"]):
        part = sent[number * 100 : number * 100 + 100]
        await produce(topic, part, compression_type=codec, enable_idempotence=True, linger_ms=20)
    async with AIOKafkaConsumer(topic, **SERVER, auto_offset_reset="earliest") as consumer:
        received = []
        while len(received) < len(sent):
            received += [message for some in (await consumer.getmany(timeout_ms=100)).values() for message in some]
        partition = TopicPartition(topic, 0)
        assert (await consumer.end_offsets([partition]))[partition] == 500
        found = (await consumer.offsets_for_times({partition: START_MS + 142}))[partition]
        assert (found.offset, found.timestamp) == (142, START_MS + 142), found
    assert [message.offset for message in received] == list(range(500))
    for message, expected in zip(received, sent):
        assert message.key == expected["key"] and message.value == expected["value"], message
        assert message.timestamp == expected["timestamp_ms"], message
        assert list(message.headers) == expected["headers"], message


async def limits():
    topic = "aio.limits"
    async with AIOKafkaProducer(**SERVER, max_request_size=2 << 20) as producer:
        # The topic was not created.
        await producer.send_and_wait(topic, bytes(1_000_000))
        try:
            await producer.send_and_wait(topic, bytes(1_100_000))
        except MessageSizeTooLargeError:
            pass
        else:
            raise AssertionError("it is too large")
    async with AIOKafkaConsumer(**SERVER, auto_offset_reset="none") as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 7)
        try:
            await consumer.getone()
        except OffsetOutOfRangeError:
            pass
        else:
            raise AssertionError("there is nothing at offset 7")


async def transactions():
    topic = "aio.transactions"
    producer = AIOKafkaProducer(**SERVER, transactional_id="aio")
    await producer.start()
    for number in range(6):
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"%d" % number)
        await (producer.commit_transaction() if number % 2 == 0 else producer.abort_transaction())
    await producer.stop()
    consumer = AIOKafkaConsumer(topic, **SERVER, isolation_level="read_committed", auto_offset_reset="earliest")
    await consumer.start()
    read = [(await consumer.getone()).value for _ in range(3)]
    assert sorted(read) == [b"0", b"2", b"4"], read
    await consumer.stop()


async def groups(admin):
    topic, group = "aio.groups", "aio.group"
    await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])

    def messages(first, count):
        return [{"value": b"%d" % number, "partition": number % PARTITIONS} for number in range(first, first + count)]

    async def committed():
        offsets = await admin.list_consumer_group_offsets(group)
        return [offsets[TopicPartition(topic, number)] for number in range(PARTITIONS)]

    first, second = member(group, topic), member(group, topic)
    await first.start()
    await second.start()
    await settle([first, second], [2, 2])
    await produce(topic, messages(0, 400))
    both = await read([first, second], 400)
    assert sorted(int(message.value) for message in both) == list(range(400))
    (described,) = await admin.describe_consumer_groups([group])
    assert described.groups[0][2] == "Stable" and len(described.groups[0][5]) == 2, described

    await second.stop()
    await settle([first], [4])
    await produce(topic, messages(400, 40))
    assert sorted(int(message.value) for message in await read([first], 40)) == list(range(400, 440))
    await first.commit({TopicPartition(topic, 0): OffsetAndMetadata(109, "one again")})
    await first.stop()
    assert await committed() == [OffsetAndMetadata(109, "one again")] + [OffsetAndMetadata(110, "")] * 3

    third = member(group, topic)
    await third.start()
    (again,) = await read([third], 1)
    assert (again.partition, again.offset) == (0, 109), again
    await third.stop()
    assert (group, "consumer") in [listed[:2] for listed in await admin.list_consumer_groups()]


async def main():
    admin = AIOKafkaAdminClient(**SERVER)
    await admin.start()
    parts = [administration(admin), codecs(admin, "producer"), codecs(admin, "lz4"), limits(), transactions(), groups(admin)]
    await asyncio.wait_for(asyncio.gather(*parts), LIMIT)
    await admin.close()


asyncio.run(main())
