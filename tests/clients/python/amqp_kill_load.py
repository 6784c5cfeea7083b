"""Publishes 0, 1, 2, … to a durable queue without end, until a line comes in on stdin.

Fifty messages at a time wait for their confirms; when the broker goes away, those without one are published again, in
their order. Confirmed messages go to a file, and the number of confirms since the last line to stdout.
"""

import asyncio
import itertools
import sys
import threading

from amqp_common import ADDRESSES
from amqp_publishing import ERRORS, close, connect, publish

QUEUE, PATH = sys.argv[2], sys.argv[3]
AT_ONCE = 50


async def load(stop, log):
    pending, following = [], 0
    addresses = itertools.cycle(ADDRESSES)
    while not stop.is_set():
        try:
            connection = await connect(next(addresses))
            channel = await connection.channel(publisher_confirms=True)
            await channel.declare_queue(QUEUE, durable=True)
        except ERRORS:
            await asyncio.sleep(0.02)
            continue
        while not stop.is_set():
            more = AT_ONCE - len(pending)
            pending.extend(range(following, following + more))
            following += more
            confirmed = await publish(connection, channel, QUEUE, pending)
            log.writelines(f"{number}\n" for number in confirmed)
            log.flush()
            if confirmed:
                print(len(confirmed), flush=True)
            pending = sorted(set(pending) - set(confirmed))
            if pending:
                break
        await close(connection)


def main():
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    with open(PATH, "w", encoding="ascii") as log:
        asyncio.run(load(stop, log))


main()
