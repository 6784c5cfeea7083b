"""Duplicates are filtered by rules, independent of the publisher."""

from live import Client, same

listener, one, two = Client("listener"), Client(1), Client(2)
listener.ask("listen")
listener.ask("subscribe", topic=["songs/a", "news/a", "plain"])


def published(client, topic, payload):
    answer = client.ask("publish", topic=topic, payload=payload, ack=True)
    return answer["receivers"], answer["duplicates"]


same(published(one, "songs/a", "now"), (1, 0))
same(published(two, "songs/a", "now"), (0, 1))
same(published(two, "songs/a", "later"), (1, 0))
same(published(one, "news/a", {"title": "x", "at": 1}), (1, 0))
same(published(two, "news/a", {"title": "x", "at": 2}), (0, 1))
same(published(two, "news/a", {"at": 2}), (1, 0))
same(published(two, "news/a", {"at": 2}), (1, 0))
same(published(one, "plain", 1), (1, 0))
same(published(two, "plain", 1), (1, 0))
same([listener.next()["broadcast"] for _ in range(7)], ["now", "later", {"title": "x", "at": 1}, {"at": 2}, {"at": 2}, 1, 1])
listener.silent()
