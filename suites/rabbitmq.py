"""RabbitMQ itself, to compare with: one node, by tools/peers/rabbitmq."""

import atexit
import subprocess
from pathlib import Path

LAUNCHER = Path(__file__).resolve().parent.parent / "tools/peers/rabbitmq"


class Broker:
    """A running node."""

    def __init__(self):
        subprocess.run([LAUNCHER, "up", "0"], check=True, stdout=subprocess.DEVNULL)
        atexit.register(self.kill)
        self.amqp = subprocess.run([LAUNCHER, "address"], check=True, capture_output=True, text=True).stdout.strip()

    def kill(self):
        atexit.unregister(self.kill)
        subprocess.run([LAUNCHER, "down"], check=False)
