"""One-way clients: each sends a counter to another one, and passes on what it gets, one higher.

    python3 one_way.py 127.0.0.1:7070 ann ann,bob,cho 100
"""

import random
import sys

from mlmq import connect


def run(address, name, names, rounds):
    client = connect(address, name)
    others = [other for other in names if other != name]
    for other in others:
        connect(address, other).close()
    client.send(1, clients=[random.choice(others)], priority=random.randint(1, 10))
    highest = 0
    for _ in range(rounds):
        message = client.receive(wait="5s", order="oldest")
        if message is None:
            break
        highest = int(message["content"])
        client.send(highest + 1, clients=[random.choice(others)])
    return highest


if __name__ == "__main__":
    address, name, names, rounds = sys.argv[1:]
    print(run(address, name, names.split(","), int(rounds)))
