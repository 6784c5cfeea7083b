"""librdkafka over several cells: a topic that is spread has leaders in all of them, which one client finds.

Arguments: the addresses of Kafka's protocol, with commas between nodes. Says "ready" and waits for a line once the topic is
filled, goes on to produce while a node is killed, and reads all of it back.
"""

import sys
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, AlterConfigOpType, ConfigEntry, NewTopic

nodes = sys.argv[1].split(",")
CELLS, PARTITIONS, COUNT = 4, 8, 2000
TOPIC = "wide"


def topics(address):
    return AdminClient({"bootstrap.servers": address}).list_topics(timeout=30)


def leaders(metadata):
    return {number: partition.leader for number, partition in metadata.topics[TOPIC].partitions.items()}


def wait_for(what, is_so):
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def create(admin, name, partitions, **config):
    for made in admin.create_topics([NewTopic(name, partitions, config=config)]).values():
        made.result()


admin = AdminClient({"bootstrap.servers": nodes[1]})
create(admin, TOPIC, PARTITIONS, **{"stafett.spread": "true"})
create(admin, "narrow", 2)
wait_for("all partitions have leaders", lambda: -1 not in leaders(topics(nodes[0])).values())

# Each node, and each cell, says the same.
seen = topics(nodes[0])
by_leader = leaders(seen)
assert len(set(by_leader.values())) == CELLS, by_leader
assert {p.leader for p in seen.topics["narrow"].partitions.values()} == {seen.controller_id}
cells = {number: f"{broker.host}:{broker.port}" for number, broker in seen.brokers.items() if number in by_leader.values()}
for address in [*nodes, *cells.values()]:
    wait_for(f"{address} knows the topic", lambda: TOPIC in topics(address).topics)
    assert leaders(topics(address)) == by_leader, address
    assert (topics(address).controller_id, topics(address).cluster_id) == (seen.controller_id, seen.cluster_id)

# A cell has requests about topics, groups and settings executed by the first one.
of_cell = AdminClient({"bootstrap.servers": next(a for number, a in cells.items() if number != seen.controller_id)})
create(of_cell, "made-at-a-cell", 3, **{"stafett.spread": "true"})
changed = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
changed.add_incremental_config(ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET))
for altered in of_cell.incremental_alter_configs([changed]).values():
    altered.result()
changed = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
changed.add_incremental_config(ConfigEntry("stafett.spread", "false", incremental_operation=AlterConfigOpType.SET))
for altered in of_cell.incremental_alter_configs([changed]).values():
    try:
        altered.result()
        raise SystemExit("a topic was moved into one cell")
    except KafkaException as error:
        assert "stafett.spread" in str(error), error

failed, stored = [], 0


def on_delivery(error, message):
    global stored
    stored += 1
    if error is not None:
        failed.append(str(error))


producer = Producer({"bootstrap.servers": ",".join(nodes), "enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": 120_000})


def produce(numbers):
    for number in numbers:
        producer.produce(TOPIC, f"{number}", key=f"{number % 100}", on_delivery=on_delivery)
        producer.poll(0)
        time.sleep(0.001)


produce(range(COUNT))
assert producer.flush(60) == 0

# Clients ask every node, and the lists are one behind the other.
early = Consumer({"bootstrap.servers": nodes[0], "group.id": "early"})
early.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
early.close()
listed = admin.list_consumer_groups().result()
assert ([group.group_id for group in listed.valid], listed.errors) == (["early"], []), (listed.valid, listed.errors)

print("ready", flush=True)
sys.stdin.readline()
produce(range(COUNT, 2 * COUNT))
assert producer.flush(120) == 0
assert (failed, stored) == ([], 2 * COUNT), (failed[:3], stored)


def consume(group, enough):
    consumer = Consumer({"bootstrap.servers": ",".join(nodes), "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    got, end = [], time.monotonic() + 90
    while len(got) < enough and time.monotonic() < end:
        for message in consumer.consume(500, 0.5):
            if message.error() is None:
                got.append((message.key(), int(message.value())))
    consumer.commit(asynchronous=False)
    consumer.close()
    return got


got = consume("readers", 2 * COUNT)
assert sorted(number for _, number in got) == list(range(2 * COUNT)), len(got)
last = {}
for key, number in got:
    assert last.get(key, -1) < number, (key, number, last[key])
    last[key] = number
produce(range(2 * COUNT, 2 * COUNT + 100))
assert producer.flush(60) == 0
again = consume("readers", 100)
assert sorted(number for _, number in again) == list(range(2 * COUNT, 2 * COUNT + 100)), again
