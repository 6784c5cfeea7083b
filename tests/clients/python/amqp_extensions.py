"""RabbitMQ's extensions, one by one: time to live, limits, dead letters, further routing keys, alternate and bound exchanges, headers
exchanges, priorities, consumers, direct replies, transactions. It passes against RabbitMQ 4.0.5 as well.
"""

import time

import pika
from amqp_common import LIMIT, bodies, closed_with, connect, take, until

connection = connect()
channel = connection.channel()


def declare(name, **arguments):
    channel.queue_delete(name)
    channel.queue_declare(name, arguments={key.replace("_", "-"): value for key, value in arguments.items()})
    return name


def exchange(name, kind, **settings):
    channel.exchange_delete(name)
    channel.exchange_declare(name, kind, **settings)
    return name


def publish(queue, *sent, to="", **properties):
    for body in sent:
        channel.basic_publish(to, queue, body, pika.BasicProperties(**properties))


def left(*queues):
    """Bodies of the ready messages of queues, including all published on this channel before."""
    found = []
    for queue in queues:
        waiting = []
        while True:
            method, _, body = channel.basic_get(queue, auto_ack=True)
            if method is None:
                break
            waiting.append(body)
        found.append(waiting)
    return found if len(queues) > 1 else found[0]


def ready(queue):
    return channel.queue_declare(queue, passive=True).method.message_count


def eventually(is_so):
    deadline = time.monotonic() + LIMIT
    while not is_so():
        assert time.monotonic() < deadline, "it never was"
        connection.process_data_events(0.01)


def time_to_live():
    declare("late")
    dying = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "late"}
    # The shorter of the queue's and the message's time counts.
    for queue, of_message in ((declare("ttl.queue", x_message_ttl=20, **dying), "60000"), (declare("ttl.message", **dying), "20")):
        publish(queue, b"old", expiration=of_message)
        [(_, properties, body)] = take(channel, "late", 1)
        death = properties.headers["x-death"][0]
        assert (body, death["reason"], death["queue"]) == (b"old", "expired", queue), death
        # A message that expired once does not expire again at once, and carries its original expiration.
        assert properties.expiration is None and death.get("original-expiration") == of_message, (properties, death)
    # A message's own time counts once it is at the head.
    queue = declare("ttl.head", **dying)
    publish(queue, b"stays")
    publish(queue, b"goes", expiration="1")
    time.sleep(0.1)
    assert ready(queue) == 2
    assert left(queue) == [b"stays"]
    eventually(lambda: ready("late") == 1)
    assert left("late") == [b"goes"]
    # TTL 0: only a waiting consumer gets it.
    queue = declare("ttl.now", x_message_ttl=0)
    publish(queue, b"nobody")
    assert left(queue) == []
    got = []
    tag = channel.basic_consume(queue, lambda _c, _m, _p, body: got.append(body), auto_ack=True)
    publish(queue, b"somebody")
    until(connection, lambda: got == [b"somebody"])
    channel.basic_cancel(tag)


def unused():
    declare("unused", x_expires=50)
    other = connect()
    confirmed = other.channel()
    confirmed.confirm_delivery()
    # To publish is not to use. A passive declaration would be: asked for more often than every 50 ms, the queue stays.
    eventually(lambda: not routes(confirmed, "unused"))
    other.close()


def routes(confirmed, queue):
    try:
        confirmed.basic_publish("", queue, b"", mandatory=True)
    except pika.exceptions.UnroutableError:
        return False
    return True


def exists(other, queue):
    try:
        other.channel().queue_declare(queue, passive=True)
    except pika.exceptions.ChannelClosedByBroker:
        return False
    return True


def limits():
    declare("full.dead")
    dying = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "full.dead"}
    queue = declare("full.drop", x_max_length=2, **dying)
    publish(queue, b"1", b"2", b"3")
    eventually(lambda: ready("full.dead") == 1)
    assert left(queue, "full.dead") == [[b"2", b"3"], [b"1"]]
    queue = declare("full.bytes", x_max_length_bytes=5, **dying)
    publish(queue, b"123", b"45", b"6")
    eventually(lambda: ready("full.dead") == 1)
    assert left(queue, "full.dead") == [[b"45", b"6"], [b"123"]]
    # Waiting consumers get all messages, which take no room in the queue.
    for overflow in ("drop-head", "reject-publish"):
        queue = declare("full.taken", x_max_length=1, x_overflow=overflow)
        got = []
        tag = channel.basic_consume(queue, lambda _c, _m, _p, body, got=got: got.append(body), auto_ack=True)
        publish(queue, *[b"%d" % number for number in range(500)])
        until(connection, lambda got=got: len(got) == 500)
        channel.basic_cancel(tag)
    confirmed = connection.channel()
    confirmed.confirm_delivery()
    for overflow, dead in (("reject-publish", []), ("reject-publish-dlx", [b"2"])):
        queue = declare("full.refuse", x_max_length=1, x_overflow=overflow, **dying)
        confirmed.basic_publish("", queue, b"1")
        try:
            confirmed.basic_publish("", queue, b"2")
            raise AssertionError("it was taken")
        except pika.exceptions.NackError:
            pass
        eventually(lambda dead=dead: ready("full.dead") == len(dead))
        assert left(queue, "full.dead") == [[b"1"], dead]
        confirmed.basic_publish("", queue, b"3")
        assert left(queue) == [b"3"]
    confirmed.close()


