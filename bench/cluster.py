#!/usr/bin/env python3
"""Measures how long clients of a cluster wait when its owner goes: killed, told to stop, or told to move.

Starts PostgreSQL (with fsync) and three nodes on this machine, and keeps four clients busy: a producer of librdkafka, one of Java
(VerifiableProducer, if tools/peers/kafka has fetched it), a publisher with confirms (pika), and a publisher and a subscriber of live topics.
Each round ends the owner, and takes for each client the longest time without a success that follows. With --in-a-row N it ends N owners, each
as soon as it serves: the pause must not grow with their number.

    target/clients/venv/bin/python bench/cluster.py [--rounds 20] [--how kill|term|move] [--bin target/release/stafett]
"""

import argparse
import glob
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

import pika
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from websockets.sync.client import connect

NODES = 3
# Guard against a hang, in seconds.
LIMIT = 60
# Seconds after the end of an owner, beyond any take-over: a record that is sent then and succeeds shows that all is well again.
REGULAR = 1.5


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Postgres:
    def __init__(self, folder):
        programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
        user = pwd.getpwnam("postgres") if os.getuid() == 0 else None
        self.data = os.path.join(folder, "postgres")
        os.mkdir(self.data)
        if user:
            os.chown(self.data, user.pw_uid, user.pw_gid)
        drop = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"] if user else []
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
        subprocess.run([*drop, f"{programs}/initdb", "--auth=trust", "--username=postgres", "-D", self.data], check=True, **quiet)
        self.port = free_port()
        arguments = ["-D", self.data, "-k", self.data, "-c", "listen_addresses=127.0.0.1", "-p", str(self.port)]
        self.process = subprocess.Popen([*drop, f"{programs}/postgres", *arguments], **quiet)
        while subprocess.run([f"{programs}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]).returncode:
            time.sleep(0.1)

    def end(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


class Node:
    def __init__(self, number, folder, program, database):
        self.number, self.folder, self.program, self.database = number, folder, program, database
        self.kafka, self.amqp, self.http = (f"127.0.0.1:{free_port()}" for _ in range(3))
        self.process = None

    def start(self):
        arguments = ["--kafka", self.kafka, "--amqp", self.amqp, "--http", self.http]
        log = open(f"{self.folder}/node-{self.number}.log", "ab")
        self.process = subprocess.Popen(
            [self.program, "serve", "--data-dir", f"{self.folder}/node-{self.number}", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={**os.environ, "STAFETT_CLUSTER_DATABASE": self.database},
        )

    def health(self, path="/health"):
        try:
            with urllib.request.urlopen(f"http://{self.http}{path}", timeout=1) as answer:
                return answer.status == 200
        except (OSError, urllib.error.URLError):
            return False


class Client(threading.Thread):
    """Sends without end. `successes` are pairs: when something was sent, and when it was acknowledged or delivered."""

    name = ""

    def __init__(self, nodes):
        super().__init__(daemon=True)
        self.nodes, self.successes, self.is_over = nodes, [], False

    def done(self, sent):
        self.successes.append((sent, time.monotonic()))

    def pause_after(self, moment, last):
        """The longest time between two successes from a moment on, once they are regular again after the last end."""
        until = time.monotonic() + LIMIT
        while time.monotonic() < until:
            recent = self.successes[-5000:]
            if any(sent > last + REGULAR for sent, _ in recent):
                before = [then for _, then in recent if then <= moment][-1:]
                times = before + [then for _, then in recent if then > moment]
                return max(later - earlier for earlier, later in zip(times, times[1:]))
            time.sleep(0.01)
        return float("nan")


class Librdkafka(Client):
    name = "produce, librdkafka"

    def run(self):
        producer = Producer(
            {
                "bootstrap.servers": ",".join(node.kafka for node in self.nodes),
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        while not self.is_over:
            sent = time.monotonic()
            try:
                producer.produce("load", b"x" * 100, on_delivery=lambda error, _, sent=sent: error or self.done(sent))
            except BufferError:
                pass
            producer.poll(0)
            time.sleep(0.005)


class Java(Client):
    name = "produce, Java"

    def run(self):
        jars = sorted(glob.glob("target/peers/kafka-*/libs"))
        if not jars or not shutil.which("java"):
            return
        servers = ",".join(node.kafka for node in self.nodes)
        command = ["java", "-Xmx256m", "-cp", f"{jars[-1]}/*", "org.apache.kafka.tools.VerifiableProducer"]
        command += ["--bootstrap-server", servers, "--topic", "load", "--throughput", "200"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in self.process.stdout:
            if json.loads(line).get("name") == "producer_send_success":
                # It does not say when it sent it.
                self.done(time.monotonic())


class Pika(Client):
    name = "confirm, pika"

    def run(self):
        at = 0
        while not self.is_over:
            host, port = self.nodes[at % NODES].amqp.split(":")
            at += 1
            try:
                connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port), socket_timeout=10))
                channel = connection.channel()
                channel.confirm_delivery()
                channel.queue_declare("load", durable=True, arguments={"x-max-length": 10_000})
                while not self.is_over:
                    sent = time.monotonic()
                    channel.basic_publish("", "load", b"x" * 100, pika.BasicProperties(delivery_mode=2))
                    self.done(sent)
                    time.sleep(0.005)
            except (pika.exceptions.AMQPError, OSError):
                time.sleep(0.02)


class Live(Client):
    name = "live delivery"

    def run(self):
        publisher = threading.Thread(target=self.publish, daemon=True)
        publisher.start()
        at = 1
        while not self.is_over:
            address = self.nodes[at % NODES].http
            at += 1
            try:
                with connect(f"ws://{address}/live", compression=None, open_timeout=10) as live:
                    for command in ({"command": "listen"}, {"command": "subscribe", "topic": "load"}):
                        live.send(json.dumps({"client_id": 1, **command}))
                    for message in live:
                        sent = json.loads(message).get("broadcast")
                        if isinstance(sent, float):
                            self.done(sent)
            except Exception:
                time.sleep(0.02)

    def publish(self):
        at = 2
        while not self.is_over:
            body = json.dumps({"topic": "load", "payload": time.monotonic()}).encode()
            try:
                request = urllib.request.Request(f"http://{self.nodes[at % NODES].http}/live/publish", data=body)
                urllib.request.urlopen(request, timeout=10).read()
                time.sleep(0.01)
            except (OSError, urllib.error.URLError):
                at += 1
                time.sleep(0.02)


def owner_of(nodes):
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        for node in nodes:
            if node.health():
                return node
        time.sleep(0.02)
    raise SystemExit("no node serves")


def again(owner):
    """Starts a node again once it has ended."""
    owner.process.wait()
    owner.start()


def end(owner, how):
    if how == "kill":
        owner.process.kill()
    elif how == "term":
        owner.process.terminate()
    else:
        request = urllib.request.Request(f"http://{owner.http}/v1/cluster/move", data=b"{}", method="POST")
        request.add_header("content-type", "application/json")
        urllib.request.urlopen(request, timeout=10).read()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--how", choices=["kill", "term", "move"], default="kill")
    parser.add_argument("--in-a-row", type=int, default=1)
    parser.add_argument("--bin", default="target/release/stafett")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="stafett-cluster-")
    os.chmod(folder, 0o755)
    postgres = Postgres(folder)
    database = f"postgres://postgres@127.0.0.1:{postgres.port}/postgres"
    nodes = [Node(number, folder, os.path.abspath(options.bin), database) for number in range(1, NODES + 1)]
    clients = []
    try:
        for node in nodes:
            node.start()
        owner_of(nodes)
        admin = AdminClient({"bootstrap.servers": nodes[0].kafka})
        admin.create_topics([NewTopic("load", 3, 1)])["load"].result(LIMIT)
        clients = [kind(nodes) for kind in (Librdkafka, Java, Pika, Live)]
        for client in clients:
            client.start()
        time.sleep(8)
        clients = [client for client in clients if client.is_alive()]
        times = {client.name: [] for client in clients}
        for number in range(options.rounds):
            moment = time.monotonic()
            for _ in range(options.in_a_row):
                owner = owner_of(nodes)
                end(owner, options.how)
                while owner.health():
                    time.sleep(0.005)
                if options.how != "move":
                    threading.Thread(target=again, args=(owner,), daemon=True).start()
            last = time.monotonic()
            for client in clients:
                times[client.name].append(client.pause_after(moment, last))
            row = ", ".join(f"{name} {taken[-1]:.2f}" for name, taken in times.items())
            print(f"round {number + 1}: {row}", flush=True)
            while not all(node.health("/health/any") for node in nodes):
                time.sleep(0.05)
            time.sleep(2)
        for name, taken in times.items():
            taken.sort()
            middle, high = taken[len(taken) // 2], taken[min(len(taken) - 1, (len(taken) * 99) // 100)]
            print(f"{options.how}, {name}: p50 {middle:.2f} s, p99 {high:.2f} s, of {len(taken)}")
    finally:
        for client in clients:
            client.is_over = True
            if getattr(client, "process", None):
                client.process.kill()
        for node in nodes:
            if node.process:
                node.process.kill()
                node.process.wait()
        postgres.end()
        shutil.rmtree(folder)


main()
