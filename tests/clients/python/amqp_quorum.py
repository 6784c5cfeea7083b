"""Quorum queues, as RabbitMQ 4.0.5 has them: two priorities, messages that came back first, an active consumer that gives way,
a limit of redeliveries, and what is refused. It passes against RabbitMQ as well.
"""

import time

import pika
from amqp_common import LIMIT, connect, until

QUORUM = {"x-queue-type": "quorum"}


def declare(channel, name, **arguments):
    channel.queue_delete(name)
    channel.queue_declare(name, durable=True, arguments={**QUORUM, **{key.replace("_", "-"): value for key, value in arguments.items()}})
    return name


def publish(channel, queue, body, **properties):
    channel.basic_publish("", queue, body, pika.BasicProperties(**properties))


def get(channel, queue, acknowledge=True):
    """The next message, as soon as there is one."""
    deadline = time.monotonic() + LIMIT
    while True:
        method, properties, body = channel.basic_get(queue, auto_ack=acknowledge)
        if method is not None:
            return method, properties, body
        assert time.monotonic() < deadline, f"{queue} has nothing"


def closed_connection_with(code, text, call):
    connection = connect()
    try:
        call(connection.channel())
    except pika.exceptions.ConnectionClosedByBroker as error:
        assert (error.reply_code, text in error.reply_text) == (code, True), error
        return
    raise AssertionError(f"nothing ended with {code}")


def priorities(channel):
    queue = declare(channel, "quorum.priorities")
    # Those of before come before: of three, one is normal, and it is the oldest that is.
    for number, priority in enumerate([None, 0, 4, 1, None, 5, 9, 255, 6, 7]):
        publish(channel, queue, str(number).encode(), priority=priority)
    order = [get(channel, queue)[2].decode() for _ in range(10)]
    assert order == ["5", "6", "0", "7", "8", "1", "9", "2", "3", "4"], order
    # No normal one goes before a high one that came first.
    queue = declare(channel, "quorum.priorities")
    sent = [("h1", 5), ("h2", 5), ("h3", 5), ("l1", 0), ("h4", 5), ("l2", 0), ("l3", 0), ("h5", 9)]
    for body, priority in sent:
        publish(channel, queue, body.encode(), priority=priority)
    order = [get(channel, queue)[2].decode() for _ in range(8)]
    assert order == ["h1", "h2", "h3", "h4", "h5", "l1", "l2", "l3"], order


def returned(channel):
    queue = declare(channel, "quorum.returned")
    publish(channel, queue, b"normal")
    publish(channel, queue, b"next")
    method, _, body = get(channel, queue, acknowledge=False)
    assert body == b"normal"
    publish(channel, queue, b"high", priority=9)
    channel.basic_nack(method.delivery_tag, requeue=True)
    first = get(channel, queue)
    assert first[2] == b"normal" and first[0].redelivered and first[1].headers["x-delivery-count"] == 1, first
    assert [get(channel, queue)[2] for _ in range(2)] == [b"high", b"next"]
    # Returned messages go first, in the order of their return. So do those of a closed channel, and their count rises.
    for body in (b"1", b"2", b"3", b"4"):
        publish(channel, queue, body)
    tags = [get(channel, queue, acknowledge=False)[0].delivery_tag for _ in range(3)]
    for tag in (tags[2], tags[0], tags[1]):
        channel.basic_nack(tag, requeue=True)
    assert [get(channel, queue)[2] for _ in range(4)] == [b"3", b"1", b"2", b"4"]
    publish(channel, queue, b"held")
    other = connect()
    get(other.channel(), queue, acknowledge=False)
    other.close()
    _, properties, _ = get(channel, queue)
    assert properties.headers["x-delivery-count"] == 1, properties


def too_many(channel):
    dead = declare(channel, "quorum.dead")
    queue = declare(
        channel,
        "quorum.full",
        x_max_length=1,
        x_overflow="reject-publish-dlx",
        x_dead_letter_exchange="",
        x_dead_letter_routing_key=dead,
    )
    for body in (b"1", b"2", b"3"):
        publish(channel, queue, body)
    assert [get(channel, queue)[2], get(channel, dead)[2], get(channel, dead)[2]] == [b"3", b"1", b"2"]


def limit(channel):
    declare(channel, "quorum.dead")
    queue = declare(
        channel,
        "quorum.limit",
        x_delivery_limit=1,
        x_dead_letter_exchange="",
        x_dead_letter_routing_key="quorum.dead",
    )
    publish(channel, queue, b"poison")
    for count in (None, 1):
        method, properties, _ = get(channel, queue, acknowledge=False)
        assert (properties.headers or {}).get("x-delivery-count") == count, properties
        channel.basic_reject(method.delivery_tag, requeue=True)
    _, properties, body = get(channel, "quorum.dead")
    death = properties.headers["x-death"][0]
    assert body == b"poison"
    assert (death["reason"], death["queue"], death["count"], death["exchange"]) == ("delivery_limit", queue, 1, ""), death
    assert properties.headers["x-first-death-reason"] == "delivery_limit", properties.headers


def gives_way(channel):
    queue = declare(channel, "quorum.active", x_single_active_consumer=True)
    connection = connect()
    other = connection.channel()
    got = []

    def consumer(name):
        return lambda _channel, method, _properties, body: got.append((name, body, method.delivery_tag))

    other.basic_consume(queue, consumer("low"))
    publish(channel, queue, b"1")
    until(connection, lambda: len(got) == 1)
    other.basic_consume(queue, consumer("high"), arguments={"x-priority": 5})
    publish(channel, queue, b"2")
    until(connection, lambda: True)
    assert [name for name, _, _ in got] == ["low"], got
    other.basic_ack(got[0][2])
    until(connection, lambda: len(got) == 2)
    assert got[1][:2] == ("high", b"2"), got
    connection.close()


def refusals(channel):
    queue = declare(channel, "quorum.refuses")
    unconditionally = "flag set are not supported by quorum queues"
    closed_connection_with(540, f"if-unused {unconditionally}", lambda channel: channel.queue_delete(queue, if_unused=True))
    closed_connection_with(540, f"if-empty {unconditionally}", lambda channel: channel.queue_delete(queue, if_empty=True))

    def shared(channel):
        channel.basic_qos(prefetch_count=1, global_qos=True)
        channel.basic_consume(queue, lambda *_: None)

    closed_connection_with(540, "does not support global qos", shared)
    channel.queue_delete(queue)


def main():
    channel = connect().channel()
    channel.confirm_delivery()
    priorities(channel)
    returned(channel)
    too_many(channel)
    limit(channel)
    gives_way(channel)
    refusals(channel)
    for name in ("priorities", "returned", "limit", "full", "dead", "active"):
        channel.queue_delete(f"quorum.{name}")


main()
