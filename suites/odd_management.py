"""The requests of tests/clients/odd/management.tsv, sent to RabbitMQ itself: whether the answers that are kept are still its answers.

`make test` sends them to Stafett; this needs a node of RabbitMQ's, and root to install one (tools/peers/rabbitmq).
"""

import os
import subprocess
import sys

import common
import rabbitmq

PROTOCOL = "amqp"
SCRIPT = common.ROOT / "tests/clients/python/management_odd.py"
TABLE = common.ROOT / "tests/clients/odd/management.tsv"


def run(work, _start_broker, _options):
    kept = [row.split("\t")[:2] for row in TABLE.read_text(encoding="utf-8").splitlines()[1:]]
    os.environ["RABBITMQ_MANAGEMENT"] = "1"
    try:
        broker = rabbitmq.Broker()
        address = subprocess.run([rabbitmq.LAUNCHER, "management"], capture_output=True, text=True, check=True).stdout.strip()
    except subprocess.CalledProcessError:
        return {"odd-management": {request: ("skip", "RabbitMQ could not be started with its HTTP API") for request, _ in kept}}
    done = subprocess.run([sys.executable, SCRIPT, address], capture_output=True, text=True, check=False)
    broker.kill()
    (work / "odd-management.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    found = {}
    answers = [line.split("\t", 1)[1] for line in done.stdout.splitlines()]
    for number, (request, answer) in enumerate(kept, 1):
        given = answers[number - 1] if number <= len(answers) else "no answer"
        # A request may stand in the table several times, in other circumstances.
        found[f"{number} {request}"] = ("pass", "") if given == answer else ("fail", given)
    return {"odd-management": found}
