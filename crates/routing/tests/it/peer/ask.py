"""Asks RabbitMQ who gets what, and prints the table that tests/it/peer/answers.txt is.

    python ask.py HOST:PORT > answers.txt        (needs pika)

A line is: kind, what was bound, what was published, 1 or 0 for whether it arrived, between tabs. Headers are NAME=VALUE
with `;` between them.
"""

import datetime
import decimal
import itertools
import struct
import sys

import pika
from pika import data

WORDS = ["", "a", "b", "a.b", "a.", ".a", ".", "..", "a..b", "a.b.c", "a.a.b", "*", "#", "a.#", "*.a", "#.b", "a.*.b"]
PATTERNS = WORDS + ["*.*", "*.b", "a.*", "#.#", "#.*", "*.#", "#.a.#", "a.#.b", "#.*.#", "*.#.*", "a.#.#.b", "a*", "#a", "**", "a.##"]



class Raw:
    """A value of a table as it goes over the wire: pika does not know all types."""

    def __init__(self, kind, layout, value):
        self.bytes = kind + struct.pack(layout, value)


encode_known = data.encode_value


def encode_value(pieces, value):
    if not isinstance(value, Raw):
        return encode_known(pieces, value)
    pieces.append(value.bytes)
    return len(value.bytes)


data.encode_value = encode_value

# A value as it is written down here, and as it goes over the wire.
VALUES = {
    "int 1": 1,
    "byte 1": Raw(b"b", ">b", 1),
    "unsigned byte 1": Raw(b"B", ">B", 1),
    "short 1": Raw(b"s", ">h", 1),
    "unsigned short 1": Raw(b"u", ">H", 1),
    "unsigned int 1": Raw(b"i", ">I", 1),
    "long 1": Raw(b"l", ">q", 1),
    "int 2": 2,
    "long -1": Raw(b"l", ">q", -1),
    "float 1": Raw(b"f", ">f", 1.0),
    "double 1": Raw(b"d", ">d", 1.0),
    "double 0": Raw(b"d", ">d", 0.0),
    "double -0": Raw(b"d", ">d", -0.0),
    "text 1": "1",
    "text a": "a",
    "bytes a": b"a",
    "text empty": "",
    "bool true": True,
    "bool false": False,
    "void": None,
    "decimal 1": decimal.Decimal("1"),
    "decimal 1.0": decimal.Decimal("1.0"),
    "time 1": datetime.datetime.fromtimestamp(1, datetime.timezone.utc),
    "long 1000": Raw(b"l", ">q", 1000),
    "list a": ["a"],
    "list b": ["b"],
    "table a": {"a": 1},
    "table b": {"a": 2},
}

SETS = [
    {},
    {"a": "int 1"},
    {"a": "int 1", "b": "text a"},
    {"a": "void"},
    {"a": "void", "b": "void"},
    {"x-a": "int 1"},
    {"x-a": "int 1", "a": "int 1"},
    {"x-a": "int 2", "a": "int 1"},
    {"x-a": "void", "b": "text a"},
    {"a": "int 2", "b": "text a"},
    {"b": "text a"},
    {"A": "int 1"},
]


def wire(headers):
    return {name: VALUES[value] for name, value in headers.items()}


class Peer:
    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        self.names = (f"ask-{number}" for number in itertools.count())

    def exchange(self, kind, arguments=None):
        name = next(self.names)
        self.channel.exchange_declare(name, kind, auto_delete=False, arguments=arguments)
        return name

    def queue(self):
        return self.channel.queue_declare("", exclusive=True).method.queue

    def arrives(self, exchange, key="", headers=None):
        """Whether a message goes anywhere: unroutable ones come back."""
        properties = pika.BasicProperties(headers=headers)
        try:
            self.channel.basic_publish(exchange, key, b"", properties, mandatory=True)
        except pika.exceptions.UnroutableError:
            return 0
        return 1


def say(kind, bound, published, arrived):
    print(kind, bound, published, arrived, sep="\t")


def plain(headers):
    return ";".join(f"{name}={value}" for name, value in headers.items())


def topics(peer):
    for pattern in PATTERNS:
        exchange, queue = peer.exchange("topic"), peer.queue()
        peer.channel.queue_bind(queue, exchange, pattern)
        for key in WORDS:
            say("topic", pattern, key, peer.arrives(exchange, key))
        peer.channel.exchange_delete(exchange)
        peer.channel.queue_delete(queue)


def headers(peer):
    for mode in ["all", "any", "all-with-x", "any-with-x", None]:
        for wanted in SETS:
            exchange, queue = peer.exchange("headers"), peer.queue()
            arguments = wire(wanted) | ({"x-match": mode} if mode else {})
            peer.channel.queue_bind(queue, exchange, "", arguments)
            for given in SETS:
                say("headers " + str(mode), plain(wanted), plain(given), peer.arrives(exchange, "", wire(given)))
            peer.channel.exchange_delete(exchange)
            peer.channel.queue_delete(queue)
    for wanted in VALUES:
        exchange, queue = peer.exchange("headers"), peer.queue()
        peer.channel.queue_bind(queue, exchange, "", {"x-match": "all", "a": VALUES[wanted]})
        for given in VALUES:
            say("value", wanted, given, peer.arrives(exchange, "", {"a": VALUES[given]}))
        peer.channel.exchange_delete(exchange)
        peer.channel.queue_delete(queue)


def main():
    peer = Peer(sys.argv[1])
    topics(peer)
    headers(peer)
    peer.connection.close()


main()
