"""The bytes of tests/clients/python/amqp_odd.py, sent to RabbitMQ itself: whether the answers that are kept are still its answers.

`make test` sends them to Stafett; this needs a node of RabbitMQ's, and root to install one (tools/peers/rabbitmq).
"""

import subprocess

import common
import rabbitmq

PROTOCOL = "amqp"
SCRIPT = common.ROOT / "tests/clients/python/amqp_odd.py"
# It treats the channels of a connection beside each other: some answers depend on who comes first.
TRIES = 8
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
    found = {}
    wanted = options.tests or []
    with open(work / "odd-amqp.log", "w", encoding="utf-8") as log:
        for _ in range(TRIES):
            done = subprocess.run([common.VENV, SCRIPT, broker.amqp, *wanted], capture_output=True, text=True, check=False)
            log.write(done.stdout + done.stderr)
            for line in done.stdout.splitlines():
                name, answer = line.split("\t")
                found[name] = ("pass", "") if kept.get(name) == answer else ("fail", answer)
            wanted = [name for name, (outcome, _) in found.items() if outcome == "fail"]
            if not wanted:
                break
    broker.kill()
    return {"odd-amqp": found}
