"""A file moves line by line through three members of a group, while members come, leave, are paused and are killed.

Arguments: bootstrap, protocol, a folder. Commits follow the writes, so each line arrives at least once: the output of
the members, without repetitions, is the file, in order. In the end nothing is left to read.
"""

import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from common import ADMIN, BOOTSTRAP, LIMIT, create, deliver, eventually, producer

PROTOCOL, FOLDER = sys.argv[2], Path(sys.argv[3])
TOPIC = GROUP = f"members.{PROTOCOL}"
PARTITIONS = 6
LINES = 300_000


def lines_of(partition):
    """Lines of the file for a partition, of different lengths and unlike their neighbours."""
    return [b"%d %x %s" % (number, number * 2654435761 % 2**32, b"relay " * (number % 7)) for number in range(partition, LINES, PARTITIONS)]


class Members:
    """The processes, and the number of messages that they have reported."""

    def __init__(self):
        self.progress = queue.Queue()
        self.processes = []
        self.done = 0

    def join(self):
        path = FOLDER / f"member-{len(self.processes)}"
        command = [sys.executable, str(Path(__file__).parent / "members_worker.py"), BOOTSTRAP, TOPIC, GROUP, PROTOCOL, str(path)]
        errors = open(f"{path}.log", "wb")
        process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], stdout=subprocess.PIPE, stderr=errors, text=True)
        threading.Thread(target=lambda: [self.progress.put(int(line)) for line in process.stdout], daemon=True).start()
        self.processes.append(process)
        return process

    def await_end(self, process):
        """Waits until a process that was asked to leave has left. Its last steps are shown if it has not."""
        try:
            code = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            code = None
        if code == 0:
            return
        number = self.processes.index(process)
        steps = (FOLDER / f"member-{number}.log").read_text(errors="replace").splitlines()[-60:]
        raise AssertionError(f"member {number} ended with {code}; members: {known()}; its last steps:\n" + "\n".join(steps))

    def await_share(self, share):
        """Waits until this share of the file has been reported, counting repetitions."""
        while self.done < share * LINES:
            self.done += self.progress.get(timeout=LIMIT)


def known():
    """The client ids of the group's members."""
    group = ADMIN.describe_consumer_groups([GROUP])[GROUP].result(LIMIT)
    return {member.client_id for member in group.members}


# Asks about the group without being of it.
WATCHER = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": GROUP})


def committed():
    """The committed offset and the end of each partition."""
    places = WATCHER.committed([TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)], LIMIT)
    return [(place.offset, WATCHER.get_watermark_offsets(place, LIMIT)[1]) for place in places]


def verify():
    arrived = [{} for _ in range(PARTITIONS)]
    twice = 0
    for path in sorted(FOLDER.glob("member-?")):
        for line in path.read_bytes().splitlines(keepends=True):
            # The last line of a killed member may be cut; it was not committed.
            partition, offset, value = line.split(b" ", 2) if line.endswith(b"\n") else (None, None, None)
            if partition is None:
                continue
            before = arrived[int(partition)].setdefault(int(offset), value)
            assert before == value, f"offset {offset} of {partition} came as {before} and as {value}"
            twice += before is not value
    for partition, values in enumerate(arrived):
        expected = lines_of(partition)
        assert sorted(values) == list(range(len(expected))), f"partition {partition}: {len(values)} of {len(expected)} lines arrived"
        assert all(values[offset] == line + b"\n" for offset, line in enumerate(expected)), f"partition {partition} differs"
    return twice


def main():
    create(TOPIC, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        deliver(producer(linger_ms=5), TOPIC, [{"partition": partition, "value": line} for line in lines_of(partition)])

    members = Members()
    first, second, third = (members.join() for _ in range(3))
    members.await_share(0.1)
    first.kill()
    fourth = members.join()
    # Longer than its session; its partitions go to others, and it must find out.
    members.await_share(0.25)
    second.send_signal(signal.SIGSTOP)
    eventually(lambda: "member-1" not in known())
    second.send_signal(signal.SIGCONT)
    members.await_share(0.5)
    third.terminate()
    members.await_end(third)
    members.join()
    eventually(lambda: all(offset == end for offset, end in committed()))
    for process in (second, fourth, members.processes[-1]):
        process.terminate()
        members.await_end(process)
    lag = sum(end - max(offset, 0) for offset, end in committed())
    assert lag == 0, f"a lag of {lag} is left"
    print(f"{LINES} lines, {verify()} of them twice")


main()
