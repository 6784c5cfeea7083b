"""pika over several cells: each virtual host is served by the node that owns its cell, through any node.

Arguments: `fill`, `look` or `check`, and the addresses of AMQP and of HTTP, with commas between nodes.
"""

import base64
import json
import sys
import urllib.error
import urllib.request

import pika
from websockets.sync.client import connect as open_socket

step, amqp, http = sys.argv[1:]
nodes, pages = amqp.split(","), http.split(",")
# Cells 0 to 3 of four.
HOSTS = ["red", "shop", "shop-2", "shop-1"]
COUNT = 20


def ask(method, path, body=None, node=0):
    login = base64.b64encode(b"guest:guest").decode()
    headers = {"Content-Type": "application/json"}
    if path.startswith("/api"):
        headers["Authorization"] = f"Basic {login}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{pages[node]}{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def connect(host, node=0, user="guest", password="guest"):
    name, port = nodes[node].rsplit(":", 1)
    login = pika.PlainCredentials(user, password)
    parameters = pika.ConnectionParameters(name, int(port), host, login, connection_attempts=1, blocked_connection_timeout=30)
    return pika.BlockingConnection(parameters)


def take_all(channel, host):
    bodies = []
    for method, _, body in channel.consume("jobs", inactivity_timeout=20):
        assert method is not None, f"{host}: {len(bodies)} messages came"
        channel.basic_ack(method.delivery_tag)
        bodies.append(body)
        if len(bodies) == COUNT:
            break
    channel.cancel()
    return bodies


def fill(host, node):
    connection = connect(host, node)
    channel = connection.channel()
    channel.queue_declare("jobs", durable=True)
    channel.exchange_declare("events", "topic", durable=True)
    channel.queue_bind("jobs", "events", "job.#")
    channel.confirm_delivery()
    for number in range(COUNT):
        channel.basic_publish("events", "job.new", f"{host} {number}".encode(), pika.BasicProperties(delivery_mode=2))
    connection.close()


def refused(host, user, password):
    try:
        connect(host, 0, user, password)
    except (pika.exceptions.ProbableAccessDeniedError, pika.exceptions.ConnectionClosedByBroker) as error:
        return str(error)
    raise AssertionError(f"{user} may enter {host}")


def check_lists(node):
    """Lists without a namespace have the things of all cells, through any node, in one order."""
    for sort in ["name", "-name", "ready", "-ready"]:
        for count in [1, 3, 50]:
            found, after = [], ""
            while after is not None:
                path = f"/v1/queues?sort={sort}&count={count}&columns=namespace,ready{after}"
                status, page = ask("GET", path, node=node)
                assert (status, page["total"]) == (200, len(HOSTS)), (status, page)
                found += [queue["namespace"] for queue in page["items"]]
                after = page["next"] and f"&after={page['next']}"
            # All have as many messages, and then stand by name.
            assert found == sorted(HOSTS, reverse=sort == "-name"), (sort, count, found)
    names = [space["name"] for space in ask("GET", "/v1/namespaces", node=node)[1]["items"]]
    assert names == sorted(["/", *HOSTS]), names
    events = [(one["namespace"], one["name"]) for one in ask("GET", "/v1/exchanges?q=events", node=node)[1]["items"]]
    assert events == [(host, "events") for host in sorted(HOSTS)], events
    found = ask("GET", "/v1/search?q=jobs", node=node)[1]["items"]
    assert sorted(one["namespace"] for one in found if one["name"] == "jobs") == sorted(HOSTS), found
    overview = ask("GET", "/v1/overview", node=node)[1]
    assert overview["totals"]["queues"] == len(HOSTS) and "away" not in overview, overview
    found = ask("GET", "/api/queues", node=node)[1]
    assert sorted(queue["vhost"] for queue in found) == sorted(HOSTS), found
    assert sorted(host["name"] for host in ask("GET", "/api/vhosts", node=node)[1]) == sorted(["/", *HOSTS])


