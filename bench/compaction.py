#!/usr/bin/env python3
"""Compaction of a topic by key while a producer and a consumer go on with other topics at full speed.

Each run writes 10,000,000 records of 1,000,000 keys to a topic that deletes, and waits until the broker is quiet. Then, in
pairs: the foreground alone; the foreground and a consumer that reads all the records; the foreground while the
topic is compacted, which begins when its cleanup.policy is changed, and ends when the broker says so. The foreground's rate is
that of the window between; reading it all is the measure of how long compaction may take.
"""

import argparse
import os
import re
import statistics
import subprocess
import threading
import time
import urllib.request

import common

common.in_venv()

import load  # noqa: E402
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # noqa: E402

PARTITIONS = 6
# How long the foreground runs before and after what it is measured beside.
MARGIN_S = 3
PROPERTIES = ["log.cleaner.backoff.ms=1000", "log.segment.bytes=67108864", "file.delete.delay.ms=1000"]


class Foreground:
    """The Java clients, and what they have counted so far: (seconds, produced, read)."""

    def __init__(self, address, produce_to, read_from):
        command = [str(common.LAUNCHER), "run", "Foreground", address, produce_to, read_from]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.counts = []
        self.thread = threading.Thread(target=self.listen)
        self.thread.start()
        while not self.counts or min(self.counts[-1][1:]) == 0:
            time.sleep(0.1)
        time.sleep(MARGIN_S)

    def listen(self):
        for line in self.process.stdout:
            produced, read = line.split()
            self.counts.append((time.monotonic(), int(produced), int(read)))

    def stop(self):
        time.sleep(MARGIN_S)
        self.process.stdin.close()
        self.process.wait()
        self.thread.join()

    def rates(self, start, end):
        """Records per second, produced and read, between two moments."""
        within = [count for count in self.counts if start <= count[0] <= end]
        seconds = within[-1][0] - within[0][0]
        return [(within[-1][at] - within[0][at]) / seconds for at in (1, 2)]


class Compacted:
    """A topic to be compacted, on Stafett or on Kafka."""

    def __init__(self, broker, name, options):
        self.broker, self.name, self.options = broker, name, options
        load.create(broker.address, [name], partitions=PARTITIONS)
        common.tool("KeyedProduce", broker.address, name, options.records, options.keys, options.size)

    def begin(self):
        admin = AdminClient({"bootstrap.servers": self.broker.address})
        entries = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        if self.broker.subject == "kafka":
            # Kafka compacts no active segment: of this topic it becomes an old one.
            entries["segment.ms"] = "1000"
        changes = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in entries.items()]
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.name, incremental_configs=changes)
        admin.incremental_alter_configs([resource])[resource].result(60)

    def is_done(self):
        if self.broker.subject != "kafka":
            passes, dirty, removed = progress(self.broker)
            self.resident = max(self.resident, self.broker.resident_mib())
            # What lies in the segment being written is left, and what lies in those before it may wait for the next pass.
            is_rid = removed - self.removed_before > 0.9 * (self.options.records - self.options.keys)
            return passes > self.passes_before and dirty == 0 and is_rid
        cleaned = self.broker.folder / "data/cleaner-offset-checkpoint"
        names = [line.split() for line in cleaned.read_text().splitlines()] if cleaned.exists() else []
        return sum(line[:1] == [self.name] for line in names) == PARTITIONS

    def compact(self):
        """Compacts it; returns when that began and ended."""
        if self.broker.subject != "kafka":
            self.passes_before, _, self.removed_before = progress(self.broker)
        self.resident = 0
        start = time.monotonic()
        self.begin()
        while not self.is_done():
            assert time.monotonic() - start < self.options.limit, "it is not compacted"
            time.sleep(0.1)
        return start, time.monotonic()

    def read(self):
        """Reads it all with a Java client; returns when that began and ended."""
        output = common.pairs(common.tool("AssignConsumer", self.broker.address, self.name, self.options.records))
        end = time.monotonic()
        return end - output["seconds"], end

    def delete(self):
        delete(self.broker, self.name)


def progress(broker):
    """Passes, the share that is dirty, and the records removed so far."""
    text = urllib.request.urlopen(f"http://{broker.http}/metrics").read().decode()
    names = ["compactions_total", "compaction_dirty_percent", "compacted_records_total"]
    return [int(re.search(rf"^\w*journal_{name} (\d+)$", text, re.M).group(1)) for name in names]


