"""A consumer with one message that it does not settle, until its connection is closed; prints how that was."""

import sys

import pika

host, port = sys.argv[1].rsplit(":", 1)
connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
channel = connection.channel()
channel.queue_declare("held", durable=True)
channel.basic_publish("", "held", b"one")
channel.basic_qos(prefetch_count=7)
held = []
channel.basic_consume("held", lambda *delivered: held.append(delivered), consumer_tag="c")
while not held:
    connection.process_data_events(0.1)
print("holds", flush=True)
try:
    while True:
        connection.process_data_events(60)
except pika.exceptions.ConnectionClosed as closed:
    print(closed.reply_code, closed.reply_text, flush=True)
