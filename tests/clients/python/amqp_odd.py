"""Odd bytes for an AMQP server, and its answers: one line per case, `name TAB answer`.

Usage: amqp_odd.py HOST:PORT [CASE]. The answers are the returned methods, without parts that differ between runs.
"""

import re
import socket
import struct
import sys

HEADER = b"AMQP\x00\x00\x09\x01"
TIMEOUT = 20


def short(text):
    data = text if isinstance(text, bytes) else text.encode()
    return bytes([len(data)]) + data


def long(data):
    data = data if isinstance(data, bytes) else data.encode()
    return struct.pack(">I", len(data)) + data


def table(*fields):
    return long(b"".join(short(name) + value for name, value in fields))


def longstr(text):
    return b"S" + long(text)


def frame(kind, channel, payload, end=b"\xce"):
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end


def method(channel, class_id, method_id, arguments=b""):
    return frame(1, channel, struct.pack(">HH", class_id, method_id) + arguments)


def content(channel, size, properties=b"\x00\x00", class_id=60):
    return frame(2, channel, struct.pack(">HHQ", class_id, 0, size) + properties)


def body(channel, data):
    return frame(3, channel, data)


CAPABLE = table(
    ("capabilities", b"F" + table(("authentication_failure_close", b"t\x01"), ("consumer_cancel_notify", b"t\x01")))
)


def start_ok(response=b"\x00guest\x00guest", mechanism="PLAIN", properties=CAPABLE):
    return method(0, 10, 11, properties + short(mechanism) + long(response) + short("en_US"))


def tune_ok(channels=2047, size=131072, heartbeat=0):
    return method(0, 10, 31, struct.pack(">HIH", channels, size, heartbeat))


def open_(vhost="/"):
    return method(0, 10, 40, short(vhost) + short("") + b"\x00")


CHANNEL = method(1, 20, 10, short(""))
CLOSE_OK = method(0, 10, 51)
NAMES = {
    (10, 10): "start", (10, 30): "tune", (10, 41): "open-ok", (10, 50): "connection.close", (10, 51): "connection.close-ok",
    (20, 11): "channel.open-ok", (20, 40): "channel.close", (20, 41): "channel.close-ok", (20, 21): "flow-ok",
    (30, 11): "request-ok", (40, 11): "exchange.declare-ok", (40, 21): "exchange.delete-ok", (40, 31): "exchange.bind-ok",
    (40, 51): "exchange.unbind-ok", (50, 11): "declare-ok", (50, 21): "bind-ok", (50, 31): "purge-ok", (50, 41): "delete-ok",
    (50, 51): "unbind-ok", (60, 11): "qos-ok", (60, 21): "consume-ok", (60, 30): "cancel", (60, 31): "cancel-ok",
    (60, 50): "return", (60, 60): "deliver", (60, 71): "get-ok", (60, 72): "get-empty", (60, 80): "ack", (60, 111): "recover-ok",
    (60, 120): "nack", (85, 11): "confirm-ok", (90, 11): "tx.select-ok", (90, 21): "commit-ok", (90, 31): "rollback-ok",
}


class Client:
    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), TIMEOUT)
        self.socket.settimeout(TIMEOUT)
        self.buffer = b""

    def send(self, data):
        try:
            self.socket.sendall(data)
        except OSError:
            pass

    def read(self):
        """The next frame; `None` at the end, `"nothing"` when nothing comes."""
        while True:
            if self.buffer.startswith(b"AMQP") and len(self.buffer) >= 8:
                found, self.buffer = self.buffer[:8], self.buffer[8:]
                return ("header", found)
            if len(self.buffer) >= 7:
                kind, channel, size = struct.unpack(">BHI", self.buffer[:7])
                if len(self.buffer) >= size + 8:
                    payload, self.buffer = self.buffer[7 : 7 + size], self.buffer[8 + size :]
                    return (kind, channel, payload)
            try:
                more = self.socket.recv(65536)
            except socket.timeout:
                return "nothing"
            except OSError:
                return None
            if not more:
                return None
            self.buffer += more

    def until(self, class_id, method_id):
        while True:
            found = self.read()
            if found in (None, "nothing"):
                raise SystemExit(f"expected {class_id}.{method_id}, found {found}")
            if found[0] == 1 and struct.unpack(">HH", found[2][:4]) == (class_id, method_id):
                return found

    def opened(self, **tune):
        self.send(HEADER)
        self.until(10, 10)
        self.send(start_ok())
        self.until(10, 30)
        self.send(tune_ok(**tune) + open_())
        self.until(10, 41)
        return self


