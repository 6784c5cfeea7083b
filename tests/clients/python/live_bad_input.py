"""Errors name the wrong field, and the connection continues."""

import json
import socket

import websockets
from live import ADDRESS, DONE, Client, same

one = Client(1)
one.ask("listen")


def refused(text, *words):
    answer = one.raw(text if isinstance(text, str) else json.dumps(text))
    same(sorted(set(answer) - {"id"}), ["error", "info", "message"])
    for word in words:
        assert word in answer["info"], answer
    one.silent()


refused("nonsense")
refused("[]")
refused('{"command":')
refused({"command": "subscribe", "client_id": 1}, "Key 'topic' not specified")
refused({"command": "subscribe", "topic": "a"}, "Key 'client_id' not specified")
refused({"client_id": 1}, "Key 'command' not specified")
refused({"command": "dance", "client_id": 1}, "'command'")
for key in ["topic", "payload"]:
    message = {"command": "publish", "client_id": 1, "topic": "a", "payload": 1, "timestamp": 1}
    del message[key]
    refused(message, f"Key '{key}' not specified")
refused({"command": "publish", "client_id": 1, "topic": {}, "payload": 1}, "'topic'")
refused({"command": "publish", "client_id": 1, "topic": "a", "payload": 1, "timestamp": "now"}, "'timestamp'")
refused({"command": "publish", "client_id": True, "topic": "a", "payload": 1}, "'client_id'")
refused({"command": "subscribe", "client_id": 1, "topic": ["a", 1]}, "'topic'")
refused({"command": "subscribe", "client_id": 1, "topic": "x" * 1025}, "'topic'", "1024")
refused({"command": "listen", "client_id": 1, "overflow": "block"}, "'overflow'")
same(one.ask("subscribe", topic=5, id="mine")["id"], "mine")

# Topics of any content, an empty one, and one of the greatest length.
odd = ["", " ", "\x00\n", "\U0001f3b5", "x" * 1024, "'; DROP TABLE"]
same(one.ask("subscribe", topic=odd), DONE)
for topic in odd:
    one.send("publish", topic=topic, payload=1)
    same(one.next()["key"], topic)

# Beyond the quota the whole list is refused.
answer = one.ask("subscribe", topic=[f"n{number}" for number in range(1000)])
same(answer["error"], "too_many_subscriptions")
same(sorted(one.ask("list")["topics"]), sorted(odd))
same(one.ask("subscribe", topic=[f"n{number}" for number in range(994)]), DONE)

# A message over the limit, text that is none, binary frames without their protocol.
one.socket.send(b"\x80")
assert "error" in one.next()
one.silent()


def closed(code, send):
    client = Client(7)
    send(client.socket)
    try:
        client.socket.recv(timeout=60)
    except websockets.exceptions.ConnectionClosed as end:
        same(end.rcvd.code, code)
    else:
        raise AssertionError("the connection went on")


closed(1009, lambda connection: connection.send("x" * 70000))
closed(1007, lambda connection: connection.send(b"\xff\xfe", text=True))

# Requests without a WebSocket upgrade are answered as HTTP.
for request in [
    b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /live HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 8\r\n\r\n",
]:
    host, port = ADDRESS.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=60) as plain:
        plain.sendall(request)
        head = plain.recv(4096).decode()
        assert head.startswith("HTTP/1.1 426 "), head

# Pages of other sites are refused, those on this machine are not.
try:
    Client(1, origin="https://elsewhere.example")
except websockets.exceptions.InvalidStatus as refusal:
    same(refusal.response.status_code, 403)
else:
    raise AssertionError("a page of another site was let in")
Client(8, origin="http://localhost:8000").silent()

# A client that disappears in the middle of a frame does no harm.
rude = Client(9)
rude.socket.socket.sendall(b"\x81\xff\x00\x00\x00\x00\x00\x00\x10\x00abcd123")
rude.socket.socket.close()
one.silent()
