"""Shared by the scripts with RabbitMQ's Python clients."""

import sys
import time

import pika

# Several addresses of one broker: the first one is usual.
ADDRESSES = sys.argv[1].split(",")
AMQP = ADDRESSES[0]
HOST, PORT = AMQP.rsplit(":", 1)
# Guard against a hanging test, in seconds; no step here needs to be quick.
LIMIT = 240


def connect(**settings):
    return pika.BlockingConnection(
        pika.ConnectionParameters(HOST, int(PORT), blocked_connection_timeout=LIMIT, socket_timeout=LIMIT, **settings)
    )


def until(connection, is_so):
    """Runs callbacks until `is_so()`, and until everything under way at that time has arrived."""
    deadline = time.monotonic() + LIMIT
    while not is_so():
        assert time.monotonic() < deadline, "it never was"
        connection.process_data_events(0.1)
    connection.channel().close()
    connection.process_data_events(0)


def take(channel, queue, count, **settings):
    """Consumes `count` messages: (method, properties, body); acknowledges them unless `settings` differ."""
    taken = []
    automatic = settings.pop("auto_ack", False)
    for method, properties, body in channel.consume(queue, inactivity_timeout=LIMIT, auto_ack=automatic, **settings):
        assert method is not None, f"{queue}: only {len(taken)} of {count} messages came"
        taken.append((method, properties, body))
        if not automatic:
            channel.basic_ack(method.delivery_tag)
        if len(taken) == count:
            break
    channel.cancel()
    return taken


def bodies(taken):
    return [body for _, _, body in taken]


def closed_with(code, call):
    """The call must end its channel with the code."""
    try:
        call()
    except pika.exceptions.ChannelClosedByBroker as error:
        assert error.reply_code == code, error
        return
    raise AssertionError(f"nothing ended with {code}")
