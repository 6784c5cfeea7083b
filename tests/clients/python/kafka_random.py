"""Random work over Kafka's protocol: what a client sees of it, to be compared between brokers.

    kafka_random.py JAR HOST:PORT SEED…     prints a line for each seed: the seed, a tab, and the observations as JSON

JAR is kafka-clients.jar, for its schemas. A seed is a theme, three topics with their settings, and a list of steps: those of the theme, in random
order, with random arguments. A seed is a number, or one of a theme of its own: `share-7`, `many-7`.
"""

import json
import random
import sys
import time

import kafka_random_many
import kafka_random_share
import kafka_wire
from kafka_random_steps import CONFIGS, LOADING, STEPS, TOPICS, Play, codes

# Themes: which steps come how often.
THEMES = {
    "log": {"produce": 8, "fetch": 6, "fetch_all": 2, "session": 6, "list_offsets": 5, "delete_records": 2, "idempotent": 2, "leader_epoch": 1,
        "alter": 1, "describe_config": 1},
    "idempotent": {"idempotent": 10, "burst": 4, "init": 2, "fetch": 4, "describe_producers": 3, "delete_records": 1, "list_offsets": 1},
    "transactions": {"init": 4, "add": 4, "transactional": 10, "end": 6, "expire": 1, "fetch": 4, "session": 4, "list_offsets": 3,
        "delete_records": 1, "describe": 2, "list": 1, "produce": 2, "describe_producers": 2, "idempotent": 1},
    "offsets": {"init": 3, "add": 1, "add_group": 4, "commit_in": 6, "transactional": 1, "end": 5, "commit": 5, "committed": 5, "delete_offset": 1,
        "delete_group": 1, "describe": 1, "groups": 1},
    "classic": {"join": 8, "sync": 6, "heartbeat": 4, "leave": 3, "commit": 4, "committed": 3, "describe_group": 4, "groups": 2, "delete_group": 1,
        "commit_in": 1, "add_group": 1, "init": 1, "delete_offset": 1, "end": 1},
    "consumer": {"beat": 12, "commit": 4, "committed": 3, "describe_new": 4, "groups": 2, "delete_group": 1, "delete_offset": 1},
    "topics": {"session": 2, "create": 3, "delete": 2, "partitions": 2, "alter": 3, "describe_config": 3, "produce": 4, "fetch": 3,
        "list_offsets": 2, "idempotent": 2, "commit": 1, "committed": 1, "metadata": 2, "transactional": 1, "init": 1, "end": 1},
}
THEMES["all"] = {word: weight for theme in THEMES.values() for word, weight in theme.items()}
# Themes that only seeds with their name have.
NAMED_THEMES = {"many": kafka_random_many.THEME, "share": kafka_random_share.THEME}


def plan(seed):
    theme, _, number = seed.rpartition("-")
    rng = random.Random(int(number))
    theme = theme or rng.choice(list(THEMES))
    words, weights = zip(*(NAMED_THEMES.get(theme) or THEMES[theme]).items())
    steps = [["create", {"topic": topic, "partitions": rng.choice([1, 2, 3]), "config": rng.choice(CONFIGS), "version": 7,
        "only": False}] for topic in TOPICS]
    for word in rng.choices(words, weights, k=rng.randint(30, 120)):
        steps.append([word, {name: rng.choice(list(choices)) for name, choices in STEPS[word][0].items()}])
    return {"theme": theme, "steps": steps}


def play(address, schemas, steps):
    play = Play(address, schemas)
    for word, arguments in steps:
        play.observed.append([])
        STEPS[word][1](play, **arguments)
    return play.observed


def warm_up(address, schemas):
    """Has the broker make the topics in which coordinators keep what they know."""
    play = Play(address, schemas)
    for kind in (0, 1):
        while codes(play.ask("FindCoordinator", 4, {"KeyType": kind, "CoordinatorKeys": ["a"]})) != {0}:
            time.sleep(0.1)
    while play.ask("InitProducerId", 4, {"TransactionalId": "a", "TransactionTimeoutMs": 1000})["ErrorCode"]:
        time.sleep(0.1)
    while play.ask("DeleteGroups", 2, {"GroupsNames": ["a"]})["Results"][0]["ErrorCode"] in LOADING:
        time.sleep(0.1)


def main():
    jar, address, *seeds = sys.argv[1:]
    schemas = kafka_wire.load(jar)
    warm_up(address, schemas)
    for seed in seeds:
        work = plan(seed)
        work["observed"] = play(address, schemas, work["steps"])
        print(seed, json.dumps(work, sort_keys=True), sep="\t", flush=True)


if __name__ == "__main__":
    main()
