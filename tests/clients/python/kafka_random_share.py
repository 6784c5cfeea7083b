"""Steps of random work with share groups (kafka_random.py, seeds `share-N`): one group, whose members take records of two topics."""

import time
import uuid

import kafka_wire
from kafka_random_steps import TOPICS, codes, step

GROUP, WORKERS = "s", ["w0", "w0", "w1", "w2"]
# Without transactions: Kafka gives their markers out, too, and counts them.
THEME = {
    "share_beat": 4, "share_fetch": 14, "share_acknowledge": 8, "share_describe": 1, "share_offsets": 3, "share_alter_offsets": 1,
    "share_delete_offsets": 1, "share_config": 2, "groups": 1, "share_delete": 1, "produce": 7, "delete_records": 1,
    "list_offsets": 1,
}
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
GROUP_RESOURCE = 32
# An offset that nobody was given, and the errors that say so: which one depends in Kafka on what else it has in memory.
FOREIGN = 1000
NOT_GIVEN = {42, 121}
# Codes of partitions of which Kafka does not know enough yet.
LATER = [0, -1, 78]


class Worker:
    """A member of a share group, with its share session."""

    def __init__(self, play):
        self.id = str(uuid.uuid4())
        self.epoch, self.session = 0, 0
        self.connection = kafka_wire.Connection(play.address, play.schemas)
        # Offsets that it was given, by topic and partition.
        self.held = {}
        # Its partition of the session.
        self.place = None

    def ask(self, name, version, body):
        return self.connection.ask(name, version, body)


def worker(play, who):
    set_up(play)
    if who not in play.workers:
        play.workers[who] = Worker(play)
        play.name("member", play.workers[who].id)
    return play.workers[who]


def set_up(play):
    """Records are read from the first one on, and lent for longer than the seed takes."""
    if not play.is_set_up:
        play.is_set_up = True
        for setting, value in {"share.record.lock.duration.ms": "60000", "share.auto.offset.reset": "earliest"}.items():
            configure(play, setting, value)


def configure(play, setting, value):
    change = {"Name": setting, "ConfigOperation": 0, "Value": value}
    resource = {"ResourceType": GROUP_RESOURCE, "ResourceName": play.prefix + GROUP, "Configs": [change]}
    answer = play.see("IncrementalAlterConfigs", 1, {"Resources": [resource], "ValidateOnly": False})
    # Kafka's broker learns of it from its controller a little later.
    time.sleep(0.15)
    return answer


def beat_until_steady(play):
    """Heartbeats of all members until none is told anything new."""
    for _ in range(100):
        news = False
        for member in play.workers.values():
            if member.epoch > 0:
                answer = member.ask("ShareGroupHeartbeat", 1, {"GroupId": play.prefix + GROUP, "MemberId": member.id, "MemberEpoch": member.epoch})
                news |= answer["MemberEpoch"] != member.epoch
                member.epoch = answer["MemberEpoch"] if answer["ErrorCode"] == 0 else 0
        if not news:
            return
        time.sleep(0.02)


@step(who=WORKERS, how=["join", "join", "beat", "beat", "leave", "new"], topics=[["t0", "t1"], ["t1", "t0"], ["t1", "t0", "none"]])
def share_beat(play, who, how, topics):
    member = worker(play, who)
    epoch = {"join": 0, "beat": member.epoch, "leave": -1, "new": member.epoch + 1000}[how]
    body = {"GroupId": play.prefix + GROUP, "MemberId": member.id, "MemberEpoch": epoch}
    if epoch == 0 or how == "new":
        body["SubscribedTopicNames"] = [play.prefix + topic for topic in topics]
    answer = member.ask("ShareGroupHeartbeat", 1, body)
    # Of the partitions it is not said which are whose.
    play.observed[-1].append(answer["ErrorCode"])
    if answer["ErrorCode"] == 0:
        member.epoch = max(answer["MemberEpoch"], 0)
    beat_until_steady(play)
    if how == "leave":
        member.held.clear()
        settle(play)


def settle(play):
    """Records that a member gave back by its end are free a little later."""
    play.has_given_back = True
    time.sleep(0.05)


def batches_of(play, member, place, kind, part):
    """Acknowledgements of a part of the records that a member was given."""
    held = sorted(member.held.get(place, ()))
    chosen = {"all": held, "first": held[:1], "last": held[-1:], "none": [], "foreign": [FOREIGN]}[part]
    kinds = {"mixed": [ACCEPT, RELEASE, REJECT]}.get(kind, [kind])
    batches = [{"FirstOffset": offset, "LastOffset": offset, "AcknowledgeTypes": [kinds[index % len(kinds)]]} for index, offset in enumerate(chosen)]
    if kind == "range":
        # One batch of all, with one kind for all.
        is_whole = held and held[-1] - held[0] == len(held) - 1
        chosen = held if is_whole else []
        batches = [{"FirstOffset": held[0], "LastOffset": held[-1], "AcknowledgeTypes": [ACCEPT]}] if is_whole else []
    return batches, [] if kind == RENEW or part == "foreign" else chosen


