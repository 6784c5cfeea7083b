"""Refusals of users with few rights, one line each: the case, a tab, and the answer. For any broker with RabbitMQ's protocol and HTTP API.

    refused.py HOST:PORT HTTP_HOST:PORT ADMIN PASSWORD
"""

import base64
import json
import sys
import urllib.error
import urllib.request

import pika

HOST, PORT = sys.argv[1].rsplit(":", 1)
HTTP, ADMIN = sys.argv[2], (sys.argv[3], sys.argv[4])
BOB, EVE, MON = ("bob", "pw-bob"), ("eve", "pw-eve"), ("mon", "pw-mon")


def connect(login, vhost="/"):
    credentials = pika.PlainCredentials(*login)
    return pika.BlockingConnection(pika.ConnectionParameters(HOST, int(PORT), vhost, credentials, socket_timeout=60))


def ask(login, method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{HTTP}/api/{path}", data, method=method)
    request.add_header("Authorization", "Basic " + base64.b64encode(":".join(login).encode()).decode())
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.status)
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        try:
            said = json.loads(text)
            text = said.get("reason", said) if isinstance(said, dict) else said
        except ValueError:
            pass
        return f"{error.code} {text}".strip()


def say(case, answer):
    print(f"{case}\t{answer}", flush=True)


def over_amqp(case, act):
    channel = bob.channel()
    try:
        act(channel)
        # An answer to what has none.
        channel.confirm_delivery()
        channel.close()
        say(case, "permitted")
    except pika.exceptions.ChannelClosedByBroker as error:
        say(case, f"{error.reply_code} {error.reply_text}")


def login(case, login, vhost="/"):
    try:
        connect(login, vhost).close()
        say(case, "permitted")
    except pika.exceptions.ConnectionClosedByBroker as error:
        say(case, f"{error.reply_code} {error.reply_text}")
    except pika.exceptions.AMQPConnectionError as error:
        say(case, type(error).__name__)


def publish(exchange, key, **properties):
    def act(channel):
        channel.confirm_delivery()
        channel.basic_publish(exchange, key, b"x", pika.BasicProperties(**properties))

    return act


for name, tags in (("bob", ""), ("eve", "management"), ("mon", "monitoring")):
    assert ask(ADMIN, "PUT", f"users/{name}", {"password": f"pw-{name}", "tags": tags}) in ("201", "204")
rights = {"configure": "^bob-", "write": "^(bob-.*|amq\\.default)$", "read": "^bob-"}
assert ask(ADMIN, "PUT", "permissions/%2F/bob", rights) in ("201", "204")
assert ask(ADMIN, "PUT", "permissions/%2F/eve", rights) in ("201", "204")
assert ask(ADMIN, "PUT", "vhosts/closed") in ("201", "204")
for queue in ("other", "bob-q"):
    assert ask(ADMIN, "PUT", f"queues/%2F/{queue}", {"durable": True}) in ("201", "204")
for exchange in ("other-x", "bob-x", "bob-y"):
    assert ask(ADMIN, "PUT", f"exchanges/%2F/{exchange}", {"type": "direct", "durable": True}) in ("201", "204")
assert ask(ADMIN, "PUT", "exchanges/%2F/bob-inner", {"type": "fanout", "internal": True}) in ("201", "204")

login("connection: a wrong password", ("bob", "wrong"))
login("connection: an unknown user", ("stranger", "wrong"))
login("connection: a virtual host without permissions", BOB, "closed")
login("connection: a virtual host that is not there", BOB, "nowhere")

