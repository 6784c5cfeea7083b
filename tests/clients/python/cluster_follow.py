"""Produces with a list of nodes; the owner ends, and the next record goes to another one.

Says `stored`, waits for a line, and says `stored again`.
"""

import sys

from common import create, producer

TOPIC = sys.argv[2]


def store(client, value):
    done = []
    # Texts: a comparison of the library's errors with anything else raises.
    client.produce(TOPIC, value, on_delivery=lambda error, _: done.append(str(error)))
    assert client.flush(100) == 0, "it was not delivered in time"
    assert done == ["None"], done


create(TOPIC, partitions=1)
client = producer(message_timeout_ms=100_000)
store(client, b"one")
print("stored", flush=True)
sys.stdin.readline()
store(client, b"two")
print("stored again", flush=True)
