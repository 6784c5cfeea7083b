"""pika, librdkafka and websockets over TLS: a message goes through a queue, a topic and a live topic.

Usage: tls.py KAFKA AMQP HTTP FOLDER: addresses with TLS, and the folder with ca.pem and the client's certificate.
"""

import json
import ssl
import sys

import confluent_kafka
import pika
from websockets.sync.client import connect

KAFKA, AMQP, HTTP, FOLDER = sys.argv[1:]
LIMIT = 240  # seconds: a guard against hanging, not an expectation
BODY = bytes(range(256)) * 2000


def context():
    made = ssl.create_default_context(cafile=f"{FOLDER}/ca.pem")
    made.load_cert_chain(f"{FOLDER}/client.pem", f"{FOLDER}/client.key")
    return made


def queue():
    host, port = AMQP.rsplit(":", 1)
    parameters = pika.ConnectionParameters(host, int(port), ssl_options=pika.SSLOptions(context(), host))
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("tls")
    channel.basic_publish("", "tls", BODY, mandatory=True)
    _, _, body = channel.basic_get("tls", auto_ack=True)
    assert body == BODY
    connection.close()


def topic():
    common = {
        "bootstrap.servers": KAFKA,
        "security.protocol": "SSL",
        "ssl.ca.location": f"{FOLDER}/ca.pem",
        "ssl.certificate.location": f"{FOLDER}/client.pem",
        "ssl.key.location": f"{FOLDER}/client.key",
    }
    failed = []
    producer = confluent_kafka.Producer(common)
    for number in range(100):
        on_delivery = lambda error, _: error and failed.append(error)
        producer.produce("tls", BODY[number:], str(number), on_delivery=on_delivery)
    assert producer.flush(LIMIT) == 0 and not failed, failed
    consumer = confluent_kafka.Consumer({**common, "group.id": "tls", "auto.offset.reset": "earliest"})
    consumer.subscribe(["tls"])
    for number in range(100):
        message = consumer.poll(LIMIT)
        assert message and not message.error(), message and message.error()
        assert message.value() == BODY[number:]
    consumer.close()


def live():
    url = f"wss://{HTTP}/live"
    with connect(url, ssl=context(), compression=None, max_size=None, open_timeout=LIMIT) as socket:
        def ask(command, **fields):
            socket.send(json.dumps({"command": command, "client_id": 1, **fields}))
            return json.loads(socket.recv(timeout=LIMIT))

        assert ask("ping", id="tls") == {"id": "tls", "result": "success"}


queue()
topic()
live()
print("done")