def deaths():
    """Round in a circle: a consumer that rejects turns it on and is counted, expiry alone is cut."""
    exchange("deaths", "direct")
    work = declare("deaths.work", x_dead_letter_exchange="deaths", x_dead_letter_routing_key="wait")
    wait = declare("deaths.wait", x_message_ttl=1, x_dead_letter_exchange="deaths", x_dead_letter_routing_key="work")
    channel.queue_bind(work, "deaths", "work")
    channel.queue_bind(wait, "deaths", "wait")
    publish("work", b"job", to="deaths")
    for turn in range(3):
        eventually(lambda: ready(work) == 1)
        method, properties, body = channel.basic_get(work)
        told = [
            (death["queue"], death["reason"], death["count"], death["exchange"], death["routing-keys"])
            for death in (properties.headers or {}).get("x-death", [])
        ]
        expected = [
            (wait, "expired", turn, "deaths", ["wait"]),
            (work, "rejected", turn, "deaths", ["work"]),
        ]
        assert body == b"job" and told == (expected if turn else []), told
        if turn:
            names = ("x-first-death-queue", "x-first-death-reason", "x-last-death-queue", "x-last-death-reason")
            assert [properties.headers[name] for name in names] == [work, "rejected", wait, "expired"], properties.headers
        channel.basic_reject(method.delivery_tag, requeue=False)
    left(work)
    one = declare("deaths.one", x_message_ttl=1, x_dead_letter_exchange="", x_dead_letter_routing_key="deaths.other")
    other = declare("deaths.other", x_message_ttl=1, x_dead_letter_exchange="", x_dead_letter_routing_key="deaths.one")
    publish(one, b"round")
    eventually(lambda: ready(one) + ready(other) == 0)


def further_keys():
    exchange("keys", "direct")
    for name in ("first", "second", "blind"):
        declare(f"keys.{name}")
        channel.queue_bind(f"keys.{name}", "keys", name)
    publish("first", b"copy", to="keys", headers={"CC": ["second", "nowhere"], "BCC": ["blind"]})
    for name in ("first", "second", "blind"):
        [(method, properties, _)] = take(channel, f"keys.{name}", 1)
        assert method.routing_key == "first", method
        assert properties.headers == {"CC": ["second", "nowhere"]}, properties.headers


def exchanges():
    # Messages without a matching binding go to the alternate exchange, and from exchange to exchange.
    exchange("rest", "fanout")
    exchange("all", "fanout")
    exchange("strict", "direct", arguments={"alternate-exchange": "rest"})
    channel.exchange_bind("all", "rest")
    for name in ("exchanges.wanted", "exchanges.rest"):
        declare(name)
    channel.queue_bind("exchanges.wanted", "strict", "k")
    channel.queue_bind("exchanges.rest", "all")
    publish("k", b"wanted", to="strict")
    publish("other", b"rest", to="strict")
    assert left("exchanges.wanted", "exchanges.rest") == [[b"wanted"], [b"rest"]]
    channel.exchange_unbind("all", "rest")
    publish("other", b"lost", to="strict")
    assert left("exchanges.rest") == []
    # An exchange that goes with its last binding.
    exchange("fleeting", "fanout", auto_delete=True)
    channel.queue_bind("exchanges.rest", "fleeting")
    channel.queue_unbind("exchanges.rest", "fleeting")
    closed_with(404, lambda: connection.channel().exchange_declare("fleeting", passive=True))


def headers():
    exchange("matching", "headers")
    wanted = {"a": 1, "x-b": "2"}
    for mode in ("all", "any", "all-with-x", "any-with-x"):
        declare(f"matching.{mode}")
        channel.queue_bind(f"matching.{mode}", "matching", arguments={"x-match": mode, **wanted})
    sent = {b"both": {"a": 1, "x-b": "2"}, b"plain": {"a": 1}, b"x": {"x-b": "2"}, b"none": {"a": 2, "x-b": "3"}}
    for body, fields in sent.items():
        publish("", body, to="matching", headers=fields)
    found = left("matching.all", "matching.any", "matching.all-with-x", "matching.any-with-x")
    assert found == [[b"both", b"plain"], [b"both", b"plain"], [b"both"], [b"both", b"plain", b"x"]], found


