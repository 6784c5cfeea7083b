"""Statistics of queues under load: python management_samples.py AMQP_HOST:PORT HTTP_HOST:PORT

Reads the samples of a queue as monitoring scripts do that come from RabbitMQ: 800 s in steps of 5, newest first, counts of which
differences are taken. Then scrapes the metrics that RabbitMQ's overview dashboard selects, while messages are on their way.
"""

import base64
import json
import re
import sys
import time
import urllib.request

import pika
from amqp_common import LIMIT, connect, take

HTTP = sys.argv[2]
STEP_S = 5
AGE_S = 800
MESSAGES = 40

# What RabbitMQ's overview dashboard (10991) and that of 4.0 select.
NAMES = """
build_info channels channels_closed_total channels_opened_total connections connections_closed_total connections_opened_total
consumers disk_space_available_bytes disk_space_available_limit_bytes erlang_uptime_seconds global_consumers
global_messages_acknowledged_total global_messages_confirmed_total global_messages_delivered_consume_auto_ack_total
global_messages_delivered_consume_manual_ack_total global_messages_delivered_get_auto_ack_total
global_messages_delivered_get_manual_ack_total global_messages_delivered_total global_messages_get_empty_total
global_messages_received_confirm_total global_messages_received_total global_messages_redelivered_total
global_messages_routed_total global_messages_unroutable_dropped_total global_messages_unroutable_returned_total
global_publishers identity_info message_size_bytes_bucket message_size_bytes_count message_size_bytes_sum process_max_fds
process_max_tcp_sockets process_open_fds process_open_tcp_sockets process_resident_memory_bytes queue_messages_ready
queue_messages_unacked queues queues_created_total queues_declared_total queues_deleted_total resident_memory_limit_bytes
""".split()


