"""Sessions from fragments over Kafka's protocol alone: python sessions.py [BOOTSTRAP [GROUP]], with confluent-kafka.

Works with any broker that speaks it. What a partition has to remember stands in its committed offset: the *safe offset*, the
first fragment of the oldest session that is open, and in the text beside it the sessions that were passed on and have fragments
behind that. A new owner reads from the safe offset on, and leaves these out. Results come first and the place second, so a
session may come out twice after a crash, and never not at all; an app does it once (../python/sessions.py)."""

import json
import signal
import sys
from dataclasses import dataclass, field

TEXT_BYTES_MAX = 4096  # the broker's bound on the text of a commit: groups.commit_text_bytes_max
TIMEOUT_MS = 30 * 60_000


@dataclass
class Progress:
    """How far one partition is: sessions that are open, and sessions that are done."""

    next: int
    done: dict[str, int] = field(default_factory=dict)  # key -> offset of its last fragment
    first: dict[str, int] = field(default_factory=dict)  # open session -> offset of its first fragment
    parts: dict[str, list[object]] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)  # open session -> time of its latest fragment

    @property
    def safe(self) -> int:
        return min(self.first.values(), default=self.next)

    def take(self, key: str, part: object, offset: int, time: int) -> bool:
        """Takes a fragment. False if its session was passed on before."""
        self.next = offset + 1
        if offset <= self.done.get(key, -1):
            return False
        self.first.setdefault(key, offset)
        self.parts.setdefault(key, []).append(part)
        self.seen[key] = time
        return True

    def timed_out(self, time: int) -> list[str]:
        return [key for key, seen in self.seen.items() if seen + TIMEOUT_MS < time]

    def finish(self, key: str) -> list[object]:
        """Ends a session: its parts. It is to be left out for as long as a restart could meet its fragments."""
        del self.first[key], self.seen[key]
        self.done[key] = self.next - 1
        safe = self.safe
        self.done = {key: last for key, last in self.done.items() if last >= safe}
        return self.parts.pop(key)

    def text(self) -> str:
        """The done sessions. What does not fit is left out: such a session may come twice."""
        newest_first = sorted(self.done.items(), key=lambda entry: -entry[1])
        while len(text := json.dumps(dict(newest_first), separators=(",", ":"))) > TEXT_BYTES_MAX:
            newest_first.pop()
        return text


def run(bootstrap: str, group: str) -> None:
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    stopping: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda signum, _: stopping.append(signum))
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "enable.idempotence": True, "linger.ms": 5})
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": 6000,
        }
    )
    held: dict[int, Progress] = {}

    def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for place in consumer.committed(partitions):
            place.offset = max(place.offset, 0)  # a negative one: nothing was committed yet
            held[place.partition] = Progress(place.offset, json.loads(place.metadata or "{}"))
            consumer.incremental_assign([place])

    def store(partition: int, progress: Progress) -> None:
        producer.flush()  # results first, the place second
        place = TopicPartition("fragments", partition, progress.safe, metadata=progress.text())
        try:
            consumer.commit(offsets=[place], asynchronous=False)
        except KafkaException as refused:
            # The group is changing: the next commit says more, or the next owner repeats what this one passed on.
            print(f"partition {partition}: {refused}", file=sys.stderr)

    def revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for place in partitions:
            if progress := held.pop(place.partition, None):
                store(place.partition, progress)

    def lost(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for place in partitions:
            held.pop(place.partition, None)

    def pass_on(progress: Progress, key: str, timed_out: bool) -> None:
        value = {"parts": progress.finish(key), "timed_out": timed_out}
        producer.produce("sessions", key=key, value=json.dumps(value))

    consumer.subscribe(["fragments"], on_assign=assigned, on_revoke=revoked, on_lost=lost)
    while not stopping:
        # Results of one poll are stored before their places.
        ended = set()
        for message in consumer.consume(500, timeout=0.2):
            progress = held.get(message.partition())
            if message.error() or progress is None:
                continue
            key, time = message.key().decode(), message.timestamp()[1]
            for other in progress.timed_out(time):
                pass_on(progress, other, timed_out=True)
                ended.add(message.partition())
            is_new = progress.take(key, json.loads(message.value()), message.offset(), time)
            if is_new and ("type", b"END") in (message.headers() or []):
                pass_on(progress, key, timed_out=False)
                ended.add(message.partition())
        for partition in ended & held.keys():
            store(partition, held[partition])
    consumer.close()


if __name__ == "__main__":
    run(*[*sys.argv[1:], *["127.0.0.1:9092", "sessions"][len(sys.argv) - 1 :]])
