"""pika on streams: declared, read by many from where they want, and the same as a topic for Kafka's clients."""

import datetime
import sys
import time

import pika
from amqp_common import LIMIT, bodies, closed_with, connect, take, until
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

KAFKA = sys.argv[2]
STREAM = {"x-queue-type": "stream"}


def read(channel, name, count, offset=None, **arguments):
    """Reads `count` messages from `offset` on; returns their offsets and bodies."""
    if offset is not None:
        arguments["x-stream-offset"] = offset
    taken = take(channel, name, count, arguments=arguments)
    return [properties.headers["x-stream-offset"] for _, properties, _ in taken], bodies(taken)


def ended(code, text, call):
    """The call must end its connection."""
    connection = connect()
    channel = connection.channel()
    try:
        call(channel)
        until(connection, lambda: False)
    except pika.exceptions.ConnectionClosedByBroker as error:
        assert (error.reply_code, error.reply_text) == (code, text), error
        return
    raise AssertionError(f"nothing ended with {code}")


connection = connect()
channel = connection.channel()
channel.confirm_delivery()
everything = {**STREAM, "x-max-age": "7D", "x-max-length-bytes": 10_000_000, "x-stream-max-segment-size-bytes": 1_000_000}
channel.queue_declare("events", durable=True, arguments=everything)
channel.queue_declare("events", durable=True, arguments=everything)
channel.exchange_declare("to.streams", "topic", durable=True)
channel.queue_bind("events", "to.streams", "a.#")
channel.basic_publish("", "events", b"0", pika.BasicProperties(message_id="first", headers={"n": 1}, delivery_mode=1))
for number in range(1, 9):
    channel.basic_publish("to.streams", f"a.{number}", b"%d" % number, mandatory=True)
# A queue beside it gets the same message.
channel.queue_declare("beside", durable=True)
channel.queue_bind("beside", "to.streams", "#")
channel.basic_publish("to.streams", "a.9", b"9")
assert take(channel, "beside", 1)[0][2] == b"9"
declared = channel.queue_declare("events", passive=True).method
assert (declared.message_count, declared.consumer_count) == (10, 0), declared

# Many read, each from where it wants, and nothing goes.
channel.basic_qos(prefetch_count=3)
all_bodies = [b"%d" % number for number in range(10)]
for _ in range(2):
    taken = take(channel, "events", 10, arguments={"x-stream-offset": "first"})
    assert bodies(taken) == all_bodies
    method, properties, _ = taken[0]
    assert (method.exchange, method.routing_key, method.redelivered) == ("", "events", False), method
    assert properties.message_id == "first" and properties.headers == {"n": 1, "x-stream-offset": 0}, properties
    assert (taken[1][0].exchange, taken[1][0].routing_key) == ("to.streams", "a.1")
assert read(channel, "events", 1, "last") == ([9], [b"9"])
assert read(channel, "events", 4, 6) == ([6, 7, 8, 9], [b"6", b"7", b"8", b"9"])
assert read(channel, "events", 1, 9)[0] == [9]
assert read(channel, "events", 10, "1h")[1] == all_bodies
assert read(channel, "events", 10, datetime.datetime.fromtimestamp(time.time() - 60, datetime.timezone.utc))[1] == all_bodies

# Each consumer gets its messages from its own offset, one by one.
channel.queue_declare("regions", durable=True, arguments={**STREAM, "x-stream-filter-size-bytes": 32})
for number, region in enumerate(["eu", "us", None, "asia", "eu", None]):
    headers = {} if region is None else {"x-stream-filter-value": region}
    channel.basic_publish("", "regions", b"%d" % number, pika.BasicProperties(headers=headers))
for arguments, expected in [
    ({"x-stream-filter": "eu"}, [0, 4]),
    ({"x-stream-filter": ["us", "asia"]}, [1, 3]),
    ({"x-stream-filter": "eu", "x-stream-match-unfiltered": True}, [0, 2, 4, 5]),
    ({"x-stream-match-unfiltered": True}, [0, 1, 2, 3, 4, 5]),
]:
    assert read(channel, "regions", len(expected), "first", **arguments)[0] == expected, arguments

# New messages only, also from an offset that does not exist yet; every kind of settlement gives new credit.
held = []
other = connection.channel()
other.basic_qos(prefetch_count=2)
other.basic_consume("events", lambda _c, method, _p, body: held.append((method.delivery_tag, body)))
for number in range(10, 15):
    channel.basic_publish("", "events", b"%d" % number)
until(connection, lambda: len(held) >= 2)
assert [body for _, body in held] == [b"10", b"11"], held
other.basic_nack(held[0][0], requeue=True)
other.basic_reject(held[1][0], requeue=False)
until(connection, lambda: len(held) >= 4)
assert [body for _, body in held] == [b"10", b"11", b"12", b"13"], held
other.basic_ack(held[3][0], multiple=True)
until(connection, lambda: len(held) >= 5)
assert [body for _, body in held[4:]] == [b"14"], held
other.close()

