"""Produces without end from one idempotent producer, until a line comes in on stdin.

Each partition gets 0, 1, 2, … as its values. Acknowledged records go to a file (`partition offset value`), and the
number of acknowledgements since the last line to stdout. Everything must be delivered in the end, however often the
broker goes away in between.
"""

import sys
import threading

from common import create, producer

PARTITIONS = 4
TOPIC, PATH = sys.argv[2], sys.argv[3]


def main():
    create(TOPIC, partitions=PARTITIONS)
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    log = open(PATH, "w", encoding="ascii")
    acknowledged = failed = 0

    def on_delivery(error, message):
        nonlocal acknowledged, failed
        if error is not None:
            failed += 1
            print(error, file=sys.stderr)
            return
        acknowledged += 1
        log.write(f"{message.partition()} {message.offset()} {message.value().decode()}\n")

    client = producer(
        linger_ms=2,
        message_timeout_ms=300_000,
        queue_buffering_max_messages=20_000,
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=200,
    )
    number = 0
    while not stop.is_set():
        for partition in range(PARTITIONS):
            while True:
                try:
                    client.produce(TOPIC, partition=partition, value=b"%d" % number, on_delivery=on_delivery)
                    break
                except BufferError:
                    client.poll(0.05)
        number += 1
        client.poll(0)
        if acknowledged:
            # Written before it is reported: everything counted as acknowledged is in the file.
            log.flush()
            print(acknowledged, flush=True)
            acknowledged = 0
    assert client.flush(200) == 0, "not everything was delivered"
    log.close()
    assert failed == 0, f"{failed} deliveries failed"


main()
