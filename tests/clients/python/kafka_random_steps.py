"""Steps of random work over Kafka's protocol (kafka_random.py), and what is seen of their answers.

What may differ between right brokers is left out (`LEFT_OUT`, `alike`, and comments where steps are changed or not taken).
"""

import json
import time
import uuid

import kafka_wire

TOPICS, PARTITIONS = ["t0", "t1", "t2"], [0, 0, 0, 1, 2]
PRODUCERS, TRANSACTIONAL, GROUPS = ["p0", "p1"], ["x0", "x1", "x2"], ["g0", "g1", "g2"]
# Texts for people, addresses, and numbers that are up to the broker: leader epochs count its starts, intervals depend on its load,
# epochs of groups count looks at their topics.
LEFT_OUT = {
    "ThrottleTimeMs", "ErrorMessage", "BatchIndexErrorMessage", "CurrentLeader", "NodeEndpoints", "Host", "Port", "ClientId", "ClientHost",
    "LeaderEpoch", "CommittedLeaderEpoch", "CoordinatorEpoch", "HeartbeatIntervalMs", "GroupEpoch", "AssignmentEpoch", "MemberEpoch",
    "SubscribedTopicRegex", "LastTimestamp", "AuthorizedOperations", "TopicAuthorizedOperations",
}
NAMED = {"ProducerId": "producer", "producer_id": "producer", "MemberId": "member", "Leader": "member", "TopicId": "topic", "SessionId": "session"}
LOADING, CONCURRENT = {14, 15, 16, 6}, 51
CONFIGS = [{}, {}, {}, {"message.timestamp.type": "LogAppendTime"}, {"cleanup.policy": "compact"}, {"max.message.bytes": "300"},
    {"compression.type": "gzip"}]
STEPS = {}


def step(**choices):
    """A kind of step; each argument is drawn from its choices."""

    def keep(function):
        STEPS[function.__name__] = (choices, function)
        return function

    return keep


class Producer:
    """A producer; its transactions are those of the second version (KIP-890), or of the first."""

    def __init__(self, second):
        self.second = second
        self.id = self.epoch = -1
        self.next, self.last = {}, {}


