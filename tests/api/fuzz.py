"""Contract fuzzing of the HTTP API: requests made of its own document, against a broker of its own.

Each answer has the status, the content type and the shape that the document says, and wrong input is refused. A
broker is started on free ports in a temporary folder, with queues of odd names and messages in them.

    fuzz.py BROKER [--cases N] [--seed N]

N cases at most per route and phase. A failure prints the request as a command of curl.
"""

import argparse
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile

import pika

CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "allow_header_conformance",
    "use_after_free",
]
# Routes that would end the broker, or hide what it logs.
LEFT_OUT = ["/v1/node/shutdown", "/v1/node/log-level"]
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("broker")
    parser.add_argument("--cases", default="100")
    parser.add_argument("--seed", default="1")
    given = parser.parse_args()
    program = pathlib.Path(given.broker).resolve()
    with tempfile.TemporaryDirectory() as name, broker(program, pathlib.Path(name)) as addresses:
        fill(addresses["amqp"])
        arguments = [pathlib.Path(sys.executable).with_name("schemathesis"), "run"]
        arguments += [f"http://{addresses['http']}/v1/openapi.json", "--seed", given.seed]
        arguments += ["--max-examples", given.cases, "--checks", ",".join(CHECKS), "--continue-on-failure", "--no-color"]
        arguments += [f"--exclude-path={path}" for path in LEFT_OUT]
        status = subprocess.run(arguments, cwd=name).returncode
    sys.exit(status)


if __name__ == "__main__":
    main()
