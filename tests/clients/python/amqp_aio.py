"""aio-pika: robust connections, confirms, iterators, a message of several frames, headers exchanges."""

import asyncio

import aio_pika
from amqp_common import AMQP, LIMIT


async def main():
    connection = await aio_pika.connect_robust(f"amqp://guest:guest@{AMQP}/")
    async with connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        await channel.set_qos(prefetch_count=10)
        queue = await channel.declare_queue("aio", durable=True)
        exchange = await channel.declare_exchange("aio", aio_pika.ExchangeType.HEADERS)
        await queue.bind(exchange, "", arguments={"x-match": "all", "kind": "wanted", "n": 1})
        for number in range(100):
            wanted = {"kind": "wanted", "n": 1, "number": number}
            await exchange.publish(aio_pika.Message(b"%d" % number, headers=wanted, delivery_mode=2), "")
        try:
            await exchange.publish(aio_pika.Message(b"no", headers={"kind": "other"}), "")
            raise AssertionError("it should have come back")
        except aio_pika.exceptions.DeliveryError:
            pass
        count = 0
        async with queue.iterator() as messages:
            async for message in messages:
                async with message.process():
                    assert message.body == b"%d" % count and message.headers["number"] == count
                    count += 1
                if count == 100:
                    break
        large = bytes(range(256)) * 20_000
        await channel.default_exchange.publish(aio_pika.Message(large), "aio")
        message = await queue.get(timeout=LIMIT)
        assert message.body == large
        await message.ack()
        await queue.delete()
        await exchange.delete()


asyncio.run(asyncio.wait_for(main(), LIMIT))
