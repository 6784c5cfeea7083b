"""pika at a virtual host of another cell, without heartbeats: says why its connection ends.

Arguments: the address of AMQP, and the virtual host.
"""

import sys

import pika

address, host = sys.argv[1:]
name, port = address.rsplit(":", 1)
login = pika.PlainCredentials("guest", "guest")
connection = pika.BlockingConnection(pika.ConnectionParameters(name, int(port), host, login, heartbeat=0))
channel = connection.channel()
channel.queue_declare("jobs", passive=True)
print("ready", flush=True)
try:
    while True:
        connection.process_data_events(time_limit=60)
except pika.exceptions.ConnectionClosedByBroker as error:
    print(error.reply_code, error.reply_text, flush=True)
