"""Publishes 0, 1, 2, … to a stream and settles them by a queue over it, without end, until a line comes in on stdin.

Fifty messages at a time wait for their confirms, and are then taken from the queue and settled one by one. Those without a
confirm when the broker goes away are left out. Confirmed messages go to a file; those settled several rounds of confirms
before go to a second one: a message confirmed as synced has everything before it in the journal synced with it. The number of
confirms since the last line goes to stdout.
"""

import sys
import threading

import pika
from amqp_common import connect

STREAM, PATH = sys.argv[2], sys.argv[3]
QUEUE = STREAM + ".queue"
AT_ONCE = 50
# Rounds after which a settlement, which may be delayed by some milliseconds, precedes the last confirm in the journal.
DURABLE_AFTER = 8
ENDS = (pika.exceptions.AMQPError, OSError)


def declare(channel):
    channel.queue_declare(STREAM, durable=True, arguments={"x-queue-type": "stream"})
    channel.queue_declare(QUEUE, durable=True, arguments={"x-stafett-topic": STREAM})


def publish(channel, number):
    channel.basic_publish("", STREAM, b"%d" % number, pika.BasicProperties(delivery_mode=2), mandatory=True)


def settle(channel, count):
    settled = []
    for method, _, body in channel.consume(QUEUE, inactivity_timeout=1):
        if method is None:
            break
        channel.basic_ack(method.delivery_tag)
        settled.append(int(body))
        if len(settled) == count:
            break
    channel.cancel()
    return settled


def load(stop, confirmed_log, settled_log):
    following = 0
    while not stop.is_set():
        try:
            connection = connect()
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_qos(prefetch_count=AT_ONCE)
            declare(channel)
        except ENDS:
            stop.wait(0.02)
            continue
        rounds = []
        try:
            while not stop.is_set():
                for _ in range(AT_ONCE):
                    publish(channel, following)
                    confirmed_log.write(f"{following}\n")
                    following += 1
                confirmed_log.flush()
                print(AT_ONCE, flush=True)
                rounds.append(settle(channel, AT_ONCE // 2))
                if len(rounds) > DURABLE_AFTER:
                    settled_log.writelines(f"{number}\n" for number in rounds.pop(0))
                    settled_log.flush()
            connection.close()
        except ENDS:
            # It is unknown if this one is stored: it is left out.
            following += 1


def main():
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    with open(PATH, "w", encoding="ascii") as confirmed, open(PATH + ".settled", "w", encoding="ascii") as settled:
        load(stop, confirmed, settled)


main()
