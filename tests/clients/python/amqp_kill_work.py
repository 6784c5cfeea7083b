"""Publishes 0, 1, 2, … to a durable queue and takes them out again, until a line comes in on stdin.

Whenever the broker goes away, messages acknowledged long before count as settled durably: they must not come again. Before counts from the
begin of the last publishing that it confirmed whole: what it was told before that, over the same connection, it has read. In the
end a file has the numbers of messages that were `confirmed`, ever acknowledged (`taken`) and durably `settled`. The number
of acknowledgements since the last line goes to stdout.
"""

import asyncio
import sys
import threading
import time

from amqp_common import AMQP
from amqp_publishing import ERRORS, close, connect, publish

QUEUE, PATH = sys.argv[2], sys.argv[3]
AT_ONCE = 50
# A settlement is written within some milliseconds; it counts as durable after this time.
LONG_SECONDS = 1


class Ledger:
    def __init__(self):
        self.confirmed, self.settled, self.taken = set(), set(), {}
        self.again = []
        self.heard = 0.0

    def on_message(self, number):
        if number in self.settled:
            self.again.append(number)

    def on_loss(self):
        long_ago = self.heard - LONG_SECONDS
        self.settled.update(number for number, at in self.taken.items() if at < long_ago)


async def take(channel, ledger):
    """Acknowledges every message."""
    await channel.set_qos(prefetch_count=100)
    queue = await channel.declare_queue(QUEUE, durable=True)
    taken = 0

    async def on_message(message):
        nonlocal taken
        number = int(message.body)
        ledger.on_message(number)
        await message.ack()
        ledger.taken[number] = time.monotonic()
        taken += 1
        if taken % 50 == 0:
            print(50, flush=True)

    await queue.consume(on_message)


async def work(stop, ledger):
    pending, following = [], 0
    while not stop.is_set():
        try:
            connection = await connect(AMQP)
            channel = await connection.channel(publisher_confirms=True)
            await channel.declare_queue(QUEUE, durable=True)
            await take(await connection.channel(), ledger)
        except ERRORS:
            await asyncio.sleep(0.02)
            continue
        while not stop.is_set():
            more = AT_ONCE - len(pending)
            pending.extend(range(following, following + more))
            following += more
            begun = time.monotonic()
            confirmed = await publish(connection, channel, QUEUE, pending)
            ledger.confirmed.update(confirmed)
            pending = sorted(set(pending) - set(confirmed))
            if pending:
                ledger.on_loss()
                break
            ledger.heard = begun
        await close(connection)
    assert not ledger.again, f"{len(ledger.again)} settled messages came again, the first is {ledger.again[0]}"


def main():
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    ledger = Ledger()
    asyncio.run(work(stop, ledger))
    with open(PATH, "w", encoding="ascii") as log:
        for what in ("confirmed", "taken", "settled"):
            log.writelines(f"{what} {number}\n" for number in sorted(getattr(ledger, what)))


main()
