"""Random work with queues, on the broker and on RabbitMQ: whether a client of both sees the same.

The work is that of tests/clients/python/amqp_random.py. It needs a node of RabbitMQ's, and root to install one
(tools/peers/rabbitmq). `-k SEED` is one seed; seeds that are not among the kept ones are tried by `-k`, too.
"""

import json
import subprocess

import common
import rabbitmq

PROTOCOL = "amqp"
SCRIPT = common.ROOT / "tests/clients/python/amqp_random.py"
SEEDS = [str(seed) for seed in range(60)]
# A message that expires or is dead-lettered at its own time may come just before or behind a look.
TRIES = 3


def observed(address, seeds):
    done = subprocess.run([common.VENV, SCRIPT, address, *seeds], capture_output=True, text=True, check=False)
    lines = (line.split("\t", 1) for line in done.stdout.splitlines())
    return {seed: json.loads(text) for seed, text in lines}, done.stderr


def run(work, start_broker, options):
    seeds = options.tests or SEEDS
    try:
        peer = rabbitmq.Broker()
    except subprocess.CalledProcessError:
        return {"random-amqp": {seed: ("skip", "RabbitMQ could not be started") for seed in seeds}}
    broker = start_broker()
    found = {}
    wanted = seeds
    with open(work / "random-amqp.log", "w", encoding="utf-8") as log:
        for _ in range(TRIES):
            for seed in wanted:
                (ours, why), (theirs, _) = (observed(address, [seed]) for address in (broker.amqp, peer.amqp))
                if ours == theirs and seed in ours:
                    found[seed] = ("pass", "")
                else:
                    found[seed] = ("fail", "")
                    log.write(f"{seed}\n  {ours.get(seed) or why}\n  {theirs.get(seed)}\n")
            wanted = [seed for seed, (outcome, _) in found.items() if outcome == "fail"]
            if not wanted:
                break
    broker.kill()
    peer.kill()
    return {"random-amqp": found}
