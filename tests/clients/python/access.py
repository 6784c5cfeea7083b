"""A user with permissions: what they permit works, everything else is refused with RabbitMQ's texts."""

import base64
import json
import sys
import urllib.request

import pika

HOST, PORT = sys.argv[1].rsplit(":", 1)
HTTP = sys.argv[2]


def connect(user, password, vhost="/"):
    credentials = pika.PlainCredentials(user, password)
    return pika.BlockingConnection(pika.ConnectionParameters(HOST, int(PORT), vhost, credentials, socket_timeout=60))


def refused(act, code, text):
    channel = bob.channel()
    try:
        act(channel)
    except pika.exceptions.ChannelClosedByBroker as error:
        assert (error.reply_code, error.reply_text) == (code, text), error
    else:
        raise AssertionError(f"not refused: {text}")


def shut(user, password, vhost, error):
    try:
        connect(user, password, vhost)
    except error:
        return
    raise AssertionError(f"{user} came in to {vhost}")


shut("guest", "guest", "/", pika.exceptions.ProbableAuthenticationError)
shut("bob", "wrong", "/", pika.exceptions.ProbableAuthenticationError)
shut("bob", "pw-bob", "other", pika.exceptions.ProbableAccessDeniedError)

bob = connect("bob", "pw-bob")
channel = bob.channel()
channel.confirm_delivery()
channel.queue_declare("bob-q")
channel.basic_publish("", "bob-q", b"hello")
_, _, body = channel.basic_get("bob-q", auto_ack=True)
assert body == b"hello"

END = "in vhost '/' refused for user 'bob'"
refused(lambda it: it.queue_declare("other"), 403, f"ACCESS_REFUSED - configure access to queue 'other' {END}")
refused(lambda it: it.basic_get("other"), 403, f"ACCESS_REFUSED - read access to queue 'other' {END}")
refused(
    lambda it: it.queue_bind("bob-q", "amq.topic", "k"),
    403,
    f"ACCESS_REFUSED - read access to exchange 'amq.topic' {END}",
)


def publish(channel):
    channel.confirm_delivery()
    channel.basic_publish("amq.topic", "k", b"x")


refused(publish, 403, f"ACCESS_REFUSED - write access to exchange 'amq.topic' {END}")

# A right on a name of this virtual host is none on a topic behind it.
refused(
    lambda it: it.queue_declare("bob-over", arguments={"x-stafett-topic": "secret"}),
    403,
    f"ACCESS_REFUSED - read access to topic 'secret' {END}",
)
refused(
    lambda it: it.queue_declare("bob-t", passive=True),
    403,
    f"ACCESS_REFUSED - configure access to topic 'bob-t' {END}",
)
refused(lambda it: it.basic_consume("bob-t", print), 403, f"ACCESS_REFUSED - read access to topic 'bob-t' {END}")
channel.exchange_declare("bob-x")
refused(
    lambda it: it.queue_bind("secret", "bob-x", "k", arguments={"x-destination": "topic"}),
    403,
    f"ACCESS_REFUSED - write access to topic 'secret' {END}",
)
refused(
    lambda it: it.queue_bind("bob-t", "bob-x", "k"),
    403,
    f"ACCESS_REFUSED - write access to topic 'bob-t' {END}",
)
refused(
    lambda it: it.queue_declare("bob-d", arguments={"x-dead-letter-exchange": "amq.fanout"}),
    403,
    f"ACCESS_REFUSED - write access to exchange 'amq.fanout' {END}",
)
for key in (None, "bob-t"):
    dead = {"x-dead-letter-exchange": ""} | ({"x-dead-letter-routing-key": key} if key else {})
    refused(
        lambda it: it.queue_declare("bob-d", arguments=dead),
        403,
        f"ACCESS_REFUSED - write access to topic '{key or ''}' {END}",
    )
refused(
    lambda it: it.exchange_declare("bob-a", arguments={"alternate-exchange": "amq.fanout"}),
    403,
    f"ACCESS_REFUSED - write access to exchange 'amq.fanout' {END}",
)


def publish_to_topic(channel, key="bob-t", headers=None):
    channel.confirm_delivery()
    channel.basic_publish("", key, b"x", pika.BasicProperties(headers=headers))


refused(publish_to_topic, 403, f"ACCESS_REFUSED - write access to topic 'bob-t' {END}")
refused(
    lambda it: publish_to_topic(it, "bob-q", {"CC": ["bob-t"]}),
    403,
    f"ACCESS_REFUSED - write access to topic 'bob-t' {END}",
)


def ask(method, path, body=None, login=b"root:pw-root"):
    url = f"http://{HTTP}/api/{path}"
    request = urllib.request.Request(url, json.dumps(body).encode(), method=method)
    request.add_header("Authorization", "Basic " + base64.b64encode(login).decode())
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def permit(read):
    ask("PUT", "permissions/%2F/bob", {"configure": "^bob-", "write": "^(bob-.*|amq\\.default)$", "read": read})