def of_settling(code):
    return min(NOT_GIVEN) if code in NOT_GIVEN else code


def settle_held(play, member, place, settled, kinds=()):
    member.held.get(place, set()).difference_update(settled)
    if settled:
        play.settled_places.add(place)
        play.has_given_back |= RELEASE in kinds


def session_of(member, how):
    """How the session goes on, and the epoch that says so."""
    if how == "open" and any(member.held.values()):
        # At the next close Kafka gives back what the last session had alone.
        how = "next"
    return how, {"next": member.session, "open": 0, "close": -1, "late": member.session + 5}[how]


def step_session(member, how, answer):
    if answer == "closed":
        return
    if answer["ErrorCode"] == 0:
        member.session = 0 if how == "close" else 1 if how == "open" or member.session == 0 else member.session + 1
        if how == "close":
            member.held.clear()
    else:
        member.session = 0 if answer["ErrorCode"] == 122 else member.session


@step(who=WORKERS, how=["next"] * 10 + ["open", "close", "late"], topic=TOPICS[:2], partition=[0, 0, 0, 1], most=[1, 2, 500, 500, 500],
    kind=[ACCEPT, ACCEPT, REJECT], part=["none", "all", "all", "first", "last", "foreign"], mode=[0, 0, 1], version=[1, 2, 2])
def share_fetch(play, who, how, topic, partition, most, kind, part, mode, version):
    """Settles a part of the records of a partition, and takes more. What it would give back, Kafka may or may not give it again at once."""
    member, place = worker(play, who), (topic, partition)
    # Of a group that is not there, and a topic that none of it wants, Kafka tells an error of the server.
    if member.epoch == 0:
        share_beat(play, who, "join", ["t0", "t1"])
    # A session has one partition: of several it would be open which gives first.
    if member.place not in (None, place):
        share_close(play, member)
    member.place = place
    how, epoch = session_of(member, how)
    # Of records that come again Kafka gives more than it was asked for.
    most = 500 if play.has_given_back else most
    batches, settled = batches_of(play, member, place, kind, part if epoch else "none")
    topics = [{"TopicId": play.ids[topic], "Partitions": [{"PartitionIndex": partition, "AcknowledgementBatches": batches}]}]
    body = {"GroupId": play.prefix + GROUP, "MemberId": member.id, "ShareSessionEpoch": epoch, "MaxWaitMs": 50, "MinBytes": 1,
            "MaxBytes": 1_000_000, "MaxRecords": most, "BatchSize": most, "Topics": topics if epoch >= 0 or batches else []}
    answer = member.ask("ShareFetch", version, body | ({"ShareAcquireMode": mode} if version >= 2 else {}))
    seen = [answer]
    step_session(member, how, answer)
    # What is not there at once may be under way: Kafka loads the state of a partition with its first fetch.
    for _ in range(6):
        if answer["ErrorCode"] or how == "close" or any(part["AcquiredRecords"] or part["ErrorCode"] not in LATER for part in parts(answer)):
            break
        time.sleep(0.1 * any(part["ErrorCode"] in LATER[1:] for part in parts(answer)))
        again = body | {"ShareSessionEpoch": member.session, "Topics": []}
        answer = member.ask("ShareFetch", version, again | ({"ShareAcquireMode": mode} if version >= 2 else {}))
        seen.append(answer)
        step_session(member, "next", answer)
    acknowledged = [of_settling(part["AcknowledgeErrorCode"]) for part in parts(seen[0])] if batches else []
    if not any(acknowledged) and seen[0]["ErrorCode"] == 0:
        settle_held(play, member, place, settled)
    given = taken(play, answer)
    for offset, *_ in given:
        member.held.setdefault(place, set()).add(offset)
    errors = [part["ErrorCode"] for part in parts(answer) if part["ErrorCode"]]
    play.observed[-1].append([seen[0]["ErrorCode"], answer["ErrorCode"], acknowledged, errors, given])


def parts(answer):
    return [part for topic in answer["Responses"] for part in topic["Partitions"]]


def taken(play, answer):
    """Records that were given, with how often."""
    found = []
    for part in parts(answer):
        records = {record[0]: play.record(*record)[1:4] for batch in kafka_wire.batches(part["Records"]) for record in batch["records"]}
        for acquired in part["AcquiredRecords"]:
            for offset in range(acquired["FirstOffset"], acquired["LastOffset"] + 1):
                found.append([offset, acquired["DeliveryCount"], records.get(offset)])
    # Places of deleted records Kafka gives out, too.
    return [given for given in found if given[2]]


