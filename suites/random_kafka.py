"""Random work over Kafka's protocol, on the broker and on Apache Kafka: whether a client of both sees the same.

The work is that of tests/clients/python/kafka_random.py. Both brokers run for all seeds. `-k SEED` is one seed; seeds that are not among
the kept ones are tried by `-k`, too.
"""

import json
import subprocess

import common

PROTOCOL = "kafka"
SCRIPT = common.ROOT / "tests/clients/python/kafka_random.py"
SEEDS = [str(seed) for seed in range(60)] + [f"{theme}-{seed}" for theme, count in (("many", 40), ("share", 20)) for seed in range(count)]
# What is asynchronous in Kafka may take longer than it is waited for.
TRIES = 2
KAFKA = [
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=200",
    "group.consumer.assignment.interval.ms=0",
    "group.coordinator.append.linger.ms=0",
]


def schemas():
    """Kafka's jar with the schemas of its messages."""
    libraries = subprocess.run([common.LAUNCHER, "classpath"], capture_output=True, text=True, check=True).stdout.strip()
    return next(common.Path(libraries).parent.glob("kafka-clients-*.jar"))


def observed(jar, address, seeds):
    done = subprocess.run([common.VENV, SCRIPT, jar, address, *seeds], capture_output=True, text=True, check=False)
    lines = (line.split("\t", 1) for line in done.stdout.splitlines())
    return {seed: json.loads(text) for seed, text in lines}, done.stderr


def first_difference(ours, theirs):
    steps = [["prepare"], *ours["steps"]]
    pairs = zip(steps, ours["observed"], theirs["observed"], strict=True)
    return next((difference for difference in pairs if difference[1] != difference[2]), None)


def run(work, start_broker, options):
    seeds = options.tests or SEEDS
    if why := common.available("kafka"):
        return {"random-kafka": {seed: ("skip", why) for seed in seeds}}
    jar = schemas()
    broker = start_broker(auto_create=False, more=["groups.initial_delay_ms=0"])
    properties = [argument for line in KAFKA for argument in ("--property", line)]
    settings = ["--set", "kafka.auto_create_topics=false", "--set", "groups.initial_delay_ms=0", *properties]
    peer = common.Broker("kafka", broker.folder.parent / "random-kafka", settings)
    found = {}
    with open(work / "random-kafka.log", "w", encoding="utf-8") as log:
        for _ in range(TRIES):
            wanted = [seed for seed in seeds if found.get(seed) != ("pass", "")]
            if not wanted:
                break
            (ours, why), (theirs, _) = (observed(jar, address, wanted) for address in (broker.address, peer.address))
            for seed in wanted:
                same = seed in ours and seed in theirs and ours[seed] == theirs[seed]
                found[seed] = ("pass" if same else "fail", "")
                if not same:
                    both = seed in ours and seed in theirs
                    log.write(f"{seed}: {first_difference(ours[seed], theirs[seed]) if both else why}\n")
    broker.kill()
    peer.kill()
    return {"random-kafka": found}
