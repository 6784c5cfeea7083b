"""Reads the stream that `amqp_kill_stream_load.py` filled and the rest of its queue, and compares both with the confirmed
and settled messages."""

import sys

from amqp_common import bodies, connect, take

STREAM, PATH = sys.argv[2], sys.argv[3]
QUEUE = STREAM + ".queue"
confirmed = [int(line) for line in open(PATH, encoding="ascii")]
settled = {int(line) for line in open(PATH + ".settled", encoding="ascii")}
channel = connect().channel()
channel.basic_qos(prefetch_count=1000)
count = channel.queue_declare(STREAM, passive=True).method.message_count
taken = take(channel, STREAM, count, arguments={"x-stream-offset": "first"})
stored = [int(body) for body in bodies(taken)]
offsets = [properties.headers["x-stream-offset"] for _, properties, _ in taken]
assert offsets == sorted(set(offsets)), "offsets do not rise"
assert stored == sorted(set(stored)), "they are not there once each, in the order in which they were published"
lost = sorted(set(confirmed) - set(stored))
assert not lost, f"{len(lost)} confirmed messages are lost, the first is {lost[0]}"
waiting = channel.queue_declare(QUEUE, passive=True).method.message_count
left = {int(body) for body in bodies(take(channel, QUEUE, waiting))} if waiting else set()
back = sorted(left & settled)
assert not back, f"{len(back)} settled messages came back, the first is {back[0]}"
assert left <= set(stored)
missing = set(stored) - left - settled
print(f"{len(confirmed)} confirmed, {len(stored)} stored, {len(settled)} settled for good, {len(missing)} settled last")
