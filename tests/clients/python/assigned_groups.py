"""Members of a group of the consumer protocol come, leave, and survive a restart of the broker.

Prints `restart` when the broker is to be restarted, and continues at the next line of its input.
"""

import time

from common import ADMIN, BOOTSTRAP, LIMIT, create, producer
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, TopicPartition

GROUP = "assigned"


class Member:
    """A consumer that records its partitions and the messages it read."""

    def __init__(self, topics, **settings):
        self.read = {}
        self.consumer = Consumer(
            {
                "bootstrap.servers": BOOTSTRAP,
                "group.id": GROUP,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
        )
        self.consumer.subscribe(topics)

    def poll(self):
        message = self.consumer.poll(0.05)
        if message is not None and message.error() is None:
            place = (message.topic(), message.partition(), message.offset())
            self.read[place] = self.read.get(place, 0) + 1
            self.consumer.commit(message, asynchronous=False)

    def has(self):
        return {(one.topic, one.partition) for one in self.consumer.assignment()}


def until(what, members, holds):
    end = time.monotonic() + LIMIT
    while not holds():
        for member in members:
            member.poll()
        assert time.monotonic() < end, f"{what}: {[sorted(member.has()) for member in members]}"


def shared(members, partitions):
    """True if the members share all partitions evenly, each partition once."""
    had = [member.has() for member in members]
    loads = [len(one) for one in had]
    return sum(loads) == partitions == len(set().union(*had)) and max(loads) - min(loads) <= 1


def produce(topic, partitions, records):
    to = producer()
    for number in range(records):
        to.produce(topic, str(number).encode(), partition=number % partitions)
    assert to.flush(LIMIT) == 0


def read_of(members, topic):
    return {place for member in members for place in member.read if place[0] == topic}


create("shared", 6)
produce("shared", 6, 60)
one = Member(["shared"])
until("one member has everything", [one], lambda: shared([one], 6) and len(read_of([one], "shared")) == 60)
two = Member(["shared"])
until("two members share", [one, two], lambda: shared([one, two], 6))
produce("shared", 6, 60)
until("both read", [one, two], lambda: len(read_of([one, two], "shared")) == 120)

described = ADMIN.describe_consumer_groups([GROUP])[GROUP].result(LIMIT)
assert described.state == ConsumerGroupState.STABLE, described.state
assert described.type == ConsumerGroupType.CONSUMER, described.type
assert sorted(len(member.assignment.topic_partitions) for member in described.members) == [3, 3]
listed = [group for group in ADMIN.list_consumer_groups().result(LIMIT).valid if group.group_id == GROUP]
assert [group.type for group in listed] == [ConsumerGroupType.CONSUMER], listed

before = one.has(), two.has()
print("restart", flush=True)
input()
produce("shared", 6, 60)
until("both go on", [one, two], lambda: len(read_of([one, two], "shared")) == 180)
assert (one.has(), two.has()) == before, "a restart moves nothing"

two.consumer.close()
until("the one who stays has everything", [one], lambda: shared([one], 6))
produce("shared", 6, 60)
until("it reads everything", [one], lambda: len(read_of([one, two], "shared")) == 240)
# A commit follows each record, so a partition that moves cleanly is not read twice.
twice = [place for member in (one, two) for place, times in member.read.items() if times > 1]
assert not twice and not set(one.read) & set(two.read), twice

pattern = Member(["^metrics-.*"])
create("metrics-a", 2)
until("a pattern finds a topic", [one, pattern], lambda: pattern.has() == {("metrics-a", 0), ("metrics-a", 1)})
create("metrics-b", 1)
until("and another one", [one, pattern], lambda: ("metrics-b", 0) in pattern.has())
pattern.consumer.close()
one.consumer.close()

committed = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": GROUP})
offsets = committed.committed([TopicPartition("shared", number) for number in range(6)], LIMIT)
assert [place.offset for place in offsets] == [40] * 6, offsets
committed.close()
print("done", flush=True)
