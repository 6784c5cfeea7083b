"""Takes the messages of a queue out of their turn, and prints each that was received and stored as settled.

    http_take.py HTTP QUEUE SENDERS
"""

import http.client
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples/mlmq"))
from mlmq import Client  # noqa: E402

address, queue, senders = sys.argv[1:]
client = Client(address)
last = {}
try:
    for round_ in range(1_000_000):
        sender = f"c{round_ % int(senders)}"
        message = client.receive(queue, sender=sender)
        if message is None:
            last[sender] = True
            if len(last) == int(senders):
                break
            continue
        print(message["content"], flush=True)
except (OSError, http.client.HTTPException, ValueError):
    pass
