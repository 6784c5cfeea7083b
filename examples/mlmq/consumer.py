"""A consumer of a public queue, at a constant rate.

    python3 consumer.py 127.0.0.1:7070 orders 50
"""

import sys
import time

from mlmq import connect


def run(address, queue, rate, idle_s=2.0):
    """Takes `rate` messages per second until none came for `idle_s`. Returns their contents."""
    client = connect(address)
    client.make_queue(queue)
    contents, due, last = [], time.monotonic(), time.monotonic()
    while time.monotonic() - last < idle_s:
        message = client.receive(queue, order="priority")
        if message is not None:
            contents.append(message["content"])
            last = time.monotonic()
        due += 1 / rate
        time.sleep(max(0.0, due - time.monotonic()))
    return contents


if __name__ == "__main__":
    print(len(run(sys.argv[1], sys.argv[2], float(sys.argv[3]))))
