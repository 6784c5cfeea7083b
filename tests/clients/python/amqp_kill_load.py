"""Publishes 0, 1, 2, … to a durable queue without end, until a line comes in on stdin.

Each message waits for its confirm; when the broker goes away, the one that was under way is published again. What is
confirmed goes to a file, and the number of confirms since the last line to stdout.
"""

import sys
import threading
import time

import pika
from amqp_common import connect

QUEUE, PATH = sys.argv[2], sys.argv[3]
DURABLE = pika.BasicProperties(delivery_mode=2)


def confirmed(connection):
    channel = connection.channel()
    channel.queue_declare(QUEUE, durable=True)
    channel.confirm_delivery()
    return channel


def main():
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    number = told = 0
    with open(PATH, "w", encoding="ascii") as log:
        channel = None
        while not stop.is_set():
            try:
                channel = channel or confirmed(connect(heartbeat=0))
                channel.basic_publish("", QUEUE, b"%d" % number, DURABLE)
            except (pika.exceptions.AMQPError, OSError):
                channel = None
                time.sleep(0.02)
                continue
            log.write(f"{number}\n")
            number += 1
            if number - told >= 50:
                log.flush()
                print(number - told, flush=True)
                told = number
    print(max(number - told, 1), flush=True)


main()
