"""Groups of librdkafka that are spread over several cells: all records of a topic come to each group, and its commits
count, while a node is killed.

Arguments: the addresses of Kafka's protocol and of HTTP, with commas between nodes. Says "ready" and waits for a line
once all groups consume, goes on while a node is killed, and compares what came and what is committed with what was sent.
"""

import http.client
import json
import sys
import threading
import time
from collections import Counter

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

nodes, http_nodes = sys.argv[1:3]
CELLS, PARTITIONS, MEMBERS, BEFORE, AFTER = 4, 8, 2, 400, 2000
TOPIC = "wide"
GROUPS = [f"spread-{number}" for number in range(8)]
LIMIT = 240  # seconds: a guard against hanging, not an expectation


def protocol(group):
    """Both protocols, in turn."""
    return "consumer" if GROUPS.index(group) % 2 else "classic"


class Member(threading.Thread):
    def __init__(self, group):
        super().__init__(daemon=True)
        self.group, self.seen, self.failed = group, Counter(), None
        self.ends = threading.Event()

    def run(self):
        settings = {
            "bootstrap.servers": nodes,
            "group.id": self.group,
            "group.protocol": protocol(self.group),
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        if protocol(self.group) == "classic":
            settings["session.timeout.ms"] = 6000
        try:
            self.consume(Consumer(settings))
        except BaseException as error:
            self.failed = error

    def consume(self, consumer):
        consumer.subscribe([TOPIC])
        while not self.ends.is_set():
            messages = [message for message in consumer.consume(200, 0.2) if message.error() is None]
            self.seen.update(message.value().decode() for message in messages)
            if messages:
                self.commit(consumer)
        consumer.close()

    def commit(self, consumer):
        """Commits what was taken. What is refused is committed by the next owner of the partition, or later."""
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            code = error.args[0].code()
            lost = {
                KafkaError._NO_OFFSET,
                KafkaError._TIMED_OUT,
                KafkaError._TRANSPORT,
                KafkaError._WAIT_COORD,
                KafkaError._ASSIGNMENT_LOST,
                KafkaError.ILLEGAL_GENERATION,
                KafkaError.REBALANCE_IN_PROGRESS,
                KafkaError.UNKNOWN_MEMBER_ID,
                KafkaError.STALE_MEMBER_EPOCH,
                KafkaError.FENCED_MEMBER_EPOCH,
                KafkaError.NOT_COORDINATOR,
                KafkaError.COORDINATOR_NOT_AVAILABLE,
                KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
                KafkaError.REQUEST_TIMED_OUT,
            }
            assert code in lost, error


def cell_of_name(name):
    """FNV-1a of 64 bits, modulo the number of cells."""
    hashed = 0xCBF29CE484222325
    for byte in name.encode():
        hashed = (hashed ^ byte) * 0x100000001B3 % 2**64
    return hashed % CELLS


sent = set()
producer = Producer({"bootstrap.servers": nodes, "enable.idempotence": True})


def produce(count):
    def on_delivery(error, message):
        assert error is None, error
        sent.add(message.value().decode())

    begin = len(sent)
    for number in range(begin, begin + count):
        producer.produce(TOPIC, str(number), partition=number % PARTITIONS, on_delivery=on_delivery)
        if number % 20 == 0:
            producer.poll(0.02)
    assert producer.flush(LIMIT) == 0


def until(what, is_so):
    end = time.monotonic() + LIMIT
    while not is_so():
        failed = [(member.group, member.failed) for member in members if member.failed]
        assert not failed, failed
        assert time.monotonic() < end, (what, {group: len(seen(group)) for group in GROUPS}, len(sent))
        time.sleep(0.1)


def seen(group):
    return set().union(*(member.seen for member in members if member.group == group))


def committed(group):
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(LIMIT)
    return {place.partition: place.offset for place in listed.topic_partitions}


def ask(method, path, body=None):
    connection = http.client.HTTPConnection(http_nodes.split(",")[0], timeout=LIMIT)
    connection.request(method, path, body and json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


admin = AdminClient({"bootstrap.servers": nodes})
created = admin.create_topics([NewTopic(TOPIC, PARTITIONS, config={"stafett.spread": "true"})])
created[TOPIC].result(LIMIT)
members = [Member(group) for group in GROUPS for _ in range(MEMBERS)]
for member in members:
    member.start()
produce(BEFORE)
until("all groups consume", lambda: all(seen(group) == sent for group in GROUPS))

described = admin.describe_consumer_groups(GROUPS)
coordinators = {group: future.result(LIMIT).coordinator.id for group, future in described.items()}
assert len(set(coordinators.values())) > 2, coordinators
listed = {group.group_id for group in admin.list_consumer_groups().result(LIMIT).valid}
assert listed >= set(GROUPS), listed

print("ready", flush=True)
sys.stdin.readline()
produce(AFTER)
until("all records came", lambda: all(seen(group) == sent for group in GROUPS))
# The other one stays with coordinators at the node that is gone for a minute.
admin = AdminClient({"bootstrap.servers": nodes})


def is_committed(group):
    found = committed(group)
    return sum(found.values()) == len(sent)


until("all is committed", lambda: all(is_committed(group) for group in GROUPS))
for member in members:
    member.ends.set()
for member in members:
    member.join(LIMIT)
    assert not member.failed and not member.is_alive(), (member.group, member.failed)
again = sum(sum(member.seen.values()) for member in members) - len(GROUPS) * len(sent)
print(f"{len(sent)} records, {len(GROUPS)} groups, {again} came again", file=sys.stderr)

# Over HTTP they are found through the first cell, and take no members.
status, page = ask("GET", "/v1/groups?sort=name&count=100")
names = [group["name"] for group in page["items"]]
assert status == 200 and names == sorted(names) and set(names) >= set(GROUPS), (status, page)
for group in GROUPS:
    status, shown = ask("GET", f"/v1/groups/{group}")
    assert status == 200 and shown["commits_total"] == PARTITIONS, (status, shown)
status, page = ask("GET", f"/v1/topics/{TOPIC}/groups?count=100")
assert status == 200 and {group["name"] for group in page["items"]} >= set(GROUPS), (status, page)
elsewhere = [group for group in GROUPS if cell_of_name(group) != 0]


def lag(group):
    """The lag over partitions of all cells; `None` while the end of one is not known."""
    _, shown = ask("GET", f"/v1/groups/{group}")
    known = all(commit["end"] is not None for commit in shown["commits"])
    return shown["lag"] if known else None


until("lags count all partitions", lambda: all(lag(group) == 0 for group in GROUPS))
moved = elsewhere[1]


def has_moved():
    """True once the last member has left, and all commits are moved."""
    status, moves = ask("POST", f"/v1/groups/{moved}/reset", {"topic": TOPIC, "to": "earliest"})
    assert status in (200, 409), (status, moves)
    return status == 200 and len(moves["moved"]) == PARTITIONS


until("the commits are moved", has_moved)
assert set(committed(moved).values()) == {0}, committed(moved)
until("the lag is that of all records", lambda: lag(moved) == len(sent))
member = Consumer({"bootstrap.servers": nodes, "group.id": moved})
member.subscribe([TOPIC])


def is_member():
    member.poll(0.1)
    return member.assignment()


until("it is a member", is_member)
refused = ask("POST", f"/v1/groups/{moved}/reset", {"to": "latest"})
assert refused[0] == 409, refused
(known,) = ask("GET", f"/v1/groups/{moved}")[1]["members"]
assert ask("DELETE", f"/v1/groups/{moved}/members/{known['member']}")[0] == 200
member.close()
refused = ask("POST", f"/v1/groups/{elsewhere[0]}/members", {"topics": [TOPIC]})
assert refused[0] == 409 and "kafka.spread_groups" in refused[1]["detail"], refused

# A topic that is deleted and made again at once is a new one in all cells: no record goes to the former one, and no
# commit goes with it.
for round in range(5):
    for method in ("DELETE", "PUT"):
        assert ask(method, "/v1/topics/again", {"partitions": PARTITIONS, "settings": {"spread": True}})[0] in (200, 201, 204, 404)
    fresh, errors = Producer({"bootstrap.servers": nodes}), []
    for number in range(5 * PARTITIONS):
        fresh.produce("again", str(number), partition=number % PARTITIONS, on_delivery=lambda error, _: errors.append(error))
    places = [TopicPartition("again", number, 1 + round) for number in range(PARTITIONS)]
    for group in GROUPS:
        consumer = Consumer({"bootstrap.servers": nodes, "group.id": group})
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()
    assert fresh.flush(LIMIT) == 0 and not any(errors), errors
    reader = Consumer({"bootstrap.servers": nodes, "group.id": "nobody"})
    ends = [reader.get_watermark_offsets(place, LIMIT)[1] for place in places]
    assert ends == [5] * PARTITIONS, (round, ends)
    for group in GROUPS:
        consumer = Consumer({"bootstrap.servers": nodes, "group.id": group})
        found = [place.offset for place in consumer.committed(places, LIMIT)]
        assert found == [1 + round] * PARTITIONS, (round, group, found)
        consumer.close()
    reader.close()

# A group can be deleted, and its name goes on in the same cell.
gone = elsewhere[0]
admin.delete_consumer_groups([gone])[gone].result(LIMIT)
assert committed(gone) == {}, committed(gone)
place = TopicPartition(TOPIC, 0, 3)
consumer = Consumer({"bootstrap.servers": nodes, "group.id": gone})
consumer.commit(offsets=[place], asynchronous=False)
assert consumer.committed([place], LIMIT)[0].offset == 3
consumer.close()
