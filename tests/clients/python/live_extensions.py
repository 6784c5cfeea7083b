"""Extensions of the paper's protocol."""

import base64

import msgpack
from live import DONE, Client, same

one = Client("a client")
one.ask("listen")

# Many commands ahead, and the answers in their order.
COUNT = 2000
for number in range(COUNT):
    one.send("subscribe", topic=[f"topic {number}", f"topic {number + 1}"], id=number)
one.send("publish", topic=f"topic {COUNT}", payload="after", ack=True, id={"any": "JSON"})
for number in range(COUNT):
    same(one.next(), {"id": number, **DONE})
got = [one.next(), one.next()]
assert {"key": f"topic {COUNT}", "broadcast": "after"} in got, got
assert {"id": {"any": "JSON"}, **DONE, "receivers": 1, "duplicates": 0} in got, got

# Pages of subscriptions hold each of them once.
found, start = [], 0
while start is not None:
    page = one.ask("list", count=300, **{"from": start})
    assert len(page["topics"]) <= 300
    found += page["topics"]
    start = page["next"]
same(sorted(found), sorted(f"topic {number}" for number in range(COUNT + 1)))

# Bytes, and lists of messages.
payload = bytes(range(256))
one.send("publish", topic="topic 1", payload_base64=base64.b64encode(payload).decode())
same(base64.b64decode(one.next()["broadcast_base64"]), payload)
one.send("publish", messages=[{"topic": "topic 2", "payload": n} for n in range(5)])
same([one.next()["broadcast"] for _ in range(5)], list(range(5)))

# Patterns are a kind of their own; a client with overlapping subscriptions gets a message once.
same(one.ask("subscribe", pattern=["topic 1*", "?ther"]), DONE)
one.send("publish", topic="topic 10", payload=1)
one.send("publish", topic="other", payload=2)
same([one.next()["key"], one.next()["key"]], ["topic 10", "other"])
one.silent()
same(one.ask("list", **{"from": 1 << 32})["patterns"], ["topic 1*", "?ther"])

# Presence.
two = Client(2)
two.ask("subscribe", topic="topic 5")
seen = two.ask("presence", topic="topic 5")
same((seen["subscribers"], seen["listening"]), (2, 1))
same(
    sorted(seen["clients"], key=str),
    sorted(
        [
            {"client_id": "a client", "listening": True, "subscriptions": seen["clients"][0]["subscriptions"]},
            {"client_id": 2, "listening": False, "subscriptions": 1},
        ],
        key=str,
    ),
)
same(two.ask("presence")["listening"], 1)
seen = two.ask("presence", of="listening")
same([client["client_id"] for client in seen["clients"]], ["a client"])

# Every topic with its subscribers, page by page; the patterns that match one, and their subscribers.
two.ask("subscribe", pattern="topic 5*")
found, start = {}, 0
while start is not None:
    page = two.ask("presence", of="topics", **{"from": start, "count": 7})
    assert len(page["topics"]) <= 7
    found |= {topic["topic"]: topic["subscribers"] for topic in page["topics"]}
    start = page["next"]
same((found["topic 5"], found["topic 6"]), (2, 1))
same(len(found), two.ask("presence")["topics"])
same(two.ask("presence", topic="topic 5")["patterns"], [{"pattern": "topic 5*", "subscribers": 1}])
seen = two.ask("presence", pattern="topic 5*")
same((seen["subscribers"], seen["clients"][0]["client_id"]), (1, 2))
for odd in [{"of": "everything"}, {"of": "topics", "topic": "a"}, {"topic": "a", "pattern": "b"}]:
    same(two.ask("presence", **odd)["error"], "bad_state")
two.ask("unsubscribe", pattern="topic 5*")

# Several clients on one connection, each with its own broadcast.
two.client = 3
two.ask("listen")
two.ask("subscribe", topic="shared")
two.client = 4
two.ask("listen")
two.ask("subscribe", topic="shared")
same(one.ask("publish", topic="shared", payload=0, ack=True)["receivers"], 2)
same([two.next(), two.next()], [{"key": "shared", "broadcast": 0}] * 2)
same(two.ask("leave"), DONE)
same(one.ask("publish", topic="shared", payload=0, ack=True)["receivers"], 1)
two.next()

same(one.ask("unsubscribe", all=True), DONE)
same(one.ask("list"), {**DONE, "topics": [], "patterns": [], "next": None})
same(one.ask("publish", topic="topic 10", payload=1, ack=True)["receivers"], 0)

# MessagePack, if it is asked for; the two understand each other.
packed = Client("packed", subprotocols=["other", "stafett.live.msgpack"])
same(packed.socket.subprotocol, "stafett.live.msgpack")


def tell(**fields):
    packed.socket.send(msgpack.packb({"client_id": "packed", **fields}))
    return msgpack.unpackb(packed.socket.recv(timeout=60))


same(tell(command="listen", id=[1]), {"id": [1], **DONE})
same(tell(command="subscribe", topic=["to packed"]), DONE)
same(tell(command="subscribe")["info"], "Key 'topic' not specified")
one.ask("subscribe", topic="to text")
one.send("publish", topic="to packed", payload={"a": [1.5, None, "x"]})
same(msgpack.unpackb(packed.socket.recv(timeout=60)), {"key": "to packed", "broadcast": {"a": [1.5, None, "x"]}})
one.send("publish", topic="to packed", payload_base64="AP8=")
same(msgpack.unpackb(packed.socket.recv(timeout=60)), {"key": "to packed", "broadcast": b"\x00\xff"})
packed.socket.send(msgpack.packb({"command": "publish", "client_id": 1, "topic": "to text", "payload": b"\x00\xff"}))
same(one.next(), {"key": "to text", "broadcast_base64": "AP8="})
packed.socket.send(b"\xc1")
same(msgpack.unpackb(packed.socket.recv(timeout=60))["error"], "bad_message")
