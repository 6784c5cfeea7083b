"""pika with consumers that have a filter: on queues what does not match stays for others, on streams it is passed over."""

import json

import pika
from amqp_common import bodies, closed_with, connect, take, until

WHERE = "x-stafett-filter"
connection = connect()
channel = connection.channel()
channel.confirm_delivery()


def publish(queue, number, kind, **properties):
    body = json.dumps({"n": number, "kind": kind}).encode()
    headers = {"parity": number % 2, "text": kind}
    channel.basic_publish("", queue, body, pika.BasicProperties(headers=headers, delivery_mode=2, **properties))


def numbers(taken):
    return [json.loads(body)["n"] for body in bodies(taken)]


# By the content, by headers with their types, and by properties. What does not match stays.
channel.queue_declare("mixed", durable=True)
for number in range(12):
    publish("mixed", number, ["red", "green", "blue"][number % 3])
publish("mixed", 12, "red", priority=7)
channel.basic_publish("", "mixed", b"not JSON", pika.BasicProperties(delivery_mode=2))
for wanted, expected in [
    ("value.kind == 'red' && value.n < 12", [0, 3, 6, 9]),
    ("headers.parity == 1 && headers.text.startsWith('gr')", [1, 7]),
    ("priority > 5 || routing_key == 'other'", [12]),
]:
    assert numbers(take(channel, "mixed", len(expected), arguments={WHERE: wanted})) == expected, wanted
assert numbers(take(channel, "mixed", 2, arguments={WHERE: "has(value.n)"}, auto_ack=True))[0] == 2
until(connection, lambda: channel.queue_declare("mixed", passive=True).method.message_count == 1)
assert bodies(take(channel, "mixed", 1)) == [b"not JSON"]

# Two consumers with equal filters take turns; one without a filter gets the rest. A message that is refused comes again first.
channel.queue_declare("shared", durable=True)
got = {"left": [], "right": [], "rest": []}
held = []


def on(tag, acknowledges=True):
    def callback(its_channel, method, _properties, body):
        got[tag].append(json.loads(body)["n"])
        if acknowledges:
            its_channel.basic_ack(method.delivery_tag)
        else:
            held.append((method.delivery_tag, method.redelivered))

    return callback


even = {WHERE: "value.n % 2 == 0"}
channel.basic_consume("shared", on("left"), consumer_tag="left", arguments=even)
channel.basic_consume("shared", on("right"), consumer_tag="right", arguments=even)
for number in range(40):
    publish("shared", number, "x")
until(connection, lambda: len(got["left"]) + len(got["right"]) == 20)
assert sorted(got["left"] + got["right"]) == list(range(0, 40, 2)), got
assert got["left"] and got["right"], got
channel.basic_consume("shared", on("rest"), consumer_tag="rest")
until(connection, lambda: len(got["rest"]) == 20)
assert got["rest"] == list(range(1, 40, 2)), got
for tag in ("left", "right", "rest"):
    channel.basic_cancel(tag)

one = connection.channel()
one.basic_qos(prefetch_count=1)
got["left"].clear()
for number in range(4):
    publish("shared", number, "x")
one.basic_consume("shared", on("left", acknowledges=False), arguments={WHERE: "value.n >= 2"})
until(connection, lambda: len(held) == 1)
one.basic_nack(held[0][0], requeue=True)
until(connection, lambda: len(held) == 2)
assert got["left"] == [2, 2] and [again for _, again in held] == [False, True], (got, held)
one.basic_ack(held[1][0])
until(connection, lambda: len(held) == 3)
assert got["left"] == [2, 2, 3]
# The end of the channel returns what it holds to its place.
one.close()
assert numbers(take(channel, "shared", 3)) == [0, 1, 3]

# On streams.
channel.queue_declare("events", durable=True, arguments={"x-queue-type": "stream"})
for number in range(9):
    publish("events", number, ["red", "green", "blue"][number % 3])
reader = connection.channel()
reader.basic_qos(prefetch_count=10)
arguments = {"x-stream-offset": "first", WHERE: "value.kind == 'blue'"}
assert numbers(take(reader, "events", 3, arguments=arguments)) == [2, 5, 8]

# Wrong ones are refused with their place.
for queue, wrong in [("mixed", "value.n =="), ("mixed", "nothing > 1"), ("events", "value.n =="), ("mixed", 5)]:
    bad = connection.channel()
    bad.basic_qos(prefetch_count=1)
    closed_with(406, lambda: bad.basic_consume(queue, lambda *_: None, arguments={WHERE: wrong}))
connection.close()
