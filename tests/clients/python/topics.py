"""AdminClient: creating, listing, describing and deleting topics, and refusals."""

from confluent_kafka import KafkaError
from confluent_kafka.admin import ConfigResource, NewTopic

from common import ADMIN, LIMIT, create, deliver, fails_with, producer, read_all


def described(kind, name):
    resource = ConfigResource(kind, name)
    return ADMIN.describe_configs([resource])[resource].result(LIMIT)


def main():
    create("admin.three", partitions=3, max_message_bytes="70000", retention_ms="3600000")
    listing = ADMIN.list_topics(timeout=LIMIT)
    assert sorted(listing.topics["admin.three"].partitions) == [0, 1, 2]
    assert all(partition.leader in listing.brokers for partition in listing.topics["admin.three"].partitions.values())

    configs = described(ConfigResource.Type.TOPIC, "admin.three")
    assert configs["max.message.bytes"].value == "70000"
    assert configs["retention.ms"].value == "3600000"
    assert not configs["max.message.bytes"].is_default
    broker = next(iter(listing.brokers))
    assert described(ConfigResource.Type.BROKER, str(broker))

    cluster = ADMIN.describe_cluster().result(LIMIT)
    assert cluster.cluster_id
    assert [node.id for node in cluster.nodes] == [broker]

    def refused(code, name, partitions=1, replication=1, config=None):
        new = NewTopic(name, num_partitions=partitions, replication_factor=replication, config=config or {})
        fails_with(code, ADMIN.create_topics([new])[name])

    refused(KafkaError.TOPIC_ALREADY_EXISTS, "admin.three")
    refused(KafkaError.TOPIC_EXCEPTION, "not/allowed")
    refused(KafkaError.TOPIC_EXCEPTION, "x" * 250)
    refused(KafkaError.INVALID_PARTITIONS, "admin.zero", partitions=0)
    refused(KafkaError.INVALID_REPLICATION_FACTOR, "admin.replicated", replication=3)
    refused(KafkaError.INVALID_CONFIG, "admin.config", config={"no.such.key": "1"})
    refused(KafkaError.INVALID_CONFIG, "admin.config", config={"max.message.bytes": "many"})

    new = NewTopic("admin.checked", num_partitions=1, replication_factor=1)
    ADMIN.create_topics([new], validate_only=True)["admin.checked"].result(LIMIT)
    assert "admin.checked" not in ADMIN.list_topics(timeout=LIMIT).topics

    # A name that is used again is another topic: nothing of the old one shows.
    deliver(producer(), "admin.three", [{"partition": 0, "value": b"old"}])
    ADMIN.delete_topics(["admin.three"])["admin.three"].result(LIMIT)
    assert "admin.three" not in ADMIN.list_topics(timeout=LIMIT).topics
    fails_with(KafkaError.UNKNOWN_TOPIC_OR_PART, ADMIN.delete_topics(["admin.three"])["admin.three"])
    create("admin.three")
    deliver(producer(), "admin.three", [{"partition": 0, "value": b"new"}])
    assert [message.value() for message in read_all("admin.three", [0])] == [b"new"]


main()
