"""The durability of a topic is a topic config of its own name."""

from confluent_kafka import KafkaError
from confluent_kafka.admin import ConfigResource, NewTopic

from common import ADMIN, LIMIT, create, deliver, fails_with, producer, read_all

KEY = "stafett.durability"


def described(topic):
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    return ADMIN.describe_configs([resource])[resource].result(LIMIT)[KEY].value


def main():
    for level in ("memory", "os", "interval:100,50", "sync"):
        topic = "durable." + level.replace(":", ".").replace(",", ".")
        new = NewTopic(topic, num_partitions=1, replication_factor=1, config={KEY: level})
        ADMIN.create_topics([new])[topic].result(LIMIT)
        assert described(topic) == level
        deliver(producer(), topic, [{"partition": 0, "value": level.encode()}])
        assert [message.value() for message in read_all(topic, [0])] == [level.encode()]
    create("durable.default")
    assert described("durable.default") == "sync"
    new = NewTopic("durable.unknown", num_partitions=1, replication_factor=1, config={KEY: "eternal"})
    fails_with(KafkaError.INVALID_CONFIG, ADMIN.create_topics([new])["durable.unknown"])


main()
