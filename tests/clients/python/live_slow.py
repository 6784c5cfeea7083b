"""A client that does not read loses messages by its policy, and is told their number."""

import json
import socket

import websockets
from live import Client, same

COUNT = 20000
TEXT = "x" * 1000


def slow(overflow):
    """A client that listens, and reads only when all is published."""
    client = Client(overflow, max_queue=1)
    client.socket.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    same(client.ask("listen", outbox_bytes=100_000, overflow=overflow)["result"], "success")
    client.ask("subscribe", topic="fast")
    return client


readers = {overflow: slow(overflow) for overflow in ["drop-oldest", "drop-newest", "disconnect"]}
publisher = Client("publisher")
for start in range(0, COUNT, 50):
    publisher.send(
        "publish",
        messages=[{"topic": "fast", "payload": {"number": n, "text": TEXT}} for n in range(start, start + 50)],
    )
publisher.silent()

for overflow in ["drop-oldest", "drop-newest"]:
    numbers, dropped = [], 0
    reader = readers[overflow]
    reader.send("ping", id="end")
    publisher.send("publish", topic="fast", payload={"number": COUNT})
    ended = False
    while not (ended and numbers and len(numbers) + dropped == COUNT + 1):
        message = reader.next()
        if "notice" in message:
            same(message["notice"], "dropped")
            dropped += message["count"]
        elif "key" in message:
            numbers.append(message["broadcast"]["number"])
        else:
            ended = True
    assert dropped > 0, overflow
    same(numbers, sorted(numbers))
    if overflow == "drop-newest":
        same(numbers[0], 0)
    print(overflow, "received", len(numbers), "dropped", dropped)

try:
    while True:
        readers["disconnect"].next()
except websockets.exceptions.ConnectionClosed as end:
    assert end.rcvd is None or end.rcvd.code == 1013, end
