"""Reads the records of `kill_load.py`, and compares them with the acknowledged ones."""

import sys
from collections import defaultdict

from common import read_all

TOPIC, PATH = sys.argv[2], sys.argv[3]


def main():
    acknowledged = [tuple(map(int, line.split())) for line in open(PATH, encoding="ascii")]
    partitions = sorted({partition for partition, _, _ in acknowledged})
    stored = defaultdict(list)
    for message in read_all(TOPIC, partitions):
        stored[message.partition()].append((message.offset(), int(message.value())))
    total = 0
    for partition in partitions:
        at = dict(stored[partition])
        for of_partition, offset, value in acknowledged:
            if of_partition == partition:
                assert at.get(offset) == value, f"partition {partition}: offset {offset} was acknowledged with {value}, and holds {at.get(offset)}"
        values = [value for _, value in stored[partition]]
        # Everything was delivered in the end, so the values are the numbers from 0: no gap, no double, no change of order.
        for expected, value in enumerate(values):
            assert value == expected, f"partition {partition}: {value} stands where {expected} should"
        total += len(values)
    assert total == len(acknowledged), f"{total} records stored, {len(acknowledged)} acknowledged"
    print(f"{total} records in {len(partitions)} partitions, all acknowledged once")


main()
