"""librdkafka, aiokafka and pika over TLS with each mechanism; a wrong password is refused.

Usage: mechanisms.py KAFKA AMQP FOLDER USER PASSWORD: addresses with TLS, and the folder with ca.pem and the client's
certificate, which is USER's.
"""

import asyncio
import ssl
import sys

import aiokafka
import aiokafka.errors
import confluent_kafka
import pika
from confluent_kafka.admin import AdminClient

KAFKA, AMQP, FOLDER, USER, PASSWORD = sys.argv[1:]
LIMIT = 60  # seconds: a guard against hanging, not an expectation
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def context():
    made = ssl.create_default_context(cafile=f"{FOLDER}/ca.pem")
    made.load_cert_chain(f"{FOLDER}/client.pem", f"{FOLDER}/client.key")
    return made


def librdkafka(mechanism, password):
    refused = []
    settings = {
        "bootstrap.servers": KAFKA,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": f"{FOLDER}/ca.pem",
        "ssl.certificate.location": f"{FOLDER}/client.pem",
        "ssl.key.location": f"{FOLDER}/client.key",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
        "error_cb": lambda error: refused.append(error.code()),
    }
    admin = AdminClient(settings)
    if password == PASSWORD:
        assert admin.list_topics(timeout=LIMIT).brokers
        return
    while confluent_kafka.KafkaError._AUTHENTICATION not in refused:
        admin.poll(1)


async def aio(mechanism, password):
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=KAFKA,
        security_protocol="SASL_SSL",
        ssl_context=context(),
        sasl_mechanism=mechanism,
        sasl_plain_username=USER,
        sasl_plain_password=password,
    )
    try:
        await producer.start()
        await producer.send_and_wait("mechanisms", mechanism.encode())
        assert password == PASSWORD
    except aiokafka.errors.KafkaError as error:
        assert password != PASSWORD, error
    finally:
        await producer.stop()


def queue(credentials, is_right):
    host, port = AMQP.rsplit(":", 1)
    options = pika.SSLOptions(context(), host)
    parameters = pika.ConnectionParameters(host, int(port), ssl_options=options, credentials=credentials)
    try:
        connection = pika.BlockingConnection(parameters)
    except pika.exceptions.ProbableAuthenticationError:
        assert not is_right
        return
    assert is_right
    connection.channel().queue_declare("mechanisms")
    connection.close()


for mechanism in MECHANISMS:
    for password in (PASSWORD, "wrong"):
        librdkafka(mechanism, password)
        asyncio.run(asyncio.wait_for(aio(mechanism, password), LIMIT))
queue(pika.PlainCredentials(USER, PASSWORD), True)
queue(pika.PlainCredentials(USER, "wrong"), False)
queue(pika.credentials.ExternalCredentials(), True)
print("done")
