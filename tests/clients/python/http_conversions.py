"""Sends messages over HTTP and receives them over AMQP, and the other way round.

    http_conversions.py HTTP AMQP
"""

import sys
from pathlib import Path

import pika

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples/mlmq"))
from mlmq import Client  # noqa: E402

http, amqp = sys.argv[1:]
host, port = amqp.rsplit(":", 1)
connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
channel = connection.channel()
ann = Client(http, "ann")
ann.make_queue("both")

# The queue of HTTP is one of AMQP with the same settings.
channel.queue_declare("both", durable=True, arguments={"x-max-priority": 10})

sent = ann.send(
    {"n": 1.5},
    queues=["both"],
    priority=7,
    context=4711,
    ttl_ms=60_000,
    headers={"shop": "north", "size": 3, "none": None},
)
method, properties, body = channel.basic_get("both", auto_ack=True)
assert body == b'{"n": 1.5}', body
assert (properties.priority, properties.correlation_id) == (7, "4711"), properties
assert (properties.user_id, properties.content_type) == ("ann", "application/json"), properties
assert (properties.message_id, properties.delivery_mode) == (sent["message_id"], 2), properties
assert properties.expiration == "60000", properties
headers = properties.headers
assert (headers["shop"], headers["size"], headers["none"]) == ("north", "3", None), headers
assert (method.routing_key, method.exchange, method.redelivered) == ("both", "", False), method

ann.send("?", queues=["both"], request=True)
_, properties, _ = channel.basic_get("both", auto_ack=True)
answer = pika.BasicProperties(correlation_id=properties.correlation_id, content_type="text/plain")
channel.basic_publish("", properties.reply_to, b"!", answer)
response = ann.receive(context=int(properties.correlation_id), wait="20s")
assert (response["content"], response["content_type"]) == ("!", "text/plain"), response
assert (response["queue"], response["sender"]) == ("client.ann", None), response

for number in range(5):
    properties = pika.BasicProperties(
        priority=number, correlation_id=str(number), delivery_mode=2, headers={"x": number, "t": "text"}
    )
    channel.basic_publish("", "both", bytes([number, 255]), properties)
message = ann.receive("both", context=3, wait="20s")
assert (message["content"], message["content_base64"]) == (None, "A/8="), message
assert (message["priority"], message["headers"]) == (3, {"x": "3", "t": "text"}), message
message = ann.receive("both", order="oldest", **{"header.x": "1"})
assert message["context"] == 1, message

# A message that HTTP has leased is in flight for AMQP, too.
leased = ann.receive("both", ack="lease:30s")
assert leased["context"] == 4, leased
found = channel.queue_declare("both", passive=True)
assert found.method.message_count == 2, found.method
path = "/v1/queues/both/settle"
assert ann.ask("POST", path, {"requeue": [leased["lease"]]})["settled"] == 1
method, properties, _ = channel.basic_get("both", auto_ack=True)
assert (properties.priority, method.redelivered) == (4, True), (method, properties)
connection.close()
print("ok")
