#!/usr/bin/env python3
"""Produce and consume of Kafka's own tools with TLS and without, in turn; beside them Apache Kafka with TLS, and stubs that
answer without storing, with the same TLS: the rates that the client itself reaches.

One process of Stafett has both listeners. Rates are those of ProducerPerformance (acks=all, linger 5 ms, batches of 64 KiB) and
ConsumerPerformance, six partitions. Client and broker share the processors: the CPU of both says more than a rate where other
work is done beside them. At the end the same transport with a client that costs nearly nothing (crates/net/examples/tls_cost.rs).
"""

import argparse
import itertools
import re
import resource
import statistics
import subprocess

import common

common.in_venv()

import load  # noqa: E402

PARTITIONS = 6
SUMMARY = re.compile(r"([\d.]+) records/sec \(([\d.]+) MB/sec\)")
names = (f"tls-{number}" for number in itertools.count())


class Peer:
    """A listener of a broker: how clients reach it, and whose CPU counts."""

    def __init__(self, broker, address, properties, makes_topics_at):
        self.broker = broker
        self.address = address
        self.properties = properties
        self.makes_topics_at = makes_topics_at

    def create(self, topic):
        self.makes_topics_at(topic)

    def metered(self, records, work):
        """The rate, and processor time per million records of the broker and of the client, with the start of its machine."""
        before, client = self.broker.cpu_seconds(), children_seconds()
        rate = work()
        spent = self.broker.cpu_seconds() - before, children_seconds() - client
        return rate, *(1e6 * seconds / records for seconds in spent)


def children_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def produce(peer, topic, records, size):
    def work():
        output = common.tool(
            "ProducerPerformance", "--topic", topic, "--num-records", records, "--record-size", size, "--throughput", -1,
            "--bootstrap-server", peer.address, "--command-property", "acks=all", "linger.ms=5", "batch.size=65536",
            *peer.properties.read_text().split(),
        )  # fmt: skip
        return float(SUMMARY.search(output.splitlines()[-1]).group(1))

    return peer.metered(records, work)


def consume(peer, topic, records):
    def work():
        output = common.tool(
            "ConsumerPerformance", "--bootstrap-server", peer.address, "--topic", topic, "--num-records", records,
            "--command-config", peer.properties, "--timeout", 60_000,
        )  # fmt: skip
        header, values = (line.split(", ") for line in output.strip().splitlines()[-2:])
        return float(dict(zip(header, values))["fetch.nMsg.sec"])

    return peer.metered(records, work)


def peers(folder):
    binary = str(common.stafett_binary())
    subprocess.run([binary, "tls", "self-signed", "--dir", str(folder / "tls")], check=True, stdout=subprocess.DEVNULL)
    certificate, key, authority = (folder / "tls" / name for name in ("server.pem", "server.key", "ca.pem"))
    secure = folder / "secure.properties"
    secure.write_text(f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={authority}\n")
    trusting = {"security.protocol": "ssl", "ssl.ca.location": str(authority)}
    plain = folder / "plain.properties"
    plain.write_text("security.protocol=PLAINTEXT\n")
    settings = {"tls.certificate": certificate, "tls.key": key, "kafka.tls_listen": "127.0.0.1:0", "amqp.tls_listen": "", "http.tls_listen": ""}
    arguments = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    stafett = common.Broker("stafett-os", folder / "stafett", arguments)
    tls_address = stafett.kafka_tls

    def in_stafett(topic):
        load.create(stafett.address, [topic], partitions=PARTITIONS)

    both = folder / "both.pem"
    both.write_text(key.read_text() + certificate.read_text())
    options = [
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:SSL",
        "ssl.keystore.type=PEM", f"ssl.keystore.location={both}",
        "ssl.truststore.type=PEM", f"ssl.truststore.location={authority}",
    ]  # fmt: skip
    kafka = common.Broker("kafka", folder / "kafka", [word for option in options for word in ("--property", option)])

    def in_kafka(topic):
        load.create(kafka.address, [topic], partitions=PARTITIONS, settings=trusting)

    stub = common.Broker("stub", folder / "stub", ["--partitions", str(PARTITIONS)])
    secure_stub = common.Broker("stub", folder / "secure-stub", ["--tls", str(both)])

    def in_stub(topic):
        load.create(stub.address, [topic], partitions=PARTITIONS)

    def in_secure_stub(topic):
        load.create(secure_stub.address, [topic], partitions=PARTITIONS, settings=trusting)

    return {
        "stub": Peer(stub, stub.address, plain, in_stub),
        "stub with TLS": Peer(secure_stub, secure_stub.address, secure, in_secure_stub),
        "stafett": Peer(stafett, stafett.address, plain, in_stafett),
        "stafett with TLS": Peer(stafett, tls_address, secure, in_stafett),
        "kafka with TLS": Peer(kafka, kafka.address, secure, in_kafka),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--records", type=int, default=4_000_000, help="of 100 B; a fifth as many of 1 KiB")
    options = parser.parse_args()
    print(common.machine(), flush=True)
    with_javas_clients(options)
    command = ["cargo", "run", "--release", "--quiet", "--package", "stafett-net", "--example", "tls_cost"]
    subprocess.run(command, cwd=common.ROOT, check=True)


def with_javas_clients(options):
    subjects = peers(common.work_folder())
    for size, records in ((100, options.records), (1024, options.records // 5)):
        found = {name: {"produce": [], "consume": []} for name in subjects}
        for run in range(-1, options.runs):
            order = list(subjects)[run % len(subjects) :] + list(subjects)[: run % len(subjects)]
            for name in order:
                peer, topic = subjects[name], next(names)
                peer.create(topic)
                # The first run warms up.
                count = records if run >= 0 else records // 10
                measured = {"produce": produce(peer, topic, count, size), "consume": consume(peer, topic, count)}
                for row, figures in measured.items() if run >= 0 else ():
                    found[name][row].append(figures)
        for row in ("produce", "consume"):
            for name, rows in found.items():
                rate, cpu, client = (statistics.median(column) for column in zip(*rows[row]))
                each = "; ".join(f"{one[0]:,.0f} {one[1]:.2f} {one[2]:.2f}" for one in rows[row])
                at = common.durability(subjects[name].broker.subject)
                print(f"{row} {size} B, {name} ({at}), records/s, CPU-s per million of broker and client: median {rate:,.0f} {cpu:.2f} {client:.2f} ({each})", flush=True)
            for what, ratio in (("rate", lambda ours, ceiling: ours[0] / ceiling[0]), ("CPU of both", lambda ours, ceiling: sum(ours[1:]) / sum(ceiling[1:]))):
                # Of the same run: the machine is another one a minute later.
                ratios = [ratio(*both) for both in zip(found["stafett with TLS"][row], found["stub with TLS"][row])]
                each = ", ".join(f"{one:.2f}" for one in ratios)
                print(f"{row} {size} B, {what} of Stafett to that of the stub, both with TLS: median {statistics.median(ratios):.2f} ({each})", flush=True)


main()
