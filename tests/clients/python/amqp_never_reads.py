"""A client that consumes and never reads: its deliveries stay in the queue, and others do not notice."""

import socket
import struct

import pika
from amqp_common import HOST, LIMIT, PORT, bodies, connect, take
from amqp_odd import CHANNEL, HEADER, consume, open_, start_ok, tune_ok

connection = connect()
channel = connection.channel()
channel.confirm_delivery()
channel.queue_declare("flood", durable=True)

deaf = socket.create_connection((HOST, int(PORT)), LIMIT)
deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
deaf.sendall(HEADER + start_ok() + tune_ok() + open_() + CHANNEL + consume("flood", "deaf", 2))

BODY = b"x" * 100_000
for _ in range(400):
    channel.basic_publish("", "flood", BODY, pika.BasicProperties(delivery_mode=2))
waiting = channel.queue_declare("flood", passive=True).method.message_count
assert waiting > 200, f"only {waiting} of 400 messages wait: the rest lies in memory for a client that does not read"

# Others continue, on the same queue too once the client that does not read is gone.
channel.queue_declare("other")
channel.basic_publish("", "other", b"hello")
assert bodies(take(channel, "other", 1)) == [b"hello"]
deaf.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
deaf.close()
rest = take(channel, "flood", waiting)
assert all(body == BODY for body in bodies(rest))
channel.queue_delete("flood")
connection.close()
