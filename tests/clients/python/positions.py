"""Fetching from inside a batch, from the end, and from offsets that do not exist."""

from confluent_kafka import KafkaError, TopicPartition

from common import LIMIT, consumer, create, deliver, producer, read_all

TOPIC = "positions"


def main():
    create(TOPIC)
    # One batch of a thousand, because the producer waits long enough for all of them.
    client = producer(linger_ms=500, compression_type="lz4")
    deliver(client, TOPIC, [{"partition": 0, "value": str(n).encode()} for n in range(1000)])
    for start in (0, 1, 500, 999):
        messages = read_all(TOPIC, [0], start=start)
        assert [int(message.value()) for message in messages] == list(range(start, 1000))
        assert [message.offset() for message in messages] == list(range(start, 1000))
    assert read_all(TOPIC, [0], start=1000) == []

    # Small fetches still get whole batches, and so make progress.
    assert len(read_all(TOPIC, [0], fetch_message_max_bytes=100, fetch_max_bytes=1000, message_max_bytes=1000)) == 1000

    reader = consumer()
    reader.assign([TopicPartition(TOPIC, 0, 1001)])
    message = reader.poll(LIMIT)
    assert message.error().code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE), message.error()
    reader.close()

    # A reader that waits at the end gets new records.
    reader = consumer(fetch_wait_max_ms=10000)
    reader.assign([TopicPartition(TOPIC, 0, 1000)])
    message = reader.poll(LIMIT)
    assert message.error().code() == KafkaError._PARTITION_EOF
    deliver(producer(), TOPIC, [{"partition": 0, "value": b"new"}])
    message = reader.poll(LIMIT)
    assert (message.error(), message.offset(), message.value()) == (None, 1000, b"new")
    reader.close()


main()
