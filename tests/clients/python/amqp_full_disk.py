"""py-amqp on a disk that runs full: the publisher is blocked and loses nothing, a purge makes space, and it continues."""

import threading

import amqp
from amqp_common import AMQP, LIMIT, connect

QUEUE = "full"
BODY = "x" * 100_000
blocked, unblocked, stop = threading.Event(), threading.Event(), threading.Event()
reasons, failures = [], []
confirmed = 0
more = threading.Condition()


def on_blocked(reason):
    reasons.append(reason)
    blocked.set()


def publish():
    """A refusal would be an exception."""
    global confirmed
    try:
        with amqp.Connection(AMQP, confirm_publish=True, on_blocked=on_blocked, on_unblocked=unblocked.set) as connection:
            channel = connection.channel()
            while not stop.is_set():
                channel.basic_publish(amqp.Message(BODY, delivery_mode=2), routing_key=QUEUE)
                with more:
                    confirmed += 1
                    more.notify()
    except Exception as error:
        failures.append(error)
        blocked.set()
        unblocked.set()


consumer = connect().channel()
consumer.queue_declare(QUEUE, durable=True)
publisher = threading.Thread(target=publish, daemon=True)
publisher.start()
assert blocked.wait(LIMIT) and not failures, failures
# py-amqp reports it in words of its own.
assert len(reasons) == 1, reasons

# Clients that do not publish continue; exactly the confirmed messages are there.
before = confirmed
assert consumer.queue_declare(QUEUE, passive=True).method.message_count == before
method, _, body = consumer.basic_get(QUEUE)
assert body.decode() == BODY
consumer.basic_ack(method.delivery_tag)
assert not unblocked.is_set()
assert consumer.queue_purge(QUEUE).method.message_count == before - 1

assert unblocked.wait(LIMIT) and not failures, failures
with more:
    assert more.wait_for(lambda: confirmed >= before + 20, LIMIT), (before, confirmed)
stop.set()
publisher.join(LIMIT)
assert not failures, failures
assert consumer.queue_declare(QUEUE, passive=True).method.message_count == confirmed - before
print(f"blocked after {before} messages, {confirmed} in the end")
