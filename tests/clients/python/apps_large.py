"""Commits that are larger than a request may be: apps_large.py HTTP. Each is refused with the limit, and the worker goes on."""

import http.client
import json
import select
import sys

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

ADDRESS = sys.argv[1]
LIMIT = 16 << 20
APP = "/v1/apps/large"


def ask(method, path, body, token=None):
    connection = http.client.HTTPConnection(ADDRESS, timeout=60)
    headers = {"Content-Type": "application/json"} | ({"Stafett-Worker": token} if token else {})
    body = json.dumps(body).encode()
    connection.putrequest(method, path)
    for name, value in (headers | {"Content-Length": str(len(body))}).items():
        connection.putheader(name, value)
    connection.endheaders()
    for at in range(0, len(body), 1 << 16):
        # The broker answers a body that is too large before its end, and waits a second for a client to stop.
        if select.select([connection.sock], [], [], 0)[0]:
            break
        connection.send(body[at : at + (1 << 16)])
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def large(size):
    piece = "x" * 1_000_000
    return {"task": "0", "epoch": 1, "seq": 1, "put": {"t": [[f"k{number}", piece] for number in range(size)]}}


ask("PUT", "/v1/topics/in", {"partitions": 1})
# A commit that is refused is no sign of life.
ask("PUT", APP, {"topics": ["in"], "tables": {"t": {}}, "worker_timeout_ms": 60_000})

_, joined = ask("POST", f"{APP}/workers/w/join", {})
token = joined["token"]
ask("POST", f"{APP}/workers/w/poll", {"wait_ms": 5000}, token)
for size in (17, 40, 120):
    status, refused = ask("POST", f"{APP}/workers/w/commit", large(size), token)
    assert (status, refused["code"], refused["bytes_max"]) == (413, "too_large", LIMIT), refused
status, stored = ask("POST", f"{APP}/workers/w/commit", large(16), token)
assert (status, stored["seq"]) == (200, 1), stored

for protocol in ("stafett.work.json", "stafett.work.msgpack"):
    for size in (17, 40):
        with connect(f"ws://{ADDRESS}{APP}/work", subprotocols=[protocol], max_size=None) as worker:
            # The broker may close its side while this one still sends.
            try:
                command = json.dumps({"command": "commit", "id": 1} | large(size))
                worker.send(command if protocol.endswith("json") else command.encode())
            except ConnectionClosed:
                pass
            if protocol.endswith("json"):
                refused = json.loads(worker.recv(timeout=30))
                assert (refused["error"], refused["bytes_max"]) == ("too_large", LIMIT), refused
            else:
                assert b"too_large" in worker.recv(timeout=30)
            try:
                worker.recv(timeout=30)
                raise AssertionError("the connection goes on")
            except ConnectionClosed as closed:
                assert closed.rcvd.code == 1009 and str(LIMIT) in closed.rcvd.reason, closed
