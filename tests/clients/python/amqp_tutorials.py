"""The patterns of RabbitMQ's seven tutorials, with pika: hello, work queues, publish/subscribe, routing, topics, RPC, and
publisher confirms."""

import pika
from amqp_common import bodies, connect, take

connection = connect()
channel = connection.channel()


def hello():
    channel.queue_declare("hello")
    channel.basic_publish("", "hello", b"Hello World!")
    assert bodies(take(channel, "hello", 1, auto_ack=True)) == [b"Hello World!"]


def work_queue():
    channel.queue_declare("tasks", durable=True)
    for number in range(10):
        channel.basic_publish("", "tasks", b"%d" % number, pika.BasicProperties(delivery_mode=2))
    done = {"slow": [], "fast": []}
    slow, fast = connection.channel(), connection.channel()
    for name, worker in (("slow", slow), ("fast", fast)):
        worker.basic_qos(prefetch_count=1)

        def work(worker, method, _properties, body, name=name):
            done[name].append(body)
            # The slow one never finishes its first task.
            if name == "fast":
                worker.basic_ack(method.delivery_tag)

        worker.basic_consume("tasks", work)
    while len(done["fast"]) < 9:
        connection.process_data_events(1)
    assert len(done["slow"]) == 1
    slow.close()
    while len(done["fast"]) < 10:
        connection.process_data_events(1)
    assert sorted(done["fast"]) == [b"%d" % number for number in range(10)]
    fast.close()


def publish_subscribe():
    channel.exchange_declare("logs", "fanout")
    queues = [channel.queue_declare("", exclusive=True).method.queue for _ in range(2)]
    for queue in queues:
        channel.queue_bind(queue, "logs")
    channel.basic_publish("logs", "", b"info")
    for queue in queues:
        assert bodies(take(channel, queue, 1)) == [b"info"]


def routing():
    channel.exchange_declare("direct_logs", "direct")
    queue = channel.queue_declare("", exclusive=True).method.queue
    for severity in ("warning", "error"):
        channel.queue_bind(queue, "direct_logs", severity)
    for severity in ("info", "warning", "error"):
        channel.basic_publish("direct_logs", severity, severity.encode())
    assert bodies(take(channel, queue, 2)) == [b"warning", b"error"]


def topics():
    channel.exchange_declare("topic_logs", "topic")
    wanted = {"#": 4, "kern.*": 2, "*.critical": 2, "kern.critical": 1, "*.*.rabbit": 1, "lazy.#": 1}
    queues = {}
    for pattern in wanted:
        queues[pattern] = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(queues[pattern], "topic_logs", pattern)
    for key in ("kern.critical", "kern.info", "cron.critical", "lazy.pink.rabbit"):
        channel.basic_publish("topic_logs", key, key.encode())
    for pattern, count in wanted.items():
        found = channel.queue_declare(queues[pattern], passive=True).method.message_count
        assert found == count, (pattern, found)


def rpc(reply_to):
    server = connection.channel()
    server.queue_declare("rpc_queue")

    def on_request(server, method, properties, body):
        answer = str(int(body) * 2).encode()
        server.basic_publish("", properties.reply_to, answer, pika.BasicProperties(correlation_id=properties.correlation_id))
        server.basic_ack(method.delivery_tag)

    server.basic_consume("rpc_queue", on_request)
    answers = []
    client = connection.channel()
    replies = reply_to or client.queue_declare("", exclusive=True).method.queue
    client.basic_consume(replies, lambda _c, _m, properties, body: answers.append((properties.correlation_id, body)), auto_ack=True)
    for number in range(3):
        properties = pika.BasicProperties(reply_to=replies, correlation_id=str(number))
        client.basic_publish("", "rpc_queue", b"%d" % number, properties)
    while len(answers) < 3:
        connection.process_data_events(1)
    assert answers == [("0", b"0"), ("1", b"2"), ("2", b"4")], answers
    client.close()
    server.close()


def publisher_confirms():
    confirmed = connection.channel()
    confirmed.confirm_delivery()
    queue = confirmed.queue_declare("confirmed", durable=True).method.queue
    for number in range(100):
        confirmed.basic_publish("", queue, b"%d" % number, pika.BasicProperties(delivery_mode=2))
    assert bodies(take(confirmed, queue, 100)) == [b"%d" % number for number in range(100)]


hello()
work_queue()
publish_subscribe()
routing()
topics()
rpc(None)
rpc("amq.rabbitmq.reply-to")
publisher_confirms()
connection.close()
