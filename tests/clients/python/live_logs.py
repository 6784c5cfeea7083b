"""Topics with a log: catching up, continuing live, and sharing them with Kafka's clients."""

import json
import sys
import threading

from confluent_kafka import Consumer, Producer, TopicPartition
from live import DONE, Client, same

KAFKA = sys.argv[3]
TOPICS = [f"charts/{number}" for number in range(10)]
COUNT = 3000


def publish(client, first, count):
    """Messages to all topics in turn, each with its number."""
    for number in range(first, first + count):
        client.send("publish", topic=TOPICS[number % len(TOPICS)], payload=number)
    answer = client.ask("publish", topic="charts/end", payload=0, ack=True)
    same((answer["result"], answer["stored"]), ("success", 1))


def received(client, count):
    return [client.next() for _ in range(count)]


def per_topic(messages):
    numbers = {}
    for message in messages:
        numbers.setdefault(message["key"], []).append(message["broadcast"])
    return numbers


def expected(first, last):
    numbers = {}
    for number in range(first, last):
        numbers.setdefault(TOPICS[number % len(TOPICS)], []).append(number)
    return numbers


publisher = Client("publisher")
if sys.argv[2] == "again":
    # Where the client was, over a restart.
    publish(publisher, 2 * COUNT + 30, 10)
    back = Client("resumes")
    back.ask("listen")
    back.send("subscribe", topic=TOPICS, **{"from": "resume"})
    messages = [message for message in received(back, 11) if "key" in message]
    same(per_topic(messages), expected(2 * COUNT + 30, 2 * COUNT + 40))
    back.silent()
    sys.exit()

publish(publisher, 0, COUNT)
early = Client("early")
refusal = early.ask("subscribe", topic=TOPICS, **{"from": "earliest"})
same(refusal["info"], "Key 'from': listen on this connection first")
early.ask("listen")

# While it catches up, more is published: no gap and no double.
busy = threading.Thread(target=publish, args=(publisher, COUNT, COUNT))
busy.start()
early.send("subscribe", topic=TOPICS, **{"from": "earliest"})
messages = [message for message in received(early, 2 * COUNT + 1) if "key" in message]
busy.join()
early.silent()
same(per_topic(messages), expected(0, 2 * COUNT))
assert all("offset" in message and "timestamp" in message for message in messages)

# From an offset, one topic.
last = [message for message in messages if message["key"] == "charts/3"][-5:]
late = Client("late")
late.ask("listen")
late.send("subscribe", topic="charts/3", **{"from": last[0]["offset"]})
same([message for message in received(late, 6) if "key" in message], last)
late.silent()

# Where it was last.
resumes = Client("resumes")
resumes.ask("listen")
same(resumes.ask("subscribe", topic=TOPICS, **{"from": "resume"}), DONE)
resumes.silent()
resumes.close()
while publisher.ask("presence", topic="charts/0")["listening"] > 1:
    pass
publish(publisher, 2 * COUNT, 10)
resumes = Client("resumes")
resumes.ask("listen")
resumes.send("subscribe", topic=TOPICS, **{"from": "resume"})
messages = [message for message in received(resumes, 11) if "key" in message]
same(per_topic(messages), expected(2 * COUNT, 2 * COUNT + 10))

# Messages between listen and resume arrive once, and resuming again delivers nothing more.
resumes.close()
while publisher.ask("presence", topic="charts/0")["listening"] > 1:
    pass
publish(publisher, 2 * COUNT + 10, 10)
resumes = Client("resumes")
resumes.ask("listen")
publish(publisher, 2 * COUNT + 20, 10)
for _ in range(2):
    resumes.send("subscribe", topic=TOPICS, **{"from": "resume"})
messages = [message for message in received(resumes, 22) if "key" in message]
numbers = {topic: sorted(numbers) for topic, numbers in per_topic(messages).items()}
same(numbers, expected(2 * COUNT + 10, 2 * COUNT + 30))
resumes.silent()
received(early, 30)
received(late, 3)

# Kafka's clients read them and publish to them.
consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": "charts", "auto.offset.reset": "earliest"})
consumer.assign([TopicPartition("charts", partition, 0) for partition in range(2)])
records = []
while len(records) < 2 * COUNT + 35:
    found = consumer.consume(1000, timeout=60)
    assert found, len(records)
    records += [(record.key().decode(), json.loads(record.value())) for record in found]
consumer.close()
numbers = {}
for key, number in records:
    if key != "charts/end":
        numbers.setdefault(key, []).append(number)
same(numbers, expected(0, 2 * COUNT + 30))

producer = Producer({"bootstrap.servers": KAFKA})
producer.produce("charts", key="charts/0", value=b'{"from": "a log"}')
producer.produce("charts", key="charts/0", value=b"\xff\x00")
producer.produce("charts", key="other/0", value=b"1")
same(producer.flush(60), 0)
found = received(early, 2)
same({message["key"] for message in found}, {"charts/0"})
same(found[0].get("broadcast"), {"from": "a log"})
same(found[1].get("broadcast_base64"), "/wA=")
early.silent()
received(resumes, 2)
resumes.silent()
resumes.close()
while publisher.ask("presence", topic="charts/0")["listening"] > 1:
    pass
