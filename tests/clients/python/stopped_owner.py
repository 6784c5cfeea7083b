"""Connections to a node that is stopped, and goes on when another one has taken over: no request may be answered from the state
that it had.

Arguments: its addresses of Kafka's protocol, AMQP and HTTP. Says "ready" once all connections are open, sends a request over each
after a line, says "sent", and waits for the ends of the connections.
"""

import socket
import struct
import sys

PASSIVE, DURABLE = 1, 2


def connect(address):
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=60)


def exactly(stream, count):
    content = b""
    while len(content) < count:
        piece = stream.recv(count - len(content))
        assert piece, content
        content += piece
    return content


def head(stream):
    content = b""
    while not content.endswith(b"\r\n\r\n"):
        content += exactly(stream, 1)
    return content


# AMQP 0-9-1: a frame is type, channel, length, content and an end; a method begins with its class and number.
def method(stream, channel, numbers, arguments=b""):
    content = struct.pack(">HH", *numbers) + arguments
    stream.sendall(struct.pack(">BHI", 1, channel, len(content)) + content + b"\xce")


def answer(stream, numbers):
    _, _, length = struct.unpack(">BHI", exactly(stream, 7))
    content = exactly(stream, length + 1)
    assert struct.unpack(">HH", content[:4]) == numbers, content


def short(text):
    return struct.pack(">B", len(text)) + text


def declare(stream, flags):
    method(stream, 1, (50, 10), struct.pack(">H", 0) + short(b"q") + struct.pack(">BI", flags, 0))


def amqp(address):
    stream = connect(address)
    stream.sendall(b"AMQP\x00\x00\x09\x01")
    answer(stream, (10, 10))
    response = b"\0guest\0guest"
    method(stream, 0, (10, 11), struct.pack(">I", 0) + short(b"PLAIN") + struct.pack(">I", len(response)) + response + short(b"en_US"))
    answer(stream, (10, 30))
    method(stream, 0, (10, 31), struct.pack(">HIH", 10, 131072, 0))
    method(stream, 0, (10, 40), short(b"/") + short(b"") + b"\0")
    answer(stream, (10, 41))
    method(stream, 1, (20, 10), short(b""))
    answer(stream, (20, 11))
    declare(stream, DURABLE)
    answer(stream, (50, 11))
    return stream


def web_socket(address):
    stream = connect(address)
    stream.sendall(
        f"GET /live HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
    )
    assert head(stream).startswith(b"HTTP/1.1 101 ")
    return stream


def http(address):
    stream = connect(address)
    stream.sendall(f"GET /v1/queues/q HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
    said = head(stream)
    assert said.startswith(b"HTTP/1.1 200 "), said
    length = next(line for line in said.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    exactly(stream, int(length.split(b":")[1]))
    return stream


def ask_kafka(stream):
    # Metadata of the first version, of all topics.
    request = struct.pack(">hhih", 3, 0, 7, -1) + struct.pack(">i", 0)
    stream.sendall(struct.pack(">i", len(request)) + request)


def ask_live(stream):
    command = b'{"command": "presence", "client_id": 1}'
    stream.sendall(bytes([0x81, 0x80 | len(command)]) + bytes(4) + command)


def rest(stream):
    content = b""
    try:
        while piece := stream.recv(65536):
            content += piece
    except ConnectionResetError:
        # Its request was not read.
        pass
    return content


kafka_address, amqp_address, http_address = sys.argv[1:4]
streams = {"AMQP": amqp(amqp_address), "Kafka": connect(kafka_address), "live topics": web_socket(http_address), "HTTP": http(http_address)}
ask_kafka(streams["Kafka"])
exactly(streams["Kafka"], struct.unpack(">i", exactly(streams["Kafka"], 4))[0])
print("ready", flush=True)
sys.stdin.readline()
declare(streams["AMQP"], DURABLE | PASSIVE)
ask_kafka(streams["Kafka"])
ask_live(streams["live topics"])
streams["HTTP"].sendall(f"GET /v1/queues/q HTTP/1.1\r\nHost: {http_address}\r\nConnection: close\r\n\r\n".encode())
print("sent", flush=True)
for name, stream in streams.items():
    said = rest(stream)
    if name == "HTTP":
        # Its listener stays, and passes requests on to the other node.
        assert said == b"" or said.startswith((b"HTTP/1.1 503 ", b"HTTP/1.1 404 ")), said
    else:
        assert said == b"", (name, said)
