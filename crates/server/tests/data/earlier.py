#!/usr/bin/env python3
"""Makes `earlier.tgz`: a data directory of an earlier build, which was killed.

`earlier.py STAFETT` with the program of that build (revision a6659f1), within the environment of the client tests. The contents are
what `crates/server/tests/it/earlier.rs` expects.
"""

import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

import pika
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

KAFKA, AMQP, HTTP = "127.0.0.1:29092", "127.0.0.1:25672", "127.0.0.1:29090"
PERSISTENT, TRANSIENT = 2, 1


def done(futures):
    for future in futures.values():
        future.result(60)


def records():
    admin = AdminClient({"bootstrap.servers": KAFKA})
    done(admin.create_topics([NewTopic("events", 3, 1, config={"retention.ms": "-1"}), NewTopic("gone", 2, 1)]))
    number = 0
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": KAFKA, "enable.idempotence": True, "compression.type": codec})
        for _ in range(120):
            value = f"{codec} {number} " + "x" * (number % 50)
            headers, at = {"codec": codec}, 1_500_000_000_000 + number
            producer.produce("events", value, f"k{number % 7}", number % 3, timestamp=at, headers=headers)
            number += 1
        producer.flush()
    producer.produce("gone", "x")
    producer.flush()
    done(admin.delete_records([TopicPartition("events", 0, 10)]))
    consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": "readers", "enable.auto.commit": False})
    places = [TopicPartition("events", 0, 50), TopicPartition("events", 1, 60, metadata="half"), TopicPartition("events", 2, 200)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()
    done(admin.delete_topics(["gone"]))


def channel(namespace):
    connection = pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@{AMQP}/{namespace}"))
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


def messages():
    amqp = channel("%2f")
    amqp.exchange_declare("routes", "topic", durable=True)
    amqp.queue_declare("dead", durable=True)
    arguments = {"x-max-priority": 9, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    amqp.queue_declare("orders", durable=True, arguments=arguments)
    amqp.queue_declare("copies", durable=True, arguments={"x-max-length": 40})
    amqp.queue_bind("orders", "routes", "order.#")
    amqp.queue_bind("copies", "routes", "#")
    for number in range(100):
        about = pika.BasicProperties(
            delivery_mode=PERSISTENT, priority=number % 4, message_id=f"m{number}", correlation_id=f"c{number % 5}",
            headers={"n": number},
        )
        amqp.basic_publish("routes", "order.new", f"order {number}", about)
    amqp.basic_publish("routes", "order.transient", "transient", pika.BasicProperties(delivery_mode=TRANSIENT))
    for number in range(30):
        delivered, _, _ = amqp.basic_get("orders")
        if number < 20:
            amqp.basic_ack(delivered.delivery_tag)
        elif number < 25:
            amqp.basic_reject(delivered.delivery_tag, requeue=False)
    while amqp.queue_declare("dead", passive=True).method.message_count < 5:
        time.sleep(0.1)
    subprocess.run([sys.argv[1], "namespace", "create", "team", "--http", HTTP], check=True)
    team = channel("team")
    team.queue_declare("orders", durable=True)
    for number in range(3):
        team.basic_publish("", "orders", f"team {number}", pika.BasicProperties(delivery_mode=PERSISTENT))


def main():
    target = os.path.join(os.path.dirname(os.path.abspath(__file__)), "earlier.tgz")
    os.chdir(tempfile.mkdtemp())
    with open("settings.toml", "w") as settings:
        settings.write('[journal]\nsegment_bytes = "1MiB"\n')
    serve = ["serve", "--config", "settings.toml", "--data-dir", "data", "--kafka", KAFKA, "--amqp", AMQP, "--http", HTTP]
    broker = subprocess.Popen([sys.argv[1], *serve], stdout=subprocess.PIPE, text=True)
    next(line for line in broker.stdout if line == "ready\n")
    records()
    messages()
    # Acknowledgements of AMQP have no answer.
    time.sleep(2)
    broker.send_signal(signal.SIGKILL)
    broker.wait()
    with tarfile.open(target, "w:gz") as archive:
        archive.add("data")


main()