bob = connect(BOB)
over_amqp("queue.declare", lambda it: it.queue_declare("new"))
over_amqp("queue.declare: its own", lambda it: it.queue_declare("bob-q", durable=True))
over_amqp("queue.declare: passive", lambda it: it.queue_declare("other", passive=True))
over_amqp("queue.declare: passive, not there", lambda it: it.queue_declare("nowhere", passive=True))
over_amqp("queue.declare: a name of the broker's", lambda it: it.queue_declare("amq.mine"))
over_amqp("queue.declare: dead letters to another exchange", lambda it: it.queue_declare("bob-d", arguments={"x-dead-letter-exchange": "other-x"}))
over_amqp("queue.delete", lambda it: it.queue_delete("other"))
over_amqp("queue.delete: not there", lambda it: it.queue_delete("nowhere"))
over_amqp("queue.purge", lambda it: it.queue_purge("other"))
over_amqp("queue.bind: another queue", lambda it: it.queue_bind("other", "bob-x", "k"))
over_amqp("queue.bind: another exchange", lambda it: it.queue_bind("bob-q", "other-x", "k"))
over_amqp("queue.unbind: another queue", lambda it: it.queue_unbind("other", "bob-x", "k"))
over_amqp("queue.unbind: another exchange", lambda it: it.queue_unbind("bob-q", "other-x", "k"))
over_amqp("exchange.declare", lambda it: it.exchange_declare("new-x"))
over_amqp("exchange.declare: passive", lambda it: it.exchange_declare("other-x", passive=True))
over_amqp("exchange.declare: passive, not there", lambda it: it.exchange_declare("nowhere", passive=True))
over_amqp("exchange.declare: a name of the broker's", lambda it: it.exchange_declare("amq.mine"))
over_amqp("exchange.declare: another alternate", lambda it: it.exchange_declare("bob-a", arguments={"alternate-exchange": "other-x"}))
over_amqp("exchange.delete", lambda it: it.exchange_delete("other-x"))
over_amqp("exchange.delete: not there", lambda it: it.exchange_delete("nowhere"))
over_amqp("exchange.delete: one of the broker's", lambda it: it.exchange_delete("amq.topic"))
over_amqp("exchange.bind: another source", lambda it: it.exchange_bind("bob-x", "other-x", "k"))
over_amqp("exchange.bind: another destination", lambda it: it.exchange_bind("other-x", "bob-x", "k"))
over_amqp("exchange.unbind: another source", lambda it: it.exchange_unbind("bob-x", "other-x", "k"))
over_amqp("basic.get", lambda it: it.basic_get("other"))
over_amqp("basic.get: not there", lambda it: it.basic_get("nowhere"))
over_amqp("basic.consume", lambda it: it.basic_consume("other", print))
over_amqp("basic.consume: not there", lambda it: it.basic_consume("nowhere", print))
over_amqp("basic.publish", publish("other-x", "k"))
over_amqp("basic.publish: not there", publish("nowhere", "k"))
over_amqp("basic.publish: by the queue's name", publish("", "other"))
over_amqp("basic.publish: as another user", publish("bob-x", "k", user_id="eve"))
over_amqp("basic.publish: as this user", publish("bob-x", "k", user_id="bob"))
over_amqp("basic.publish: an internal exchange", publish("bob-inner", "k"))
over_amqp("tx: another exchange", lambda it: (it.tx_select(), it.basic_publish("other-x", "k", b"x"), it.tx_commit()))
bob.close()

READ = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
SEND = {"properties": {}, "routing_key": "k", "payload": "x", "payload_encoding": "string"}
for who, user in (("no tag", BOB), ("management", EVE), ("monitoring", MON)):
    for method, path, body in (
        ("GET", "whoami", None),
        ("GET", "overview", None),
        ("GET", "nodes", None),
        ("GET", "users", None),
        ("GET", "permissions", None),
        ("GET", "vhosts/closed", None),
        ("GET", "connections", None),
        ("GET", "queues/%2F/other", None),
        ("GET", "queues/closed", None),
        ("GET", "definitions", None),
        ("GET", "policies", None),
        ("PUT", "policies/%2F/p", {"pattern": "^a", "definition": {"max-length": 1}}),
        ("PUT", "users/new", {"password": "x", "tags": ""}),
        ("PUT", "vhosts/new", None),
        ("PUT", "queues/%2F/new", {}),
        ("PUT", "exchanges/%2F/new-x", {"type": "direct"}),
        ("PUT", "permissions/%2F/bob", rights),
        ("DELETE", "queues/%2F/other", None),
        ("DELETE", "queues/%2F/other/contents", None),
        ("POST", "queues/%2F/other/get", READ),
        ("POST", "exchanges/%2F/other-x/publish", SEND),
        ("POST", "bindings/%2F/e/bob-x/q/other", {"routing_key": "k"}),
    ):
        say(f"{who}: {method} /api/{path}{' (body)' if body and method == 'GET' else ''}", ask(user, method, path, body))
