"""Transactions of librdkafka over several cells: each has one record in every partition of a topic that is spread, and
commits an offset of a group. All of it counts, or nothing, while a node is killed.

Arguments: the addresses of Kafka's protocol, with commas between nodes. Says "ready" and waits for a line once some
transactions are there, goes on while a node is killed, and reads all back, committed records alone.
"""

import sys
import threading
import time
from collections import defaultdict

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

nodes = sys.argv[1]
PARTITIONS, PRODUCERS, BEFORE, AFTER = 8, 3, 10, 40
TOPIC, INPUT = "wide", "input"
LIMIT = 240  # seconds: a guard against hanging, not an expectation


def create(admin, name, partitions, **config):
    for made in admin.create_topics([NewTopic(name, partitions, config=config)]).values():
        made.result()


def retried(step):
    """Repeats a step of a transaction as librdkafka asks for. Returns False if the transaction is to be aborted."""
    end = time.monotonic() + LIMIT
    while True:
        try:
            step()
            return True
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                return False
            assert error.args[0].retriable() and time.monotonic() < end, error


class Writer:
    """A transactional producer. Each transaction writes its number into all partitions."""

    def __init__(self, name):
        self.name, self.number = name, 0
        self.committed, self.aborted = [], []
        settings = {"bootstrap.servers": nodes, "transactional.id": name, "transaction.timeout.ms": 60_000}
        self.producer = Producer(settings)
        retried(lambda: self.producer.init_transactions(LIMIT))
        self.group = Consumer({"bootstrap.servers": nodes, "group.id": f"group-{name}"})

    def run(self, count):
        for _ in range(count):
            self.transaction()

    def transaction(self):
        self.number += 1
        value = f"{self.name} {self.number}"
        self.producer.begin_transaction()
        for partition in range(PARTITIONS):
            self.producer.produce(TOPIC, value, partition=partition)
        place = [TopicPartition(INPUT, 0, self.number)]
        metadata = self.group.consumer_group_metadata()
        is_whole = retried(lambda: self.producer.send_offsets_to_transaction(place, metadata, LIMIT))
        is_wanted = self.number % 5 != 0
        if is_whole and is_wanted and retried(lambda: self.producer.commit_transaction(LIMIT)):
            self.committed.append(value)
            return
        assert retried(lambda: self.producer.abort_transaction(LIMIT)), value
        self.aborted.append(value)

    def offset(self):
        [found] = self.group.committed([TopicPartition(INPUT, 0)], LIMIT)
        return found.offset


admin = AdminClient({"bootstrap.servers": nodes})
create(admin, TOPIC, PARTITIONS, **{"stafett.spread": "true"})
create(admin, INPUT, 1)
writers = [Writer(f"writer-{number}") for number in range(PRODUCERS)]


def run_all(count):
    failed = []

    def run(writer):
        try:
            writer.run(count)
        except BaseException as error:
            failed.append((writer.name, writer.number, error))

    threads = [threading.Thread(target=run, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


run_all(BEFORE)
print("ready", flush=True)
sys.stdin.readline()
run_all(AFTER)

consumer = Consumer(
    {
        "bootstrap.servers": nodes,
        "group.id": "judge",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
)
consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
seen, ended, end = defaultdict(list), set(), time.monotonic() + LIMIT
while len(ended) < PARTITIONS:
    assert time.monotonic() < end, f"only {ended} were read to their ends"
    for message in consumer.consume(500, 0.5):
        if message.error() is None:
            seen[message.partition()].append(message.value().decode())
        else:
            ended.add(message.partition())
consumer.close()
for partition in range(PARTITIONS):
    for writer in writers:
        own = [value for value in seen[partition] if value.startswith(f"{writer.name} ")]
        assert own == writer.committed, (partition, set(own) ^ set(writer.committed))
for writer in writers:
    last = int(writer.committed[-1].split()[1])
    assert writer.offset() == last, (writer.name, writer.offset(), last)
    assert len(writer.committed) > AFTER / 2, len(writer.committed)
print(sum(len(writer.committed) for writer in writers), sum(len(writer.aborted) for writer in writers), file=sys.stderr)
