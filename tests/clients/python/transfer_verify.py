"""Reads what `transfer_load.py` committed, and compares it with what it was told."""

import sys
from collections import defaultdict

from confluent_kafka import TopicPartition

from common import consumer, read_all

TOPIC, PATH = sys.argv[2], sys.argv[3]
PARTITIONS = range(4)


def main():
    told = {int(number): outcome for number, outcome in map(str.split, open(PATH, encoding="ascii"))}
    amounts = defaultdict(list)
    for partition in PARTITIONS:
        last = 0
        for message in read_all(TOPIC, [partition], isolation_level="read_committed"):
            number, amount = map(int, message.value().split())
            assert number > last, f"partition {partition}: {number} stands behind {last}"
            last = number
            amounts[number].append(amount)
    for number, both in amounts.items():
        assert len(both) == 2 and sum(both) == 0, f"transfer {number} is there in part: {both}"
    for number, outcome in told.items():
        if outcome == "committed":
            assert number in amounts, f"transfer {number} was committed, and is not there"
        elif outcome == "aborted":
            assert number not in amounts, f"transfer {number} was aborted, and is there"
    reader = consumer(group_id=TOPIC)
    offset = reader.committed([TopicPartition(TOPIC, 0)], timeout=60)[0].offset
    reader.close()
    assert offset == max(amounts), f"{offset} is committed, the last transfer is {max(amounts)}"
    ends = [list(told.values()).count(outcome) for outcome in ("committed", "aborted", "unknown")]
    print(f"{len(amounts)} transfers; told: {ends[0]} committed, {ends[1]} aborted, {ends[2]} unknown")


main()
