"""The same over HTTP: publish with POST, read as server-sent events."""

import json
import urllib.error
import urllib.request

from live import ADDRESS, Client, same

LIMIT = 240


def post(body, **headers):
    request = urllib.request.Request(f"http://{ADDRESS}/live/publish", data=body.encode(), headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            return answer.status, json.load(answer), answer.headers
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        return error.code, json.loads(text) if text.startswith("{") else text, error.headers


def events(query):
    return urllib.request.urlopen(f"http://{ADDRESS}/live/events?{query}", timeout=LIMIT)


def event(stream):
    """The fields of the next event; comments are passed over."""
    fields = {}
    while True:
        line = stream.readline().decode().rstrip("\n")
        if not line and fields:
            return fields
        if line and not line.startswith(":"):
            name, value = line.split(": ", 1)
            fields[name] = fields.get(name, "") + value


stream = events("client_id=web&topic=a%20b&topic=c&pattern=x*")
same(stream.headers["content-type"], "text/event-stream")
same(stream.readline(), b": listening\n")
same(post('{"topic":"a b","payload":{"n":\n1}}')[:2], (200, {"result": "success", "receivers": 1, "duplicates": 0}))
same(json.loads(event(stream)["data"]), {"key": "a b", "broadcast": {"n": 1}})
same(post('[{"topic":"c","payload":1},{"topic":"xy","payload":2},{"topic":"none","payload":3}]')[1]["receivers"], 2)
same([json.loads(event(stream)["data"])["key"] for _ in range(2)], ["c", "xy"])

# The same client on a WebSocket: its subscriptions are there, and it takes over.
client = Client("web")
client.ask("listen")
same(event(stream), {"event": "notice", "data": '{"notice":"taken_over","client_id":"web"}'})
same(stream.read(), b"")
same(client.ask("list")["topics"] != [], True)

status, answer, _ = post('{"topic":"a"}')
same((status, answer["info"]), (400, "Key 'payload' not specified"))
same(post("nonsense")[0], 400)
same(post("x" * (1 << 21))[0], 413)
status, _, headers = post('{"topic":"a","payload":1}', Origin="http://localhost:8000")
same((status, headers["access-control-allow-origin"]), (200, "http://localhost:8000"))
same(post('{"topic":"a","payload":1}', Origin="https://elsewhere.example")[0], 403)
try:
    events("topic=a")
except urllib.error.HTTPError as error:
    same((error.code, json.load(error)["info"]), (400, "Key 'client_id' not specified"))



def ask(path):
    try:
        with urllib.request.urlopen(f"http://{ADDRESS}/live/{path}", timeout=LIMIT) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["info"]


# Clients, and their subscriptions.
same(ask("presence?topic=a%20b")["clients"], [{"client_id": "web", "listening": True, "subscriptions": 3}])
same(ask("presence?of=listening&count=1")["clients"][0]["client_id"], "web")
same({topic["topic"] for topic in ask("presence?of=topics")["topics"]}, {"a b", "c"})
same(ask("presence")["patterns"], 1)
same(sorted(ask("subscriptions?client_id=web")["topics"]), ["a b", "c"])
same(ask("subscriptions?client_id=web")["patterns"], ["x*"])
same(ask("subscriptions"), (400, "Key 'client_id' not specified"))
same(ask("subscriptions?client_id=1.0")[0], 400)
same(ask("presence?count=10001")[0], 400)

with urllib.request.urlopen(f"http://{ADDRESS}/", timeout=LIMIT) as page:
    assert "/live/try" in page.read().decode()
with urllib.request.urlopen(f"http://{ADDRESS}/metrics", timeout=LIMIT) as page:
    metrics = page.read().decode()
assert "stafett_live_published_total" in metrics and "stafett_live_clients_listening 1" in metrics, metrics
