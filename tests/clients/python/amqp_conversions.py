"""Messages of RabbitMQ's clients, read by Kafka's, and the other way round: docs/conversions.md, row by row.

From and to queues, topics, streams, and queues over topics.
"""

import sys
import time

import pika
from amqp_common import LIMIT, connect, take
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

KAFKA = sys.argv[2]
admin = AdminClient({"bootstrap.servers": KAFKA})
admin.create_topics([NewTopic("crossing", 1)])["crossing"].result(LIMIT)

channel = connect().channel()
channel.confirm_delivery()
channel.exchange_declare("crossing", "topic", durable=True)
# The topic beside a queue, of the same message.
channel.queue_bind("crossing", "crossing", "#", arguments={"x-destination": "topic"})
channel.queue_declare("crossing.queue", durable=True)
channel.queue_bind("crossing.queue", "crossing", "#")
# A stream, and a queue over each of the topics.
channel.queue_declare("crossing.stream", durable=True, arguments={"x-queue-type": "stream"})
channel.queue_bind("crossing.stream", "crossing", "#")
OVER = {"over.topic": "crossing", "over.stream": "crossing.stream"}
for name, topic in OVER.items():
    channel.queue_declare(name, durable=True, arguments={"x-stafett-topic": topic})
body = bytes(range(256))
properties = pika.BasicProperties(
    content_type="application/json",
    content_encoding="gzip",
    correlation_id="c-1",
    reply_to="answers",
    message_id="m-1",
    type="order",
    user_id="guest",
    app_id="shop",
    timestamp=1_700_000_000,
    delivery_mode=2,
    headers={"stafett-key": "key-1", "text": "å", "number": -5, "yes": True, "nothing": None, "list": [1]},
)
channel.basic_publish("crossing", "a.b", body, properties)
before = int(time.time() * 1000)
channel.basic_publish("crossing", "a.c", b"plain")

consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": "unused", "enable.auto.commit": False})


def read(topic, count):
    """Reads `count` records from the beginning."""
    consumer.assign([TopicPartition(topic, 0, 0)])
    records = []
    deadline = time.monotonic() + LIMIT
    while len(records) < count:
        assert time.monotonic() < deadline, records
        record = consumer.poll(1)
        if record is not None:
            assert record.error() is None, record.error()
            records.append(record)
    return records


def check(records):
    first, second = records
    assert first.value() == body and first.key() == b"key-1"
    assert first.timestamp()[1] == 1_700_000_000_000
    own = {name: value for name, value in first.headers() if not name.startswith("stafett.")}
    assert own == {
        "content-type": b"application/json",
        "content-encoding": b"gzip",
        "correlation-id": b"c-1",
        "reply-to": b"answers",
        "message-id": b"m-1",
        "type": b"order",
        "user-id": b"guest",
        "app-id": b"shop",
        "text": "å".encode(),
        "number": b"-5",
        "yes": b"true",
        "nothing": None,
    }, own
    assert second.value() == b"plain" and second.key() is None
    assert second.timestamp()[1] >= before - 60_000


# The topic that was bound, and the queue itself, which is a topic for log clients.
check(read("crossing", 2))
check(read("queue.crossing.queue", 2))
check(read("crossing.stream", 2))

# On the way back nothing has changed.
_, back, same = channel.basic_get("crossing.queue", auto_ack=True)
assert same == body and back == properties, back

channel.basic_get("crossing.queue", auto_ack=True)


def check_back(method, back, same):
    assert same == body and (method.exchange, method.routing_key) == ("crossing", "a.b")
    assert back == properties, back


for name in OVER:
    check_back(*take(channel, name, 2)[0])
channel.basic_qos(prefetch_count=10)
for name in ("crossing", "crossing.stream"):
    method, back, same = take(channel, name, 2, arguments={"x-stream-offset": "first"})[0]
    # It is all that a stream adds.
    assert back.headers.pop("x-stream-offset") == 0
    check_back(method, back, same)
channel.basic_qos(prefetch_count=0)

# The other way: a record that a Kafka client writes into the queue.
producer = Producer({"bootstrap.servers": KAFKA})
headers = [("content-type", b"text/plain"), ("trace", b"\xff\x00"), ("text", "å".encode()), ("empty", None)]
for topic in ("queue.crossing.queue", "crossing", "crossing.stream"):
    producer.produce(topic, b"value", b"key-2", headers=headers, timestamp=1_700_000_000_123)
assert producer.flush(LIMIT) == 0
deadline = time.monotonic() + LIMIT
method = None
while method is None:
    assert time.monotonic() < deadline, "the record does not come out of the queue"
    method, back, same = channel.basic_get("crossing.queue", auto_ack=True)
expected = {"stafett-key": b"key-2", "timestamp_in_ms": 1_700_000_000_123, "trace": b"\xff\x00", "text": "å", "empty": None}


def check_foreign(method, back, same, routing_key, **more):
    assert same == b"value" and (method.exchange, method.routing_key) == ("", routing_key)
    assert (back.content_type, back.delivery_mode, back.timestamp) == ("text/plain", 2, 1_700_000_000), back
    assert back.headers == {**expected, **more}, back.headers


check_foreign(method, back, same, "")
for name in OVER:
    check_foreign(*take(channel, name, 1)[0], "")
channel.basic_qos(prefetch_count=10)
for name in ("crossing", "crossing.stream"):
    check_foreign(*take(channel, name, 1, arguments={"x-stream-offset": 2})[0], name, **{"x-stream-offset": 2})
channel.basic_qos(prefetch_count=0)

# And back to Kafka's clients, by way of a queue that an AMQP client forwards: nothing is lost.
channel.basic_publish("crossing", "again", same, back)
again = read("crossing", 4)[3]
own = [(name, value) for name, value in again.headers() if not name.startswith("stafett.")]
assert again.value() == b"value" and again.key() == b"key-2" and again.timestamp()[1] == 1_700_000_000_000
assert sorted(own) == sorted([*headers, ("timestamp_in_ms", b"1700000000123")]), own

# A queue with priorities has a partition for each, and a quorum queue two: read from any offset, and nothing is settled by that.
for name, arguments, sent in (
    ("crossing.levels", {"x-max-priority": 3}, {0: [0, 0], 1: [1], 2: [], 3: [3, 9]}),
    ("crossing.quorum", {"x-queue-type": "quorum"}, {0: [0, 4], 1: [5, 9]}),
):
    channel.queue_declare(name, durable=True, arguments=arguments)
    for priorities in sent.values():
        for priority in priorities:
            channel.basic_publish("", name, b"%d" % priority, pika.BasicProperties(priority=priority, delivery_mode=2))
    partitions = consumer.list_topics(f"queue.{name}", timeout=LIMIT).topics[f"queue.{name}"].partitions
    assert sorted(partitions) == sorted(sent), partitions
    for partition, priorities in sent.items():
        for offset in range(len(priorities)):
            consumer.assign([TopicPartition(f"queue.{name}", partition, offset)])
            record = None
            deadline = time.monotonic() + LIMIT
            while record is None:
                assert time.monotonic() < deadline, (name, partition, offset)
                record = consumer.poll(1)
            assert record.error() is None and record.offset() == offset, record.error()
            assert record.value() == b"%d" % priorities[offset], record.value()
    assert len(take(channel, name, sum(map(len, sent.values())))) > 0
