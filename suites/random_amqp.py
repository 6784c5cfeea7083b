"""Random work with queues and with exchanges, on the broker and on RabbitMQ: whether a client of both sees the same.

The work is that of two scripts in tests/clients/python. It needs a node of RabbitMQ's, and root to install one
(tools/peers/rabbitmq). `-k queues-7` is one seed; seeds that are not among the kept ones are tried by `-k`, too.
"""

import json
import subprocess

import common
import rabbitmq

PROTOCOL = "amqp"
SCRIPTS = {"queues": ["amqp_random.py"], "transactions": ["amqp_random.py", "--transactions"], "routing": ["amqp_routing_random.py"]}
SEEDS = [f"queues-{seed}" for seed in range(60)] + [f"routing-{seed}" for seed in range(100)] + [f"transactions-{seed}" for seed in range(40)]
# A message that expires or is dead-lettered at its own time may come just before or behind a look.
TRIES = 3


def observed(address, name):
    """Returns what a client saw of a seed, and the errors of the script."""
    kind, seed = name.split("-")
    script, *more = SCRIPTS[kind]
    done = subprocess.run([common.VENV, common.ROOT / "tests/clients/python" / script, address, seed, *more], capture_output=True, text=True, check=False)
    return (json.loads(done.stdout.split("\t", 1)[1]) if done.returncode == 0 else None), done.stderr


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
                (ours, why), (theirs, _) = (observed(address, seed) for address in (broker.amqp, peer.amqp))
                if ours == theirs and ours is not None:
                    found[seed] = ("pass", "")
                else:
                    found[seed] = ("fail", "")
                    log.write(f"{seed}\n  {ours or why}\n  {theirs}\n")
            wanted = [seed for seed, (outcome, _) in found.items() if outcome == "fail"]
            if not wanted:
                break
    broker.kill()
    peer.kill()
    return {"random-amqp": found}
