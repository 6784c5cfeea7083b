"""Random work with exchanges: what a client sees of it, to be compared between brokers.

    amqp_routing_random.py HOST:PORT SEED…     prints a line for each seed: the seed, a tab, and the observations as JSON

A seed makes exchanges of all types, binds queues and exchanges to them, takes bindings away again, deletes and declares
things, and publishes with odd keys and headers; after each step that may change them, the queues are read to their ends.
It may end with transactions, in which nothing is bound: Stafett routes messages at the commit, RabbitMQ before. Nor is the
default exchange an alternate one, which leads nowhere in RabbitMQ, and to the queue of the key's name here.
"""

import json
import random
import sys

import pika
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError

ADDRESS, SEEDS = sys.argv[1], [int(seed) for seed in sys.argv[2:]]
EXCHANGES = [f"x{number}" for number in range(5)]
QUEUES = [f"q{number}" for number in range(4)]
KEYS = ["", "a", "a.b", "a.b.c", "b", "b.", ".", "..", "a..c", "*", "#", "a.*", "ä.ö", "q0", "q1"]
PATTERNS = ["", "#", "*", "a.#", "#.c", "*.b", "a.*", "*.*", "#.b.#", "a.b", "a", "*.#", "#.#", "a.#.c", "#.*", ".", "a..c", "*.*.c", "ab*"]
HEADERS = [{}, {"k": "v"}, {"k": 1}, {"k": "v", "l": 2}, {"l": "2"}, {"k": None}, {"l": True}, {"k": "w", "l": 2, "x-m": 1}, {"x-m": 1}]
MATCHES = [None, "all", "any", "all-with-x", "any-with-x", "odd"]
TYPES = ["direct", "fanout", "topic", "headers", "odd"]


def exchange(rng):
    arguments = {}
    if rng.random() < 0.35:
        arguments["alternate-exchange"] = rng.choice([*EXCHANGES, "none"])
    kind = rng.choices(TYPES, [5, 3, 6, 4, 0.3])[0]
    return ("exchange", rng.choice(EXCHANGES), kind, rng.random() < 0.3, rng.random() < 0.2, rng.random() < 0.1, arguments)


def binding(rng):
    arguments = {}
    if rng.random() < 0.5:
        arguments = dict(rng.choice(HEADERS))
        match = rng.choice(MATCHES)
        if match is not None:
            arguments["x-match"] = match
    to_exchange = rng.random() < 0.35
    return (to_exchange, rng.choice(EXCHANGES if to_exchange else QUEUES), rng.choice(EXCHANGES), rng.choice(PATTERNS if rng.random() < 0.7 else KEYS), arguments)


def publish(rng):
    headers = dict(rng.choice(HEADERS))
    for name in ("CC", "BCC"):
        if rng.random() < 0.12:
            headers[name] = rng.choice([["a"], ["a.b", "q1"], [], "a", [1], ["q0", "q0"]])
    through = rng.choice([*EXCHANGES, *EXCHANGES, "", "amq.direct", "amq.topic", "amq.match", "amq.fanout"])
    return ("publish", through, rng.choice(KEYS), headers, rng.random() < 0.4)


def plan(seed):
    rng = random.Random(seed)
    steps = [exchange(rng) for _ in range(rng.randint(2, 6))]
    made = []
    for _ in range(rng.randint(2, 8)):
        made.append(binding(rng))
        steps.append(("bind", *made[-1]))
    words = ["publish"] * 12 + ["bind"] * 3 + ["unbind"] * 2 + ["exchange", "delete", "queue", "passive", "select", "commit", "rollback"]
    calm = ["publish"] * 6 + ["passive", "commit", "rollback"]
    for _ in range(rng.randint(8, 30)):
        word = rng.choice(words)
        if word == "publish":
            steps.append(publish(rng))
        elif word == "bind":
            made.append(binding(rng))
            steps.append((word, *made[-1]))
        elif word == "unbind":
            steps.append((word, *(rng.choice(made) if rng.random() < 0.8 else binding(rng))))
        elif word == "exchange":
            steps.append(exchange(rng))
        elif word == "delete":
            steps.append((word, rng.choice(EXCHANGES), rng.random() < 0.5))
        elif word == "queue":
            steps.append((word, rng.choice(QUEUES), rng.random() < 0.4, rng.random() < 0.4))
        elif word == "passive":
            steps.append((word, rng.choice([*EXCHANGES, "amq.direct", "amq.none", ""])))
        else:
            steps.append((word,))
            words = calm
    return steps


