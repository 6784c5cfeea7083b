"""Channels and connections that are opened and closed as fast as possible: they leave nothing behind.

Usage: amqp_churn.py HOST:PORT HTTP_HOST:PORT PID CHANNELS CONNECTIONS. A tenth of each comes first, so that the process has
its permanent memory; then its memory, files and metrics must not grow with the rest.
"""

import os
import socket
import struct
import sys
import time
import urllib.request

from amqp_odd import CHANNEL, HEADER, consume, declare, frame, method, open_, publish, short, start_ok, tune_ok

ADDRESS, HTTP, PID, CHANNELS, CONNECTIONS = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
HOST, PORT = ADDRESS.rsplit(":", 1)
LIMIT = 240
AT_ONCE = 50
QUEUE = "churn"
OPENING = HEADER + start_ok() + tune_ok() + open_()
CLOSE_CHANNEL = method(1, 20, 40, b"\0\xc8" + short("") + b"\0\0\0\0")
CLOSE = method(0, 10, 50, b"\0\xc8" + short("") + b"\0\0\0\0")
# Bound on the growth of allocator and caches; for many connections it is less than a leak of 200 bytes each.
GROWTH_KIB_MAX = 6 * 1024 + CONNECTIONS // 5


class Peer:
    def __init__(self):
        self.socket = socket.create_connection((HOST, int(PORT)), LIMIT)
        self.socket.settimeout(LIMIT)
        self.buffer = b""

    def send(self, data):
        self.socket.sendall(data)

    def until(self, wanted, count=1):
        """Reads on until a method has come so often."""
        at = 0
        while count:
            while len(self.buffer) - at < 7 or len(self.buffer) - at < struct.unpack_from(">I", self.buffer, at + 3)[0] + 8:
                self.buffer, at = self.buffer[at:], 0
                more = self.socket.recv(1 << 16)
                assert more, f"the connection ended before {wanted}"
                self.buffer += more
            size = struct.unpack_from(">I", self.buffer, at + 3)[0]
            if self.buffer[at] == 1:
                found = struct.unpack_from(">HH", self.buffer, at + 7)
                assert found not in ((10, 50), (20, 40)) or wanted == found, self.buffer[at : at + size]
                count -= found == wanted
            at += size + 8
        self.buffer = self.buffer[at:]

    def leave(self):
        """Resets the connection; unsent bytes are discarded."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def churn_channels(count):
    """Half of them with a consumer that has a message in hand when its channel goes."""
    peer = Peer()
    peer.send(OPENING + CHANNEL + declare(QUEUE) + publish(key=QUEUE) + CLOSE_CHANNEL)
    peer.until((20, 41))
    plain, busy = CHANNEL + CLOSE_CHANNEL, CHANNEL + consume(QUEUE, "c") + CLOSE_CHANNEL
    for _ in range(0, count, AT_ONCE):
        peer.send((plain + busy) * (AT_ONCE // 2))
        peer.until((20, 41), AT_ONCE)
    peer.send(CLOSE)
    peer.until((10, 51))
    peer.socket.close()


def churn_connections(count):
    """In turn: closed in good order; gone with a queue of its own, a consumer and a message; gone while it opens."""
    for number in range(count):
        peer = Peer()
        if number % 3 == 0:
            peer.send(OPENING + CHANNEL + CLOSE)
            peer.until((10, 51))
            peer.socket.close()
        elif number % 3 == 1:
            mine = f"churn-{number}"
            peer.send(OPENING + CHANNEL + declare(mine, 4) + publish(key=mine) + consume(mine, "c"))
            peer.until((60, 60))
            peer.leave()
        else:
            peer.send(HEADER + start_ok() + frame(1, 0, b"")[:5])
            peer.leave()


def metrics():
    text = urllib.request.urlopen(f"http://{HTTP}/metrics", timeout=LIMIT).read().decode()
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))


def counted():
    """Open channels and connections in the broker's metrics."""
    found = metrics()
    names = [name for name in found if name.endswith("amqp_channels") or "connections" in name and 'listener="amqp"' in name]
    open_now = {name: float(found[name]) for name in names if "total" not in name}
    assert len(open_now) >= 2, sorted(found)
    return open_now


def quiet():
    """Waits until the broker has noticed that everybody has left; its memory in KiB and its open files."""
    deadline = time.monotonic() + LIMIT
    while any(counted().values()):
        assert time.monotonic() < deadline, counted()
        time.sleep(0.05)
    with open(f"/proc/{PID}/status", encoding="ascii") as status:
        memory = next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
    return memory, len(os.listdir(f"/proc/{PID}/fd"))


def main():
    churn_channels(CHANNELS // 10)
    churn_connections(CONNECTIONS // 10)
    memory, files = quiet()
    started = time.monotonic()
    churn_channels(CHANNELS)
    churn_connections(CONNECTIONS)
    seconds = time.monotonic() - started
    grown, files_now = quiet()
    print(f"{CHANNELS} channels and {CONNECTIONS} connections in {seconds:.0f} s; {grown - memory} KiB more, {files_now - files} files more")
    assert grown - memory < GROWTH_KIB_MAX, f"{memory} KiB became {grown}"
    assert files_now <= files + 4, f"{files} open files became {files_now}"


main()