def fetch(path, accept="application/json"):
    credentials = base64.b64encode(b"guest:guest").decode()
    headers = {"Authorization": f"Basic {credentials}", "Accept": accept}
    request = urllib.request.Request(f"http://{HTTP}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=LIMIT) as answer:
        return answer.read().decode()


def queue(name, query=""):
    return json.loads(fetch(f"/api/queues/%2F/{name}{query}"))


def until(what, is_so):
    deadline = time.monotonic() + LIMIT
    while True:
        found = what()
        if is_so(found):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


def rows(status):
    """Lines of a table of a queue's history, oldest first: lengths, and rates from differences of counts."""
    samples = status["messages_details"]["samples"]
    stamps = [sample["timestamp"] for sample in status["incoming"][0]["stats"]["publish_details"]["samples"]]
    interval = (stamps[0] - stamps[1]) / 1000
    stats = status["message_stats"]

    def length(field, at):
        return status[f"{field}_details"]["samples"][at]["sample"]

    def rate(field, at):
        counts = stats[f"{field}_details"]["samples"]
        return (counts[at]["sample"] - counts[at + 1]["sample"]) / interval

    found = []
    for at in reversed(range(len(samples) - 1)):
        lengths = [length(name, at) for name in ("messages", "messages_unacknowledged", "messages_ready")]
        found.append(lengths + [rate(name, at) for name in ("publish", "deliver_get", "ack")])
    return interval, found


def samples_of_a_queue():
    connection = connect()
    channel = connection.channel()
    channel.queue_declare("work")
    assert queue("work")["incoming"] == []
    for at in range(MESSAGES):
        channel.basic_publish("", "work", b"%d" % at)
    take(channel, "work", 30)
    query = f"?lengths_age={AGE_S}&lengths_incr={STEP_S}&msg_rates_age={AGE_S}&msg_rates_incr={STEP_S}"

    def is_counted(status):
        counts = status["message_stats"]["ack_details"]["samples"]
        lengths = status["messages_details"]["samples"]
        return counts[0]["sample"] - counts[-1]["sample"] == 30 and lengths[0]["sample"] == MESSAGES - 30

    status = until(lambda: queue("work", query), is_counted)
    stats = status["message_stats"]
    assert (stats["publish"], stats["deliver_get"], stats["ack"]) == (MESSAGES, stats["deliver"], 30), stats
    for details in [status["messages_details"], stats["publish_details"], stats["redeliver_details"]]:
        samples = details["samples"]
        assert len(samples) == AGE_S // STEP_S + 1 == 161, len(samples)
        stamps = [sample["timestamp"] for sample in samples]
        assert all(one - other == STEP_S * 1000 for one, other in zip(stamps, stamps[1:])), stamps
    interval, found = rows(status)
    assert interval == STEP_S and len(found) == 160
    assert found[-1][2] + found[-1][1] == found[-1][0] == MESSAGES - 30, found[-1]
    assert found[0] == [0, 0, 0, 0.0, 0.0, 0.0] or found[0][3:] == [0.0, 0.0, 0.0], found[0]
    published, acknowledged = (sum(row[at] for row in found) * interval for at in (3, 5))
    assert (round(published), round(acknowledged)) == (MESSAGES, 30), (published, acknowledged)

    overview = json.loads(fetch(f"/api/overview{query}"))
    assert overview["message_stats"]["publish"] >= MESSAGES, overview["message_stats"]
    assert len(overview["message_stats"]["publish_details"]["samples"]) == 161
    assert len(overview["queue_totals"]["messages_details"]["samples"]) == 161
    assert overview["churn_rates"]["queue_created"] == 1, overview["churn_rates"]
    vhost = json.loads(fetch("/api/vhosts/%2F"))
    assert vhost["message_stats"]["publish"] == MESSAGES, vhost
    exchange = json.loads(fetch(f"/api/exchanges/%2F/amq.default{query}"))
    assert exchange["message_stats"]["publish_in"] == MESSAGES, exchange

    # A queue that is made again has nothing of the one before.
    channel.queue_delete("work")
    channel.queue_declare("work")
    again = queue("work", query)
    assert (again["message_stats"]["publish"], again["incoming"]) == (0, []), again
    assert all(sample["sample"] == 0 for sample in again["messages_details"]["samples"])

    # What is too much, or no number, is bounded or passed over.
    for age, step, count in [("99999999999", "5", None), ("4294967295", "1", 500), ("60", "0", None), ("x", "5", None)]:
        details = queue("work", f"?lengths_age={age}&lengths_incr={step}")["messages_details"]
        assert len(details.get("samples", [])) == (count or 0), (age, step, details)
    connection.close()


def metrics_of_the_dashboard():
    connection = connect()
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("load")
    for settings in [{}, {"auto_ack": True}]:
        # A consumer that does not acknowledge takes all that there are.
        for at in range(MESSAGES):
            channel.basic_publish("", "load", b"x" * at)
        channel.basic_get("load", **settings)
        take(channel, "load", 5, **settings)
    for at in range(MESSAGES):
        channel.basic_publish("", "load", b"x" * at)
    channel.queue_declare("empty")
    channel.basic_get("empty")
    channel.basic_publish("", "nowhere", b"")
    try:
        channel.basic_publish("", "nowhere", b"", mandatory=True)
    except pika.exceptions.UnroutableError:
        pass
    taken, _, _ = channel.basic_get("load")
    channel.basic_nack(taken.delivery_tag)
    channel.basic_ack(channel.basic_get("load")[0].delivery_tag)
    channel.queue_delete("empty")
    channel.queue_declare("waits")
    channel.basic_publish("", "waits", b"x")
    # A consumer that stays.
    connection.channel().basic_consume("load", lambda *_: None)
    other = connect()
    other.channel().close()
    other.close()

    def values():
        text = fetch("/metrics/rabbitmq", accept="text/plain")
        found = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                name, value = re.fullmatch(r"rabbitmq_(\w+)(?:\{.*\})? (\S+)", line).groups()
                found[name] = max(found.get(name, 0.0), float(value))
        return found

    # Counts of queues are at most 5 s old.
    found = until(values, lambda found: all(found.get(name) for name in NAMES if name != "disk_space_available_limit_bytes"))
    missing = [name for name in NAMES if name not in found]
    assert not missing, missing
    assert found["message_size_bytes_count"] >= 3 * MESSAGES
    connection.close()


samples_of_a_queue()
metrics_of_the_dashboard()
