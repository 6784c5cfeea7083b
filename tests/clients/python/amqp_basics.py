"""pika: declaring, publishing with confirms, getting, consuming, settling, returns, transactions and direct replies."""

import pika
from amqp_common import bodies, closed_with, connect, take, until

connection = connect()
channel = connection.channel()
channel.queue_declare("basics", durable=True)
channel.confirm_delivery()
everything = pika.BasicProperties(
    content_type="text/plain",
    content_encoding="utf-8",
    headers={"text": "å", "number": -5, "big": 1 << 40, "yes": True, "nothing": None, "list": [1, "two"], "table": {"a": 1}},
    delivery_mode=2,
    priority=3,
    correlation_id="c",
    reply_to="r",
    expiration="600000",
    message_id="m",
    timestamp=1_700_000_000,
    type="t",
    user_id="guest",
    app_id="a",
)
channel.basic_publish("", "basics", b"all of it", everything)
channel.basic_publish("", "basics", b"")
channel.basic_publish("", "basics", b"big" * 1_000_000)
assert channel.queue_declare("basics", passive=True).method.message_count == 3

# Everything comes back as it was sent.
method, properties, body = channel.basic_get("basics")
assert (method.exchange, method.routing_key, method.redelivered, method.message_count) == ("", "basics", False, 2)
assert body == b"all of it" and properties == everything, properties

# A requeued message is redelivered from its place.
channel.basic_reject(method.delivery_tag, requeue=True)
again = take(channel, "basics", 3)
assert [method.redelivered for method, _, _ in again] == [True, False, False]
assert bodies(again) == [b"all of it", b"", b"big" * 1_000_000]

# Nowhere to go: mandatory messages come back.
try:
    channel.basic_publish("", "nowhere", b"lost", mandatory=True)
    raise AssertionError("nothing came back")
except pika.exceptions.UnroutableError as error:
    assert error.messages[0].body == b"lost"

# Prefetch: no more than two at once, until one is settled.
for number in range(5):
    channel.basic_publish("", "basics", b"%d" % number)
other = connection.channel()
other.basic_qos(prefetch_count=2)
held = []
tag = other.basic_consume("basics", lambda _c, method, _p, body: held.append((method.delivery_tag, body)))
until(connection, lambda: len(held) >= 2)
assert [body for _, body in held] == [b"0", b"1"], held
other.basic_ack(held[1][0], multiple=True)
until(connection, lambda: len(held) >= 4)
assert [body for _, body in held[2:]] == [b"2", b"3"], held
other.basic_cancel(tag)
other.close()
left = take(channel, "basics", 3)
assert bodies(left) == [b"2", b"3", b"4"], left

# Dead letters tell where they died.
channel.queue_declare("dead")
channel.queue_declare("short", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
channel.basic_publish("", "short", b"unwanted")
method, _, _ = channel.basic_get("short")
channel.basic_nack(method.delivery_tag, requeue=False)
[(_, properties, body)] = take(channel, "dead", 1)
assert body == b"unwanted"
death = properties.headers["x-death"][0]
assert (death["queue"], death["reason"], death["count"], death["exchange"]) == ("short", "rejected", 1, ""), death
assert death["routing-keys"] == ["short"] and properties.headers["x-first-death-queue"] == "short"

# Transactions: nothing is there before the commit.
tx = connection.channel()
tx.tx_select()
tx.basic_publish("", "dead", b"kept")
assert channel.queue_declare("dead", passive=True).method.message_count == 0
tx.tx_commit()
assert bodies(take(channel, "dead", 1)) == [b"kept"]
tx.basic_publish("", "dead", b"forgotten")
tx.tx_rollback()
assert channel.queue_declare("dead", passive=True).method.message_count == 0

# A queue of one connection is closed to others, and goes with it.
mine = channel.queue_declare("", exclusive=True).method.queue
assert mine.startswith("amq.gen-")
stranger = connect()
closed_with(405, lambda: stranger.channel().queue_declare(mine, passive=True))
closed_with(404, lambda: stranger.channel().queue_declare("absent", passive=True))
closed_with(406, lambda: stranger.channel().queue_declare("basics", durable=False))

# A consumer is notified when its queue is deleted.
gone = []
stranger_channel = stranger.channel()
stranger_channel.queue_declare("fleeting")
stranger_channel.add_on_cancel_callback(lambda frame: gone.append(frame.method.consumer_tag))
tag = stranger_channel.basic_consume("fleeting", lambda *_: None)
channel.queue_delete("fleeting")
while not gone:
    stranger.process_data_events(1)
assert gone == [tag], gone
stranger.close()

assert channel.queue_purge("basics").method.message_count == 0
for queue in ["basics", "dead", "short"]:
    channel.queue_delete(queue)
connection.close()
