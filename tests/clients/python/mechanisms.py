"""librdkafka, aiokafka and pika over TLS with each mechanism; a wrong password is refused.

Usage: mechanisms.py KAFKA AMQP FOLDER USER PASSWORD: addresses with TLS, and the folder with ca.pem, the client's
certificate, which is USER's, and a token of the authorization server.
"""

import asyncio
import pathlib
import ssl
import sys
import time

import aiokafka
import aiokafka.abc
import aiokafka.errors
import confluent_kafka
import pika
from confluent_kafka.admin import AdminClient

KAFKA, AMQP, FOLDER, USER, PASSWORD = sys.argv[1:]
LIMIT = 240  # seconds: a guard against hanging, not an expectation
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
TOKEN = pathlib.Path(FOLDER, "token").read_text()
RIGHT = {PASSWORD, TOKEN}


def context():
    made = ssl.create_default_context(cafile=f"{FOLDER}/ca.pem")
    made.load_cert_chain(f"{FOLDER}/client.pem", f"{FOLDER}/client.key")
    return made


class Tokens(aiokafka.abc.AbstractTokenProvider):
    def __init__(self, given):
        self.given = given

    async def token(self):
        return self.given


def librdkafka(mechanism, password):
    """Lists topics. Without a mechanism, the certificate is the login."""
    refused = []
    settings = {
        "bootstrap.servers": KAFKA,
        "security.protocol": "SASL_SSL" if mechanism else "SSL",
        "ssl.ca.location": f"{FOLDER}/ca.pem",
        "ssl.certificate.location": f"{FOLDER}/client.pem",
        "ssl.key.location": f"{FOLDER}/client.key",
        "error_cb": lambda error: refused.append(error.code()),
    }
    if mechanism == "OAUTHBEARER":
        settings |= {"sasl.mechanism": mechanism, "oauth_cb": lambda _: (password, time.time() + 600)}
    elif mechanism:
        settings |= {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": password}
    admin = AdminClient(settings)
    if password in RIGHT:
        assert admin.list_topics(timeout=LIMIT).brokers
        return
    while confluent_kafka.KafkaError._AUTHENTICATION not in refused:
        admin.poll(1)


async def aio(mechanism, password):
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=KAFKA,
        security_protocol="SASL_SSL" if mechanism else "SSL",
        ssl_context=context(),
        sasl_mechanism=mechanism or "PLAIN",
        sasl_plain_username=USER,
        sasl_plain_password=password,
        sasl_oauth_token_provider=Tokens(password) if mechanism == "OAUTHBEARER" else None,
    )
    try:
        await producer.start()
        await producer.send_and_wait("mechanisms", mechanism.encode())
        assert password in RIGHT
    except aiokafka.errors.KafkaError as error:
        assert password not in RIGHT, error
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


def each(mechanism, password):
    librdkafka(mechanism, password)
    asyncio.run(asyncio.wait_for(aio(mechanism, password), LIMIT))


for mechanism in MECHANISMS:
    for password in (PASSWORD, "wrong"):
        each(mechanism, password)
for token in (TOKEN, TOKEN + "A"):
    each("OAUTHBEARER", token)
each("", PASSWORD)
queue(pika.PlainCredentials(USER, PASSWORD), True)
queue(pika.PlainCredentials(USER, "wrong"), False)
queue(pika.PlainCredentials(USER, TOKEN), True)
queue(pika.PlainCredentials(USER, TOKEN + "A"), False)
queue(pika.credentials.ExternalCredentials(), True)
print("done")