def priorities():
    queue = declare("levels", x_max_priority=255)
    for priority in (3, 255, 0, 128, 254, None):
        publish(queue, str(priority).encode(), priority=priority)
    assert left(queue) == [b"255", b"254", b"128", b"3", b"0", b"None"]
    queue = declare("levels", x_max_priority=5)
    for priority in (5, 200, 4, 6):
        publish(queue, str(priority).encode(), priority=priority)
    assert left(queue) == [b"5", b"200", b"6", b"4"], "what is higher than there is has the highest"


def consumers():
    queue = declare("who")
    other = connect()
    here = other.channel()
    here.basic_qos(prefetch_count=2)
    got = []

    def consumer(name):
        return lambda _c, method, _p, body: got.append((name, body))

    here.basic_consume(queue, consumer("low"), arguments={"x-priority": -1})
    here.basic_consume(queue, consumer("high"), arguments={"x-priority": 10})
    publish(queue, b"1", b"2", b"3")
    until(other, lambda: len(got) == 3)
    assert sorted(got) == [("high", b"1"), ("high", b"2"), ("low", b"3")], got
    other.close()
    # One at a time has all; in a classic queue it stays active until it leaves, even if others come.
    queue = declare("single", x_single_active_consumer=True)
    other = connect()
    here = other.channel()
    got.clear()
    first = here.basic_consume(queue, consumer("first"), auto_ack=True)
    here.basic_consume(queue, consumer("second"), auto_ack=True)
    here.basic_consume(queue, consumer("third"), auto_ack=True, arguments={"x-priority": 1})
    publish(queue, b"1", b"2")
    until(other, lambda: len(got) == 2)
    here.basic_cancel(first)
    publish(queue, b"3")
    until(other, lambda: len(got) == 3)
    assert got == [("first", b"1"), ("first", b"2"), ("third", b"3")], got
    other.close()


def direct_replies():
    """Two channels of one connection wait for answers, each gets its own; the responder has a connection of its own."""
    requests = declare("requests")
    answers = []
    channels = [connection.channel() for _ in range(2)]
    for number, here in enumerate(channels):
        here.basic_consume(
            "amq.rabbitmq.reply-to",
            lambda _c, _m, properties, body, number=number: answers.append((number, properties.correlation_id, body)),
            auto_ack=True,
        )
    for number, here in enumerate(channels):
        asking = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id=f"c{number}")
        here.basic_publish("", requests, b"%d" % number, asking)
    server = connect()
    there = server.channel()
    for _, properties, body in take(there, requests, 2):
        assert properties.reply_to.startswith("amq.rabbitmq.reply-to."), properties
        there.queue_declare(properties.reply_to, passive=True)
        answer = pika.BasicProperties(correlation_id=properties.correlation_id)
        there.basic_publish("", properties.reply_to, b"re " + body, answer)
    until(connection, lambda: len(answers) == 2)
    assert sorted(answers) == [(0, "c0", b"re 0"), (1, "c1", b"re 1")], answers
    server.close()
    for here in channels:
        here.close()


def transactions():
    queue = declare("tx")
    publish(queue, b"1", b"2")
    here = connection.channel()
    here.tx_select()
    tags = [here.basic_get(queue)[0].delivery_tag for _ in range(2)]
    here.basic_publish("", queue, b"3")
    here.basic_ack(tags[0])
    assert ready(queue) == 0
    here.tx_rollback()
    # A message whose acknowledgement was rolled back can be acknowledged again.
    here.basic_publish("", queue, b"4")
    here.basic_ack(tags[0])
    here.basic_nack(tags[1], requeue=True)
    here.tx_commit()
    assert left(queue) == [b"2", b"4"]
    closed_with(406, lambda: (here.basic_ack(tags[0]), here.tx_commit()))


def given_back():
    queue = declare("back")
    publish(queue, b"1", b"2", b"3")
    here = connection.channel()
    for _ in range(3):
        here.basic_get(queue)
    here.basic_recover(requeue=True)
    again = take(channel, queue, 3)
    assert bodies(again) == [b"1", b"2", b"3"] and all(method.redelivered for method, _, _ in again)
    here.close()


for check in (
    time_to_live, unused, limits, deaths, further_keys, exchanges, headers, priorities, consumers, direct_replies, transactions,
    given_back,
):
    check()
connection.close()