class Play:
    """One seed on one broker."""

    def __init__(self, connection):
        self.connection, self.observed, self.number = connection, [], 0
        self.open()
        for name in EXCHANGES:
            self.channel.exchange_delete(name)
        for name in QUEUES:
            self.channel.queue_delete(name)
            self.channel.queue_declare(name, durable=True)

    def open(self):
        """A channel with confirms; `select` makes one with transactions of its own."""
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        self.returned, self.has_transaction = [], False

    def step(self, word, *more):
        try:
            outcome = getattr(self, word)(*more)
        except ChannelClosedByBroker as error:
            outcome = ["closed", error.reply_code]
            self.open()
        self.observed.append([word, outcome])
        if word in ("publish", "commit", "rollback"):
            self.observed.append(self.read())

    def exchange(self, name, kind, durable, auto_delete, internal, arguments):
        self.channel.exchange_declare(name, kind, durable=durable, auto_delete=auto_delete, internal=internal, arguments=arguments)

    def bind(self, to_exchange, target, source, key, arguments):
        if to_exchange:
            self.channel.exchange_bind(target, source, key, arguments)
        else:
            self.channel.queue_bind(target, source, key, arguments)

    def unbind(self, to_exchange, target, source, key, arguments):
        if to_exchange:
            self.channel.exchange_unbind(target, source, key, arguments)
        else:
            self.channel.queue_unbind(target, source, key, arguments)

    def delete(self, name, if_unused):
        self.channel.exchange_delete(name, if_unused=if_unused)

    def queue(self, name, if_unused, if_empty):
        self.channel.queue_delete(name, if_unused=if_unused, if_empty=if_empty)
        self.channel.queue_declare(name, durable=True)

    def passive(self, name):
        self.channel.exchange_declare(name, passive=True)

    def select(self):
        if not self.has_transaction:
            self.channel.close()
            self.channel = self.connection.channel()
            self.channel.add_on_return_callback(lambda _, method, __, body: self.returned.append([method.reply_code, method.exchange, method.routing_key, body.decode()]))
            self.has_transaction = True
        self.channel.tx_select()

    def commit(self):
        if not self.has_transaction:
            return "none"
        self.channel.tx_commit()
        returned, self.returned = self.returned, []
        return sorted(returned)

    def rollback(self):
        if not self.has_transaction:
            return "none"
        self.channel.tx_rollback()
        return None

    def publish(self, through, key, headers, mandatory):
        self.number += 1
        try:
            self.channel.basic_publish(through, key, b"%d" % self.number, pika.BasicProperties(headers=headers), mandatory=mandatory)
            if self.has_transaction:
                # Whether the channel is still open.
                self.channel.queue_declare("q0", passive=True)
        except NackError:
            return "refused"
        except UnroutableError:
            return "returned"
        return "sent"

    def read(self):
        """All that the queues have, and takes it away."""
        found = {}
        other = self.connection.channel()
        for name in QUEUES:
            while True:
                method, properties, body = other.basic_get(name, auto_ack=True)
                if method is None:
                    break
                found.setdefault(name, []).append([body.decode(), method.exchange, method.routing_key, json.loads(json.dumps(properties.headers, sort_keys=True))])
        other.close()
        return found


def play(connection, seed):
    steps = plan(seed)
    played = Play(connection)
    for step in steps:
        played.step(*step)
    played.channel.close()
    return {"steps": steps, "observed": played.observed}


host, port = ADDRESS.rsplit(":", 1)
connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
for seed in SEEDS:
    print(seed, json.dumps(play(connection, seed), sort_keys=True), sep="\t", flush=True)
connection.close()
