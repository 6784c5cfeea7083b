"""Contract fuzzing of the HTTP API: requests made of its own document, against a broker of its own.

Each answer has the status, the content type and the shape that the document says, and wrong input is refused. A
broker is started on free ports in a temporary folder, with queues of odd names and messages in them, and a topic.

    fuzz.py BROKER [--cases N] [--seed N]

N cases at most per route and phase. A failure prints the request as a command of curl.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

import pika

# Not use_after_free: an operation that DELETE has stopped is still shown.
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "allow_header_conformance",
]
# Routes that would end the broker, hide its log, or make backups anywhere on this machine; and those whose answers have no end.
EVENTS = "/v1/topics/{topic}/events"
OF_QUEUE = "/v1/queues/{queue}/events"
LEFT_OUT = ["/v1/node/shutdown", "/v1/node/log-level", "/v1/journal/backups", EVENTS, OF_QUEUE, "/v1/events/stream", "/v1/node/log", "/v1/watch"]
# Names that are there: few of those that are generated are.
OF_A_QUEUE = """
[parameters]
"path.queue" = "orders"
"""
OF_A_TOPIC = """
[parameters]
"path.topic" = "orders"
"path.partition" = "0"
"path.group" = "billing"
"""
TOPIC = {"partitions": 2, "settings": {"durability": "os"}}
RECORDS = b'{"key": "a", "value": {"amount": 12}}\n{"value_base64": "/w==", "headers": {"a": null}}\n{}\n'
COMMIT = {"offsets": [{"topic": "orders", "partition": 0, "offset": 1}]}
QUEUES = ["orders", "a/b c", "ü€", "..", "0", "true"]


@contextlib.contextmanager
def broker(program, folder):
    """Runs a broker, and gives its addresses by listener."""
    arguments = [program, "serve", "--data-dir", folder / "data", "--set", f"journal.backup_dir={folder / 'backups'}"]
    for listener in ("kafka", "amqp", "http"):
        arguments += [f"--{listener}", "127.0.0.1:0"]
    log = open(folder / "log", "wb")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("STAFETT_")}
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=log, env=environment, text=True)
    try:
        addresses = {}
        for line in process.stdout:
            if line.strip() == "ready":
                break
            name, found, address = line.strip().partition(" listening on ")
            if found:
                addresses[name] = address
        else:
            sys.exit(f"the broker ended: {(folder / 'log').read_text()}")
        yield addresses
        # A broker that had ended would not take the signal.
        assert process.poll() is None, "the broker has ended"
    finally:
        process.terminate()
        process.wait(60)
        log.close()
    assert process.returncode == 0, f"the broker ended with {process.returncode}"
    assert "panicked" not in (folder / "log").read_text(), (folder / "log").read_text()


def fill(address):
    """Makes queues with messages of several kinds."""
    host, _, port = address.rpartition(":")
    with pika.BlockingConnection(pika.ConnectionParameters(host, int(port))) as connection:
        channel = connection.channel()
        for name in QUEUES:
            channel.queue_declare(name, durable=True, arguments={"x-max-priority": 9})
            for body in (b"text", b"\xff\x00", b"{}" * 1000, b""):
                headers = {"user-id": "ann", "bytes": b"\xff", "deep": {"a": [1, None]}}
                properties = pika.BasicProperties(headers=headers, priority=len(body) % 10, expiration="3600000")
                channel.basic_publish("", name, body, properties)


def fill_topics(address):
    """Makes a topic with records of several kinds, and a group that has read some."""
    for method, path, body, kind in (
        ("PUT", "topics/orders", json.dumps(TOPIC).encode(), "application/json"),
        ("POST", "topics/orders/records?as=record&partition=0", RECORDS, "application/x-ndjson"),
        ("PUT", "groups/billing/offsets", json.dumps(COMMIT).encode(), "application/json"),
    ):
        request = urllib.request.Request(f"http://{address}/v1/{path}", body, {"Content-Type": kind}, method=method)
        with urllib.request.urlopen(request) as answer:
            assert answer.status in (200, 201), answer.status


def rounds(address, folder, cases, seed):
    """Sends requests to all routes, and then more to those of a queue and a topic that are there. Returns whether all is well."""
    common = [pathlib.Path(sys.executable).with_name("schemathesis"), None, "run"]
    common += [f"http://{address}/v1/openapi.json", "--seed", seed, "--max-examples", cases]
    common += ["--checks", ",".join(CHECKS), "--continue-on-failure", "--no-color", "--warnings", "off"]
    all_well = True
    for name, settings, chosen in (
        ("all", "", [f"--exclude-path={path}" for path in LEFT_OUT]),
        ("queue", OF_A_QUEUE, ["--include-path-regex=^/v1/queues/", f"--exclude-path={OF_QUEUE}"]),
        ("topic", OF_A_TOPIC, ["--include-path-regex=^/v1/(topics|groups)/", f"--exclude-path={EVENTS}"]),
    ):
        (folder / name).write_text(settings)
        common[1] = f"--config-file={folder / name}"
        all_well &= subprocess.run([*common, *chosen], cwd=folder).returncode == 0
    return all_well


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("broker")
    parser.add_argument("--cases", default="100")
    parser.add_argument("--seed", default="1")
    given = parser.parse_args()
    program = pathlib.Path(given.broker).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with broker(program, folder) as addresses:
            fill(addresses["amqp"])
            fill_topics(addresses["http"])
            all_well = rounds(addresses["http"], folder, given.cases, given.seed)
    sys.exit(0 if all_well else 1)


if __name__ == "__main__":
    main()