class Play:
    """One seed on one broker."""

    def __init__(self, address, schemas):
        self.address, self.schemas = address, schemas
        self.start = int(time.time() * 1000) - 3_000_000
        self.prefix = uuid.uuid4().hex[:8] + "-"
        self.connection = kafka_wire.Connection(address, schemas)
        self.members, self.names, self.ids = {}, {}, {}
        self.workers, self.settled_places, self.is_set_up, self.has_given_back = {}, set(), False, False
        self.producers = {name: Producer(name != "x0") for name in PRODUCERS + TRANSACTIONAL}
        self.alive, self.compacted, self.cut, self.given = set(), set(), set(), {}
        self.count, self.fetching = 0, (0, 0)
        self.observed = [[]]
        self.create("kept", 1, {}, False, 7)

    def ask(self, name, version, body):
        """An answer. A coordinator that is loading, and a transaction that is ending, are waited for."""
        for _ in range(200):
            try:
                answer = self.connection.ask(name, version, body)
            except ConnectionError:
                self.connection = kafka_wire.Connection(self.address, self.schemas)
                return "closed"
            if not codes(answer) & (LOADING | {CONCURRENT}):
                break
            time.sleep(0.02)
        return answer

    def see(self, name, version, body):
        answer = self.ask(name, version, body)
        self.observed[-1].append(self.plain(answer))
        return answer

    def name(self, kind, value):
        if value in (-1, 0, "", uuid.UUID(int=0)):
            return str(value)
        return self.names.setdefault((kind, value), f"{kind} {sum(kind == known for known, _ in self.names)}")

    def plain(self, value, field=""):
        """A value without what differs from broker to broker."""
        if isinstance(value, dict):
            return self.alike(value, {name: self.plain(below, name) for name, below in value.items() if name not in LEFT_OUT})
        if field == "Records":
            return [self.plain(batch) for batch in kafka_wire.batches(value)]
        if field == "records":
            return [self.record(*record) for record in value]
        if isinstance(value, list):
            below = [self.plain(below, field) for below in value if not is_own(below)]
            is_set = field in ("SubscribedTopicNames", "Partitions") or value and isinstance(value[0], dict)
            return sorted(below, key=json.dumps) if is_set else below
        if field in NAMED and value is not None:
            return self.name(NAMED[field], value)
        if "imestamp" in field or field.endswith("TimeMs"):
            return self.distance(value)
        if isinstance(value, str):
            return value.replace(self.prefix, "")
        return value.decode("latin1") if isinstance(value, bytes) else str(value) if isinstance(value, uuid.UUID) else value

    def alike(self, value, fields):
        """The fields of a part of an answer, plain already, without what differs between right brokers, or is known to differ."""
        if "AbortedTransactions" in fields:
            # Kafka names some that begin behind what it sends, and none at all after an error.
            last = max((batch["base_offset"] for batch in fields["Records"]), default=-1)
            fields["AbortedTransactions"] = [aborted for aborted in fields["AbortedTransactions"] or [] if aborted["FirstOffset"] <= last]
        if fields.get("LogAppendTimeMs") != "now":
            # Of a batch that was sent again Kafka tells the time of its last record.
            fields.pop("LogAppendTimeMs", None)
        if value.get("ErrorCode") and "BaseOffset" in fields:
            # Kafka tells it with some errors.
            fields.pop("LogStartOffset", None)
        if "TransactionTimeoutMs" in fields:
            # Kafka names the partition in which a group has its offsets.
            fields["Topics"] = [topic for topic in fields["Topics"] if not topic["Topic"].startswith("__")]
        if fields.get("TransactionState") != "Ongoing":
            # Kafka goes on to tell when the last one began.
            fields.pop("TransactionStartTimeMs", None)
        if fields.get("GroupState", "Stable") != "Stable" and "ProtocolData" in fields:
            # In a rebalance Kafka goes on to tell what members had.
            fields["Members"] = [member | {"MemberAssignment": ""} for member in fields["Members"]]
        if not fields.get("Members", True):
            # A group without members has the default assignor in Kafka.
            fields.pop("AssignorName", None)
        if "Synonyms" in fields:
            # Kafka leaves out some defaults.
            fields["Synonyms"] = [synonym for synonym in fields["Synonyms"] if synonym["Source"] != 5]
        if fields.get("attributes", 0) & 32:
            # Kafka's markers have the kind of time of their topic.
            fields["attributes"] &= ~8
        producer = value.get("ProducerId", value.get("producer_id", -1))
        for name in {"ProducerEpoch", "producer_epoch"} & set(fields):
            fields[name] = self.epoch(producer, fields[name])
        return fields

    def epoch(self, producer, epoch):
        """The number of an epoch that was given out, or of the next one: the abort of what is open takes one or none."""
        return next((number for number, given in enumerate(sorted(self.given.get(producer, ()))) if given >= epoch), epoch)

    def distance(self, moment):
        return moment if moment is None or moment < self.start - 1000 else "now" if moment > self.start + 2_000_000 else moment - self.start

    def record(self, offset, moment, key, value, headers):
        return [offset, self.distance(moment), self.plain(key), self.plain(value), [[name, self.plain(of)] for name, of in headers]]

    def topic(self, topic, version, first, name="Topic"):
        """A topic by name, or by its id from the `first` version with ids on."""
        return {"TopicId": self.ids.get(topic, uuid.UUID(int=7))} if version >= first else {name: self.prefix + topic}

    def settled(self, topic, partitions=None):
        """Waits until a topic that was made, or deleted, is so for clients."""
        for _ in range(100):
            found = self.ask("Metadata", 12, {"Topics": [{"Name": self.prefix + topic}], "AllowAutoTopicCreation": False})["Topics"][0]
            if (partitions is None) == (found["ErrorCode"] == 3) and len(found["Partitions"]) == (partitions or 0):
                break
            time.sleep(0.02)
        time.sleep(0.02)
        self.ids[topic] = found["TopicId"]

    # Logs

    def records(self, count, keys, when, size=1):
        self.count += 1
        at = {"old": self.start + self.count, "same": self.start, "none": -1, "future": self.start + 50_000_000}[when]
        key = {"none": None, "one": b"k", "many": b"k%d" % self.count}[keys]
        return [(at + (when == "old") * index, key, b"%d/%d" % (self.count, index) * size, [(b"h", None)] * (index % 2)) for index in range(count)]

    def produced(self, version, topic, partition, batch, acks=-1, transactional=None):
        place = {"PartitionData": [{"Index": partition, "Records": batch}], **self.topic(topic, version, 13, "Name")}
        return {"Acks": acks, "TimeoutMs": 5000, "TransactionalId": transactional, "TopicData": [place]}

    @step(topic=TOPICS, partition=PARTITIONS, count=[1, 2, 5], codec=[0, 0, 1, 2, 3, 4], keys=["none", "one", "many"],
        when=["old"] * 6 + ["same", "none", "future"],
          size=[1] * 8 + [100], acks=[-1, -1, 1, 0], version=[7, 8, 9, 11, 12, 13])
    def produce(self, topic, partition, count, codec, keys, when, size, acks, version):
        body = self.produced(version, topic, partition, kafka_wire.batch(self.records(count, keys, when, size), codec), acks)
        if acks:
            return self.see("Produce", version, body)
        # Without an answer; an error ends the connection.
        self.connection.send("Produce", version, body, answered=False)
        return self.observed[-1].append(self.ask("ApiVersions", 0, {}) == "closed")

    def next_batch(self, name, topic, partition, order, count, age, attributes=0):
        identity = self.identity(name, age)
        producer = self.producers[name]
        sequence = producer.next.get((topic, partition), 0)
        if order == "repeat" and (topic, partition) in producer.last:
            records, sequence = producer.last[topic, partition]
        else:
            records = self.records(count, "many", "old")
            sequence = (sequence + {"gap": 3, "wrap": 2**31 - 2 - sequence}.get(order, 0)) % 2**31
        batch = kafka_wire.batch(records, 0, attributes, (*identity.values(), sequence))
        return batch, (records, sequence)

    def sent(self, name, topic, partition, sent, answer):
        records, sequence = sent
        if codes(answer) == {0}:
            self.producers[name].next[topic, partition] = (sequence + len(records)) % 2**31
            self.producers[name].last[topic, partition] = sent

    @step(name=PRODUCERS, topic=TOPICS[:2], partition=PARTITIONS[:4], order=["next"] * 6 + ["repeat", "gap", "wrap"], count=[1, 3],
        age=[0] * 8 + [1, -1], version=[8, 12, 13])
    def idempotent(self, name, topic, partition, order, count, age, version):
        batch, sent = self.next_batch(name, topic, partition, order, count, age)
        self.sent(name, topic, partition, sent, self.see("Produce", version, self.produced(version, topic, partition, batch)))

    @step(name=PRODUCERS, topic=TOPICS[:2], partition=PARTITIONS[:4], drop=[None, None, 0, 1, 2], repeat=[None, None, 0, 1, 2], version=[9, 12])
    def burst(self, name, topic, partition, drop, repeat, version):
        """Three batches in flight at once: one of them may be lost, one may be sent twice."""
        sends = []
        for index in range(3):
            batch, sent = self.next_batch(name, topic, partition, "next", 2, 0)
            records, sequence = sent
            self.producers[name].next[topic, partition] = (sequence + len(records)) % 2**31
            sends += [(batch, sent)] * ((index != drop) + (index == repeat))
        for batch, _ in sends:
            self.connection.send("Produce", version, self.produced(version, topic, partition, batch))
        answers = [self.connection.receive() for _ in sends]
        self.observed[-1] += [self.plain(answer) for answer in answers]

    @step(topic=TOPICS, partition=PARTITIONS, offset=range(-1, 30), isolation=[0, 1], most=[1_000_000] * 5 + [1],
        version=[4, 5, 7, 11, 12, 13, 16, 18])
    def fetch(self, topic, partition, offset, isolation, most, version):
        place = {"Partitions": [{"Partition": partition, "FetchOffset": offset, "PartitionMaxBytes": most}], **self.topic(topic, version, 13)}
        body = {"MaxWaitMs": 0, "MinBytes": 0, "MaxBytes": 10_000_000, "IsolationLevel": isolation, "SessionEpoch": -1, "Topics": [place]}
        answer = self.ask("Fetch", version, {name: value for name, value in body.items() if name != "SessionEpoch" or version >= 7})
        self.observed[-1].append(self.plain(answer))

    @step(offset=[0, 0, 3, 9], isolation=[0, 1], most=[1_000_000, 1], version=[4, 12])
    def fetch_all(self, offset, isolation, most, version):
        """Several partitions at once; with little room, the first one that has something."""
        places = [{"Topic": self.prefix + topic, "Partitions": [{"Partition": 0, "FetchOffset": offset,
            "PartitionMaxBytes": 1_000_000}]} for topic in TOPICS]
        self.see("Fetch", version, {"MinBytes": 0, "MaxBytes": most, "IsolationLevel": isolation, "Topics": places})

    @step(action=["open", *["next"] * 5, "move", "move", "forget", "close", "late"], topic=TOPICS, offset=range(12), version=[7, 11, 12])
    def session(self, action, topic, offset, version):
        """A fetch session (KIP-227) of two topics, that goes on where it is told."""
        number, epoch = self.fetching
        opens = action == "open" or not number
        topics = TOPICS[:2] if opens else [topic] if action == "move" else []
        places = [{"Topic": self.prefix + name, "Partitions": [{"Partition": 0, "FetchOffset": offset,
            "PartitionMaxBytes": 1_000_000}]} for name in topics]
        forgotten = [{"Topic": self.prefix + topic, "Partitions": [0]}] if action == "forget" and not opens else []
        sent = 0 if opens else -1 if action == "close" else epoch + 3 * (action == "late")
        body = {"MinBytes": 0, "MaxBytes": 10_000_000, "IsolationLevel": 1, "SessionId": 0 if opens else number, "SessionEpoch": sent}
        answer = self.see("Fetch", version, body | {"Topics": places, "ForgottenTopicsData": forgotten})
        self.fetching = (answer["SessionId"], 1) if opens else (0, 0) if action == "close" else (number, epoch + (not answer["ErrorCode"]))

    @step(topic=TOPICS, partition=PARTITIONS, when=[-1, -1, -2, -3, -3, -4, -5, 60_000_000, *range(0, 100, 7)], isolation=[0, 1],
        version=[1, 2, 4, 5, 7, 8, 9, 10, 11])
    def list_offsets(self, topic, partition, when, isolation, version):
        if when == -3 and topic in self.cut:
            # Kafka finds the latest time also among records that were deleted.
            when = -1
        # A kind of place that the version does not know is refused before, or after, the partition is looked for.
        version = 11 if when < -2 else version
        when = when if when < 0 else self.start + when
        place = {"Name": self.prefix + topic, "Partitions": [{"PartitionIndex": partition, "Timestamp": when, "CurrentLeaderEpoch": -1}]}
        self.see("ListOffsets", version, {"ReplicaId": -1, "Topics": [place], "IsolationLevel": isolation})

    @step(topic=TOPICS, partition=PARTITIONS, offset=[-1, *range(0, 25, 2)], version=[0, 2])
    def delete_records(self, topic, partition, offset, version):
        if topic not in self.compacted:
            self.cut.add(topic)
        self.see("DeleteRecords", version, {"TimeoutMs": 5000, "Topics": [{"Name": self.prefix + topic,
            "Partitions": [{"PartitionIndex": partition, "Offset": offset}]}]})

    @step(topic=TOPICS, partition=PARTITIONS, epoch=[-1, 1000], version=[2, 3, 4])
    def leader_epoch(self, topic, partition, epoch, version):
        place = {"Topic": self.prefix + topic, "Partitions": [{"Partition": partition, "LeaderEpoch": epoch}]}
        self.see("OffsetForLeaderEpoch", version, {"ReplicaId": -1, "Topics": [place]})

    @step(topic=TOPICS, partition=PARTITIONS)
    def describe_producers(self, topic, partition):
        self.see("DescribeProducers", 0, {"Topics": [{"Name": self.prefix + topic, "PartitionIndexes": [partition]}]})

    # Transactions

    def transactional_id(self, name):
        return self.prefix + name if name in TRANSACTIONAL else None

    def given_out(self, name, answer):
        producer = self.producers[name]
        if answer["ErrorCode"] == 0 and answer.get("ProducerId", -1) >= 0:
            self.producers[name] = producer = Producer(producer.second)
            producer.id, producer.epoch = answer["ProducerId"], answer["ProducerEpoch"]
            self.given.setdefault(producer.id, set()).add(producer.epoch)
        self.observed[-1].append(self.plain(answer))

    def at_rest(self, name):
        """Waits until the end of a transaction is complete."""
        for _ in range(200):
            state = self.ask("DescribeTransactions", 0, {"TransactionalIds": [self.prefix + name]})["TransactionStates"][0]["TransactionState"]
            if not state.startswith("Prepare"):
                return
            time.sleep(0.01)

    @step(name=TRANSACTIONAL * 2 + PRODUCERS, how=["fresh"] * 4 + ["keep", "keep", "old", "other"], version=[0, 1, 2, 3, 4, 5, 5])
    def init(self, name, how, version, timeout=600_000):
        if how == "old" and name in TRANSACTIONAL:
            # In Kafka a producer with an old epoch aborts what the one with the new epoch has begun.
            self.end(name, False, 0, [4, 5])
        producer = self.producers[name]
        body = {"TransactionalId": self.transactional_id(name), "TransactionTimeoutMs": timeout}
        # The last epoch but one: with the last one, a client asks again for what it may have been given already.
        epoch = producer.epoch - 2 * (how == "old")
        if version >= 3 and how != "fresh" and (epoch >= 0 or producer.epoch < 0):
            body |= {"ProducerId": producer.id + (how == "other"), "ProducerEpoch": max(epoch, -1)}
        self.given_out(name, self.ask("InitProducerId", version, body))
        if name in TRANSACTIONAL:
            self.at_rest(name)

    @step(name=TRANSACTIONAL, topic=TOPICS[:2], commit=[True, False])
    def expire(self, name, topic, commit):
        """A transaction that takes too long, and what its producer hears when it goes on."""
        self.init(name, "fresh", 4, 200)
        self.add(name, [topic], 0, 0, 3)
        self.transactional(name, topic, 0, "next", 2, 0, [10, 12])
        for _ in range(300):
            state = self.ask("DescribeTransactions", 0, {"TransactionalIds": [self.prefix + name]})["TransactionStates"][0]["TransactionState"]
            if state != "Ongoing":
                break
            time.sleep(0.02)
        self.at_rest(name)
        self.end(name, commit, 0, [4, 5])
        self.init(name, "fresh", 4)

    def identity(self, name, age):
        """A producer id and its epoch, which may be too old or too new. Batches of transactions without an id, which Kafka takes, nobody sends."""
        if self.producers[name].id < 0:
            self.init(name, "fresh", 4)
        producer = self.producers[name]
        return {"ProducerId": producer.id, "ProducerEpoch": max(producer.epoch - age, 0)}

    @step(name=TRANSACTIONAL, topics=[["t0"], ["t0", "t1"], ["t1"]], partition=[0, 0, 1], age=[0] * 8 + [1, -1], version=[0, 2, 3])
    def add(self, name, topics, partition, age, version):
        body = {"V3AndBelowTransactionalId": self.prefix + name, "V3AndBelowTopics": [{"Name": self.prefix + topic,
            "Partitions": [partition]} for topic in topics]}
        self.see("AddPartitionsToTxn", version, body | {f"V3AndBelow{field}": value for field, value in self.identity(name, age).items()})

    @step(name=TRANSACTIONAL, topic=TOPICS[:2], partition=[0, 0, 1], order=["next"] * 8 + ["repeat", "gap"], count=[1, 3], age=[0] * 10 + [1, -1],
        version=[[9, 12], [10, 13], [11, 12]])
    def transactional(self, name, topic, partition, order, count, age, version):
        if order == "gap" and (topic, partition) not in self.producers[name].last:
            # Kafka remembers the sequence of a batch that it refused for want of a transaction.
            order = "next"
        batch, sent = self.next_batch(name, topic, partition, order, count, age, attributes=16)
        version = version[self.producers[name].second]
        answer = self.see("Produce", version, self.produced(version, topic, partition, batch, transactional=self.prefix + name))
        self.sent(name, topic, partition, sent, answer)
        self.aborted(name, answer)

    @step(name=TRANSACTIONAL, group=GROUPS, age=[0] * 8 + [1], version=[0, 3, 4])
    def add_group(self, name, group, age, version):
        self.see("AddOffsetsToTxn", version, {"TransactionalId": self.prefix + name, "GroupId": self.prefix + group, **self.identity(name, age)})

    @step(name=TRANSACTIONAL, group=GROUPS, topic=TOPICS, partition=[0, 0, 1], offset=range(20), who=["", "", "", "m0", "no"],
        generation=[None, None, 0, 7], age=[0] * 8 + [1], metadata=["", "m", None], version=[[0, 5], [2, 5], [3, 5], [4, 5]])
    def commit_in(self, name, group, topic, partition, offset, who, generation, age, metadata, version):
        self.exists(group)
        place = {"PartitionIndex": partition, "CommittedOffset": offset, "CommittedMetadata": metadata}
        body = {"TransactionalId": self.prefix + name, "GroupId": self.prefix + group, **self.identity(name, age),
            "Topics": [{"Name": self.prefix + topic, "Partitions": [place]}]}
        version = version[self.producers[name].second]
        if version >= 3:
            body |= self.membership(group, who, generation, "GenerationId")
        self.aborted(name, self.see("TxnOffsetCommit", version, body))

    @step(name=TRANSACTIONAL, commit=[True, True, False], age=[0] * 10 + [1, -1], version=[[0, 5], [3, 5], [4, 5]])
    def end(self, name, commit, age, version):
        identity, version = self.identity(name, age), version[self.producers[name].second]
        self.given_out(name, self.ask("EndTxn", version, {"TransactionalId": self.prefix + name, "Committed": commit, **identity}))
        self.at_rest(name)

    def aborted(self, name, answer):
        """Ends the transaction after an error, as clients do: in Kafka a refused request of the second version has begun it."""
        if self.producers[name].second and codes(answer) != {0}:
            self.end(name, False, 0, [4, 5])

    @step(name=TRANSACTIONAL)
    def describe(self, name):
        self.see("DescribeTransactions", 0, {"TransactionalIds": [self.prefix + name]})

    @step(states=[[], [], ["Ongoing"], ["Empty", "CompleteCommit"], ["Odd"]], longer=[-1, -1, 1_000_000], pattern=[".*", ".*x0"])
    def list(self, states, longer, pattern):
        if longer >= 0:
            # Kafka takes those that have not begun for very long ones.
            states = ["Ongoing"]
        self.see("ListTransactions", 2, {"StateFilters": states, "DurationFilter": longer, "TransactionalIdPattern": self.prefix + pattern,
            "ProducerIdFilters": []})

    # Groups

    def exists(self, group):
        """Makes a group, unless it is there. One that has only offsets of an open transaction is none here, and an empty one in Kafka."""
        place = {"Name": self.prefix + "kept", "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 1, "CommittedMetadata": ""}]}
        self.see("OffsetCommit", 2, {"GroupId": self.prefix + group, "GenerationIdOrMemberEpoch": -1, "MemberId": "", "Topics": [place]})

    def membership(self, group, who, generation, field):
        member = self.members.get((group, who)) or Member()
        chosen = member.generation if generation is None else generation
        return {"MemberId": who if who == "no" else member.id, field: chosen}

    @step(group=GROUPS, topic=TOPICS, partition=[0, 0, 1], offset=[-1, *range(10)], who=["", "", "m0", "m1", "no"],
        generation=[None, None, None, 0, 1000], metadata=["", "m", None, "m" * 4096, "m" * 4097], version=[2, 5, 6, 7, 8, 9, 10])
    def commit(self, group, topic, partition, offset, who, generation, metadata, version):
        if (self.members.get((group, who)) or Member()).topics:
            # Kafka refuses older versions to members of the consumer protocol, and takes commits of a static one's first epoch.
            version, generation = max(version, 9), generation or None
        # A group without commits is none here once its members have left.
        self.exists(group)
        place = {"Partitions": [{"PartitionIndex": partition, "CommittedOffset": offset, "CommittedMetadata": metadata}],
            **self.topic(topic, version, 10, "Name")}
        answer = self.ask("OffsetCommit", version, {"GroupId": self.prefix + group, "Topics": [place],
            **self.membership(group, who, generation, "GenerationIdOrMemberEpoch")})
        # Of two mistakes in one request, either may be named.
        self.observed[-1].append(codes(answer) == {0} if metadata and len(metadata) > 4096 else self.plain(answer))

    @step(group=GROUPS, topics=[None, ["t0"], ["t0", "t1", "t2"]], stable=[False, True], who=["", "", "m0", "no"], version=[2, 5, 7, 8, 9, 10])
    def committed(self, group, topics, stable, who, version):
        asked = topics and [{"PartitionIndexes": [0, 1], **self.topic(topic, version, 10, "Name")} for topic in topics]
        body = {"GroupId": self.prefix + group, "Topics": asked}
        if version >= 8:
            member = self.members.get((group, who)) or Member()
            as_member = {"MemberId": who if who == "no" else member.id or None, "MemberEpoch": member.generation} if version >= 9 and who else {}
            body = {"Groups": [body | as_member]}
        self.see("OffsetFetch", version, body | ({"RequireStable": stable and version != 7} if version >= 7 else {}))

    @step(group=GROUPS, topic=TOPICS, partition=[0, 0, 1, 9])
    def delete_offset(self, group, topic, partition):
        self.see("OffsetDelete", 0, {"GroupId": self.prefix + group, "Topics": [{"Name": self.prefix + topic,
            "Partitions": [{"PartitionIndex": partition}]}]})

    @step(group=GROUPS, version=[0, 2])
    def delete_group(self, group, version):
        self.see("DeleteGroups", version, {"GroupsNames": [self.prefix + group]})

    @step(states=[[], [], ["Stable"], ["Empty", "Dead"], ["preparingRebalance"]], types=[[], [], ["consumer"], ["Classic"], ["odd"]],
        version=[0, 3, 4, 5, 5])
    def groups(self, states, types, version):
        answer = self.ask("ListGroups", version,
            ({"StatesFilter": states} if version >= 4 else {}) | ({"TypesFilter": types} if version >= 5 else {}))
        answer["Groups"] = [group for group in answer["Groups"] if group["GroupId"].startswith(self.prefix)]
        self.observed[-1].append(self.plain(answer))

    @step(group=GROUPS, version=[0, 4, 5, 6])
    def describe_group(self, group, version):
        self.see("DescribeGroups", version, {"Groups": [self.prefix + group]})

    @step(group=GROUPS, version=[0, 1])
    def describe_new(self, group, version):
        self.see("ConsumerGroupDescribe", version, {"GroupIds": [self.prefix + group]})

    @step(group=GROUPS[:1], who=["m0", "m0", "m1", "m2"], protocols=[["range"], ["range", "other"], ["other"]], metadata=["a", "b"],
        version=[2, 4, 5, 6, 7, 8, 9])
    def join(self, group, who, protocols, metadata, version):
        """A join, and that of the members which have to join again with it. One of them is static."""
        # One without commits is forgotten with its last member; Kafka keeps it for some minutes.
        self.exists(group)
        member = self.members.setdefault((group, who), Member())
        version = max(version, 5) if who == "m2" else version
        member.protocols, member.version, member.instance = protocols, version, "i-m2" if who == "m2" else None
        self.rejoin(group, [member], metadata)

    def rejoin(self, group, joining, metadata):
        others = [other for (of, _), other in self.members.items() if of == group and other not in joining and other.id and other.protocols]
        members = [*joining, *others]
        for member in members:
            member.connection = member.connection or kafka_wire.Connection(self.address, self.schemas)
            self.send_join(group, member, metadata)
            # A member without an id gets one at once, and has to come again with it.
            early = self.try_join(member, 4 if member.version >= 4 and not member.id and not member.instance else 0.08)
            if early is not None and early["ErrorCode"] == 79:
                member.id = early["MemberId"]
                self.observed[-1].append(self.plain(early))
                self.send_join(group, member, metadata)
                time.sleep(0.05)
            elif early is not None:
                self.joined(group, member, early)
        for member in members:
            # One that was answered before another began a rebalance.
            alive = {"GroupId": self.prefix + group, "GenerationId": member.generation, "MemberId": member.id}
            if member.id and not member.connection.sent and self.ask("Heartbeat", 0, alive)["ErrorCode"] == 27:
                self.send_join(group, member, metadata)
        for member in members:
            if member.connection.sent:
                answer = self.try_join(member, 4)
                self.observed[-1].append(None) if answer is None else self.joined(group, member, answer)
        found = [[self.plain(other["MemberId"], "MemberId"), self.plain(other["Metadata"])] for member in members for other in member.others]
        self.observed[-1].append(sorted(found))

    def send_join(self, group, member, metadata):
        body = {"GroupId": self.prefix + group, "SessionTimeoutMs": 30_000, "MemberId": member.id, "ProtocolType": "consumer",
                "Protocols": [{"Name": name, "Metadata": metadata.encode()} for name in member.protocols], "RebalanceTimeoutMs": 60_000}
        member.others = []
        member.connection.send("JoinGroup", member.version, body | ({"GroupInstanceId": member.instance} if member.version >= 5 else {}))

    def try_join(self, member, seconds):
        try:
            return member.connection.receive(seconds)
        except TimeoutError:
            return None

    def joined(self, group, member, answer):
        # The next leader is any of the members that are left.
        self.observed[-1].append(self.plain({name: value for name, value in answer.items() if name not in ("Leader", "Members", "SkipAssignment")}))
        if answer["ErrorCode"] == 0:
            member.id, member.generation = answer["MemberId"], answer["GenerationId"]
            member.others = answer["Members"]
        elif member.id:
            # Others would wait for it.
            self.see("LeaveGroup", 0, {"GroupId": self.prefix + group, "MemberId": member.id})
            member.id, member.protocols = "", []

    @step(group=GROUPS[:1], who=["m0", "m1", "m2"], age=[0] * 5 + [1, -1], kind=[None, None, "consumer", "odd"], version=[0, 3, 4, 5])
    def sync(self, group, who, age, kind, version):
        """The assignments of the whole group, its leader first; or one mistake."""
        asking = [self.members.get((group, who)) or Member()]
        if age == 0 and (kind != "odd" or version < 5):
            asking = sorted((other for (of, _), other in self.members.items() if of == group and other.id), key=lambda other: not other.others)
        found = []
        for member in asking:
            body = {"GroupId": self.prefix + group, "GenerationId": member.generation - age, "MemberId": member.id,
                    "Assignments": [{"MemberId": other["MemberId"], "Assignment": b"part"} for other in member.others]}
            connection = kafka_wire.Connection(self.address, self.schemas)
            connection.send("SyncGroup", version, body | ({"ProtocolType": kind, "ProtocolName": kind and "range"} if version >= 5 else {}))
            try:
                found.append(self.plain(connection.receive(0.3)))
            except TimeoutError:
                found.append({})
        self.observed[-1].append(sorted(found, key=json.dumps))

    @step(group=GROUPS[:1], who=["m0", "m1", "m2", "no"], age=[0] * 4 + [1, -1], instance=[None, None, "i-m2", "i-no"], version=[0, 3, 4])
    def heartbeat(self, group, who, age, instance, version):
        body = {"GroupId": self.prefix + group, **self.membership(group, who, None, "GenerationId")}
        body["GenerationId"] -= age
        self.see("Heartbeat", version, body | ({"GroupInstanceId": instance} if version >= 3 else {}))

    @step(group=GROUPS[:1], who=["m0", "m1", "m2", "no"], instance=[None, None, "i-m2", "i-no"], version=[0, 2, 3, 5])
    def leave(self, group, who, instance, version):
        instance = instance if version >= 3 else None
        member = self.members.get((group, who)) or Member()
        named = "no" if who == "no" else member.id
        one = {"MemberId": named} if version < 3 else {"Members": [{"MemberId": "" if instance else named, "GroupInstanceId": instance}]}
        answer = self.see("LeaveGroup", version, {"GroupId": self.prefix + group, **one})
        if codes(answer) == {0}:
            for other in self.members.values():
                if other is member and not instance or instance and other.instance == instance:
                    other.id, other.protocols = "", []

    @step(group=GROUPS[1:2], who=["m0", "m0", "m1"], epoch=[None] * 6 + [0, 0, -1, -1, -2, 1000], topics=[["t0"], ["t0", "t1"], ["none"]],
        version=[0, 1])
    def beat(self, group, who, epoch, topics, version):
        """A heartbeat of a group of the consumer protocol, and those until its members have what they should have."""
        if not any(of == group and other.generation > 0 for (of, _), other in self.members.items()):
            # As with the classic protocol, a group without commits is forgotten with its last member.
            self.exists(group)
        member = self.members.setdefault((group, who), Member())
        member.id = member.id or who
        member.version, member.topics, member.instance = version, [self.prefix + topic for topic in topics], "i-m1" if who == "m1" else None
        self.observed[-1].append(self.beats(group, member, max(member.generation, 0) if epoch is None else epoch))
        members = {name: other for (of, name), other in self.members.items() if of == group and other.generation > 0}
        steady = 0
        while steady < 3:
            before = [(other.generation, other.assigned) for other in members.values()]
            found = {name: self.beats(group, other, other.generation) for name, other in members.items() if other.generation > 0}
            steady = steady + 1 if before == [(other.generation, other.assigned) for other in members.values()] else 0
            time.sleep(0.01)
        self.observed[-1].append([found, {name: self.plain(other.assigned) for name, other in members.items()}])

    def beats(self, group, member, epoch):
        first = epoch == 0
        body = {"GroupId": self.prefix + group, "MemberId": member.id, "MemberEpoch": epoch, "InstanceId": member.instance,
            "RebalanceTimeoutMs": 60_000 if first else -1,
                "ServerAssignor": "range" if first else None, "SubscribedTopicNames": member.topics, "TopicPartitions": [] if first else member.assigned}
        answer = self.ask("ConsumerGroupHeartbeat", member.version, body)
        member.generation = answer["MemberEpoch"] if answer["ErrorCode"] == 0 else 0 if answer["ErrorCode"] in (25, 110) else member.generation
        if answer["Assignment"] or member.generation <= 0:
            member.assigned = answer["Assignment"]["TopicPartitions"] if answer["Assignment"] else []
        return answer["ErrorCode"]

    # Topics

    @step(topic=TOPICS, partitions=[1, 2, 3], config=[*CONFIGS, {"cleanup.policy": "odd"}], only=[False, False, True], version=[2, 4, 5, 7])
    def create(self, topic, partitions, config, only, version):
        if topic in self.ids and topic not in self.alive and not only:
            # The end of a transaction from before writes to the new topic of the name in Kafka.
            for name in TRANSACTIONAL:
                self.end(name, False, 0, [4, 5])
        config = {} if topic in self.alive else config
        configs = [{"Name": name, "Value": value} for name, value in config.items()]
        body = {"Topics": [{"Name": self.prefix + topic, "NumPartitions": partitions, "ReplicationFactor": 1, "Configs": configs}],
            "timeoutMs": 5000, "validateOnly": only}
        answer = self.ask("CreateTopics", version, body)
        if codes(answer) == {0} and not only:
            self.settled(topic, partitions)
            self.alive.add(topic)
            # Of a topic that was made anew the first answer of a session may still say that it is not there.
            self.fetching = (0, 0)
            if config.get("cleanup.policy"):
                self.compacted.add(topic)
        if only and version == 7:
            # Kafka makes an id up for a topic that it does not make.
            answer["Topics"][0]["TopicId"] = uuid.UUID(int=0)
        self.observed[-1].append(self.plain(answer))

    @step(topic=TOPICS, version=[1, 4, 5, 6])
    def delete(self, topic, version):
        named = {"TopicNames": [self.prefix + topic]} if version < 6 else {"Topics": [{"Name": self.prefix + topic}]}
        answer = self.see("DeleteTopics", version, {**named, "TimeoutMs": 5000})
        if codes(answer) == {0}:
            self.settled(topic)
            # Kafka forgets commits of the topic a little later.
            time.sleep(0.3)
            self.alive.discard(topic)

    @step(topic=TOPICS, count=[0, 1, 2, 3, 4], only=[False, False, True], version=[0, 3])
    def partitions(self, topic, count, only, version):
        answer = self.see("CreatePartitions", version, {"Topics": [{"Name": self.prefix + topic, "Count": count, "Assignments": None}],
            "TimeoutMs": 5000, "ValidateOnly": only})
        if codes(answer) == {0} and not only:
            self.settled(topic, count)

    @step(topic=TOPICS, setting=["max.message.bytes", "cleanup.policy", "message.timestamp.type", "retention.ms", "compression.type", "odd"],
        value=["300", "1000000", "compact", "delete", "compact,delete", "LogAppendTime", "CreateTime", "producer", "gzip", ""], operation=[0, 0, 0,
            1, 2, 3], only=[False, False, True], version=[0, 1])
    def alter(self, topic, setting, value, operation, only, version):
        if topic not in self.alive:
            setting, value, operation = "retention.ms", "1000000", 0
        if operation > 1 and not value:
            # Kafka takes an empty name of a list for a wrong one.
            value = "delete"
        change = {"Name": setting, "ConfigOperation": operation, "Value": value}
        self.see("IncrementalAlterConfigs", version, {"Resources": [{"ResourceType": 2, "ResourceName": self.prefix + topic, "Configs": [change]}],
            "ValidateOnly": only})
        if setting == "cleanup.policy":
            self.compacted.add(topic)
        # Kafka's broker learns of it from its controller a little later.
        time.sleep(0.15)

    @step(topic=TOPICS, keys=[None, ["cleanup.policy", "retention.ms", "odd"], []], synonyms=[False, True], version=[1, 3, 4])
    def describe_config(self, topic, keys, synonyms, version):
        asked = {"ResourceType": 2, "ResourceName": self.prefix + topic, "ConfigurationKeys": keys}
        self.see("DescribeConfigs", version, {"Resources": [asked], "IncludeSynonyms": synonyms})

    @step(topics=[["t0"], TOPICS, ["none"]], version=[1, 4, 9, 10, 12, 13])
    def metadata(self, topics, version):
        answer = self.ask("Metadata", version,
            {"Topics": [{"Name": self.prefix + topic} for topic in topics]} | ({"AllowAutoTopicCreation": False} if version >= 4 else {}))
        self.observed[-1].append(self.plain(answer["Topics"]))


class Member:
    """A member of a group; of the classic protocol with a connection of its own."""

    def __init__(self):
        self.id, self.generation, self.instance, self.connection = "", -1, None, None
        self.protocols, self.others, self.topics, self.assigned, self.version = [], [], [], [], 0


def is_own(setting):
    """Whether this is a setting of Stafett's, or the one that Kafka sets for itself."""
    return isinstance(setting, dict) and "ConfigSource" in setting and setting["Name"].startswith(("stafett.", "min.insync."))


def codes(answer):
    """All error codes in an answer."""
    if isinstance(answer, dict):
        own = {value for name, value in answer.items() if name == "ErrorCode"}
        return own.union(*map(codes, answer.values()))
    return set().union(*map(codes, answer)) if isinstance(answer, list) else set()
