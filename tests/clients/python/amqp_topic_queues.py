"""pika on a queue over a topic: records of Kafka's clients, settled one by one by workers that share it."""

import sys
import time

import pika
from amqp_common import LIMIT, bodies, closed_with, connect, take, until
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

KAFKA = sys.argv[2]
admin = AdminClient({"bootstrap.servers": KAFKA})
admin.create_topics([NewTopic("jobs", 3)])["jobs"].result(LIMIT)
producer = Producer({"bootstrap.servers": KAFKA})
for number in range(300):
    producer.produce("jobs", b"%d" % number, b"key-%d" % number, partition=number % 3)
assert producer.flush(LIMIT) == 0

connection = connect()
channel = connection.channel()
channel.confirm_delivery()
channel.queue_declare("jobs.dead", durable=True)
arguments = {
    "x-stafett-topic": "jobs",
    "x-queue-type": "quorum",
    "x-delivery-limit": 1,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "jobs.dead",
}
assert channel.queue_declare("work", durable=True, arguments=arguments).method.message_count == 300
channel.queue_declare("work", durable=True, arguments=arguments)

# One that comes back too often is dead-lettered.
method, _, often = channel.basic_get("work")
channel.basic_nack(method.delivery_tag)
method, properties, again = channel.basic_get("work")
assert again == often and method.redelivered and properties.headers["x-delivery-count"] == 1, properties
channel.basic_nack(method.delivery_tag)
[(_, properties, body)] = take(channel, "jobs.dead", 1)
assert body == often and properties.headers["x-death"][0]["reason"] == "delivery_limit", properties

# Two workers share the messages; each partition keeps its order; one rejects its messages.
got = {1: [], 2: []}
workers = {}
for worker in got:
    workers[worker] = connection.channel()
    workers[worker].basic_qos(prefetch_count=10)
    workers[worker].basic_consume("work", lambda _c, m, p, body, worker=worker: got[worker].append((m.delivery_tag, p, body)))
until(connection, lambda: sum(map(len, got.values())) >= 20)
assert [len(each) for each in got.values()] == [10, 10], "each has what its prefetch lets it"
for tag, properties, body in got[1]:
    assert properties.headers["stafett-key"] == b"key-" + body
    workers[1].basic_ack(tag)
for tag, _, _ in got[2]:
    workers[2].basic_nack(tag, requeue=False)
dead = take(channel, "jobs.dead", 10)
assert sorted(bodies(dead)) == sorted(body for _, _, body in got[2][:10])
death = dead[0][1].headers["x-death"][0]
assert (death["queue"], death["reason"], death["count"]) == ("work", "rejected", 1), death
settled = {often, *(body for each in got.values() for _, _, body in each[:10])}
# Both are at their prefetch limit, so messages that one returns on its close do not go to the other: a second return would
# exceed the delivery limit.
until(connection, lambda: all(len(each) >= 20 for each in got.values()))
for worker in workers.values():
    worker.close()
# Their unsettled messages return soon.
until(connection, lambda: channel.queue_declare("work", passive=True).method.message_count == 279)

channel.basic_qos(prefetch_count=50)
rest = take(channel, "work", 279)
assert not settled & set(bodies(rest))
for partition in range(3):
    own = [int(body) for body in bodies(rest) if int(body) % 3 == partition]
    fresh = [number for (method, _, _), number in zip(rest, map(int, bodies(rest))) if number % 3 == partition and not method.redelivered]
    assert fresh == sorted(fresh), f"partition {partition} is out of order"
assert len({*bodies(rest), *settled}) == 300

# A message published to the queue is a record of the topic; no record of the topic is gone.
channel.basic_publish("", "work", b"new", pika.BasicProperties(delivery_mode=1, headers={"stafett-key": "k"}), mandatory=True)
[(_, _, body)] = take(channel, "work", 1)
assert body == b"new"
consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": "unused", "enable.auto.commit": False})
consumer.assign([TopicPartition("jobs", partition, 0) for partition in range(3)])
records = []
deadline = time.monotonic() + LIMIT
while len(records) < 301:
    assert time.monotonic() < deadline, len(records)
    record = consumer.poll(1)
    if record is not None:
        assert record.error() is None, record.error()
        records.append(record)
assert [record.key() for record in records if record.value() == b"new"] == [b"k"]

# A second queue over the same topic has its own state; it may begin with the next records.
late = {"x-stafett-topic": "jobs", "x-stafett-from": "next"}
assert channel.queue_declare("late", durable=True, arguments=late).method.message_count == 0
producer.produce("jobs", b"for both", partition=0)
assert producer.flush(LIMIT) == 0
assert bodies(take(channel, "late", 1)) == [b"for both"]
assert bodies(take(channel, "work", 1)) == [b"for both"]

# Retention that removes unsettled records: they are lost to the queue, and the queue continues.
all_of_it = {"x-stafett-topic": "jobs"}
channel.queue_declare("slow", durable=True, arguments=all_of_it)
gone = admin.delete_records([TopicPartition("jobs", 1, 50)])
for done in gone.values():
    done.result(LIMIT)
left = channel.queue_declare("slow", passive=True).method.message_count
assert left == 302 - 50, left
first = next(int(body) for body in bodies(take(channel, "slow", left)) if body.isdigit() and int(body) % 3 == 1)
assert first == 3 * 50 + 1, first

# Purging settles; the topic stays. Arguments that a queue over a topic cannot have are refused.
channel.queue_declare("purged", durable=True, arguments=all_of_it)
assert channel.queue_purge("purged").method.message_count == left
assert channel.queue_declare("made.anew", durable=True, arguments=all_of_it).method.message_count == left
closed_with(406, lambda: connection.channel().queue_declare("no", durable=True, arguments={**all_of_it, "x-max-length": 1}))
closed_with(404, lambda: connection.channel().queue_declare("no", durable=True, arguments={"x-stafett-topic": "nowhere"}))
closed_with(406, lambda: connection.channel().queue_declare("late", durable=True, arguments=all_of_it))

# It can be deleted and leaves the topic; and it goes with the topic.
channel.queue_delete("purged")
admin.delete_topics(["jobs"])["jobs"].result(LIMIT)
for name in ("work", "late", "slow", "made.anew"):
    closed_with(404, lambda: connection.channel().queue_declare(name, passive=True))
