"""A producer of a public queue: the same message again and again.

    python3 producer.py 127.0.0.1:7070 orders 1000
"""

import sys

from mlmq import connect


def run(address, queue, count):
    client = connect(address)
    client.make_queue(queue)
    for number in range(count):
        client.send(f"order {number}", queues=[queue], priority=number % 11)
    return count


if __name__ == "__main__":
    print(run(sys.argv[1], sys.argv[2], int(sys.argv[3])))
