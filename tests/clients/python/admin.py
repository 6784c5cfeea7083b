"""Topics grow, settings change one by one, records are deleted; errors use Kafka's words."""

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)

from common import ADMIN, LIMIT, create, deliver, producer

TOPIC = "py.admin"


def altered(kind, name, key, value, operation=AlterConfigOpType.SET):
    entry = ConfigEntry(key, value, incremental_operation=operation)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    (future,) = ADMIN.incremental_alter_configs([resource]).values()
    future.result(LIMIT)


def described(kind, name, key):
    (future,) = ADMIN.describe_configs([ConfigResource(kind, name)]).values()
    return future.result(LIMIT)[key].value


def refusal(action):
    try:
        action()
    except KafkaException as error:
        return error.args[0]
    raise AssertionError("it was not refused")


create(TOPIC)
deliver(producer(), TOPIC, [{"value": str(n), "partition": 0} for n in range(10)])

ADMIN.create_partitions([NewPartitions(TOPIC, 3)])[TOPIC].result(LIMIT)
assert len(ADMIN.list_topics(TOPIC, timeout=LIMIT).topics[TOPIC].partitions) == 3
deliver(producer(), TOPIC, [{"value": "new", "partition": 2}])
error = refusal(lambda: ADMIN.create_partitions([NewPartitions(TOPIC, 2)])[TOPIC].result(LIMIT))
assert error.code() == KafkaError.INVALID_PARTITIONS, error

altered(ResourceType.TOPIC, TOPIC, "retention.ms", "123456")
assert described(ResourceType.TOPIC, TOPIC, "retention.ms") == "123456"
altered(ResourceType.TOPIC, TOPIC, "retention.ms", None, AlterConfigOpType.DELETE)
assert described(ResourceType.TOPIC, TOPIC, "retention.ms") == "604800000"
error = refusal(lambda: altered(ResourceType.TOPIC, TOPIC, "retention.ms", "soon"))
assert error.code() == KafkaError.INVALID_CONFIG, error
assert "Invalid value soon for configuration retention.ms" in error.str(), error
altered(ResourceType.BROKER, "1", "log.retention.ms", "700000")
assert described(ResourceType.TOPIC, TOPIC, "retention.ms") == "700000"
altered(ResourceType.BROKER, "1", "log.retention.ms", None, AlterConfigOpType.DELETE)

partition = TopicPartition(TOPIC, 0, 4)
(future,) = ADMIN.delete_records([partition]).values()
assert future.result(LIMIT).low_watermark == 4
(future,) = ADMIN.list_offsets({TopicPartition(TOPIC, 0): OffsetSpec.earliest()}).values()
assert future.result(LIMIT).offset == 4

cluster = ADMIN.describe_cluster().result(LIMIT)
assert (cluster.controller.id, len(cluster.nodes)) == (1, 1)
