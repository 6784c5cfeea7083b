"""Random work with one queue and its dead letters: what a client sees of it, to be compared between brokers.

    amqp_random.py HOST:PORT SEED… [--transactions]     prints a line for each seed: the seed, a tab, and the observations as JSON

With `--transactions` the channel has transactions instead of confirms. A seed is a queue with its arguments and a list of steps. Times are left out. No step that two right brokers may see in
different order is taken: a quorum queue that is full refuses messages later than a classic one, and a message that goes
to several queues is stored by Stafett in all of them or in none.
"""

import json
import random
import sys
import time

import pika
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError

TRANSACTS = "--transactions" in sys.argv
ADDRESS, *SEEDS = (argument for argument in sys.argv[1:] if argument != "--transactions")
# Messages of a transaction are stored at one time here, and one after the other in RabbitMQ: what expires at once there is
# no longer among those that a limit looks at.
AT_ONCE = [] if TRANSACTS else [0]
# Time in which a settlement or a dead letter comes to its end, and one in which messages of 400 ms expire.
SETTLED, EXPIRED = 0.08, 0.6


def arguments(rng):
    """The arguments of the queue."""
    kind = rng.choice(["classic", "quorum"])
    chosen = {"x-queue-type": kind}
    if rng.random() < 0.8:
        chosen["x-dead-letter-exchange"] = rng.choice(["dead", ""])
        if chosen["x-dead-letter-exchange"] == "" or rng.random() < 0.4:
            chosen["x-dead-letter-routing-key"] = "letters"
    if rng.random() < 0.25:
        chosen["x-message-ttl"] = rng.choice([*AT_ONCE, 400])
    if rng.random() < 0.35:
        chosen["x-max-length"] = rng.choice([1, 3])
        refusing = ["reject-publish", "reject-publish-dlx"] if kind == "classic" else []
        chosen["x-overflow"] = rng.choice(["drop-head", *refusing])
    if rng.random() < 0.1:
        chosen["x-max-length-bytes"] = 20
    if kind == "classic" and rng.random() < 0.3:
        chosen["x-max-priority"] = rng.choice([1, 5])
    if kind == "quorum" and rng.random() < 0.5:
        chosen["x-delivery-limit"] = rng.choice([0, 1, 2])
    if rng.random() < 0.15:
        chosen["x-single-active-consumer"] = True
    return chosen


def properties(rng, number, may_copy):
    chosen = {}
    if rng.random() < 0.3:
        chosen["expiration"] = str(rng.choice([*AT_ONCE, 400, 100000]))
    if rng.random() < 0.4:
        chosen["priority"] = rng.choice([0, 1, 3, 9])
    if rng.random() < 0.3:
        headers = [{"a": 1}, {"x-first-death-queue": "z"}, {"x-death": "odd"}]
        copies = [{"CC": ["letters"]}, {"BCC": ["letters"]}] if may_copy else []
        chosen["headers"] = rng.choice(headers + copies)
    if rng.random() < 0.3:
        chosen["delivery_mode"] = 2
    if rng.random() < 0.2:
        chosen["message_id"] = f"m{number}"
    return chosen


def plan(seed):
    rng = random.Random(seed)
    queue = arguments(rng)
    may_copy = not queue.get("x-overflow", "").startswith("reject")
    steps = []
    ends = ["commit"] * 3 + ["rollback"] if TRANSACTS else []
    words = ends + ["publish"] * 5 + ["get"] * 4 + ["ack", "nack", "reject", "requeue", "requeue", "wait", "consume", "count"]
    for number in range(rng.randint(4, 14)):
        word = rng.choice(words)
        if word == "publish":
            through = rng.choice(["", "", "straight"])
            steps.append((word, properties(rng, number, may_copy), through, rng.random() < 0.3))
        else:
            steps.append((word, rng.random() < 0.3))
    return queue, steps


def seen(method, properties, body):
    """A delivery without its times."""
    fields = {name: value for name, value in vars(properties).items() if value is not None}
    if "headers" in fields:
        fields["headers"] = json.loads(json.dumps(fields["headers"], default=str, sort_keys=True))
        deaths = fields["headers"].get("x-death")
        for death in deaths if isinstance(deaths, list) else []:
            death.pop("time", None)
    return [body.decode(), method.redelivered, method.exchange, method.routing_key, fields]


