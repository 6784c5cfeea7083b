"""RabbitMQ itself, to compare with: one node, by tools/peers/rabbitmq."""

import atexit
import socket
import subprocess
from pathlib import Path

LAUNCHER = Path(__file__).resolve().parent.parent / "tools/peers/rabbitmq"


def running():
    """The address of a node that runs already, or nothing."""
    address = subprocess.run([LAUNCHER, "address"], check=False, capture_output=True, text=True).stdout.strip()
    try:
        host, port = address.rsplit(":", 1)
        socket.create_connection((host, int(port)), 5).close()
    except (OSError, ValueError):
        return None
    return address


class Broker:
    """A running node; one that somebody else has started is used, and left alone."""

    def __init__(self):
        self.amqp = running()
        self.is_mine = self.amqp is None
        if self.is_mine:
            subprocess.run([LAUNCHER, "up", "0"], check=True, stdout=subprocess.DEVNULL)
            atexit.register(self.kill)
            self.amqp = running()

    def kill(self):
        if self.is_mine:
            atexit.unregister(self.kill)
            subprocess.run([LAUNCHER, "down"], check=False)
