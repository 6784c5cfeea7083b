"""Hostile and odd clients: the broker stays up, within its bounds, and reports their errors."""

import json
import re
import socket
import struct
import urllib.request

import msgpack
from live import ADDRESS, DONE, LIMIT, Client, same

HOST, PORT = ADDRESS.rsplit(":", 1)
HANDSHAKE = (
    f"GET /live HTTP/1.1\r\nHost: {ADDRESS}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def plain():
    return socket.create_connection((HOST, int(PORT)), timeout=LIMIT)


def raw(headers=""):
    """A WebSocket whose frames are made by hand, and the head of the answer."""
    connection = plain()
    connection.sendall((HANDSHAKE + headers + "\r\n").encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += connection.recv(1)
    assert head.startswith(b"HTTP/1.1 101 "), head
    return connection, head.decode().lower()


def frame(first, payload):
    length = len(payload)
    if length < 126:
        head = struct.pack("!BB", first, 0x80 | length)
    else:
        head = struct.pack("!BBH", first, 0xFE, length)
    return head + bytes(4) + payload


def rest(connection):
    """All that comes until the broker ends the connection."""
    received = bytearray()
    while True:
        try:
            some = connection.recv(65536)
        except ConnectionResetError:
            return bytes(received)
        if not some:
            return bytes(received)
        received += some


def close_code(received):
    place = received.rindex(b"\x88")
    return struct.unpack("!H", received[place + 2 : place + 4])[0]


def resident():
    with urllib.request.urlopen(f"http://{ADDRESS}/metrics", timeout=LIMIT) as page:
        return float(re.search(r"stafett_process_resident_memory_bytes ([0-9.e+]+)", page.read().decode())[1])


one = Client(1)
same(one.ask("listen"), DONE)

# Compression is offered and not taken; a frame that claims it ends the connection.
connection, head = raw("Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n")
assert "extensions" not in head, head
connection.sendall(frame(0xC1, b"x"))
same(close_code(rest(connection)), 1002)

# A message in many parts, empty ones among them, with pings in between.
text = json.dumps({"command": "ping", "client_id": 1, "id": "parts"}).encode()
connection, _ = raw()
parts = [frame(0x01, b"")] + [frame(0x00, text[at : at + 1]) + frame(0x89, b"p") for at in range(len(text))]
connection.sendall(b"".join(parts) + frame(0x80, b"") + frame(0x88, b""))
received = rest(connection)
same(received.count(b"\x8a\x01p"), len(text))
assert b'{"id":"parts","result":"success"}' in received, received
one.socket.send(iter(["{\"command\":\"ping\",", "\"client_id\":1}"]))
same(one.next(), DONE)

# A flood of pings is answered as far as the answers are read.
connection, _ = raw()
connection.sendall(frame(0x89, b"x" * 125) * 2000)
connection.sendall(frame(0x88, b""))
same(rest(connection).count(b"\x8a\x7d"), 2000)

# A new message before the last one has ended, control frames in parts, unmasked ones.
for odd in [frame(0x01, b"a") + frame(0x01, b"b"), frame(0x09, b""), frame(0x80, b""), b"\x81\x01a", frame(0x83, b"")]:
    connection, _ = raw()
    connection.sendall(odd)
    same(close_code(rest(connection)), 1002)

# Answers far larger than their requests are held back while a client does not read, and take none of the broker's memory.
many = Client("many")
for start in range(0, 800, 50):
    same(many.ask("subscribe", topic=[f"{number:04} " + "x" * 1000 for number in range(start, start + 50)]), DONE)
connection, _ = raw()
before = resident()
asks = 100
connection.sendall(frame(0x81, b'{"command":"list","client_id":"many"}') * asks + frame(0x88, b""))
one.silent()
grown = resident() - before
assert grown < 30e6, grown
size = len(rest(connection))
assert size > asks * 800_000, size
same(many.ask("unsubscribe", all=True), DONE)

# Publishes, good and bad, of one read, each in its order.
connection, _ = raw()
messages = [frame(0x81, json.dumps({"command": "publish", "client_id": 2, "topic": "order", "payload": n}).encode())
            for n in range(200)]
messages[150] = frame(0x81, b'{"command":"publish","client_id":2,"payload":1}')
same(one.ask("subscribe", topic="order"), DONE)
connection.sendall(b"".join(messages) + frame(0x81, b"\xff"))
same([one.next()["broadcast"] for _ in range(199)], [n for n in range(200) if n != 150])
received = rest(connection)
same(received.count(b"Key 'topic' not specified"), 1)
same(close_code(received), 1007)

# Names of any letters; half of a surrogate pair is none.
for topic in ["\u00e9\u0301", "\U0001f469\u200d\U0001f469", "\u202egnirts", "\ufeff", "\u0000"]:
    same(one.ask("subscribe", topic=topic), DONE)
    one.send("publish", topic=topic, payload=topic)
    same(one.next(), {"key": topic, "broadcast": topic})
answer = one.raw('{"command":"subscribe","client_id":1,"topic":"\\ud83c"}')
assert "'topic'" in answer["info"], answer
assert "'topic'" in one.raw('{"command":"publish","client_id":1,"topic":"\\udc00x","payload":1}')["info"]
# A payload is passed on as it is written.
one.socket.send('{"command":"publish","client_id":1,"topic":"\\u006frder","payload":"\\ud83c"}')
same(one.socket.recv(timeout=LIMIT), '{"key":"order","broadcast":"\\ud83c"}')

# The same key twice.
assert "duplicate" in one.raw('{"command":"ping","client_id":1,"client_id":1}')["info"]
assert "duplicate" in one.raw('{"command":"ping","comm\\u0061nd":"ping","client_id":1}')["info"]
same(one.raw('{"command":"ping","client_id":1,"other":1,"other":2}'), DONE)

# Client ids are whole numbers of 64 bits as they are written, or texts.
for odd in ["1.0", "1e0", "1E2", "9223372036854775808", "1" * 400, "true", "[]", "{}", '"' + "x" * 257 + '"']:
    answer = one.raw('{"command":"ping","client_id":%s}' % odd)
    assert "'client_id'" in answer["info"], (odd, answer)
for fine in ["-9223372036854775808", "9223372036854775807", "-0", '"1.0"', '""', '"' + "x" * 256 + '"']:
    same(one.raw('{"command":"ping","client_id":%s}' % fine), DONE)

# MessagePack that JSON has no words for.
packed = Client("packed", subprotocols=["stafett.live.msgpack"])


def tell(message):
    packed.socket.send(message)
    return msgpack.unpackb(packed.socket.recv(timeout=LIMIT))


fields = {"command": "publish", "client_id": 1, "topic": "order"}
for odd in [
    msgpack.packb({**fields, "payload": msgpack.ExtType(5, b"x")}),
    msgpack.packb({**fields, "payload": msgpack.Timestamp(1, 2)}),
    msgpack.packb({**fields, "payload": {1: 2}}),
    msgpack.packb({**fields, "payload": {b"\xff": 2}}),
    msgpack.packb(fields) + b"\x00",
    msgpack.packb([1]),
    b"\xdf\xff\xff\xff\xff",
    b"\x91" * 1000,
    b"",
]:
    same(tell(odd)["error"], "bad_message")
packed.socket.send(msgpack.packb({**fields, "payload": [float("nan"), 2**64 - 1, -(2**63)]}))
same(one.next()["broadcast"], [None, 2**64 - 1, -(2**63)])
same(tell(msgpack.packb({"command": "ping", "client_id": 1.0}))["error"], "bad_state")
same(tell(msgpack.packb({"command": "ping", "client_id": 1})), DONE)


# HTTP: headers beyond any sense, bodies in pieces.
def exchange(request):
    with plain() as connection:
        try:
            connection.sendall(request)
        except OSError:
            pass  # It has answered, and reads no more.
        return rest(connection).decode(errors="replace")


head = f"GET /live/events?client_id=sse&topic=a HTTP/1.1\r\nHost: {ADDRESS}\r\n"
answer = exchange((head + "Last-Event-ID: " + "9" * 100_000 + "\r\n\r\n").encode())
assert answer == "" or answer.startswith("HTTP/1.1 431 "), answer[:100]
answer = exchange((head.replace("topic=a", "topic=" + "a" * 20_000) + "\r\n").encode())
assert answer == "" or re.match("HTTP/1.1 4(14|31) ", answer), answer[:100]
post = f"POST /live/publish HTTP/1.1\r\nHost: {ADDRESS}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunked(body, size):
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


answer = exchange(post.encode() + chunked(b'{"topic":"order","payload":7}', 3))
assert answer.startswith("HTTP/1.1 200 "), answer
same(one.next()["broadcast"], 7)
answer = exchange(post.encode() + chunked(b"x" * 100_000, 1000))
assert answer.startswith("HTTP/1.1 413 "), answer
announced = f"POST /live/publish HTTP/1.1\r\nHost: {ADDRESS}\r\nConnection: close\r\nContent-Length: 99999999999\r\n\r\n"
assert exchange(announced.encode()).startswith("HTTP/1.1 413 ")
answer = exchange(post.encode() + b"zz\r\n")
assert answer == "" or answer.startswith("HTTP/1.1 400 "), answer
assert exchange(post.encode() + chunked(b"\xff\xfe", 1)).startswith("HTTP/1.1 400 ")

# Many that connect and say nothing, or leave in the middle of a word, or take over from each other.
silent = [plain() for _ in range(300)]
for number, connection in enumerate(silent):
    connection.sendall(HANDSHAKE.encode()[: number % 100])
one.silent()
for connection in silent:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
pair = [Client("pair"), Client("pair")]
for turn in range(200):
    same(pair[turn % 2].ask("listen"), DONE)
    same(pair[1 - turn % 2].next() if turn else pair[1].ask("ping"),
         {"notice": "taken_over", "client_id": "pair"} if turn else DONE)
one.silent()

# A half-closed client answers no ping, and is disconnected.
connection, _ = raw()
received = rest(connection)
assert b"\x89\x00" in received, received
