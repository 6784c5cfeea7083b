"""Subscriptions survive a restart."""

import sys

from live import DONE, Client, same

MANY = [f"topic {number}" for number in range(5000)]

one, two = Client(1), Client("two")
if sys.argv[2] == "subscribe":
    same(one.ask("subscribe", topic=MANY), DONE)
    same(one.ask("unsubscribe", topic=MANY[:10]), DONE)
    same(two.ask("subscribe", pattern="topic 49*"), DONE)
    same(two.ask("subscribe", topic="gone"), DONE)
    same(two.ask("unsubscribe", all=True), DONE)
    same(two.ask("subscribe", pattern="topic 49*"), DONE)
else:
    same(one.ask("listen"), DONE)
    same(two.ask("listen"), DONE)
    for topic, receivers in [("topic 5", 0), ("topic 10", 1), ("topic 4999", 2), ("gone", 0)]:
        publisher = Client("publisher")
        same((topic, publisher.ask("publish", topic=topic, payload=1, ack=True)["receivers"]), (topic, receivers))
    same([one.next()["key"], one.next()["key"]], ["topic 10", "topic 4999"])
    same(two.next()["key"], "topic 4999")
    same(two.ask("presence")["subscriptions"], 4990)
