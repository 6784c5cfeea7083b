"""Heartbeats: the server sends them, ends a connection of which nothing comes any more, and keeps one that sends them."""

import sys

from amqp_odd import CHANNEL, HEADER, Client, frame, open_, start_ok, tune_ok

HEARTBEAT = 8
SILENT_FRAMES_MAX = 20


def connected():
    """Both sides promise to be heard every second."""
    client = Client(sys.argv[1])
    client.send(HEADER)
    client.until(10, 10)
    client.send(start_ok())
    client.until(10, 30)
    client.send(tune_ok(heartbeat=1) + open_())
    client.until(10, 41)
    return client


def heard(client):
    """Waits for a heartbeat of the server, which sends nothing else to an idle client."""
    found = client.read()
    assert found is None or found[0] == HEARTBEAT, found
    return found is not None


silent = connected()
heartbeats = 0
while heard(silent):
    heartbeats += 1
    assert heartbeats < SILENT_FRAMES_MAX, "it is never given up"
assert heartbeats > 0, "it was given up without a heartbeat"

alive = connected()
for _ in range(6):
    assert heard(alive), "it was given up although it was heard"
    alive.send(frame(HEARTBEAT, 0, b""))
alive.send(CHANNEL)
alive.until(20, 11)