def delete(broker, topic):
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.delete_topics([topic])[topic].result(60)


def rewriting_cpu(broker):
    """CPU seconds of the thread that compacts."""
    for task in (broker.proc / "task").iterdir():
        name, fields = re.search(r"\((.*)\) (.*)", (task / "stat").read_text()).groups()
        if name == "journal-rewrite":
            user, system = fields.split()[11:13]
            return (int(user) + int(system)) / common.TICKS
    return 0.0


def beside(broker, work):
    """The foreground's rates during `work`, and the seconds that it took."""
    load.create(broker.address, ["sink"], partitions=PARTITIONS)
    foreground = Foreground(broker.address, "sink", "source")
    cpu = broker.cpu_seconds()
    start, end = work()
    cpu = broker.cpu_seconds() - cpu
    foreground.stop()
    delete(broker, "sink")
    broker.await_idle(quiet=3, limit=60)
    return foreground.rates(start, end), end - start, cpu


def waiting(seconds):
    start = time.monotonic()
    time.sleep(seconds)
    return start, time.monotonic()


def measure(broker, number, options):
    topic = Compacted(broker, f"compacted-{number}", options)
    broker.await_idle(quiet=5, limit=120)
    os.sync()
    _, alone, _ = (lambda span: (None, span[1] - span[0], None))(topic.read())
    if options.alone:
        broker.await_idle(quiet=5, limit=60)
        idle = broker.resident_mib()
        passes = progress(broker)[0]
        cpu = rewriting_cpu(broker)
        start, end = topic.compact()
        cpu = rewriting_cpu(broker) - cpu
        print(
            f"run {number}: reading it all takes {alone:.1f} s; compacting it {end - start:.1f} s in"
            f" {progress(broker)[0] - passes} passes with {cpu:.1f} s of CPU; resident {idle:.0f} MiB before, {topic.resident:.0f} MiB at most meanwhile",
            flush=True,
        )
        topic.delete()
        return None
    _, reading, _ = beside(broker, topic.read)
    first, second = (lambda: beside(broker, lambda: waiting(reading))), (lambda: beside(broker, topic.compact))
    # The first of a pair is another one each time.
    if number % 2:
        quiet, compacting = first(), second()
    else:
        compacting, quiet = second(), first()
    topic.delete()
    ratios = [with_it / without for with_it, without in zip(compacting[0], quiet[0])]
    row = {
        "read_alone_s": alone,
        "read_beside_s": reading,
        "compact_s": compacting[1],
        "produce_ratio": ratios[0],
        "fetch_ratio": ratios[1],
        "both_ratio": sum(compacting[0]) / sum(quiet[0]),
    }
    print(
        f"run {number}: foreground alone {quiet[0][0]:,.0f} produced/s and {quiet[0][1]:,.0f} read/s; while compacting"
        f" {compacting[0][0]:,.0f} ({ratios[0]:.2f}) and {compacting[0][1]:,.0f} ({ratios[1]:.2f}); compacted in {compacting[1]:.1f} s,"
        f" reading it all takes {alone:.1f} s alone and {reading:.1f} s beside the foreground; broker CPU {compacting[2]:.1f} s"
        f" against {quiet[2] * compacting[1] / quiet[1]:.1f} s",
        flush=True,
    )
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subject", default="stafett-os")
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes per value")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--alone", action="store_true", help="compact without a foreground")
    parser.add_argument("--limit", type=float, default=900, help="seconds that a compaction may take")
    parser.add_argument("--set", action="append", default=[], help="a setting of the broker")
    options = parser.parse_args()
    if options.subject == "kafka":
        arguments = [part for line in PROPERTIES for part in ("--property", line)]
    else:
        settings = ["journal.compaction_interval_ms=1s", *options.set]
        arguments = [part for line in settings for part in ("--set", line)]
    broker = common.Broker(options.subject, common.work_folder(), arguments)
    load.create(broker.address, ["source"], partitions=PARTITIONS)
    common.tool("KeyedProduce", broker.address, "source", 4_000_000, 1_000_000, 100)
    print(common.machine(), "durability", common.durability(options.subject), flush=True)
    rows = [row for number in range(1, options.runs + 1) if (row := measure(broker, number, options))]
    for name in rows[0] if rows else []:
        print(f"{name}: median {statistics.median(row[name] for row in rows):.2f}")


main()