# A Kafka client reads it under its name, and its records are read from the stream.
consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": "unused", "enable.auto.commit": False})
consumer.assign([TopicPartition("events", 0, 0)])
records = []
deadline = time.monotonic() + LIMIT
while len(records) < 15:
    assert time.monotonic() < deadline, records
    record = consumer.poll(1)
    if record is not None:
        assert record.error() is None, record.error()
        records.append(record)
assert [record.value() for record in records] == [b"%d" % number for number in range(15)]
producer = Producer({"bootstrap.servers": KAFKA})
producer.produce("events", b"of Kafka", b"key", headers=[("h", b"v")])
assert producer.flush(LIMIT) == 0
[(method, properties, body)] = take(channel, "events", 1, arguments={"x-stream-offset": 15})
assert body == b"of Kafka" and (method.exchange, method.routing_key) == ("", "events")
assert properties.headers["stafett-key"] == b"key" and properties.headers["h"] == "v"

# A topic that Kafka's clients made is a stream, with all its partitions or one of them.
admin = AdminClient({"bootstrap.servers": KAFKA})
admin.create_topics([NewTopic("made.elsewhere", 3)])["made.elsewhere"].result(LIMIT)
for number in range(30):
    producer.produce("made.elsewhere", b"%d" % number, partition=number % 3)
assert producer.flush(LIMIT) == 0
assert channel.queue_declare("made.elsewhere", passive=True).method.message_count == 30
taken = take(channel, "made.elsewhere", 30, arguments={"x-stream-offset": "first"})
for partition in range(3):
    own = [(p.headers["x-stream-offset"], body) for _, p, body in taken if p.headers["x-stafett-partition"] == partition]
    assert own == [(place, b"%d" % (3 * place + partition)) for place in range(10)], own
one = read(channel, "made.elsewhere", 10, "first", **{"x-stafett-partition": 1})
assert one == (list(range(10)), [b"%d" % (3 * place + 1) for place in range(10)])
channel.queue_declare("made.elsewhere", durable=True, arguments=STREAM)
channel.basic_publish("", "made.elsewhere", b"more", mandatory=True)
closed_with(403, lambda: connection.channel().queue_delete("made.elsewhere"))
# A queue may have its name: that goes first from then on, and the topic is as it was.
channel.queue_declare("made.elsewhere")
channel.basic_publish("", "made.elsewhere", b"for the queue")
assert take(channel, "made.elsewhere", 1)[0][2] == b"for the queue"
channel.queue_delete("made.elsewhere")
assert channel.queue_declare("made.elsewhere", passive=True).method.message_count == 31

# Unsupported arguments and operations of streams.
WHAT = "queue 'events' in vhost '/'"
consume = {"queue": "events", "on_message_callback": lambda *_: None}
closed_with(406, lambda: connection.channel().basic_consume(**consume))


def automatic(channel):
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(**consume, auto_ack=True)


def together(channel):
    channel.basic_qos(prefetch_count=1)
    channel.basic_qos(prefetch_count=1, global_qos=True)
    channel.basic_consume(**consume)


def at(offset):
    channel = connection.channel()
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(**consume, arguments={"x-stream-offset": offset})


ended(540, f"NOT_IMPLEMENTED - automatic acknowledgement not supported by stream {WHAT}", automatic)
ended(540, f"NOT_IMPLEMENTED - {WHAT} does not support global qos", together)
ended(540, f"NOT_IMPLEMENTED - basic.get not supported by stream queues {WHAT}", lambda it: it.basic_get("events"))
closed_with(406, lambda: at("soon"))
for wrong in (
    {"durable": False, "arguments": STREAM},
    {"durable": True, "exclusive": True, "arguments": STREAM},
    {"durable": True, "auto_delete": True, "arguments": STREAM},
    {"durable": True, "arguments": {**STREAM, "x-message-ttl": 1000}},
    {"durable": True, "arguments": {**STREAM, "x-max-age": "soon"}},
):
    closed_with(406, lambda: connection.channel().queue_declare("not.so", **wrong))
closed_with(406, lambda: connection.channel().queue_declare("events", durable=True, arguments=STREAM))
closed_with(406, lambda: connection.channel().queue_declare("events", durable=True))
closed_with(404, lambda: connection.channel().queue_declare("not.so", passive=True))

# Its consumers are notified when it is deleted; its bindings go with it.
gone = []
last = connection.channel()
last.basic_qos(prefetch_count=1)
last.add_on_cancel_callback(gone.append)
last.basic_consume("events", lambda *_: None)
assert channel.queue_delete("events").method.message_count == 0
deadline = time.monotonic() + LIMIT
while not gone:
    assert time.monotonic() < deadline, "nobody was told"
    connection.process_data_events(1)
closed_with(404, lambda: connection.channel().queue_declare("events", passive=True))
channel.queue_delete("beside")
try:
    channel.basic_publish("to.streams", "a.b", b"lost", mandatory=True)
    raise AssertionError("it is still bound")
except pika.exceptions.UnroutableError:
    pass
