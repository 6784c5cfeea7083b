"""The protocol as the paper has it."""

from live import DONE, Client, same

one, two = Client(1), Client("1")
same(one.ask("subscribe", topic="Some topic"), DONE)
same(two.ask("subscribe", topic=["Some topic", "Topic 2"]), DONE)

# Without `listen` nothing is delivered, and a good publish gets no answer.
one.send("publish", topic="Some topic", payload="lost", timestamp=1431104020907)
one.silent()
two.silent()

same(one.ask("listen"), DONE)
two.send("publish", topic="Some topic", payload="Payload data", timestamp=1431104020907)
same(one.next(), {"key": "Some topic", "broadcast": "Payload data"})
two.silent()

# 1 and "1" are two clients.
same(two.ask("listen"), DONE)
one.send("publish", topic="Topic 2", payload={"b": [1, None], "a": 1.50}, timestamp=1)
same(two.next(), {"key": "Topic 2", "broadcast": {"b": [1, None], "a": 1.5}})
one.silent()

# Names are literal.
same(one.ask("subscribe", topic=["*", "a.#", "\u00e9 \" \\"]), DONE)
for topic in ["x", "*", "a.b", "a.#", "\u00e9 \" \\"]:
    two.send("publish", topic=topic, payload=None)
for topic in ["*", "a.#", "\u00e9 \" \\"]:
    same(one.next(), {"key": topic, "broadcast": None})
one.silent()

same(one.ask("unsubscribe", topic="Some topic"), DONE)
same(one.ask("unsubscribe", topic=["*", "never there"]), DONE)
two.send("publish", topic="Some topic", payload=1)
two.next()
one.silent()

# A second connection takes over from the first, which is notified.
three = Client(1)
same(three.ask("listen"), DONE)
same(one.next(), {"notice": "taken_over", "client_id": 1})
two.send("publish", topic="a.#", payload=2)
same(three.next(), {"key": "a.#", "broadcast": 2})
one.silent()
