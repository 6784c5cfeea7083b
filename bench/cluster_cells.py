#!/usr/bin/env python3
"""A cluster of several cells, over PostgreSQL alone: the cost of a record over more nodes, and transactions over cells.

    python3 bench/cluster_cells.py spread        [--rate 4000] [--seconds 20]   1 KiB records into a topic of all 4 cells, 1 to 4 nodes
    python3 bench/cluster_cells.py transactions  [--seconds 20] [--producers 8] a record in each of 8 partitions, and an offset

All nodes, PostgreSQL and the client are on this machine: the rates are those of so many cores, the cost is that of the nodes.
"""

import argparse
import json
import os
import threading
import time
import urllib.request

import cluster_store as store
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

CELLS, PARTITIONS, TOPIC = 4, 8, "wide"
LIMIT = 120


def cpu_of(pid):
    """CPU seconds of a process and of its children: PostgreSQL has one for each connection."""
    total = 0
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(entry) == pid or int(fields[1]) == pid:
                total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


class Cluster:
    def __init__(self, folder, nodes, cells):
        folder.mkdir()
        self.database = store.Postgres(folder)
        # Nodes own cells in turn only if they can be reached.
        settings = {"cluster.database": self.database.url(), "cluster.cells": cells, "cluster.lease_ms": "1000ms", "log.level": "info"}
        self.nodes = []
        for number in range(nodes):
            own = {**settings, "cluster.listen": f"127.0.0.1:{store.free_port()}", "kafka.cells_port": 0}
            self.nodes.append(store.Node(folder / f"node-{number}", own).start())
        self.servers = ",".join(f"127.0.0.1:{node.kafka}" for node in self.nodes)
        self.until(lambda: any(node.serves() for node in self.nodes))
        self.admin = AdminClient({"bootstrap.servers": self.servers})
        config = {"stafett.spread": "true"} if cells > 1 else {}
        self.until(lambda: self.can_make(NewTopic(TOPIC, PARTITIONS, 1, config=config)))
        self.until(lambda: len(self.leaders()) == cells and -1 not in self.leaders())
        # Cells spread once the nodes have lived for four leases.
        self.until(lambda: self.is_even(nodes, cells))

    def until(self, is_so):
        end = time.time() + LIMIT
        while not is_so():
            assert time.time() < end, "the cluster does not serve"
            time.sleep(0.2)

    def can_make(self, topic):
        try:
            self.admin.create_topics([topic])[topic.topic].result(10)
        except Exception:
            return TOPIC in self.admin.list_topics(timeout=10).topics
        return True

    def leaders(self):
        return {partition.leader for partition in self.admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions.values()}

    def is_even(self, nodes, cells):
        """True if no node has two cells more than another, and all cells have owners."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.nodes[0].http}/v1/cluster", timeout=5) as answer:
            owners = [cell["owner"] for cell in json.load(answer).get("cells", [])]
        counts = [owners.count(owner) for owner in set(owners)]
        return cells == 1 or None not in owners and len(counts) == min(nodes, cells) and max(counts) - min(counts) < 2

    def cpu(self):
        """CPU seconds of the nodes, and of PostgreSQL."""
        return sum(node.cpu_seconds() for node in self.nodes), cpu_of(self.database.process.pid)

    def end(self):
        store.end_all()


def spread(options, folder):
    for nodes, cells in [(1, 1), (1, CELLS), (2, CELLS), (4, CELLS)]:
        cluster = Cluster(folder / f"{nodes}-{cells}", nodes, cells)
        send = lambda seconds: store.paced(cluster.servers, TOPIC, PARTITIONS, options.rate, seconds, size=1024, producers=4)
        send(3)
        before = cluster.cpu()
        took = send(options.seconds)
        records = options.rate * options.seconds / 1e6
        own, database = ((after - then) / records for after, then in zip(cluster.cpu(), before))
        print(
            f"spread: {nodes} nodes, {cells} cells: {len(took) / options.seconds / 0.9:,.0f} records/s of {options.rate}, "
            f"p50 {store.percentile(took, 0.5):.1f} ms, p99 {store.percentile(took, 0.99):.1f} ms, "
            f"CPU-s per million: nodes {own:.1f}, PostgreSQL {database:.1f}; {store.load()}",
            flush=True,
        )
        cluster.end()


def transactions(options, folder):
    for nodes, cells in [(1, 1), (1, CELLS), (3, CELLS)]:
        cluster = Cluster(folder / f"transactions-{nodes}-{cells}", nodes, cells)
        took, over = [], threading.Event()

        def run(number):
            producer = Producer({"bootstrap.servers": cluster.servers, "transactional.id": f"t-{number}", "linger.ms": 0})
            producer.init_transactions(LIMIT)
            group = Consumer({"bootstrap.servers": cluster.servers, "group.id": f"g-{number}"}).consumer_group_metadata()
            count = 0
            while not over.is_set():
                began, count = time.perf_counter(), count + 1
                producer.begin_transaction()
                for partition in range(PARTITIONS):
                    producer.produce(TOPIC, b"x" * 100, partition=partition)
                producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, count)], group, LIMIT)
                producer.commit_transaction(LIMIT)
                took.append((time.perf_counter() - began) * 1000)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(options.producers)]
        for thread in threads:
            thread.start()
        time.sleep(3)
        before, first = cluster.cpu(), len(took)
        time.sleep(options.seconds)
        after, measured = cluster.cpu(), took[first:]
        over.set()
        for thread in threads:
            thread.join()
        own, database = ((late - early) / len(measured) * 1000 for late, early in zip(after, before))
        print(
            f"transactions: {nodes} nodes, {cells} cells, {options.producers} producers: {len(measured) / options.seconds:,.0f}/s, "
            f"p50 {store.percentile(measured, 0.5):.1f} ms, p99 {store.percentile(measured, 0.99):.1f} ms, "
            f"CPU-s per 1,000: nodes {own:.2f}, PostgreSQL {database:.2f}; {store.load()}",
            flush=True,
        )
        cluster.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["spread", "transactions"])
    parser.add_argument("--rate", type=int, default=4000)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--producers", type=int, default=8)
    options = parser.parse_args()
    try:
        globals()[options.what](options, store.work_folder())
    finally:
        store.end_all()


if __name__ == "__main__":
    main()
