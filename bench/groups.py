#!/usr/bin/env python3
"""Groups at a size: a member that joins or leaves many, many groups with commits, one consumer of many topics.

    rebalance   50 members and 500 partitions: the time until all partitions are held again after one more joins, and
                after it leaves, with both group protocols. Members report every few seconds from when they joined, so
                the group is left alone before each change for a while that is another one in each run
    groups      10,000 groups with a commit each: memory, time of a restart, and whether all are there afterwards
    topics      one consumer subscribes to many topics with a record each: first record, all records

Brokers take turns within a run. Medians, with the durability beside every subject.
"""

import argparse
import random
import statistics
import sys
import threading
import time

import common

common.in_venv()

from coldstart import Timed  # noqa: E402
from confluent_kafka import Consumer, TopicPartition  # noqa: E402
from confluent_kafka import ConsumerGroupTopicPartitions  # noqa: E402
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402
from many_topics import publish  # noqa: E402

PROTOCOLS = ["classic", "consumer"]
LIMIT = 300


class Member:
    """A consumer that polls on a thread of its own, as an application does."""

    def __init__(self, address, topic, group, protocol):
        settings = {"bootstrap.servers": address, "group.id": group, "group.protocol": protocol, "log_level": 2}
        if protocol == "classic":
            settings["partition.assignment.strategy"] = "range"
        self.held = frozenset()
        self.going = True
        self.consumer = Consumer(settings)
        self.consumer.subscribe([topic])
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while self.going:
            self.consumer.poll(0.05)
            self.held = frozenset(place.partition for place in self.consumer.assignment())
        self.held = frozenset()
        self.consumer.close()

    def leave(self):
        self.going = False
        self.thread.join()


def await_all(members, partitions):
    """Until each partition has one holder and each member has its share; returns the seconds."""
    start = time.monotonic()
    share = partitions // len(members)
    while True:
        held = [member.held for member in members]
        if min(map(len, held)) >= share and sum(map(len, held)) == partitions == len(frozenset().union(*held)):
            return time.monotonic() - start
        if time.monotonic() - start > LIMIT:
            raise RuntimeError(f"after {LIMIT} s {sum(map(len, held))} of {partitions} partitions are held")
        time.sleep(0.005)


def rest(options, run):
    """Leaves a group alone: for as long with every broker, at another moment between two reports in each run."""
    time.sleep(options.rest + 5 * random.Random(run).random())


def rebalance(broker, options, run):
    values = {}
    admin = AdminClient({"bootstrap.servers": broker.address})
    for protocol in PROTOCOLS:
        topic = f"rebalance-{protocol}-{run}"
        admin.create_topics([NewTopic(topic, options.partitions, 1)])[topic].result(60)
        members = [Member(broker.address, topic, topic, protocol) for _ in range(options.members)]
        values[f"all join {protocol}, s"] = await_all(members, options.partitions)
        rest(options, run)
        start = time.monotonic()
        members.append(Member(broker.address, topic, topic, protocol))
        await_all(members, options.partitions)
        values[f"one more joins {protocol}, s"] = time.monotonic() - start
        rest(options, run)
        start = time.monotonic()
        members.pop().leave()
        await_all(members, options.partitions)
        values[f"one leaves {protocol}, s"] = time.monotonic() - start
        for member in members:
            member.going = False
        for member in members:
            member.leave()
        admin.delete_topics([topic])[topic].result(60)
    return values


def commit_groups(broker, count):
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic("committed", 1, 1)])["committed"].result(60)
    under_way = []
    for number in range(count):
        place = [TopicPartition("committed", 0, number)]
        request = [ConsumerGroupTopicPartitions(f"group-of-the-bench-{number:06d}", place)]
        under_way += admin.alter_consumer_group_offsets(request).values()
        if len(under_way) >= 500:
            for future in under_way:
                future.result(60)
            under_way.clear()
    for future in under_way:
        future.result(60)


def groups_there(broker):
    admin = AdminClient({"bootstrap.servers": broker.address})
    return len(admin.list_consumer_groups(request_timeout=60).result().valid)


def groups(broker, options, _):
    before = broker.resident_mib()
    commit_groups(broker, options.groups)
    values = {"memory for all groups, MiB": broker.resident_mib() - before}
    broker.stop()
    broker.start()
    values["restart to the first answer, s"] = broker.seconds
    start = time.monotonic()
    there = groups_there(broker)
    while there < options.groups and time.monotonic() - start < LIMIT:
        there = groups_there(broker)
    if there < options.groups:
        raise RuntimeError(f"{there} of {options.groups} groups are there after the restart")
    values["all listed after that, s"] = time.monotonic() - start
    values["memory after the restart, MiB"] = broker.resident_mib()
    return values


def topics(broker, options, run):
    if run == 0:
        publish(broker.address, options.topics, 500)
    values = {}
    for protocol in options.protocols.split(","):
        group = f"many-{protocol}-{run}"
        try:
            line = common.tool(
                "SubscribeMany", broker.address, "many-topics-%012d", options.topics, group, protocol,
                KAFKA_TOOL_OPTS="-Xmx3g",
            )
        except RuntimeError as error:
            # A broker that cannot do it is a result too.
            print(error, file=sys.stderr)
            line = "first_s=inf all_s=inf"
        found = common.pairs(line)
        values[f"first record {protocol}, s"] = found["first_s"]
        values[f"all records {protocol}, s"] = found["all_s"]
    return values


WORK = {"rebalance": rebalance, "groups": groups, "topics": topics}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=WORK)
    parser.add_argument("--subjects", default="kafka stafett-os stafett-sync")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=500)
    parser.add_argument("--rest", type=float, default=6, help="seconds before each change, and up to 5 more")
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--topics", type=int, default=16_384)
    parser.add_argument("--protocols", default="classic,consumer", help="of the one consumer of many topics")
    options = parser.parse_args()
    folder = common.work_folder()
    subjects = []
    for subject in options.subjects.split():
        why = common.available(subject)
        if why:
            print(f"{subject} is left out: {why}", file=sys.stderr)
        else:
            subjects.append(subject)
    results = {}
    brokers = {}
    for run in range(options.runs):
        first = run % len(subjects)
        for subject in subjects[first:] + subjects[:first]:
            # Only one broker is up at a time: the figures are of memory and of waiting, not of a warm process.
            kept = brokers.get(subject)
            if options.what != "topics" or kept is None:
                kept = brokers[subject] = Timed(subject, folder / f"{subject}-{run}".replace(":", "-"))
            elif kept.process is None:
                kept.start()
            for name, value in WORK[options.what](kept, options, run).items():
                results.setdefault((name, subject), []).append(value)
                print(f"run {run + 1} {subject}: {name}: {value:.3f}", file=sys.stderr, flush=True)
            kept.stop()
    print(f"{common.machine()}; {options.what}, medians of {options.runs} run(s); the durability stands in brackets\n")
    heads = [f"{'Kafka 4.3.1' if subject == 'kafka' else 'Stafett'} (`{common.durability(subject)}`)" for subject in subjects]
    print("| |", " | ".join(heads), "|\n|---|" + "---:|" * len(heads))
    for name in dict.fromkeys(name for name, _ in results):
        cells = [f"{statistics.median(results[name, subject]):.3f}" for subject in subjects]
        print(f"| {name} |", " | ".join(cells), "|")


main()
