"""The bytes of tests/clients/python/amqp_odd.py, sent to RabbitMQ itself: whether the answers that are kept are still its answers.

`make test` sends them to Stafett; this needs a node of RabbitMQ's, and root to install one (tools/peers/rabbitmq).
"""

import subprocess

import common
import rabbitmq

PROTOCOL = "amqp"
SCRIPT = common.ROOT / "tests/clients/python/amqp_odd.py"
TABLE = common.ROOT / "tests/clients/odd/amqp.tsv"


def run(work, _start_broker, options):
    kept = {}
    for row in TABLE.read_text(encoding="utf-8").splitlines()[1:]:
        name, answer = row.split("\t")[:2]
        kept[name] = answer
    try:
        broker = rabbitmq.Broker()
    except subprocess.CalledProcessError:
        return {"odd-amqp": {name: ("skip", "RabbitMQ could not be started") for name in kept}}
    done = subprocess.run(
        [common.VENV, SCRIPT, broker.amqp, *(options.tests or [])], capture_output=True, text=True, check=False
    )
    broker.kill()
    (work / "odd-amqp.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    found = {}
    for line in done.stdout.splitlines():
        name, answer = line.split("\t")
        found[name] = ("pass", "") if kept.get(name) == answer else ("fail", answer)
    return {"odd-amqp": found}
