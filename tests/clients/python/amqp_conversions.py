"""What RabbitMQ's clients publish into a stored topic, read by Kafka's clients: docs/conversions.md, row by row."""

import sys
import time

import pika
from amqp_common import LIMIT, connect
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

KAFKA = sys.argv[2]
admin = AdminClient({"bootstrap.servers": KAFKA})
admin.create_topics([NewTopic("crossing", 1)])["crossing"].result(LIMIT)

channel = connect().channel()
channel.confirm_delivery()
channel.exchange_declare("crossing", "topic", durable=True)
# The topic beside a queue, of the same message.
channel.queue_bind("crossing", "crossing", "#", arguments={"x-destination": "topic"})
channel.queue_declare("crossing.queue")
channel.queue_bind("crossing.queue", "crossing", "#")
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
consumer.assign([TopicPartition("crossing", 0, 0)])
records = []
deadline = time.monotonic() + LIMIT
while len(records) < 2:
    assert time.monotonic() < deadline, records
    record = consumer.poll(1)
    if record is not None:
        assert record.error() is None, record.error()
        records.append(record)
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

# On the way back nothing has changed.
_, back, same = channel.basic_get("crossing.queue", auto_ack=True)
assert same == body and back == properties, back
