"""The same client over one WebSocket, with nothing but the standard library."""

import base64
import json
import os
import socket
import struct

import mlmq


class Socket:
    """A WebSocket (RFC 6455) that sends and receives JSON."""

    def __init__(self, address, path):
        host, port = address.rsplit(":", 1)
        self.stream = socket.create_connection((host, int(port)), timeout=70)
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = self.stream.makefile("rb")
        key = base64.b64encode(os.urandom(16)).decode()
        self.stream.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
            "Sec-WebSocket-Protocol: stafett.v1.json\r\n\r\n".encode()
        )
        if b" 101 " not in self.reader.readline():
            raise ConnectionError("no WebSocket")
        while self.reader.readline() != b"\r\n":
            pass

    def send(self, value):
        self.frame(0x81, json.dumps(value).encode())

    def frame(self, kind, data):
        size = len(data)
        head = struct.pack("!BB", kind, 0x80 | size) if size < 126 else struct.pack("!BBQ", kind, 0xFF, size)
        self.stream.sendall(head + bytes(4) + data)

    def receive(self):
        while True:
            kind, size = self.reader.read(2)
            size &= 0x7F
            if size > 125:
                size = int.from_bytes(self.reader.read(2 if size == 126 else 8), "big")
            data = self.reader.read(size)
            if kind == 0x81:
                return json.loads(data)
            if kind == 0x88:
                raise ConnectionError(f"closed: {data[2:].decode()}")
            if kind == 0x89:
                self.frame(0x8A, data)


class Client:
    """A client of the broker. Commands are answered one by one."""

    def __init__(self, address, name=None):
        self.address, self.name = address, name
        self.socket = Socket(address, "/v1/ws")
        if name is not None:
            self.ask("register", client=name)

    def ask(self, op, **fields):
        self.socket.send({"op": op, **{key: value for key, value in fields.items() if value is not None}})
        answer = self.socket.receive()
        if "error" in answer:
            raise mlmq.Refused(answer["error"])
        return answer["ok"]

    def close(self):
        self.socket.stream.close()

    def make_queue(self, name):
        return mlmq.Client(self.address).make_queue(name)

    def send(self, content, queues=(), clients=(), **fields):
        return self.ask("send", to={"queues": list(queues), "clients": list(clients)}, content=content, **fields)

    def receive(self, queue=None, **query):
        queue = queue or f"client.{self.name}"
        messages = self.ask("receive", queue=queue, **{"settled": "stored", **query})["messages"]
        return messages[0] if messages else None

    def call(self, client, content, wait="10s"):
        return self.ask("call", client=client, content=content, wait=wait)

    def respond(self, request, content):
        return self.send(content, clients=[request["sender"]], context=request["context"])
