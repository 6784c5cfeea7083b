"""Requests to RabbitMQ's management HTTP API, good ones and others: python management_odd.py HOST:PORT [TABLE] [--record]

Each row of the table (tests/clients/odd/management.tsv) is a request, RabbitMQ's answer, Stafett's answer if it differs, and
why. They are sent in their order to a broker whose virtual host / is emptied before. Each answer is printed as a line: the
request and the answer, which is the status, some headers, and the body with its keys in order. With --record, RabbitMQ's
answers are written into the table.

A request is `[@WORD …] METHOD PATH [BODY]`. `@none`, `@USER:PASSWORD` and `@header:VALUE` are about credentials, `@type:TYPE`
is the type of the body, `@form` sends it as a form, `@big` adds 70 MB of spaces, `@cut` sends half. `\\xff` in a body is a byte,
NODE the name of the node.
"""

import base64
import json
import re
import socket
import sys
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote

TABLE = Path(__file__).resolve().parent.parent / "odd/management.tsv"
TIMEOUT = 60
HEADERS = ["location", "www-authenticate", "allow", "content-disposition", "stafett-passed-over"]
BIG = 70 << 20
GUEST = "guest:guest"


def basic(credentials):
    return "Basic " + base64.b64encode(credentials.encode()).decode()


class Api:
    def __init__(self, address):
        self.host, port = address.rsplit(":", 1)
        self.port = int(port)
        self.node = json.loads(self.send("GET", "/api/overview")[2])["node"]

    def send(self, method, path, body=None, headers=None):
        connection = HTTPConnection(self.host, self.port, timeout=TIMEOUT)
        headers = {"Authorization": basic(GUEST), **(headers or {})}
        headers = {name: value for name, value in headers.items() if value is not None}
        connection.request(method, path, body=body, headers=headers)
        response = connection.getresponse()
        answer = response.status, response.headers, response.read().decode("utf-8", "replace")
        connection.close()
        return answer

    def empty(self):
        """Deletes what earlier requests have made."""
        for vhost in json.loads(self.send("GET", "/api/vhosts")[2]):
            if vhost["name"] != "/":
                self.send("DELETE", "/api/vhosts/" + quote(vhost["name"], ""))
        for kind in ["policies/%2F", "queues/%2F", "exchanges/%2F"]:
            for item in json.loads(self.send("GET", "/api/" + kind)[2]):
                if item["name"] and not item["name"].startswith("amq."):
                    self.send("DELETE", f"/api/{kind}/" + quote(item["name"], ""))

    def ask(self, request):
        words, headers = set(), {}
        while request.startswith("@"):
            word, request = request[1:].split(" ", 1)
            if word.startswith("header:"):
                headers["Authorization"] = word.removeprefix("header:").replace("_", " ")
            elif word == "none":
                headers["Authorization"] = None
            elif word.startswith("type:"):
                headers["Content-Type"] = word.removeprefix("type:")
            elif ":" in word:
                headers["Authorization"] = basic(word)
            else:
                words.add(word)
        method, path, *body = request.replace("NODE", self.node).split(" ", 2)
        body = body[0].encode().replace(rb"\xff", b"\xff") if body else None
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        if "form" in words:
            headers["Content-Type"] = "multipart/form-data; boundary=xyz"
            head = b'--xyz\r\nContent-Disposition: form-data; name="file"; filename="x.json"\r\n\r\n'
            body = head + body + b"\r\n--xyz--\r\n"
        if "cut" in words:
            return self.cut(method, path, body)
        if "big" in words:
            body += b" " * BIG
        try:
            status, answered, text = self.send(method, path, body, headers)
        except ConnectionError:
            return "closed"
        told = "".join(f" {name}={answered[name]}" for name in HEADERS if name in answered)
        return f"{status}{told} {self.normal(text, 'sort' in path or '/get' in path)}".strip()

    def cut(self, method, path, body):
        """Announces a body twice as long as it is, and hangs up."""
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}\r\nAuthorization: {basic(GUEST)}\r\nContent-Length: {2 * len(body)}\r\n\r\n"
        with socket.create_connection((self.host, self.port), TIMEOUT) as stream:
            stream.sendall(head.encode() + body)
            stream.shutdown(socket.SHUT_WR)
            try:
                answer = stream.recv(4096).decode("utf-8", "replace")
            except ConnectionError:
                answer = ""
        return answer.split(" ")[1] if answer else "closed"

    def normal(self, text, is_ordered):
        text = text.replace(self.node, "NODE").replace("\t", " ")
        try:
            body = json.loads(text)
        except ValueError:
            return text.replace("\n", "\\n")
        if isinstance(body, dict) and "ports" in body:
            body["ports"] = []
        if isinstance(body, dict):
            for kind in ["queues", "bindings", "exchanges"]:
                if isinstance(body.get(kind), list):
                    body[kind].sort(key=lambda item: json.dumps(item, sort_keys=True))
        if isinstance(body, list) and not is_ordered:
            body.sort(key=lambda item: json.dumps(item, sort_keys=True))
        return re.sub("~[A-Za-z0-9_-]{6}\\b", "~DIGEST", json.dumps(body, sort_keys=True, ensure_ascii=False))


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--record"]
    table = Path(arguments[1]) if len(arguments) > 1 else TABLE
    api = Api(arguments[0])
    api.empty()
    rows = [row.split("\t") for row in table.read_text(encoding="utf-8").splitlines()]
    for row in rows[1:]:
        answer = re.sub("~[A-Za-z0-9_-]{6}\\b", "~DIGEST", api.ask(row[0]))
        print(row[0], answer, sep="\t")
        row[1:2] = [answer]
    if "--record" in sys.argv:
        table.write_text("".join("\t".join(row).rstrip("\t") + "\n" for row in rows), encoding="utf-8")


main()
