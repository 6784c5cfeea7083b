"""Kafka's protocol by the schemas in its own jar: every API in every version, encoded from and decoded to dicts.

Fields that a dict leaves out have their default. Of a record batch only the fields of version 2 are known.
"""

import json
import re
import socket
import struct
import uuid
import zipfile

from aiokafka import codec
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c

NUMBERS = {"bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d"}
CODECS = [bytes, codec.gzip_encode, codec.snappy_encode, codec.lz4_encode, codec.zstd_encode]
HEADER = struct.Struct(">hiqqqhii")


def holds(range_, version):
    first, plus, last = re.fullmatch(r"(\d*)([+-]?)(\d*)|none", range_).groups(default="")
    return first != "" and int(first) <= version and (plus == "+" or version <= int(last or first))


def load(jar):
    """The schemas of all messages, by name."""
    with zipfile.ZipFile(jar) as archive:
        names = [name for name in archive.namelist() if re.search(r"common/message/\w+(Request|Response)\.json$", name)]
        texts = [re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE) for name in names]
    return {schema["name"]: schema for schema in map(json.loads, texts)}


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


class Form:
    """A message in one version."""

    def __init__(self, schema, version):
        self.schema, self.version = schema, version
        self.flexible = holds(schema["flexibleVersions"], version)
        self.commons = {common["name"]: common["fields"] for common in schema.get("commonStructs", [])}

    def parts(self, fields):
        there = [field for field in fields if holds(field["versions"], self.version)]
        tagged = [field for field in there if "tag" in field and holds(field["taggedVersions"], self.version)]
        return [field for field in there if field not in tagged], tagged


    def write(self, fields, values):
        plain, tagged = self.parts(fields)
        unknown = set(values) - {field["name"] for field in fields}
        assert not unknown, unknown
        out = b"".join(self.write_field(field, field["type"], values) for field in plain)
        tagged = [(field["tag"], self.write_field(field, field["type"], values)) for field in tagged if field["name"] in values]
        if self.flexible:
            out += varint(len(tagged)) + b"".join(varint(tag) + varint(len(value)) + value for tag, value in sorted(tagged))
        return out

    def write_field(self, field, kind, values):
        return self.write_value(field, kind, values.get(field["name"], self.default(field)))

    def default(self, field):
        kind, default = field["type"], field.get("default")
        if default == "null":
            return None
        if kind.startswith("[]"):
            return []
        if kind in NUMBERS:
            return {"true": True, "false": False}[default or "false"] if kind == "bool" else int(str(default or 0), 0)
        return {"string": default or "", "uuid": uuid.UUID(int=0), "bytes": b"", "records": None}.get(kind, {})

    def write_value(self, field, kind, value):
        if kind in NUMBERS:
            return struct.pack(">" + NUMBERS[kind], value)
        if kind == "uuid":
            return value.bytes
        short = kind == "string"
        if kind.startswith("[]"):
            one = {**field, "nullableVersions": "none"}
            body = value and b"".join(self.write_value(one, kind[2:], item) for item in value)
        elif short or kind in ("bytes", "records"):
            body = value = value.encode() if isinstance(value, str) else value
        else:
            mark = b"\x01" if "nullableVersions" in field and holds(field["nullableVersions"], self.version) else b""
            return b"\xff" if value is None else mark + self.write(field.get("fields") or self.commons[kind], value)
        count = -1 if value is None else len(value)
        size = varint(count + 1) if self.flexible else struct.pack(">h" if short else ">i", count)
        return size + (body or b"")

    def read(self, fields, data):
        plain, tagged = self.parts(fields)
        values = {field["name"]: self.read_value(field, field["type"], data) for field in plain}
        if self.flexible:
            known = {field["tag"]: field for field in tagged}
            for _ in range(data.varint()):
                tag, size = data.varint(), data.varint()
                if tag in known:
                    values[known[tag]["name"]] = self.read_value(known[tag], known[tag]["type"], data)
                else:
                    values[f"Tag{tag}"] = data.take(size)
        return values

    def read_value(self, field, kind, data):
        if kind in NUMBERS:
            return data.number(NUMBERS[kind])
        if kind == "uuid":
            return uuid.UUID(bytes=data.take(16))
        fields = field.get("fields") or self.commons.get(kind)
        if not kind.startswith("[]") and kind not in ("string", "bytes", "records"):
            nullable = "nullableVersions" in field and holds(field["nullableVersions"], self.version)
            return None if nullable and data.number("b") < 0 else self.read(fields, data)
        count = data.varint() - 1 if self.flexible else data.number("h" if kind == "string" else "i")
        if count < 0:
            return None
        if kind.startswith("[]"):
            return [self.read_value({**field, "type": kind[2:], "nullableVersions": "none"}, kind[2:], data) for _ in range(count)]
        taken = data.take(count)
        return taken.decode() if kind == "string" else taken


