"""pika publishes in transactions at a virtual host whose cell moves: each transaction that was acknowledged is there
once and whole, and of those without an answer all or nothing.

Arguments: the addresses of AMQP, with commas between nodes, the virtual host, and the number of losses to see. Says
`ready`, `lost` for each connection that ended, and `done`.
"""

import collections
import sys
import time

import pika

addresses, host, losses = sys.argv[1].split(","), sys.argv[2], int(sys.argv[3])
QUEUE = "moved"
EACH = 5
# Commits behind the last loss.
MORE = 20


def connect(attempt):
    name, port = addresses[attempt % len(addresses)].rsplit(":", 1)
    login = pika.PlainCredentials("guest", "guest")
    return pika.BlockingConnection(pika.ConnectionParameters(name, int(port), host, login, connection_attempts=1))


def again():
    for attempt in range(600):
        try:
            return connect(attempt)
        except (pika.exceptions.AMQPError, OSError):
            time.sleep(0.05)
    raise AssertionError("no node takes connections")


connection = connect(0)
connection.channel().queue_declare(QUEUE, durable=True)
print("ready", flush=True)
committed, unknown = set(), set()
number = lost = behind = 0
while lost < losses or behind < MORE:
    try:
        channel = connection.channel()
        channel.tx_select()
        while lost < losses or behind < MORE:
            number += 1
            unknown.add(number)
            for part in range(EACH):
                channel.basic_publish("", QUEUE, f"{number} {part}".encode(), pika.BasicProperties(delivery_mode=2))
            channel.tx_commit()
            unknown.remove(number)
            committed.add(number)
            behind += 1
    except (pika.exceptions.AMQPError, OSError):
        lost, behind = lost + 1, 0
        print("lost", flush=True)
        connection = again()


def look():
    """Counts all messages, and leaves them there."""
    channel = connection.channel()
    count = channel.queue_declare(QUEUE, passive=True).method.message_count
    seen = collections.Counter()
    for method, _, body in channel.consume(QUEUE, inactivity_timeout=20):
        assert method is not None, f"{sum(seen.values())} of {count} messages came"
        seen[body.decode()] += 1
        if sum(seen.values()) == count:
            return seen


while True:
    try:
        seen = look()
        break
    except (pika.exceptions.AMQPError, OSError):
        # A last move of the cell.
        connection = again()
for tx in range(1, number + 1):
    parts = [seen.pop(f"{tx} {part}", 0) for part in range(EACH)]
    expected = [[1] * EACH] if tx in committed else [[0] * EACH, [1] * EACH]
    assert parts in expected, (tx, tx in committed, parts)
assert not seen, seen
print("done", len(committed), "committed and", len(unknown), "unknown", flush=True)
