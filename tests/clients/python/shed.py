"""A broker that refuses what it cannot do in time: idempotent producers send again, in order, once each."""

import json
import sys
import urllib.request

from common import create, producer, read_all

HTTP = sys.argv[2]
PARTITIONS = 4
MESSAGES = 4000


def counted(name, **labels):
    """The sum of a metric's series that have the labels."""
    text = urllib.request.urlopen(f"http://{HTTP}/metrics").read().decode()
    series = (line for line in text.splitlines() if line.startswith(name + "{"))
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    return sum(float(line.split()[1]) for line in series if all(label in line for label in wanted))


class Counting:
    """A producer that says how many requests it sent."""

    def __init__(self):
        self.told = []
        settings = {"linger_ms": 0, "batch_num_messages": 5, "retry_backoff_ms": 5}
        self.producer = producer(**settings, statistics_interval_ms=100, stats_cb=self.told.append)

    def requests(self):
        self.told.clear()
        while not self.told:
            self.producer.poll(1)
        return sum(broker["req"]["Produce"] for broker in json.loads(self.told[-1])["brokers"].values())


def main():
    create("orders", partitions=PARTITIONS)
    # Many small requests, several of a connection at once, of several producers.
    counting = [Counting() for _ in range(4)]
    producers = [one.producer for one in counting]
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
    refused = counted("stafett_shed_total", listener="kafka", what="produce")
    assert refused > 0, "nothing was refused"
    # Each request of these producers is for one partition.
    errors = counted("stafett_kafka_errors_total", api="Produce", code="REQUEST_TIMED_OUT")
    assert refused == errors, (refused, errors)
    # All that were answered are counted, those that were refused together among them.
    sent = sum(one.requests() for one in counting)
    requests = counted("stafett_kafka_requests_total", api="Produce")
    assert sent == requests, (sent, requests)
    received = read_all("orders", range(PARTITIONS))
    for partition in range(PARTITIONS):
        numbers = [int(message.value()) for message in received if message.partition() == partition]
        assert numbers == list(range(MESSAGES)), f"partition {partition}: lost, twice, or out of order"


main()
