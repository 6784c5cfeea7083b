"""A member of a group that writes down all it gets, and commits after it has written: at least once.

Arguments: bootstrap, topic, group, protocol, a file. Each message becomes a line `partition offset value` in the file; after each
commit the number of messages since the one before goes to stdout. SIGTERM makes it leave. Steps of the membership go to stderr.
"""

import signal
import sys

from confluent_kafka import Consumer, KafkaException

BOOTSTRAP, TOPIC, GROUP, PROTOCOL, PATH = sys.argv[1:6]
BATCH = 2000


def main():
    going = True

    def leave(*_):
        nonlocal going
        going = False

    signal.signal(signal.SIGTERM, leave)
    settings = {
        "bootstrap.servers": BOOTSTRAP,
        "group.id": GROUP,
        "client.id": PATH.rsplit("/", 1)[-1],
        "group.protocol": PROTOCOL,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "queued.min.messages": BATCH,
        "fetch.message.max.bytes": 65_536,
        "debug": "cgrp",
    }
    if PROTOCOL == "classic":
        settings |= {"session.timeout.ms": 3000, "heartbeat.interval.ms": 300}
    consumer = Consumer(settings)
    consumer.subscribe([TOPIC])
    with open(PATH, "ab") as log:
        while going:
            messages = consumer.consume(BATCH, timeout=0.2)
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
                log.write(b"%d %d %s\n" % (message.partition(), message.offset(), message.value()))
            log.flush()
            if messages:
                try:
                    consumer.commit(asynchronous=False)
                except KafkaException as error:
                    # Another member has its partitions by now, and will get these messages again.
                    print(error, file=sys.stderr, flush=True)
                print(len(messages), flush=True)
    consumer.close()


main()
