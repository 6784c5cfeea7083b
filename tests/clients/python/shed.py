"""A broker that refuses what it cannot do in time: idempotent producers send again, in order, once each."""

import re
import sys
import urllib.request

from common import create, producer, read_all

HTTP = sys.argv[2]
PARTITIONS = 4
MESSAGES = 4000


def refused():
    text = urllib.request.urlopen(f"http://{HTTP}/metrics").read().decode()
    return sum(float(line.split()[1]) for line in text.splitlines() if re.match(r"stafett_shed_total\{", line))


def main():
    create("orders", partitions=PARTITIONS)
    # Many small requests, several of a connection at once, of several producers.
    producers = [producer(linger_ms=0, batch_num_messages=5, retry_backoff_ms=5) for _ in range(4)]
    failed = []
    for number in range(MESSAGES):
        for place, one in enumerate(producers):
            one.produce(
                "orders",
                value=b"%d" % number,
                partition=place,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
            one.poll(0)
    for one in producers:
        assert one.flush(120) == 0
    assert not failed, failed[:3]
    assert refused() > 0, "nothing was refused"
    received = read_all("orders", range(PARTITIONS))
    for partition in range(PARTITIONS):
        numbers = [int(message.value()) for message in received if message.partition() == partition]
        assert numbers == list(range(MESSAGES)), f"partition {partition}: lost, twice, or out of order"


main()
