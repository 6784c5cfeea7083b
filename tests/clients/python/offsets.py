"""ListOffsets: earliest, latest, by time, and the largest timestamp."""

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from common import ADMIN, LIMIT, consumer, create, deliver, producer

TOPIC = "offsets"
START_MS = 1_700_000_000_000


def listed(spec):
    partition = TopicPartition(TOPIC, 0)
    result = ADMIN.list_offsets({partition: spec})[partition].result(LIMIT)
    return result.offset, result.timestamp


def main():
    create(TOPIC, partitions=2)
    assert listed(OffsetSpec.earliest())[0] == 0
    assert listed(OffsetSpec.latest())[0] == 0
    assert listed(OffsetSpec.max_timestamp())[0] == -1

    # Three batches, ten milliseconds from record to record; the largest time is not that of the last record.
    client = producer(linger_ms=50)
    for batch in range(3):
        numbers = range(batch * 100, (batch + 1) * 100)
        deliver(client, TOPIC, [{"partition": 0, "value": b"x", "timestamp": START_MS + n * 10} for n in numbers])
    deliver(client, TOPIC, [{"partition": 0, "value": b"late", "timestamp": START_MS + 5}])

    assert listed(OffsetSpec.earliest())[0] == 0
    assert listed(OffsetSpec.latest())[0] == 301
    assert listed(OffsetSpec.max_timestamp()) == (299, START_MS + 2990)
    assert listed(OffsetSpec.for_timestamp(START_MS - 1)) == (0, START_MS)
    assert listed(OffsetSpec.for_timestamp(START_MS + 1500)) == (150, START_MS + 1500)
    assert listed(OffsetSpec.for_timestamp(START_MS + 1501)) == (151, START_MS + 1510)
    assert listed(OffsetSpec.for_timestamp(START_MS + 2991))[0] == -1

    reader = consumer()
    assert reader.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=LIMIT) == (0, 301)
    assert reader.get_watermark_offsets(TopicPartition(TOPIC, 1), timeout=LIMIT) == (0, 0)
    found = reader.offsets_for_times([TopicPartition(TOPIC, 0, START_MS + 2000)], timeout=LIMIT)
    assert found[0].offset == 200, found
    reader.close()


main()