@step(who=WORKERS, how=["next"] * 8 + ["close", "late", "open"], kind=[ACCEPT, ACCEPT, RELEASE, REJECT, RENEW, "mixed", "range", 9],
    part=["all", "all", "first", "last", "foreign", "none"], version=[1, 2, 2])
def share_acknowledge(play, who, how, kind, part, version):
    member = worker(play, who)
    place = member.place or ("t0", 0)
    how, epoch = session_of(member, how)
    kind = RELEASE if kind == RENEW and version < 2 else kind
    batches, settled = batches_of(play, member, place, kind, part)
    topics = [{"TopicId": play.ids[place[0]], "Partitions": [{"PartitionIndex": place[1], "AcknowledgementBatches": batches}]}] if batches else []
    body = {"GroupId": play.prefix + GROUP, "MemberId": member.id, "ShareSessionEpoch": epoch, "Topics": topics}
    answer = member.ask("ShareAcknowledge", version, body | ({"IsRenewAck": kind == RENEW} if version >= 2 else {}))
    play.observed[-1].append([answer["ErrorCode"], sorted(of_settling(part["ErrorCode"]) for part in parts(answer))])
    if codes(answer) == {0}:
        settle_held(play, member, place, settled, [RELEASE] if kind in (RELEASE, "mixed") else [])
    step_session(member, how, answer)
    if how == "close":
        settle(play)


def share_close(play, member):
    if member.session > 0:
        body = {"GroupId": play.prefix + GROUP, "MemberId": member.id, "ShareSessionEpoch": -1, "Topics": []}
        answer = member.ask("ShareAcknowledge", 1, body)
        play.observed[-1].append(answer["ErrorCode"])
        step_session(member, "close", answer)
        settle(play)


@step(setting=["share.auto.offset.reset"] * 2 + ["share.delivery.count.limit", "share.isolation.level", "share.partition.max.record.locks", "odd"],
    value=["earliest", "2", "3", "100", "read_committed", "read_uncommitted", "odd"])
def share_config(play, setting, value):
    # A group begins in all partitions at once here, and in each with its first fetch in Kafka: other resets would differ.
    set_up(play)
    configure(play, setting, value)


@step()
def share_describe(play):
    answer = play.ask("ShareGroupDescribe", 1, {"GroupIds": [play.prefix + GROUP]})
    for group in answer["Groups"]:
        for member in group["Members"]:
            member.pop("Assignment")
    play.observed[-1].append(play.plain(answer))


@step(topics=[None, ["t0"], ["t0", "t1"]], version=[0, 1])
def share_offsets(play, topics, version):
    # To partitions that are not there Kafka may give no answer at all.
    asked = topics and [{"TopicName": play.prefix + topic, "Partitions": [0]} for topic in topics]
    body = {"Groups": [{"GroupId": play.prefix + GROUP, "Topics": asked}]}
    before = None
    for _ in range(20):
        # Kafka stores it a little later.
        time.sleep(0.05)
        answer = play.ask("DescribeShareGroupOffsets", version, body)
        if answer == before:
            break
        before = answer
    found = []
    for topic in [topic for group in answer["Groups"] for topic in group["Topics"]]:
        name = topic["TopicName"].removeprefix(play.prefix)
        if name in play.cut | play.compacted:
            # In Kafka records that were deleted count for the lag.
            continue
        # Before the first settlement Kafka has stored nothing, and it moves the start that it tells later than the lag.
        parts = [part for part in topic["Partitions"] if (name, part["PartitionIndex"]) in play.settled_places]
        found += [[name, part["PartitionIndex"], part.get("Lag"), part["ErrorCode"]] for part in parts]
    play.observed[-1].append([[group["ErrorCode"] for group in answer["Groups"]], sorted(found)])


@step(topic=[*TOPICS[:2], "none"], offset=[0, 0, 2, 5, 40], partition=[0, 0, 1, 9])
def share_alter_offsets(play, topic, offset, partition):
    place = {"TopicName": play.prefix + topic, "Partitions": [{"PartitionIndex": partition, "StartOffset": offset}]}
    play.see("AlterShareGroupOffsets", 0, {"GroupId": play.prefix + GROUP, "Topics": [place]})


@step(topics=[["t0"], ["t0", "t1"], ["none"]])
def share_delete_offsets(play, topics):
    play.see("DeleteShareGroupOffsets", 0, {"GroupId": play.prefix + GROUP, "Topics": [{"TopicName": play.prefix + topic} for topic in topics]})


@step(version=[0, 2])
def share_delete(play, version):
    play.see("DeleteGroups", version, {"GroupsNames": [play.prefix + GROUP]})
