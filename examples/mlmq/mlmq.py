"""Messages and queues over HTTP, with nothing but the standard library."""

import http.client
import json
from urllib.parse import quote, urlencode


class Refused(Exception):
    def __init__(self, problem):
        super().__init__(problem.get("detail"))
        self.code = problem.get("code")


def connect(address, name=None):
    """Connects a client over HTTP, or over a WebSocket to an address that begins with ws://."""
    if address.startswith("ws://"):
        import mlmq_ws

        return mlmq_ws.Client(address.removeprefix("ws://"), name)
    return Client(address, name)


class Client:
    """A client of the broker, over one connection that is kept open."""

    def __init__(self, address, name=None):
        host, port = address.rsplit(":", 1)
        self.http = http.client.HTTPConnection(host, int(port), timeout=70)
        self.name = name
        if name is not None:
            self.ask("PUT", f"/v1/clients/{quote(name, safe='')}")

    def ask(self, method, path, body=None, **query):
        query = {key: value for key, value in query.items() if value is not None}
        headers = {"Content-Type": "application/json"}
        if self.name is not None and not path.startswith("/v1/clients/") or path.endswith("/call"):
            headers["Stafett-Client"] = self.name
        target = path + ("?" + urlencode(query) if query else "")
        self.http.request(method, target, None if body is None else json.dumps(body), headers)
        answer = self.http.getresponse()
        value = json.loads(answer.read())
        if answer.status >= 400:
            raise Refused(value)
        return value

    def close(self):
        self.http.close()

    def make_queue(self, name):
        return self.ask("PUT", f"/v1/queues/{quote(name, safe='')}", {"priority_max": 10})

    def send(self, content, queues=(), clients=(), **fields):
        to = {"queues": list(queues), "clients": list(clients)}
        return self.ask("POST", "/v1/messages", {"to": to, "content": content, **fields})

    def receive(self, queue=None, **query):
        """Takes a message, or returns None. Without a queue, from the client's own."""
        queue = queue or f"client.{self.name}"
        query = {"settled": "stored", **query}
        messages = self.ask("POST", f"/v1/queues/{quote(queue, safe='')}/receive", **query)["messages"]
        return messages[0] if messages else None

    def call(self, client, content, wait="10s"):
        """Sends a request, and returns the response."""
        return self.ask("POST", f"/v1/clients/{quote(client, safe='')}/call", {"content": content}, wait=wait)

    def respond(self, request, content):
        return self.send(content, clients=[request["sender"]], context=request["context"])
