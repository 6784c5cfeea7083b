"""Takes everything out of the queue that `amqp_kill_load.py` filled, and compares it with the confirmed messages."""

import sys

from amqp_common import connect

QUEUE, PATH = sys.argv[2], sys.argv[3]
confirmed = [int(line) for line in open(PATH, encoding="ascii")]
channel = connect().channel()
waiting = channel.queue_declare(QUEUE, durable=True, passive=True).method.message_count
stored = []
channel.basic_qos(prefetch_count=1000)
if waiting:
    for method, _, body in channel.consume(QUEUE):
        stored.append(int(body))
        if len(stored) == waiting:
            channel.basic_ack(method.delivery_tag, multiple=True)
            break
        if len(stored) % 500 == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
    channel.cancel()
lost = sorted(set(confirmed) - set(stored))
assert not lost, f"{len(lost)} confirmed messages are lost, the first is {lost[0]}"
first = list(dict.fromkeys(stored))
assert first == sorted(first), "they are not in the order in which they were published"
print(f"{len(confirmed)} confirmed, {len(stored)} stored, {len(stored) - len(first)} twice because their outcome was unknown")
