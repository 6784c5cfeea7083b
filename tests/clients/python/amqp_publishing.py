"""Shared by the scripts that publish with aio-pika while the broker goes away."""

import asyncio

import aio_pika
from amqp_common import LIMIT

ERRORS = (aio_pika.exceptions.AMQPError, OSError, RuntimeError)


async def connect(address):
    return await asyncio.wait_for(aio_pika.connect(f"amqp://guest:guest@{address}/"), LIMIT)


async def close(connection):
    try:
        await asyncio.wait_for(connection.close(), LIMIT)
    except ERRORS:
        pass


async def publish(connection, channel, queue, numbers):
    """Publishes all numbers at once; returns those that were confirmed.

    Publishes are cancelled when the connection ends: those that wait for room in the client's queue of frames would
    wait for ever, since nothing takes frames out of it any more (aiormq 7.2).
    """

    async def one(number):
        message = aio_pika.Message(b"%d" % number, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, queue)
        return number

    tasks = [asyncio.ensure_future(one(number)) for number in numbers]
    everything = asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.wait([everything, connection.transport.connection.closing], return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    return [done for done in await asyncio.gather(*tasks, return_exceptions=True) if isinstance(done, int)]
