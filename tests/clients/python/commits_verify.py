"""Each group has the commit that `commits_load.py` last saw acknowledged, or a later one."""

import sys

from confluent_kafka import Consumer, TopicPartition

from common import BOOTSTRAP, LIMIT

TOPIC, PATH = sys.argv[2], sys.argv[3]


def main():
    acknowledged = {}
    count = 0
    for line in open(PATH, encoding="ascii"):
        group, partition, offset = line.split()
        acknowledged[group, int(partition)] = int(offset)
        count += 1
    groups = {group for group, _ in acknowledged}
    assert len(groups) == 2, f"only {groups} committed"
    for group in groups:
        consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": group})
        partitions = sorted(partition for of, partition in acknowledged if of == group)
        for place in consumer.committed([TopicPartition(TOPIC, partition) for partition in partitions], LIMIT):
            last = acknowledged[group, place.partition]
            # A commit that was cut off by the kill may have been stored; nothing older may stand there.
            assert place.offset >= last, f"{group} {place.partition}: {last} was acknowledged, {place.offset} is there"
        consumer.close()
    print(f"{count} commits acknowledged, and the last of each is there")


main()
