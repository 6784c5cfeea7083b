"""A running group moves from the classic protocol to the new one, and back, as its members are replaced."""

import sys
import time

from common import ADMIN, BOOTSTRAP, LIMIT, create, producer
from confluent_kafka import Consumer, ConsumerGroupType, KafkaException, TopicPartition

# How the classic members agree among themselves.
STRATEGY = sys.argv[2]
GROUP = TOPIC = f"moving-{STRATEGY}"
PARTITIONS = 6


class Member:
    """A consumer that records its partitions and the messages it read."""

    def __init__(self, **settings):
        self.read = set()
        self.consumer = Consumer(
            {
                "bootstrap.servers": BOOTSTRAP,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
        )
        self.consumer.subscribe([TOPIC])

    def poll(self):
        message = self.consumer.poll(0.05)
        if message is not None and message.error() is None:
            self.read.add((message.partition(), message.offset()))
            try:
                self.consumer.commit(message, asynchronous=False)
            except KafkaException:
                # The group changed in between: the new owner of the partition reads it again.
                pass

    def has(self):
        return {one.partition for one in self.consumer.assignment()}


def classic():
    return Member(
        **{
            "group.protocol": "classic",
            "partition.assignment.strategy": STRATEGY,
            "heartbeat.interval.ms": 300,
            "session.timeout.ms": 30_000,
        }
    )


def new():
    return Member(**{"group.protocol": "consumer"})


def until(what, members, holds):
    begun = time.monotonic()
    while not holds():
        for member in members:
            member.poll()
        assert time.monotonic() < begun + LIMIT, f"{what}: {[sorted(member.has()) for member in members]}"
    print(f"{what}: {time.monotonic() - begun:.1f} s", file=sys.stderr)


def shared(members):
    had = [member.has() for member in members]
    loads = [len(one) for one in had]
    return sum(loads) == PARTITIONS == len(set().union(*had)) and max(loads) - min(loads) <= 1


def kind():
    return next(group.type for group in ADMIN.list_consumer_groups().result(LIMIT).valid if group.group_id == GROUP)


rounds = 0


def passes(what, members):
    """Every member has a share, and new records are read."""
    global rounds
    until(what, members, lambda: shared(members))
    to = producer()
    for number in range(PARTITIONS * 10):
        to.produce(TOPIC, b"x", partition=number % PARTITIONS)
    assert to.flush(LIMIT) == 0
    rounds += 1
    wanted = {(partition, offset) for partition in range(PARTITIONS) for offset in range(rounds * 10)}
    known.extend(member for member in members if member not in known)
    until("and reads", members, lambda: set().union(*(member.read for member in known)) == wanted)


known = []
create(TOPIC, PARTITIONS)
one, two = classic(), classic()
passes("two classic members", [one, two])
assert kind() == ConsumerGroupType.CLASSIC
three = new()
passes("one of the new protocol comes", [one, two, three])
assert kind() == ConsumerGroupType.CONSUMER
four = classic()
passes("another classic one comes", [one, two, three, four])
one.consumer.close()
passes("a classic one goes", [two, three, four])
three.consumer.close()
passes("the only new one goes", [two, four])
assert kind() == ConsumerGroupType.CLASSIC
five = new()
passes("a new one comes again", [two, four, five])
two.consumer.close()
four.consumer.close()
passes("only the new one is left", [five])
assert kind() == ConsumerGroupType.CONSUMER
five.consumer.close()
offsets = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": GROUP})
committed = offsets.committed([TopicPartition(TOPIC, number) for number in range(PARTITIONS)], LIMIT)
assert [place.offset for place in committed] == [rounds * 10] * PARTITIONS, committed
offsets.close()
