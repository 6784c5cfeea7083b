"""Commits without end, alone and as a member of a group, until a line comes in on stdin.

Acknowledged commits go to a file (`group partition offset`), and the number of acknowledgements since the last line to
stdout. Commits that fail while the broker is away are retried.
"""

import sys
import threading

from confluent_kafka import Consumer, KafkaException, TopicPartition

from common import BOOTSTRAP, create, deliver, producer

PARTITIONS = 4
TOPIC, PATH = sys.argv[2], sys.argv[3]
RECORDS = 50


def client(group):
    return Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )


def main():
    create(TOPIC, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        deliver(producer(), TOPIC, [{"partition": partition, "value": b"x"}] * RECORDS)
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    log = open(PATH, "w", encoding="ascii")
    # Commits of its own need no membership; a member's are held to its generation, which must survive.
    clients = {"alone": client(f"{TOPIC}.alone"), "member": client(f"{TOPIC}.member")}
    clients["member"].subscribe([TOPIC])
    number = 0
    while not stop.is_set():
        number += 1
        for name, consumer in clients.items():
            if name == "member":
                consumer.poll(0.01)
                places = consumer.assignment()
            else:
                places = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
            if not places:
                continue
            wanted = [TopicPartition(TOPIC, place.partition, number) for place in places]
            try:
                done = consumer.commit(offsets=wanted, asynchronous=False)
            except KafkaException:
                continue
            assert all(place.error is None for place in done), done
            for place in done:
                log.write(f"{TOPIC}.{name} {place.partition} {place.offset}\n")
            # Written before it is reported: everything counted as acknowledged is in the file.
            log.flush()
            print(len(done), flush=True)
    log.close()
    for consumer in clients.values():
        consumer.close()


main()
