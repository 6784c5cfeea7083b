"""Messages up to `max.message.bytes` (1,048,588 by default, the whole batch) pass; larger ones are refused by name."""

from confluent_kafka import KafkaError

from common import LIMIT, create, deliver, producer, read_all

# More than the header of a batch (61) and the overhead of one record with a large value.
OVERHEAD = 100


def refused(client, topic, size):
    errors = []
    client.produce(topic, value=bytes(size), partition=0, on_delivery=lambda error, _: errors.append(error))
    assert client.flush(LIMIT) == 0
    assert errors[0] is not None and errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE, errors


def main():
    create("large.default")
    create("large.small", max_message_bytes="10000")
    create("large.huge", max_message_bytes="20000000")
    # The library's own limit is raised, so that the broker decides.
    client = producer(message_max_bytes=30_000_000, linger_ms=0)

    near = bytes(range(256)) * 4096
    near = near[: 1_048_588 - OVERHEAD]
    deliver(client, "large.default", [{"partition": 0, "value": near} for _ in range(3)])
    refused(client, "large.default", 1_048_588)
    refused(client, "large.small", 10_000)
    deliver(client, "large.small", [{"partition": 0, "value": bytes(10_000 - OVERHEAD)}])
    huge = b"0123456789" * 1_500_000
    deliver(client, "large.huge", [{"partition": 0, "value": huge}])

    # A refusal leaves no trace, and the refused producer continues.
    deliver(client, "large.default", [{"partition": 0, "value": b"after"}])
    assert [message.value() for message in read_all("large.default", [0])] == [near] * 3 + [b"after"]
    assert [len(message.value()) for message in read_all("large.small", [0])] == [10_000 - OVERHEAD]
    assert [message.value() for message in read_all("large.huge", [0])] == [huge]


main()
