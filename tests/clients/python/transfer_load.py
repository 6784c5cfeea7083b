"""Moves amounts between accounts, one transaction per transfer, until a line comes in on stdin.

A transfer is a record in each of two partitions, whose amounts add up to nothing, and a committed offset of a group:
the number of the transfer. Some are aborted. What became of each goes to a file (`number outcome`), and the number of
transfers with a known end since the last line to stdout. The broker may go away at any moment: a transfer whose end is
unknown is followed by another producer with the same transactional id.
"""

import random
import sys
import threading

from confluent_kafka import Consumer, KafkaException, TopicPartition

from common import BOOTSTRAP, create, producer

PARTITIONS = 4
TOPIC, PATH = sys.argv[2], sys.argv[3]
PATIENCE = 120


def until_done(step):
    """Tries a step again while that is all it needs."""
    while True:
        try:
            return step(PATIENCE)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def begin():
    client = producer(
        transactional_id=TOPIC,
        transaction_timeout_ms=60_000,
        linger_ms=0,
        # Else the library forgets the broker when it goes away, and takes long to find its coordinator again.
        metadata_recovery_strategy="none",
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=200,
    )
    until_done(client.init_transactions)
    return client


def transfer(client, metadata, number):
    """Returns `committed` or `aborted`."""
    amount = random.randrange(1, 1000)
    one, other = random.sample(range(PARTITIONS), 2)
    is_wanted = random.random() < 0.8
    client.begin_transaction()
    try:
        client.produce(TOPIC, partition=one, value=b"%d %d" % (number, -amount))
        client.produce(TOPIC, partition=other, value=b"%d %d" % (number, amount))
        offset = TopicPartition(TOPIC, 0, number)
        until_done(lambda limit: client.send_offsets_to_transaction([offset], metadata, limit))
        if is_wanted:
            until_done(client.commit_transaction)
            return "committed"
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
    until_done(client.abort_transaction)
    return "aborted"


def main():
    create(TOPIC, partitions=PARTITIONS)
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    reader = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": TOPIC})
    metadata = reader.consumer_group_metadata()
    with open(PATH, "w", encoding="ascii") as log:
        client, number = begin(), 0
        while not stop.is_set():
            number += 1
            try:
                outcome = transfer(client, metadata, number)
            except KafkaException as error:
                print(error, file=sys.stderr)
                outcome = "unknown"
                client = begin()
            log.write(f"{number} {outcome}\n")
            log.flush()
            if outcome != "unknown":
                print(1, flush=True)
    reader.close()


main()
