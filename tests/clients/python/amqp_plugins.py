"""RabbitMQ's plugins: exchanges that distribute messages by a hash, and that delay them."""

import pika
from amqp_common import bodies, closed_with, connect, take

connection = connect()
channel = connection.channel()

# By a hash of the routing key or of a header: equal values go to the same queue, and weights set the shares.
QUEUES = {"hash.light": "1", "hash.heavy": "3"}
for exchange, arguments in (("hash.key", {}), ("hash.header", {"hash-header": "who"})):
    channel.exchange_delete(exchange)
    channel.exchange_declare(exchange, "x-consistent-hash", durable=True, arguments=arguments)
    for queue, weight in QUEUES.items():
        channel.queue_delete(queue)
        channel.queue_declare(queue)
        channel.queue_bind(queue, exchange, weight)
    for number in list(range(400)) * 2:
        name = f"name {number}"
        key, headers = ("same", {"who": name}) if arguments else (name, None)
        channel.basic_publish(exchange, key, name.encode(), pika.BasicProperties(headers=headers))
    got = {}
    for queue in QUEUES:
        count = channel.queue_declare(queue, passive=True).method.message_count
        got[queue] = bodies(take(channel, queue, count))
    light, heavy = got["hash.light"], got["hash.heavy"]
    assert len(light) + len(heavy) == 800 and not set(light) & set(heavy), "each name goes one way"
    assert 0 < len(light) < len(heavy), (len(light), len(heavy))
closed_with(406, lambda: connection.channel().queue_bind("hash.light", "hash.key", "much"))

# Delayed by the time of each message, then routed as by the exchange type behind it.
channel.exchange_declare("delayed", "x-delayed-message", durable=True, arguments={"x-delayed-type": "topic"})
channel.queue_declare("delayed")
channel.queue_bind("delayed", "delayed", "jobs.*")
for body, delay in ((b"last", 3000), (b"second", 1000), (b"at once", None), (b"third", 2000)):
    headers = None if delay is None else {"x-delay": delay}
    channel.basic_publish("delayed", "jobs.now", body, pika.BasicProperties(headers=headers))
channel.basic_publish("delayed", "else", b"nowhere", pika.BasicProperties(headers={"x-delay": 1}))
assert bodies(take(channel, "delayed", 4)) == [b"at once", b"second", b"third", b"last"]
closed_with(
    406,
    lambda: connection.channel().exchange_declare("no.type", "x-delayed-message", arguments={"x-delayed-type": "heap"}),
)
connection.close()
