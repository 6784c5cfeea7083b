"""Fifty partitions, filled by key: every key's records stay together and in order."""

from collections import defaultdict

from common import create, deliver, producer, read_all

PARTITIONS = 50


def main():
    create("fifty", partitions=PARTITIONS)
    sent = [{"key": b"key %d" % (n % 500), "value": b"%d" % n} for n in range(20000)]
    deliver(producer(linger_ms=5), "fifty", sent)
    received = read_all("fifty", range(PARTITIONS))
    assert len(received) == len(sent)
    of_key = defaultdict(list)
    for message in received:
        of_key[message.key()].append((message.partition(), int(message.value())))
    assert len({message.partition() for message in received}) == PARTITIONS
    for key, places in of_key.items():
        assert len({partition for partition, _ in places}) == 1, key
        assert [number for _, number in places] == list(range(int(key.split()[1]), 20000, 500)), key


main()
