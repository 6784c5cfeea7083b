#!/usr/bin/env python3
"""Messages examined for a consumer with a filter over AMQP: on a queue, on a queue over a topic, and on a stream.

Messages of 800 bytes of JSON wait; one in a thousand is what the filter asks for, and the last one is. The time is that from the
consumer's begin to the last message, the processor's time that of the broker. Each is measured again with messages already in memory.
"""

import argparse
import http.client
import json
import time

import common

common.in_venv()

import pika  # noqa: E402

LINES = 5000
FILTER = "value.country == 'SE'"


def event(number, count):
    country = "SE" if number % 1000 == 999 or number == count - 1 else "NO"
    known = {"id": number, "country": country, "total": number % 977, "customer": {"name": f"customer {number % 113}", "active": True}}
    known["note"] = "n" * (800 - len(json.dumps(known, separators=(",", ":"))) - 10)
    return json.dumps(known, separators=(",", ":"))


class Api:
    def __init__(self, address):
        self.connection = http.client.HTTPConnection(address)

    def ask(self, method, path, body, kind="application/json"):
        self.connection.request(method, path, body, {"Content-Type": kind})
        answer = self.connection.getresponse()
        said = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {said[:500]}")


def fill(api, count):
    for first in range(0, count, LINES):
        events = [event(number, count) for number in range(first, min(first + LINES, count))]
        api.ask("POST", "/v1/topics/events/records", "\n".join(events), "application/x-ndjson")
        messages = (f'{{"to":{{"queues":["waiting"]}},"content":{content}}}' for content in events)
        api.ask("POST", "/v1/messages", "\n".join(messages), "application/x-ndjson")


def consume(broker, channel, queue, wanted, arguments):
    """Takes the messages, and gives them back. Returns the seconds, and those of the processor."""
    came = 0

    def take(*_):
        nonlocal came
        came += 1
        if came == wanted:
            channel.stop_consuming()

    channel.basic_qos(prefetch_count=wanted)
    cpu, begun = broker.cpu_seconds(), time.monotonic()
    channel.basic_consume(queue, take, auto_ack=False, arguments={"x-stafett-filter": FILTER, **arguments})
    channel.start_consuming()
    return time.monotonic() - begun, broker.cpu_seconds() - cpu


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    broker = common.Broker("stafett-os", common.work_folder() / "broker", [])
    api = Api(broker.http)
    api.ask("PUT", "/v1/queues/waiting", "{}")
    api.ask("PUT", "/v1/topics/events", '{"partitions": 1}')
    fill(api, options.messages)
    wanted = sum(1 for number in range(options.messages) if number % 1000 == 999 or number == options.messages - 1)
    host, port = broker.amqp.rsplit(":", 1)
    for turn in range(options.turns):
        for what, queue, arguments in (
            ("a queue", "waiting", {}),
            ("a queue over a topic", f"over{turn}", {}),
            ("a stream", "events", {"x-stream-offset": "first"}),
        ):
            connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
            channel = connection.channel()
            if queue.startswith("over"):
                channel.queue_declare(queue, durable=True, arguments={"x-stafett-topic": "events"})
            seconds, cpu = consume(broker, channel, queue, wanted, arguments)
            rate = options.messages / seconds / 1000
            print(f"{what}: {rate:.0f} k messages/s examined, {options.messages / cpu / 1000:.0f} k/s per core of the broker", flush=True)
            connection.close()
    broker.stop()


if __name__ == "__main__":
    main()
