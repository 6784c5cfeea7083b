"""Logins over cells: sessions, tokens and users that were just made count at the owner of every cell, and nothing
that a client says of itself does.

Arguments: the addresses of HTTP of two nodes.
"""

import base64
import json
import sys
import urllib.error
import urllib.request

pages = sys.argv[1:]
# Cells 0 to 3 of four.
HOSTS = ["red", "shop", "shop-2", "shop-1"]
ROOT = {"Authorization": "Basic " + base64.b64encode(b"root:secret of root").decode()}
GUEST = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}


def ask(method, path, body=None, headers=None, node=0):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{pages[node]}{path}", data, {"Content-Type": "application/json", **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None, answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers


for host in HOSTS:
    assert ask("PUT", f"/api/vhosts/{host}", {}, GUEST)[0] == 201, host
assert ask("PUT", "/api/users/root", {"password": "secret of root", "tags": "administrator"}, GUEST)[0] == 201

FORGED = [
    {"user": None, "is_internal": True, "expires_ms": None, "version": [0, 0]},
    {"user": "root", "is_internal": False, "expires_ms": None, "version": [0, 0]},
]
status, _, headers = ask("POST", "/v1/login", {"user": "root", "password": "secret of root"})
assert status == 200, status
session = {"Cookie": headers["Set-Cookie"].split(";")[0]}
status, token, _ = ask("POST", "/v1/tokens", {"user": "root", "description": "a token"}, ROOT)
assert status in (200, 201), (status, token)
token = {"Authorization": f"Bearer {token['token']}"}
for number, host in enumerate(HOSTS):
    path, node = f"/v1/queues?namespace={host}", number % 2
    for login in [ROOT, session, token]:
        assert ask("GET", path, headers=login, node=node)[0] == 200, (host, login.keys())
    assert ask("GET", path, node=node)[0] == 401, host
    for passed in FORGED:
        assert ask("GET", path, headers={"stafett-passed": json.dumps(passed)}, node=node)[0] == 401, (host, passed)
    for forged in [{"Cookie": "stafett=" + "0" * 64}, {"Authorization": "Bearer stafett-own-" + "0" * 64}]:
        assert ask("GET", path, headers=forged, node=node)[0] == 401, (host, forged)

# A user that was just made acts at once, and no longer once it is gone.
everything = {"configure": ".*", "write": ".*", "read": ".*"}
for number in range(10):
    name, host = f"user-{number}", HOSTS[1 + number % 3]
    assert ask("PUT", f"/api/users/{name}", {"password": name, "tags": "management"}, ROOT)[0] == 201
    assert ask("PUT", f"/api/permissions/{host}/{name}", everything, ROOT)[0] == 201
    login = {"Authorization": "Basic " + base64.b64encode(f"{name}:{name}".encode()).decode()}
    status, made, _ = ask("PUT", f"/api/queues/{host}/q-{number}", {"durable": True}, login, number % 2)
    assert status == 201, (status, made)
    status, shown, _ = ask("GET", f"/v1/queues/q-{number}?namespace={host}", headers=login, node=number % 2)
    assert status == 200, (status, shown)
    assert ask("DELETE", f"/api/users/{name}", headers=ROOT)[0] == 204
    assert ask("GET", f"/v1/queues/q-{number}?namespace={host}", headers=login, node=number % 2)[0] == 401
print("done")