def told(payload):
    """The numbers and the text of a close method."""
    code, length = struct.unpack(">HB", payload[4:7])
    text = payload[7 : 7 + length].decode(errors="replace")
    class_id, method_id = struct.unpack(">HH", payload[7 + length : 11 + length])
    text = text.replace("\n", "\\n")
    text = re.sub(r"amq\.gen-[\w-]+", "amq.gen-*", text)
    return f"{code} {class_id}.{method_id} {text}"


FLOW = method(1, 20, 20, b"\1")
PROBE = method(9, 20, 10, short(""))


def answers(client, sent, opening=False):
    """The answers to some bytes, then the state of channel 1 and of the connection.

    A server may treat channels beside each other: so channel 1 is asked first, if it was opened, and channel 9 after that.
    """
    asks_channel = CHANNEL in sent
    client.send(sent)
    if not opening:
        client.send(FLOW if asks_channel else PROBE)
    said = []
    while True:
        found = client.read()
        if found is None:
            said.append("end")
            return " | ".join(said)
        if found == "nothing":
            said.append("silence")
            return " | ".join(said)
        if found[0] == "header":
            said.append("header " + found[1][4:].hex())
            continue
        kind, channel, payload = found
        if kind != 1:
            said.append({2: "content-header", 3: f"body {len(payload)}", 8: "heartbeat"}.get(kind, f"frame {kind}"))
            continue
        ids = struct.unpack(">HH", payload[:4])
        name = NAMES.get(ids, f"{ids[0]}.{ids[1]}")
        if ids == (20, 11) and channel == 9:
            said.append("alive")
            return " | ".join(said)
        if name == "flow-ok":
            client.send(PROBE)
        if name in ("connection.close", "channel.close"):
            said.append(f"{name} {told(payload)}")
            client.send(CLOSE_OK if name == "connection.close" else method(channel, 20, 41) + PROBE)
        else:
            said.append(name)


def declare(name, flags=0, arguments=long(b""), channel=1):
    return method(channel, 50, 10, b"\0\0" + short(name) + bytes([flags]) + arguments)


def delete(name, flags=0):
    return method(1, 50, 40, b"\0\0" + short(name) + bytes([flags]))


def exchange(name, kind="direct", flags=0, arguments=long(b"")):
    return method(1, 40, 10, b"\0\0" + short(name) + short(kind) + bytes([flags]) + arguments)


def bind(queue, source, key="", arguments=long(b"")):
    return method(1, 50, 20, b"\0\0" + short(queue) + short(source) + short(key) + b"\0" + arguments)


def consume(queue, tag="", flags=0, arguments=long(b"")):
    return method(1, 60, 20, b"\0\0" + short(queue) + short(tag) + bytes([flags]) + arguments)


def publish(target="", key="", flags=0, data=b"x", properties=b"\0\0", size=None):
    size = len(data) if size is None else size
    return method(1, 60, 40, b"\0\0" + short(target) + short(key) + bytes([flags])) + content(1, size, properties) + (
        body(1, data) if data else b""
    )


def get(queue, flags=0):
    return method(1, 60, 70, b"\0\0" + short(queue) + bytes([flags]))


def stream(name, flags=2, *more):
    return declare(name, flags, table(("x-queue-type", longstr("stream")), *more))


def quorum(name, *more):
    return declare(name, 2, table(("x-queue-type", longstr("quorum")), *more))


def qos(count, is_global=0):
    return method(1, 60, 10, struct.pack(">IHB", 0, count, is_global))


def ack(tag, multiple=0):
    return method(1, 60, 80, struct.pack(">QB", tag, multiple))


def nested(depth):
    inner = b""
    for _ in range(depth):
        inner = short("a") + b"F" + long(inner)
    return long(inner)


def properties(flags, data):
    return struct.pack(">H", flags) + data