def check_definitions(node):
    """Exports have the things of all cells, and imports make them in these."""
    status, document = ask("GET", "/v1/definitions", node=node)
    assert status == 200, document
    assert [space["name"] for space in document["namespaces"] if space["name"] != "/"] == HOSTS, document["namespaces"]
    for kind in ["queues", "exchanges", "bindings"]:
        assert [one["namespace"] for one in document[kind]] == HOSTS, (kind, document[kind])
    status, imported = ask("POST", "/v1/definitions?dry_run=true&change=true", document, node)
    assert status == 200 and imported["made"] == imported["changed"] == imported["refused"] == 0, imported
    form = {"form": document["form"]}
    more = form | {"queues": [{"namespace": host, "name": "more", "durable": True} for host in HOSTS]}
    for made in [len(HOSTS), 0]:
        status, imported = ask("POST", "/v1/definitions", more, node)
        assert (imported["made"], imported["same"]) == (made, len(HOSTS) - made), (status, imported)
    one = form | {"queues": [{"name": "one"}], "topics": [{"name": f"of-node-{node}", "partitions": 1}]}
    status, imported = ask("POST", "/v1/definitions?namespace=shop", one, node)
    assert imported["made"] == 2, (status, imported)
    assert ask("POST", "/v1/definitions?namespace=shop-4", one, node)[0] == 404
    assert ask("DELETE", f"/v1/topics/of-node-{node}", node=node)[0] == 200
    assert [queue["name"] for queue in ask("GET", "/v1/definitions?namespace=shop", node=node)[1]["queues"]] == ["jobs", "more", "one"]

    status, document = ask("GET", "/api/all-configuration", node=node)
    assert document == ask("GET", "/api/definitions", node=node)[1]
    queues = sorted((queue["vhost"], queue["name"]) for queue in document["queues"])
    assert queues == sorted([("shop", "one")] + [(host, name) for host in HOSTS for name in ["jobs", "more"]]), (status, queues)
    for host, name in [("shop", "one")] + [(host, "more") for host in HOSTS]:
        assert ask("DELETE", f"/v1/queues/{name}?namespace={host}", node=node)[0] == 200, (host, name)
    assert ask("DELETE", "/api/vhosts/shop-5", node=node)[0] == 404
    document["vhosts"].append({"name": "shop-5"})
    document["permissions"] += [{"user": "guest", "vhost": "shop-5", "configure": ".*", "write": ".*", "read": ".*"}]
    assert ask("POST", "/api/definitions/", document, node)[0] == 204
    for host, name in [("shop", "one")] + [(host, "more") for host in HOSTS]:
        assert ask("DELETE", f"/v1/queues/{name}?namespace={host}", node=node)[0] == 200, (host, name)
    assert ask("DELETE", "/api/vhosts/shop-5", node=node)[0] == 204