class Data:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        self.at += count
        assert self.at <= len(self.data), "an answer that is too short"
        return self.data[self.at - count : self.at]

    def number(self, code):
        return struct.unpack(">" + code, self.take(struct.calcsize(">" + code)))[0]

    def varint(self):
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number


class Connection:
    """Requests and answers, one after the other or several at once."""

    def __init__(self, address, schemas):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.schemas, self.sent = schemas, []

    def send(self, name, version, body, answered=True):
        schema = self.schemas[name + "Request"]
        form = Form(schema, version)
        header = struct.pack(">hhi", schema["apiKey"], version, len(self.sent)) + struct.pack(">h", -1) + b"\0" * form.flexible
        request = header + form.write(schema["fields"], body)
        self.socket.sendall(struct.pack(">i", len(request)) + request)
        if answered:
            self.sent.append((name, version))

    def receive(self, seconds=30):
        """The answer to the first request that has none yet. Raises TimeoutError, or ConnectionError where the broker closed."""
        self.socket.settimeout(seconds)
        size = struct.unpack(">i", self.exactly(4))[0]
        self.socket.settimeout(30)
        data = Data(self.exactly(size))
        name, version = self.sent.pop(0)
        form = Form(self.schemas[name + "Response"], version)
        data.take(4)
        if form.flexible and name != "ApiVersions":
            assert data.varint() == 0
        answer = form.read(form.schema["fields"], data)
        assert data.at == size, f"{size - data.at} bytes behind an answer to {name} {version}"
        return answer

    def exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionError
            data += more
        return data

    def ask(self, name, version, body):
        self.send(name, version, body)
        return self.receive()


def zigzag(number):
    return varint((number << 1) ^ (number >> 63))


def sized(value):
    return zigzag(-1) if value is None else zigzag(len(value)) + value


def batch(records, compression=0, attributes=0, producer=(-1, -1, -1)):
    """A record batch of (time, key, value, headers)."""
    first = records[0][0]
    body = b""
    for index, (time, key, value, headers) in enumerate(records):
        named = b"".join(sized(name) + sized(value) for name, value in headers)
        body += sized(b"\0" + zigzag(time - first) + zigzag(index) + sized(key) + sized(value) + zigzag(len(headers)) + named)
    pid, epoch, sequence = producer
    largest = max(record[0] for record in records)
    head = HEADER.pack(attributes | compression, len(records) - 1, first, largest, pid, epoch, sequence, len(records))
    checked = head + CODECS[compression](body)
    return struct.pack(">qiibI", 0, 9 + len(checked), -1, 2, calc_crc32c(checked)) + checked


def batches(data):
    """The whole batches in the answer to a fetch, each with its records."""
    found, memory = [], MemoryRecords(data or b"")
    while memory.has_next():
        read = memory.next_batch()
        assert isinstance(read, DefaultRecordBatch) and read.validate_crc()
        fields = ("base_offset", "last_offset_delta", "attributes", "first_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence")
        found.append({name: getattr(read, name) for name in fields})
        found[-1]["records"] = [[record.offset, record.timestamp, record.key, record.value, record.headers] for record in read]
    return found