Q = "odd-queue"
OPENING = {
    "no protocol": b"GET / HTTP/1.1\r\n\r\n",
    "another version": b"AMQP\x00\x02\x00\x00",
    "protocol 1.0 with sasl": b"AMQP\x03\x01\x00\x01",
    "wrong password": HEADER + start_ok(b"\0guest\0wrong"),
    "wrong password, not told": HEADER + start_ok(b"\0guest\0wrong", properties=long(b"")),
    "unknown mechanism": HEADER + start_ok(mechanism="MAGIC"),
    "anonymous, to an unknown vhost": HEADER + start_ok(b"", "ANONYMOUS") + tune_ok() + open_("nowhere"),
    "channel_max too high": HEADER + start_ok() + tune_ok(channels=4000),
    "channel_max 0": HEADER + start_ok() + tune_ok(channels=0),
    "frame_max too low": HEADER + start_ok() + tune_ok(size=100),
    "frame_max too high": HEADER + start_ok() + tune_ok(size=200000),
    "unknown vhost": HEADER + start_ok() + tune_ok() + open_("nowhere"),
    "open before tune-ok": HEADER + start_ok() + open_(),
    "channel before open": HEADER + start_ok() + tune_ok() + CHANNEL,
    "body while opening": HEADER + frame(3, 0, b"x"),
}
OPEN = {
    "heartbeat": frame(8, 0, b""),
    "heartbeat on a channel": CHANNEL + frame(8, 1, b""),
    "frame over frame_max": CHANNEL + struct.pack(">BHI", 3, 1, 200000) + b"x" * 100,
    "frame with a bad end": CHANNEL + frame(1, 1, b"\x00\x14\x00\x14\x01", b"\x00"),
    "unknown frame type": CHANNEL + frame(4, 1, b"abc"),
    "unknown frame type on channel 0": frame(4, 0, b"abc"),
    "unknown class": CHANNEL + method(1, 99, 10),
    "unknown method": CHANNEL + method(1, 60, 99),
    "unknown method on channel 0": method(0, 10, 99),
    "method without its arguments": CHANNEL + method(1, 50, 10, b"\0"),
    "method with bytes left over": CHANNEL + method(1, 20, 20, b"\x01\x01\x01"),
    "empty method frame": CHANNEL + frame(1, 1, b""),
    "channel not open": declare(Q),
    "channel opened twice": CHANNEL + CHANNEL,
    "channel 0 opened": method(0, 20, 10, short("")),
    "channel beyond channel_max": method(3000, 20, 10, short("")),
    "channel closed twice": CHANNEL + method(1, 20, 40, b"\0\xc8" + short("") + b"\0\0\0\0") * 2,
    "close-ok of an open channel": CHANNEL + method(1, 20, 41),
    "close of a channel not open": method(1, 20, 40, b"\0\xc8" + short("") + b"\0\0\0\0"),
    "connection method on a channel": CHANNEL + method(1, 10, 50, b"\0\xc8" + short("") + b"\0\0\0\0"),
    "channel method on channel 0": method(0, 60, 70, b"\0\0" + short(Q) + b"\0"),
    "start-ok again": start_ok(),
    "tune-ok again": tune_ok(),
    "open again": open_(),
    "server method": CHANNEL + method(1, 50, 11, short("q") + b"\0" * 8),
    "deliver from a client": CHANNEL + method(1, 60, 60, short("c") + b"\0" * 8 + b"\0" + short("") + short("")),
    "flow off": CHANNEL + method(1, 20, 20, b"\0"),
    "flow on": CHANNEL + method(1, 20, 20, b"\1"),
    "access request": CHANNEL + method(1, 30, 10, short("/data") + b"\0"),
    "header without publish": CHANNEL + content(1, 1),
    "body without header": CHANNEL + body(1, b"x"),
    "method instead of header": CHANNEL + method(1, 60, 40, b"\0\0" + short("") + short(Q) + b"\0") + declare(Q),
    "body instead of header": CHANNEL + method(1, 60, 40, b"\0\0" + short("") + short(Q) + b"\0") + body(1, b"x"),
    "method instead of body": CHANNEL + publish(key=Q, data=b"", size=5) + declare(Q),
    "header instead of body": CHANNEL + publish(key=Q, data=b"", size=5) + content(1, 5),
    "body longer than announced": CHANNEL + publish(key=Q, data=b"abcdef", size=3),
    "body shorter than announced": CHANNEL + publish(key=Q, data=b"abc", size=6) + method(1, 20, 20, b"\1"),
    "header of another class": CHANNEL + method(1, 60, 40, b"\0\0" + short("") + short(Q) + b"\0") + content(1, 1, class_id=50),
    "empty body frame": CHANNEL + publish(key=Q, data=b"", size=1) + body(1, b"") + body(1, b"x"),
    "message too large": CHANNEL + publish(key=Q, data=b"", size=1 << 40),
    "properties that end early": CHANNEL + publish(key=Q, properties=b"\x80\x00"),
    "properties with bytes left over": CHANNEL + publish(key=Q, properties=b"\x10\x00\x02\x02"),
    "properties with a flag too many": CHANNEL + publish(key=Q, properties=b"\x00\x02"),
    "headers with an unknown type": CHANNEL + publish(key=Q, properties=properties(0x2000, table(("a", b"y")))),
    "headers that lie about their length": CHANNEL + publish(key=Q, properties=b"\x20\x00" + long(b"\x01aS\x00\x00\x00\x09x")),
    "headers nested 40 deep": CHANNEL + publish(key=Q, properties=properties(0x2000, nested(40))),
    "headers nested 3000 deep": CHANNEL + publish(key=Q, properties=properties(0x2000, nested(3000))),
    "a header's name that is not UTF-8": CHANNEL + publish(key=Q, properties=properties(0x2000, table((b"\xff\xfe", b"V")))),
    "a property that is not UTF-8": CHANNEL + publish(key=Q, properties=properties(0x8000, short(b"\xff\xfe"))),
    "a property that runs over its frame": CHANNEL + publish(key=Q, properties=properties(0x8000, b"\xfftext/plain")),
    "bad expiration": CHANNEL + publish(key=Q, properties=properties(0x0100, short("soon"))),
    "negative expiration": CHANNEL + publish(key=Q, properties=properties(0x0100, short("-1"))),
    "expiration with a fraction": CHANNEL + publish(key=Q, properties=properties(0x0100, short("1.5"))),
    "expiration in more than ten years": CHANNEL + publish(key=Q, properties=properties(0x0100, short("315360000001"))),
    "somebody else's user-id": CHANNEL + publish(key=Q, properties=properties(0x0010, short("root"))),
    "own user-id": CHANNEL + publish(key=Q, properties=properties(0x0010, short("guest"))),
    "delivery mode 3": CHANNEL + publish(key=Q, properties=b"\x10\x00\x03"),
    "CC that is no array": CHANNEL + publish(key=Q, properties=properties(0x2000, table(("CC", longstr("x"))))),
    "publish to no exchange": CHANNEL + publish(target="nowhere"),
    "publish into nowhere": CHANNEL + publish(key="nowhere"),
    "publish into nowhere, mandatory": CHANNEL + publish(key="nowhere", flags=1),
    "publish into nowhere, mandatory, confirmed": CHANNEL + method(1, 85, 10, b"\0") + publish(key="nowhere", flags=1),
    "publish immediate": CHANNEL + publish(key=Q, flags=2),
    "publish with a routing key that is not UTF-8": CHANNEL + publish(key=b"\xff\xfe"),
    "declare passive, absent": CHANNEL + declare("absent", 1),
    "declare with a reserved name": CHANNEL + declare("amq.mine"),
    "declare a name that is not UTF-8": CHANNEL + declare(b"\xff\xfe"),
    "declare again, durable": CHANNEL + declare("odd-again") + declare("odd-again", 2),
    "declare again, exclusive": CHANNEL + declare("odd-excl") + declare("odd-excl", 4),
    "declare again, other ttl": CHANNEL + declare("odd-ttl") + declare("odd-ttl", 0, table(("x-message-ttl", b"I\0\0\0\5"))),
    "declare again, less ttl": CHANNEL + declare("odd-ttl2", 0, table(("x-message-ttl", b"I\0\0\0\5"))) + declare("odd-ttl2"),
    "declare with a negative ttl": CHANNEL + declare("odd-x", 0, table(("x-message-ttl", b"I\xff\xff\xff\xff"))),
    "declare with a ttl of text": CHANNEL + declare("odd-x", 0, table(("x-message-ttl", longstr("5")))),
    "declare with expires 0": CHANNEL + declare("odd-x", 0, table(("x-expires", b"I\0\0\0\0"))),
    "declare with a bad overflow": CHANNEL + declare("odd-x", 0, table(("x-overflow", longstr("spill")))),
    "declare with a bad queue type": CHANNEL + declare("odd-x", 2, table(("x-queue-type", longstr("heap")))),
    "declare with 256 priorities": CHANNEL + declare("odd-x", 0, table(("x-max-priority", b"I\0\0\1\0"))),
    "declare with a dead-letter key alone": CHANNEL + declare("odd-x", 0, table(("x-dead-letter-routing-key", longstr("k")))),
    "declare with a ttl of many bits": CHANNEL + declare("odd-long", 0, table(("x-message-ttl", b"l\0\0\0\1\0\0\0\0"))),
    "declare with a ttl of more than ten years": CHANNEL + declare("odd-x", 0, table(("x-message-ttl", b"l\0\0\x01\0\0\0\0\0"))),
    "declare with an overflow of a number": CHANNEL + declare("odd-x", 0, table(("x-overflow", b"I\0\0\0\1"))),
    "declare with a queue type of a number": CHANNEL + declare("odd-x", 0, table(("x-queue-type", b"I\0\0\0\1"))),
    "declare with one active consumer of a number": CHANNEL + declare("odd-x", 0, table(("x-single-active-consumer", b"I\0\0\0\1"))),
    "declare with a dead-letter key of a number": CHANNEL
    + declare("odd-x", 0, table(("x-dead-letter-exchange", longstr("")), ("x-dead-letter-routing-key", b"I\0\0\0\1"))),
    "declare with a locator of a number": CHANNEL + declare("odd-x", 0, table(("x-queue-leader-locator", b"I\0\0\0\1"))),
    "declare with a dead-letter exchange of a number": CHANNEL + declare("odd-x", 0, table(("x-dead-letter-exchange", b"I\0\0\0\1"))),
    "declare with an unknown queue mode": CHANNEL + declare("odd-x", 0, table(("x-queue-mode", longstr("busy")))),
    "declare with a queue mode of a number": CHANNEL + declare("odd-x", 0, table(("x-queue-mode", b"I\0\0\0\1"))),
    "declare with an unknown queue version": CHANNEL + declare("odd-x", 0, table(("x-queue-version", b"I\0\0\0\3"))),
    "declare with a queue version of text": CHANNEL + declare("odd-x", 0, table(("x-queue-version", longstr("2")))),
    "declare with an unknown locator": CHANNEL + declare("odd-x", 0, table(("x-queue-leader-locator", longstr("moon")))),
    "declare with a locator of old": CHANNEL + declare("odd-old", 8, table(("x-queue-master-locator", longstr("min-masters")))),
    "declare with a mode and a version of old": CHANNEL
    + declare("odd-lazy", 8, table(("x-queue-mode", longstr("lazy")), ("x-queue-version", b"I\0\0\0\1"))),
    "declare a classic queue with a delivery limit": CHANNEL + declare("odd-x", 0, table(("x-delivery-limit", b"I\0\0\0\3"))),
    "declare a quorum queue with priorities": CHANNEL + quorum("odd-x", ("x-max-priority", b"I\0\0\0\3")),
    "declare a quorum queue with an unknown strategy": CHANNEL + quorum("odd-x", ("x-dead-letter-strategy", longstr("maybe"))),
    "declare a quorum queue with a strategy of a number": CHANNEL + quorum("odd-x", ("x-dead-letter-strategy", b"I\0\0\0\1")),
    "declare a quorum queue with a delivery limit of text": CHANNEL + quorum("odd-ql", ("x-delivery-limit", longstr("5"))),
    "declare a quorum queue with a negative limit in memory": CHANNEL + quorum("odd-x", ("x-max-in-memory-length", b"I\xff\xff\xff\xff")),
    "declare a quorum queue for nobody": CHANNEL + quorum("odd-x", ("x-quorum-initial-group-size", b"I\0\0\0\0")),
    "declare a quorum queue with an overflow it has not": CHANNEL + quorum("odd-qo", ("x-overflow", longstr("reject-publish-dlx"))),
    "declare again, with what nobody knows": CHANNEL + declare("odd-again3") + declare("odd-again3", 0, table(("x-mine", longstr("1")))),
    "declare again, by a wider number": CHANNEL
    + declare("odd-wide", 0, table(("x-max-length", b"I\0\0\0\5"))) + declare("odd-wide", 0, table(("x-max-length", b"B\5"))),
    "declare a transient quorum queue": CHANNEL + declare("odd-x", 0, table(("x-queue-type", longstr("quorum")))),
    "declare an exclusive quorum queue": CHANNEL + declare("odd-x", 6, table(("x-queue-type", longstr("quorum")))),
    "declare with a table 40 deep": CHANNEL + declare("odd-deep", 8, nested(40)),
    "declare with a table 3000 deep": CHANNEL + declare("odd-x", 8, nested(3000)),
    "declare with a bad type in its table": CHANNEL + declare("odd-x", 0, table(("a", b"y"))),
    "no queue declared before": CHANNEL + get(""),
    "delete an absent queue": CHANNEL + delete("absent"),
    "delete if empty": CHANNEL + declare("odd-full") + publish(key="odd-full") + delete("odd-full", 2),
    "delete if unused": CHANNEL + declare("odd-used") + consume("odd-used") + delete("odd-used", 1),
    "delete a quorum queue if it is unused": CHANNEL + quorum("odd-qd") + delete("odd-qd", 1),
    "delete a quorum queue if it is empty": CHANNEL + quorum("odd-qd") + delete("odd-qd", 2),
    "purge an absent queue": CHANNEL + method(1, 50, 30, b"\0\0" + short("absent") + b"\0"),
    "bind an absent queue": CHANNEL + bind("absent", "amq.direct"),
    "bind to an absent exchange": CHANNEL + declare(Q) + bind(Q, "absent"),
    "bind to the default exchange": CHANNEL + declare(Q) + bind(Q, ""),
    "unbind what is not bound": CHANNEL + declare(Q) + method(1, 50, 50, b"\0\0" + short(Q) + short("amq.direct") + short("k") + long(b"")),
    "declare exchange passive, absent": CHANNEL + exchange("absent", flags=1),
    "declare exchange of an unknown type": CHANNEL + exchange("odd-e", "heap"),
    "declare the default exchange": CHANNEL + exchange(""),
    "declare exchange with a reserved name": CHANNEL + exchange("amq.mine"),
    "declare exchange again, other type": CHANNEL + exchange("odd-e") + exchange("odd-e", "topic"),
    "declare exchange again, durable": CHANNEL + exchange("odd-e2") + exchange("odd-e2", flags=2),
    "declare exchange again, other arguments": CHANNEL
    + exchange("odd-e3") + exchange("odd-e3", arguments=table(("x-mine", longstr("1")))),
    "declare exchange again, other alternate": CHANNEL
    + exchange("odd-e4") + exchange("odd-e4", arguments=table(("alternate-exchange", longstr("amq.fanout")))),
    "declare exchange with an alternate of a number": CHANNEL + exchange("odd-x", arguments=table(("alternate-exchange", b"I\0\0\0\1"))),
    "delete the default exchange": CHANNEL + method(1, 40, 20, b"\0\0" + short("") + b"\0"),
    "delete a predeclared exchange": CHANNEL + method(1, 40, 20, b"\0\0" + short("amq.topic") + b"\0"),
    "delete an absent exchange": CHANNEL + method(1, 40, 20, b"\0\0" + short("absent") + b"\0"),
    "publish to an internal exchange": CHANNEL + exchange("odd-int", flags=8) + publish(target="odd-int"),
    "get from an absent queue": CHANNEL + get("absent"),
    "consume from an absent queue": CHANNEL + consume("absent"),
    "consume twice with one tag": CHANNEL + declare(Q) + consume(Q, "t") + consume(Q, "t"),
    "consume exclusively beside others": CHANNEL + declare("odd-c") + consume("odd-c", "a") + consume("odd-c", "b", 4),
    "consume beside an exclusive one": CHANNEL + declare("odd-c2") + consume("odd-c2", "a", 4) + consume("odd-c2", "b"),
    "consume exclusively where one consumer is active": CHANNEL
    + declare("odd-single", 8, table(("x-single-active-consumer", b"t\1"))) + consume("odd-single", "a", 4),
    "get where one consumer is active": CHANNEL + declare("odd-single2", 8, table(("x-single-active-consumer", b"t\1"))) + get("odd-single2"),
    "get from a quorum queue where one consumer is active": CHANNEL + quorum("odd-single3", ("x-single-active-consumer", b"t\1")) + get("odd-single3"),
    "consume a quorum queue with global prefetch": CHANNEL + quorum("odd-qg") + qos(1, 1) + consume("odd-qg"),
    "consume with a priority of text": CHANNEL + declare(Q) + consume(Q, "p", 0, table(("x-priority", longstr("high")))),
    "declare a stream": CHANNEL + stream("odd-s"),
    "declare a transient stream": CHANNEL + stream("odd-x", 0),
    "declare an exclusive stream": CHANNEL + stream("odd-x", 6),
    "declare an auto-delete stream": CHANNEL + stream("odd-x", 10),
    "declare a stream without a name": CHANNEL + stream(""),
    "declare a stream with a ttl": CHANNEL + stream("odd-x", 2, ("x-message-ttl", b"I\0\0\0\5")),
    "declare a stream with a dead-letter key": CHANNEL + stream("odd-x", 2, ("x-dead-letter-routing-key", longstr("k"))),
    "declare a stream with an age without a unit": CHANNEL + stream("odd-x", 2, ("x-max-age", longstr("7"))),
    "declare a stream with an age of no text": CHANNEL + stream("odd-x", 2, ("x-max-age", b"I\0\0\0\7")),
    "declare a stream with an age that is none": CHANNEL + stream("odd-x", 2, ("x-max-age", longstr("soon"))),
    "declare a stream with too large segments": CHANNEL + stream("odd-x", 2, ("x-stream-max-segment-size-bytes", b"l\0\0\0\0\xb2\xd0\x5e\x01")),
    "declare a stream with a small filter": CHANNEL + stream("odd-x", 2, ("x-stream-filter-size-bytes", b"I\0\0\0\5")),
    "declare a stream again, transient": CHANNEL + stream("odd-s") + stream("odd-s", 0),
    "declare a stream again, exclusive": CHANNEL + stream("odd-s") + stream("odd-s", 6),
    "declare a stream again, auto-delete": CHANNEL + stream("odd-s") + stream("odd-s", 10),
    "declare a stream again, as classic": CHANNEL + stream("odd-s") + declare("odd-s", 2),
    "declare a stream again, with an age": CHANNEL + stream("odd-s") + stream("odd-s", 2, ("x-max-age", longstr("1D"))),
    "declare a classic queue again, as a stream": CHANNEL + declare("odd-ack2", 2) + stream("odd-ack2"),
    "consume a stream without prefetch": CHANNEL + stream("odd-s") + consume("odd-s"),
    "consume a stream without acks": CHANNEL + stream("odd-s") + qos(1) + consume("odd-s", flags=2),
    "consume a stream without acks or prefetch": CHANNEL + stream("odd-s") + consume("odd-s", flags=2),
    "consume a stream with global prefetch": CHANNEL + stream("odd-s") + qos(1) + qos(1, 1) + consume("odd-s"),
    "consume a stream with a priority": CHANNEL + stream("odd-s") + qos(1) + consume("odd-s", arguments=table(("x-priority", b"I\0\0\0\5"))),
    "consume a stream from nowhere": CHANNEL + stream("odd-s") + qos(1) + consume("odd-s", arguments=table(("x-stream-offset", longstr("soon")))),
    "get from a stream": CHANNEL + stream("odd-s") + get("odd-s"),
    "purge a stream": CHANNEL + stream("odd-s") + method(1, 50, 30, b"\0\0" + short("odd-s") + b"\0"),
    "delete a stream if it is empty": CHANNEL + stream("odd-s") + delete("odd-s", 2),
    "consume with a tag that is not UTF-8": CHANNEL + declare(Q) + consume(Q, b"\xff\xfe"),
    "a queue's name that runs over its frame": CHANNEL + method(1, 50, 10, b"\0\0\xffodd-x\0" + long(b"")),
    "cancel an unknown tag": CHANNEL + method(1, 60, 30, short("nobody") + b"\0"),
    "ack an unknown tag": CHANNEL + ack(7),
    "ack tag 0": CHANNEL + ack(0),
    "ack tag 0, multiple": CHANNEL + ack(0, 1),
    "ack an unknown tag, multiple": CHANNEL + ack(7, 1),
    "ack twice": CHANNEL + declare("odd-ack") + publish(key="odd-ack") + get("odd-ack") + ack(1) + ack(1),
    "ack and nack": CHANNEL + declare("odd-ack") + publish(key="odd-ack") + get("odd-ack") + ack(1) + method(1, 60, 120, struct.pack(">QB", 1, 2)),
    "nack all, nothing in hand": CHANNEL + method(1, 60, 120, struct.pack(">QB", 0, 1)),
    "nack an unknown tag": CHANNEL + method(1, 60, 120, struct.pack(">QB", 3, 0)),
    "reject an unknown tag": CHANNEL + method(1, 60, 90, struct.pack(">QB", 3, 1)),
    "qos with a size": CHANNEL + method(1, 60, 10, struct.pack(">IHB", 5, 0, 0)),
    "recover without requeue": CHANNEL + method(1, 60, 110, b"\0"),
    "recover": CHANNEL + method(1, 60, 110, b"\1"),
    "commit without tx": CHANNEL + method(1, 90, 20),
    "rollback without tx": CHANNEL + method(1, 90, 30),
    "confirm after tx": CHANNEL + method(1, 90, 10) + method(1, 85, 10, b"\0"),
    "tx after confirm": CHANNEL + method(1, 85, 10, b"\0") + method(1, 90, 10),
    "ack an unknown tag in a transaction": CHANNEL + method(1, 90, 10) + ack(7),
    "ack twice in a transaction": CHANNEL
    + declare("odd-ack") + publish(key="odd-ack") + method(1, 90, 10) + get("odd-ack") + ack(1) + ack(1),
    "ack again after a rollback": CHANNEL
    + declare("odd-ack") + publish(key="odd-ack") + method(1, 90, 10) + get("odd-ack") + ack(1) + method(1, 90, 30)
    + ack(1) + method(1, 90, 20),
    "publish to no exchange in a transaction": CHANNEL + method(1, 90, 10) + publish("odd-none", "x"),
    "publish to a full queue in a transaction": CHANNEL
    + declare("odd-tx-full", arguments=table(("x-max-length", b"I" + struct.pack(">i", 0)), ("x-overflow", longstr("reject-publish"))))
    + declare("odd-ack") + method(1, 90, 10) + publish(key="odd-ack") + publish(key="odd-tx-full") + method(1, 90, 20),
    "consume replies with acks": CHANNEL + consume("amq.rabbitmq.reply-to"),
    "consume replies twice": CHANNEL + consume("amq.rabbitmq.reply-to", "a", 2) + consume("amq.rabbitmq.reply-to", "b", 2),
    "request without a consumer of replies": CHANNEL
    + publish(key=Q, properties=properties(0x0200, short("amq.rabbitmq.reply-to"))),
    "publish to a reply address that is none": CHANNEL + publish(key="amq.rabbitmq.reply-to.none", flags=1),
    "update-secret": method(0, 10, 70, long("guest") + short("renewed")),
    "update-secret to another": method(0, 10, 70, long("another") + short("renewed")),
    "close-ok out of the blue": method(0, 10, 51),
    "bind without a queue or a key": CHANNEL
    + declare("odd-b") + bind("", "amq.direct") + publish("amq.direct", "odd-b", 1) + publish("amq.direct", "", 1) + get("odd-b", 1),
    "bind without a queue that was declared": CHANNEL + bind("", "amq.direct"),
    "unbind without a queue or a key": CHANNEL
    + declare("odd-b2") + bind("odd-b2", "amq.direct", "odd-b2") + method(1, 50, 50, b"\0\0" + short("") + short("amq.direct") + short("") + long(b""))
    + publish("amq.direct", "odd-b2", 1),
    "declare a queue with line breaks in its name": CHANNEL + declare("\rodd\r\n-n\n") + declare("odd-n", 1),
    "declare a queue with a reserved name and a line break": CHANNEL + declare("am\nq.mine"),
    "declare passive with a line break": CHANNEL + declare("odd-n") + declare("odd-n\n", 1),
    "bind with line breaks in names": CHANNEL + declare("odd-n") + bind("odd-n\n", "amq.\rdirect", "k"),
    "consume from a name with a line break": CHANNEL + declare("odd-n") + consume("odd-n\n"),
    "get from a name with a line break": CHANNEL + declare("odd-n") + get("odd-n\n"),
    "purge a name with a line break": CHANNEL + declare("odd-n") + method(1, 50, 30, b"\0\0" + short("odd-n\n") + b"\0"),
    "delete a queue with a line break in its name": CHANNEL + declare("odd-n") + delete("odd\n-n") + declare("odd-n", 1),
    "declare an exchange with line breaks in its name": CHANNEL + exchange("odd-\r\ne") + exchange("odd-e", flags=1),
    "declare the default exchange with a line break": CHANNEL + exchange("\n"),
    "delete an exchange with a line break in its name": CHANNEL
    + exchange("odd-e") + method(1, 40, 20, b"\0\0" + short("odd-\ne") + b"\0") + exchange("odd-e", flags=1),
    "recover what a transaction has acknowledged": CHANNEL
    + declare("odd-tx") + publish(key="odd-tx") + method(1, 90, 10) + get("odd-tx") + ack(1) + method(1, 60, 110, b"\1")
    + get("odd-tx") + method(1, 90, 20),
}


CLEAN = ["odd-queue", "odd-again", "odd-excl", "odd-ttl", "odd-ttl2", "odd-x", "odd-deep", "odd-full", "odd-used", "odd-c",
         "odd-c2", "odd-ack", "odd-ack2", "odd-s", "odd-b", "odd-b2", "odd-n", "odd-tx", "odd-tx-full"]


def clean(address):
    client = Client(address).opened()
    client.send(CHANNEL)
    client.until(20, 11)
    for name in CLEAN:
        client.send(delete(name))
        client.until(50, 41)
    for name in ["odd-e", "odd-e2", "odd-int"]:
        client.send(method(1, 40, 20, b"\0\0" + short(name) + b"\0"))
        client.until(40, 21)


def main():
    address, wanted = sys.argv[1], sys.argv[2:]
    clean(address)
    for name, sent in OPENING.items():
        if not wanted or name in wanted:
            print(f"{name}\t{answers(Client(address), sent, opening=True)}", flush=True)
    for name, sent in OPEN.items():
        if not wanted or name in wanted:
            print(f"{name}\t{answers(Client(address).opened(), sent)}", flush=True)
    clean(address)


if __name__ == "__main__":
    main()
