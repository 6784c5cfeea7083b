"""A producer's metadata request creates a missing topic; a consumer's does not, unless it asks for it."""

from confluent_kafka import KafkaError

from common import ADMIN, LIMIT, consumer, deliver, eventually, producer, read_all


def main():
    deliver(producer(), "made.by.producing", [{"value": b"first"}])
    partitions = ADMIN.list_topics(timeout=LIMIT).topics["made.by.producing"].partitions
    assert [message.value() for message in read_all("made.by.producing", partitions)] == [b"first"]

    # Metadata with and without the leave to create.
    cautious, eager = consumer(), consumer(allow_auto_create_topics=True)
    answer = cautious.list_topics("never.made", timeout=LIMIT).topics["never.made"]
    assert answer.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART, answer.error
    assert "never.made" not in ADMIN.list_topics(timeout=LIMIT).topics
    eager.list_topics("made.by.asking", timeout=LIMIT)
    eventually(lambda: "made.by.asking" in ADMIN.list_topics(timeout=LIMIT).topics)


main()
