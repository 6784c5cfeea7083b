"""kombu on py-amqp: simple queues, priorities, a consumer that requeues, and an exchange bound to another."""

from amqp_common import AMQP, LIMIT
from kombu import Connection, Consumer, Exchange, Queue

with Connection(f"amqp://guest:guest@{AMQP}//") as connection:
    # kombu decides the meaning of a prefetch by the server's name and version.
    properties = connection.connection.server_properties
    assert (properties["product"], properties["version"]) == ("RabbitMQ", "4.0.5"), properties

    simple = connection.SimpleQueue("simple")
    for number in range(10):
        simple.put({"number": number})
    for number in range(10):
        message = simple.get(timeout=LIMIT)
        assert message.payload == {"number": number}
        message.ack()
    simple.clear()
    simple.close()

    channel = connection.channel()
    inner = Exchange("kombu.inner", "direct", durable=True)(channel)
    outer = Exchange("kombu.outer", "topic", durable=True)(channel)
    inner.declare()
    outer.declare()
    inner.bind_to(outer, "a.#")
    queue = Queue("kombu.priorities", inner, routing_key="a.b", queue_arguments={"x-max-priority": 10})(channel)
    queue.declare()
    producer = connection.Producer()
    for priority in (1, 5, 9, 3):
        producer.publish(str(priority), exchange=outer, routing_key="a.b", priority=priority)
    assert [queue.get(no_ack=True).payload for _ in range(4)] == ["9", "5", "3", "1"]

    seen = []

    def once(body, message):
        seen.append((body, message.delivery_info["redelivered"]))
        message.ack() if len(seen) > 1 else message.requeue()

    producer.publish("twice", exchange=outer, routing_key="a.b")
    with Consumer(channel, queue, callbacks=[once]):
        while len(seen) < 2:
            connection.drain_events(timeout=LIMIT)
    assert seen == [("twice", False), ("twice", True)], seen
    queue.delete()
    inner.delete()
    outer.delete()
