"""A small client of live topics, for the tests."""

import json
import sys

from websockets.sync.client import connect

ADDRESS = sys.argv[1]
LIMIT = 240  # seconds: a guard against hanging, not an expectation
DONE = {"result": "success"}


class Client:
    """One connection. Answers and broadcasts come in the order in which they arrive."""

    def __init__(self, client=1, **options):
        self.client = client
        self.socket = connect(f"ws://{ADDRESS}/live", compression=None, max_size=None, open_timeout=LIMIT, **options)

    def send(self, command, **fields):
        self.socket.send(json.dumps({"command": command, "client_id": self.client, **fields}))

    def raw(self, text):
        self.socket.send(text)
        return self.next()

    def next(self):
        return json.loads(self.socket.recv(timeout=LIMIT))

    def ask(self, command, **fields):
        self.send(command, **fields)
        return self.next()

    def silent(self):
        """Checks that no unexpected message has come."""
        answer = self.ask("ping", id="silent")
        assert answer == {"id": "silent", **DONE}, answer

    def close(self):
        self.socket.close()


def same(found, expected):
    assert found == expected, f"{found!r} is not {expected!r}"
