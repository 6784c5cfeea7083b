"""Takes everything out of the queue that `amqp_kill_work.py` left, and compares it with the results of that script."""

import sys

from amqp_common import connect

QUEUE, PATH = sys.argv[2], sys.argv[3]
known = {"confirmed": set(), "taken": set(), "settled": set()}
for line in open(PATH, encoding="ascii"):
    what, number = line.split()
    known[what].add(int(number))
channel = connect().channel()
stored = set()
while True:
    method, _, body = channel.basic_get(QUEUE, auto_ack=True)
    if method is None:
        break
    stored.add(int(body))
lost = sorted(known["confirmed"] - known["taken"] - stored)
assert not lost, f"{len(lost)} confirmed messages are lost, the first is {lost[0]}"
again = sorted(known["settled"] & stored)
assert not again, f"{len(again)} settled messages are back, the first is {again[0]}"
assert known["settled"], "nothing was settled long before a kill: the kills come too soon"
print(", ".join(f"{len(numbers)} {what}" for what, numbers in {**known, "left": stored}.items()))