class Play:
    """One seed on one broker."""

    def __init__(self, connection, queue):
        self.connection = connection
        self.channel = connection.channel()
        self.held = []
        # Deliveries that a transaction has settled.
        self.settled = []
        self.returned = []
        self.published = 0
        self.observed = []
        for name in ("work", "letters"):
            self.channel.queue_delete(name)
        for name, kind in (("straight", "direct"), ("dead", "fanout")):
            self.channel.exchange_delete(name)
            self.channel.exchange_declare(name, kind)
        self.channel.queue_declare("work", durable=True, arguments=queue)
        self.channel.queue_bind("work", "straight", "key")
        self.channel.queue_declare("letters", durable=True)
        self.channel.queue_bind("letters", "dead")
        if TRANSACTS:
            self.channel.tx_select()
            self.channel.add_on_return_callback(lambda _, method, __, body: self.returned.append(body.decode()))
        else:
            self.channel.confirm_delivery()

    def step(self, word, *more):
        if word == "publish":
            self.publish(*more)
        elif word == "get":
            self.get()
        elif word == "wait":
            time.sleep(EXPIRED)
        elif word == "consume":
            self.consume()
        elif word in ("commit", "rollback"):
            self.end(word)
        elif word == "count":
            time.sleep(SETTLED)
            self.observed.append([word, *(self.channel.queue_declare(name, passive=True).method.message_count for name in ("work", "letters"))])
        elif self.held:
            self.settle(word, *more)
            time.sleep(SETTLED)

    def publish(self, properties, through, mandatory):
        self.published += 1
        outcome = "confirmed"
        key = "key" if through else "work"
        try:
            body = b"%d" % self.published
            self.channel.basic_publish(through, key, body, pika.BasicProperties(**properties), mandatory=mandatory)
        except NackError:
            outcome = "refused"
        except UnroutableError:
            outcome = "returned"
        self.observed.append(["publish", self.published, outcome])
        time.sleep(0.03)

    def end(self, word):
        """Ends a transaction, and begins the next."""
        if word == "commit":
            self.channel.tx_commit()
        else:
            self.channel.tx_rollback()
            self.held = sorted(self.held + self.settled)
        self.settled = []
        time.sleep(SETTLED)
        self.observed.append([word, self.returned])
        self.returned = []

    def get(self):
        method, properties, body = self.channel.basic_get("work")
        if method is None:
            return self.observed.append(["get", None])
        self.held.append(method.delivery_tag)
        return self.observed.append(["get", seen(method, properties, body)])

    def settle(self, word, multiple):
        tag = self.held[0] if word == "ack" else self.held[-1]
        if word == "ack":
            self.channel.basic_ack(tag, multiple=multiple)
        elif word == "nack":
            self.channel.basic_nack(tag, multiple=multiple, requeue=False)
        else:
            multiple = False
            self.channel.basic_reject(tag, requeue=word == "requeue")
        settled = [held for held in self.held if held == tag or multiple and held < tag]
        self.held = [held for held in self.held if held not in settled]
        self.settled += settled

    def consume(self):
        """A consumer that ends with what it has."""
        channel = self.connection.channel()
        channel.basic_qos(prefetch_count=2)
        got = []
        for method, properties, body in channel.consume("work", inactivity_timeout=0.25):
            if method is None:
                break
            got.append(seen(method, properties, body))
            if len(got) == 2:
                break
        channel.close()
        self.observed.append(["consume", got])
        time.sleep(SETTLED)

    def drain(self):
        if TRANSACTS:
            # What was not committed is undone, and what was got comes back.
            self.channel.close()
            self.channel = self.connection.channel()
        elif self.held:
            self.channel.basic_nack(self.held[-1], multiple=True, requeue=True)
        for name in ("work", "letters"):
            time.sleep(EXPIRED)
            got = []
            while True:
                method, properties, body = self.channel.basic_get(name, auto_ack=True)
                if method is None:
                    break
                got.append(seen(method, properties, body))
            self.observed.append([name, got])


def play(connection, seed):
    queue, steps = plan(seed)
    play = Play(connection, queue)
    try:
        for step in steps:
            play.step(*step)
        play.drain()
    except ChannelClosedByBroker as error:
        play.observed.append(["closed", error.reply_code])
    else:
        play.channel.close()
    return {"queue": queue, "steps": steps, "observed": play.observed}


host, port = ADDRESS.rsplit(":", 1)
connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
for seed in SEEDS:
    print(seed, json.dumps(play(connection, int(seed)), sort_keys=True), sep="\t", flush=True)
connection.close()