# Topic permissions limit the keys of a topic exchange.
ask("PUT", "exchanges/%2F/bob-topics", {"type": "topic"})
ask("PUT", "topic-permissions/%2F/bob", {"exchange": "bob-topics", "write": "^{username}\\.", "read": "^news"})
line = {"user": "bob", "vhost": "/", "exchange": "bob-topics", "write": "^{username}\\.", "read": "^news"}
assert ask("GET", "users/bob/topic-permissions") == [line]
assert ask("GET", "definitions")["topic_permissions"] == [line]
keys = bob.channel()
keys.confirm_delivery()
keys.basic_publish("bob-topics", "bob.a", b"x")
keys.queue_bind("bob-q", "bob-topics", "news.#")
IN = "in exchange 'bob-topics' in vhost '/' refused for user 'bob'"


def publish_with(channel, headers=None):
    channel.confirm_delivery()
    channel.basic_publish("bob-topics", "eve.a" if headers is None else "bob.a", b"x", pika.BasicProperties(headers=headers))


refused(publish_with, 403, f"ACCESS_REFUSED - write access to topic 'eve.a' {IN}")
refused(
    lambda it: publish_with(it, {"CC": ["eve.b"]}),
    403,
    f"ACCESS_REFUSED - write access to topic 'eve.b' {IN}",
)
refused(
    lambda it: it.queue_bind("bob-q", "bob-topics", "other"),
    403,
    f"ACCESS_REFUSED - read access to topic 'other' {IN}",
)
ask("DELETE", "topic-permissions/%2F/bob")
keys.basic_publish("bob-topics", "eve.a", b"x")
assert ask("GET", "topic-permissions") == []

# Limits of virtual hosts and users, with RabbitMQ's texts.
ask("PUT", "vhost-limits/%2F/max-queues", {"value": 1})
ask("PUT", "vhost-limits/%2F/max-connections", {"value": 2})
assert ask("GET", "vhost-limits/%2F") == [{"vhost": "/", "value": {"max-connections": 2, "max-queues": 1}}]
refused(
    lambda it: it.queue_declare("bob-more"),
    406,
    "PRECONDITION_FAILED - cannot declare queue 'bob-more': queue limit in vhost '/' (1) is reached",
)
bob.channel().queue_declare("bob-q")
second = connect("bob", "pw-bob")
try:
    connect("bob", "pw-bob")
except pika.exceptions.ConnectionClosedByBroker as error:
    end = "access to vhost '/' refused for user 'bob': connection limit (2) is reached"
    assert (error.reply_code, error.reply_text) == (530, f"NOT_ALLOWED - {end}"), error
except pika.exceptions.ProbableAccessDeniedError:
    pass
else:
    raise AssertionError("a third connection came in")
second.close()
definitions = ask("GET", "definitions")
limits = {"component": "vhost-limits", "name": "limits", "vhost": "/", "value": {"max-connections": 2, "max-queues": 1}}
assert definitions["parameters"] == [limits], definitions["parameters"]
ask("DELETE", "vhost-limits/%2F/max-queues")
ask("PUT", "vhost-limits/%2F/max-connections", {"value": -1})
assert ask("GET", "vhost-limits") == []
ask("PUT", "user-limits/bob/max-channels", {"value": 0})
ask("PUT", "user-limits/bob/max-connections", {"value": 5})
assert ask("GET", "users/bob")["limits"] == {"max-connections": 5, "max-channels": 0}
try:
    connect("bob", "pw-bob").channel()
except pika.exceptions.ConnectionClosedByBroker as error:
    end = "number of channels opened for user 'bob' has reached the maximum allowed user limit of (0)"
    assert (error.reply_code, error.reply_text) == (530, f"NOT_ALLOWED - {end}"), error
else:
    raise AssertionError("a channel was opened")
for name in ("max-channels", "max-connections"):
    ask("DELETE", f"user-limits/bob/{name}")
assert ask("GET", "user-limits/bob") == []


# A consumer ends with its right, before it gets another message.
root = connect("root", "pw-root")
consumer = bob.channel()
got, ended = [], []
consumer.add_on_cancel_callback(lambda frame: ended.append(frame))


def take(channel, method, _properties, body):
    got.append(body)
    channel.basic_ack(method.delivery_tag)


consumer.basic_consume("bob-q", take)
root.channel().basic_publish("", "bob-q", b"before")
while not got:
    bob.process_data_events(time_limit=10)
permit("^$")
root.channel().basic_publish("", "bob-q", b"after")
while not ended:
    bob.process_data_events(time_limit=10)
assert got == [b"before"], got
counts = bob.channel().queue_declare("bob-q", passive=True).method
assert (counts.message_count, counts.consumer_count) == (0, 0), counts
channel = root.channel()
# It is stored when it is stored: a channel for each look would use them all up on a busy disk.
while channel.queue_declare("bob-q", passive=True).method.message_count != 1:
    pass
_, _, body = channel.basic_get("bob-q", auto_ack=True)
assert body == b"after", body
for login, users in ((b"bob:pw-bob", {"bob"}), (b"root:pw-root", {"bob", "root"})):
    for things in ("connections", "channels"):
        assert {line["user"] for line in ask("GET", things, login=login)} == users, (login, things)
root.close()
bob.close()
