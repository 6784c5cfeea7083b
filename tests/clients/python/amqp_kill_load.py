"""Publishes 0, 1, 2, … to a durable queue without end, until a line comes in on stdin.

Fifty messages at a time wait for their confirms; when the broker goes away, those without one are published again, in
their order. Confirmed messages go to a file, and the number of confirms since the last line to stdout.
"""

import asyncio
import itertools
import sys
import threading

import aio_pika
from amqp_common import ADDRESSES, LIMIT

QUEUE, PATH = sys.argv[2], sys.argv[3]
AT_ONCE = 50


async def publish(channel, number):
    message = aio_pika.Message(b"%d" % number, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
    await channel.default_exchange.publish(message, QUEUE)
    return number


async def load(stop, log):
    pending, following = [], 0
    addresses = itertools.cycle(ADDRESSES)
    while not stop.is_set():
        try:
            connection = await asyncio.wait_for(aio_pika.connect(f"amqp://guest:guest@{next(addresses)}/"), LIMIT)
            channel = await connection.channel(publisher_confirms=True)
            await channel.declare_queue(QUEUE, durable=True)
        except (aio_pika.exceptions.AMQPError, OSError, RuntimeError):
            await asyncio.sleep(0.02)
            continue
        while not stop.is_set():
            more = AT_ONCE - len(pending)
            pending.extend(range(following, following + more))
            following += more
            sent = [publish(channel, number) for number in pending]
            confirmed = [done for done in await asyncio.gather(*sent, return_exceptions=True) if isinstance(done, int)]
            log.writelines(f"{number}\n" for number in confirmed)
            log.flush()
            if confirmed:
                print(len(confirmed), flush=True)
            pending = sorted(set(pending) - set(confirmed))
            if pending:
                break
        try:
            await asyncio.wait_for(connection.close(), LIMIT)
        except (aio_pika.exceptions.AMQPError, OSError, RuntimeError):
            pass


def main():
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    with open(PATH, "w", encoding="ascii") as log:
        asyncio.run(load(stop, log))


main()
