"""A user with permissions: what they permit works, everything else is refused with RabbitMQ's texts."""

import sys

import pika

HOST, PORT = sys.argv[1].rsplit(":", 1)


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
bob.close()