def check_sockets(node):
    """A WebSocket reaches the virtual hosts of all cells."""

    def said(socket, **command):
        socket.send(json.dumps(command))
        return json.loads(socket.recv(timeout=30))

    for host in HOSTS:
        with open_socket(f"ws://{pages[node]}/v1/ws?namespace={host}") as socket:
            assert said(socket, id=1, op="ping") == {"id": 1, "ok": {}}
            consumer = said(socket, id=2, op="consume", queue="jobs", credit=1)["ok"]["consumer"]
            message = json.loads(socket.recv(timeout=30))["message"]
            assert message["content"] == f"{host} 0", message
            assert said(socket, id=3, op="cancel", consumer=consumer) == {"id": 3, "ok": {}}
            if host != HOSTS[0]:
                # It is at the owner of the host's cell, where nothing else is.
                for command in [
                    {"op": "register", "client": "x", "namespace": "/"},
                    {"op": "send", "namespace": HOSTS[0], "to": {"queues": ["jobs"]}, "content": 1},
                    {"op": "peek", "queue": "jobs", "namespace": "/"},
                ]:
                    assert said(socket, id=4, **command)["error"]["code"] == "bad_request", (host, command)
    with open_socket(f"ws://{pages[node]}/v1/ws") as socket:
        shown = said(socket, op="watch", id=1, what=[{"list": "queues"}, {"list": "queues/jobs", "query": "namespace=shop"}], every_ms=1000)
        assert "ok" in shown, shown
        items = json.loads(socket.recv(timeout=30))["items"]
        assert [queue["namespace"] for queue in items[0]["items"]] == sorted(HOSTS), items[0]
        assert (items[1]["namespace"], items[1]["ready"]) == ("shop", COUNT), items[1]
        for host in HOSTS:
            to = {"queues": ["more"]}
            assert ask("PUT", f"/v1/queues/more?namespace={host}", {}, node)[0] in (200, 201)
            socket.send(json.dumps({"id": host, "op": "send", "namespace": host, "to": to, "content": host}))
            answer = {}
            while answer.get("id") != host:
                answer = json.loads(socket.recv(timeout=30))
            [place] = answer["ok"]["places"]
            message = ask("GET", f"/v1/queues/more/messages/{place['id']}?namespace={host}", node=node)[1]
            assert message["content"] == host, message
            assert ask("DELETE", f"/v1/queues/more?namespace={host}", node=node)[0] == 200


if step == "fill":
    for number, host in enumerate(HOSTS):
        assert ask("PUT", f"/api/vhosts/{host}", {}, number % 2)[0] == 201, host
        fill(host, number % 2)
        status, queue = ask("GET", f"/api/queues/{host}/jobs", node=number % 2)
        assert (status, queue["messages"]) == (200, COUNT), (status, queue)
        status, queue = ask("GET", f"/v1/queues/jobs?namespace={host}")
        assert (status, queue["namespace"]) == (200, host), (status, queue)
    assert "/" in [host["name"] for host in ask("GET", "/api/vhosts")[1]]
    seen = [ask("GET", f"/v1/queues?cell={cell}")[1]["items"] for cell in range(4)]
    assert [[queue["namespace"] for queue in queues] for queues in seen] == [[host] for host in HOSTS], seen
    assert ask("GET", "/v1/queues?cell=4")[0] == 400
    for node in range(len(pages)):
        check_lists(node)
        check_definitions(node)
        check_sockets(node)

    # A user that was just made may enter at once, and only where it may.
    assert ask("PUT", "/api/users/anna", {"password": "secret", "tags": ""})[0] == 201
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    assert ask("PUT", "/api/permissions/shop/anna", everything)[0] == 201
    connection = connect("shop", 1, "anna", "secret")
    assert connection.channel().queue_declare("jobs", passive=True).method.message_count == COUNT
    assert "shop-1" in refused("shop-1", "anna", "secret")
    # A right that goes ends the connection, as in one cell.
    assert ask("DELETE", "/api/permissions/shop/anna")[0] == 204
    try:
        while True:
            connection.process_data_events(time_limit=30)
    except pika.exceptions.ConnectionClosed:
        pass
    assert "nowhere" in refused("nowhere", "guest", "guest")
elif step == "look":
    for number, host in enumerate(HOSTS):
        connection = connect(host, number % len(nodes))
        assert connection.channel().queue_declare("jobs", passive=True).method.message_count == COUNT, host
        connection.close()
else:
    for node in range(len(pages)):
        check_lists(node)
    for number, host in enumerate(HOSTS):
        connection = connect(host, number % len(nodes))
        expected = [f"{host} {number}".encode() for number in range(COUNT)]
        assert take_all(connection.channel(), host) == expected, host
        connection.close()
    assert ask("DELETE", "/api/vhosts/shop-2")[0] == 204
    assert "shop-2" in refused("shop-2", "guest", "guest")
    assert ask("GET", "/api/queues/shop-2/jobs")[0] == 404
print("done")
