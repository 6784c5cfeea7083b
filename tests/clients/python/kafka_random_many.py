"""Steps of random work with several partitions in a request (kafka_random.py, seeds `many-N`)."""

import uuid

import kafka_wire
from kafka_random_steps import PRODUCERS, TOPICS, step

THEME = {"many_produced": 8, "many_idempotent": 8, "many_fetched": 6, "many_offsets": 2, "fetch": 4, "list_offsets": 2, "delete_records": 1,
    "describe_producers": 1, "create": 1, "delete": 1, "produce": 2}
# Partitions of a request: some are there twice, some are not there at all.
PLACES = [
    [("t0", 0), ("t1", 0)], [("t0", 0), ("t0", 1)], [("t0", 0), ("t1", 0), ("t2", 0)], [("t0", 1), ("t0", 0), ("t1", 1), ("t2", 2)],
    [("t0", 0), ("none", 0)], [("t0", 0), ("t0", 9), ("t1", 0)], [("t2", 0), ("t1", 0), ("t0", 0)],
]
NONE, UNKNOWN = uuid.UUID(int=0), {topic: uuid.uuid4() for topic in [*TOPICS, "none"]}


def together(play, places, version, first, name, below):
    """Places by topic, in their order."""
    topics = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(below(topic, partition))
        # A topic that is not there has no id: each has an unknown one of its own.
        play.ids[topic] = play.ids[topic] if play.ids.get(topic, NONE) != NONE else UNKNOWN[topic]
        play.name("topic", play.ids[topic])
    return [{**play.topic(topic, version, first, name), field: found} for topic, parts in topics.items() for field, found in [parts_of(parts)]]


def parts_of(parts):
    return parts[0][0], [part for _, part in parts]


def led(play, places):
    """Waits until Kafka has leaders of all partitions: a request of which a part was refused would be sent again whole."""
    topics = together(play, places, 4, 99, "Topic", lambda _, partition: ("Partitions", {"Partition": partition, "PartitionMaxBytes": 1}))
    play.ask("Fetch", 4, {"MaxBytes": 1, "Topics": topics})


def answered(play, answer):
    """Error codes of the partitions of a produce, by place."""
    names = {identity: topic for topic, identity in play.ids.items()}
    found = {}
    for topic in answer["Responses"]:
        name = names.get(topic["TopicId"]) if "TopicId" in topic else topic["Name"].removeprefix(play.prefix)
        found |= {(name, part["Index"]): part["ErrorCode"] for part in topic["PartitionResponses"]}
    return found


@step(places=PLACES, counts=[[1, 2, 1, 1], [5, 1, 1, 3]], codec=[0, 0, 1, 4], keys=["none", "many"], when=["old"] * 5 + ["none"],
    broken=[None] * 5 + [0, 1], acks=[-1, -1, 1], version=[7, 9, 12, 13])
def many_produced(play, places, counts, codec, keys, when, broken, acks, version):
    """One batch for each of several partitions; one of them may be broken."""
    counts = iter(counts)

    def below(topic, partition):
        batch = kafka_wire.batch(play.records(next(counts), keys, when), codec)
        return "PartitionData", {"Index": partition, "Records": batch}

    topics = together(play, places, version, 13, "Name", below)
    if broken is not None:
        parts = [part for topic in topics for part in topic["PartitionData"]]
        parts[broken]["Records"] = parts[broken]["Records"][:-1] + b"?"
    led(play, places)
    play.see("Produce", version, {"Acks": acks, "TimeoutMs": 5000, "TransactionalId": None, "TopicData": topics})


@step(name=PRODUCERS, places=PLACES, order=[["next"] * 4, ["next"] * 4, ["next", "gap", "next", "next"], ["repeat", "next", "repeat", "next"]],
    version=[9, 12, 13])
def many_idempotent(play, name, places, order, version):
    order, sent = iter(order), []

    def below(topic, partition):
        batch, one = play.next_batch(name, topic, partition, next(order), 2, 0)
        sent.append((topic, partition, one))
        return "PartitionData", {"Index": partition, "Records": batch}

    topics = together(play, places, version, 13, "Name", below)
    led(play, places)
    answer = play.see("Produce", version, {"Acks": -1, "TimeoutMs": 5000, "TransactionalId": None, "TopicData": topics})
    codes = answered(play, answer)
    for topic, partition, one in sent:
        if codes.get((topic, partition)) == 0:
            play.sent(name, topic, partition, one, {"ErrorCode": 0})


@step(places=PLACES, offsets=[[0, 0, 0, 0], [3, 0, 2, 1], [0, 99, 0, 0]], most=[1_000_000] * 4 + [1], isolation=[0, 1], version=[4, 11, 12, 13, 16])
def many_fetched(play, places, offsets, most, isolation, version):
    offsets = iter(offsets)

    def below(_, partition):
        return "Partitions", {"Partition": partition, "FetchOffset": next(offsets), "PartitionMaxBytes": 1_000_000}

    topics = together(play, places, version, 13, "Topic", below)
    answer = play.ask("Fetch", version, {"MinBytes": 0, "MaxBytes": most, "IsolationLevel": isolation, "Topics": topics})
    # Kafka names a topic again for partitions that it refuses.
    parts = [{**topic, "Partitions": [part]} for topic in answer["Responses"] for part in topic["Partitions"]]
    play.observed[-1].append(play.plain(answer | {"Responses": parts}))


@step(places=PLACES, when=[-1, -2, 3, 50], version=[1, 5, 8])
def many_offsets(play, places, when, version):
    def below(_, partition):
        return "Partitions", {"PartitionIndex": partition, "Timestamp": when if when < 0 else play.start + when}

    topics = together(play, places, version, 99, "Name", below)
    play.see("ListOffsets", version, {"ReplicaId": -1, "Topics": topics})
