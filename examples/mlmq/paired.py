"""Paired clients: one sends requests, the other responds.

    python3 paired.py 127.0.0.1:7070 respond bob 100 &
    python3 paired.py 127.0.0.1:7070 request ann bob 100
"""

import sys

from mlmq import connect


def respond(address, name, rounds):
    client = connect(address, name)
    for _ in range(rounds):
        request = client.receive(wait="20s")
        if request is None:
            break
        client.respond(request, request["content"].upper())


def request(address, name, other, rounds):
    client = connect(address, name)
    connect(address, other).close()
    answered = 0
    for number in range(rounds):
        response = client.call(other, f"request {number}", wait="20s")
        answered += response["content"] == f"REQUEST {number}"
    return answered


if __name__ == "__main__":
    address, kind, name = sys.argv[1:4]
    if kind == "respond":
        respond(address, name, int(sys.argv[4]))
    else:
        print(request(address, name, sys.argv[4], int(sys.argv[5])))
