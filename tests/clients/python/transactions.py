"""A committed and an aborted transaction, a record of none, and a transaction that stays open."""

import os
import sys

from common import LIMIT, producer

topic = sys.argv[2]


def send(client, value):
    client.produce(topic, value, partition=0)
    assert client.flush(LIMIT) == 0


def begun(name):
    client = producer(transactional_id=name, transaction_timeout_ms=600_000)
    client.init_transactions(LIMIT)
    client.begin_transaction()
    return client


ended = begun("ended")
send(ended, b"committed")
ended.commit_transaction(LIMIT)
ended.begin_transaction()
send(ended, b"aborted")
ended.abort_transaction(LIMIT)
send(producer(), b"plain")
left = begun("left")
send(left, b"open")
send(producer(), b"behind")
# Without a last word to the broker.
os._exit(0)
