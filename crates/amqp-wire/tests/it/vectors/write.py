"""Writes `pamqp.tsv`: every method, content headers and tables, as pamqp writes them, and what has to be read in them.

pamqp is what aio-pika stands on: an implementation of its own of the same protocol. Usage, with pamqp 4.0.1:

    python crates/amqp-wire/tests/it/vectors/write.py

A line is `name TAB frame as hex TAB what it says`, in the words in which Rust shows the values.
"""

import datetime
import decimal
import itertools
from pathlib import Path

from pamqp import base, commands, encode, frame, header

# Where our names are others.
NAMES = {"nowait": "no_wait", "exchange_type": "kind", "message_type": "kind", "global_": "global", "globally": "global"}
RESERVED = {
    ("Connection.Open", "capabilities"), ("Connection.Open", "insist"), ("Connection.OpenOk", "known_hosts"),
    ("Channel.Open", "out_of_band"), ("Channel.OpenOk", "channel_id"), ("Basic.GetEmpty", "cluster_id"),
}  # fmt: skip
# pamqp fixes the value of these; ours are whatever comes.
FIXED = {"ticket", "insist", "capabilities", "known_hosts", "out_of_band", "channel_id", "cluster_id", "internal", "immediate"}
STRICT = {"exchange", "queue", "source", "destination"}
INTEGERS = {"octet": 1, "short": 2, "long": 4, "longlong": 8}
TABLE = {"a": {"b": [True, None]}, "text": "å"}


def text(value):
    return '"' + value + '"'


def octets(value):
    """As Rust shows bytes."""
    shown = "".join("\\0" if b == 0 else chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\x{b:02x}" for b in value)
    return f'b"{shown}"'


def shown(value):
    """A field of a table, with the type that pamqp gives it."""
    kind = encode.encode_table_value(value)[:1].decode()
    if kind in "tbBsuIildf":
        rust = {"t": "Bool", "b": "I8", "B": "U8", "s": "I16", "u": "U16", "I": "I32", "i": "U32", "l": "I64", "d": "F64", "f": "F32"}
        return f"{rust[kind]}({str(value).lower() if kind == 't' else value})"
    if kind == "D":
        exponent = -value.as_tuple().exponent
        return f"Decimal({exponent}, {int(value.scaleb(exponent))})"
    if kind == "S":
        return f"LongString({octets(value.encode() if isinstance(value, str) else value)})"
    if kind == "x":
        return f"Bytes({octets(value)})"
    if kind == "T":
        return f"Timestamp({int(value.timestamp())})"
    if kind == "A":
        return f"Array([{', '.join(map(shown, value))}])"
    if kind == "F":
        return f"Table({table(value)})"
    assert kind == "V", kind
    return "Void"


def table(value):
    # pamqp writes tables sorted.
    return "{" + ", ".join(f"{text(name)}: {shown(field)}" for name, field in sorted(value.items())) + "}"


def filled(kind, name, number):
    """A value of a type, which no other field has, and how it is shown."""
    if kind == "shortstr":
        # It takes names of few letters only.
        return (value := f"{name}-{'x' if name in STRICT else 'å'}"), text(value)
    if kind == "longstr":
        return (value := f"long {name}"), octets(value.encode())
    if kind == "table":
        return TABLE, table(TABLE)
    value = int.from_bytes(bytes([number + 1]) * INTEGERS[kind], "big")
    return value, str(value)


def methods():
    for _, cls in sorted(commands.INDEX_MAPPING.items()):
        name = cls.__qualname__
        for flag in (True, False):
            bits = itertools.cycle([flag, not flag])
            values, says = {}, []
            for number, attribute in enumerate(cls.attributes()):
                kind = cls.amqp_type(attribute)
                default = getattr(cls(), attribute, None) if attribute in FIXED else None
                if attribute in FIXED:
                    value = default
                    seen = str(value).lower() if kind == "bit" else text(value or "") if kind == "shortstr" else str(value)
                    if kind == "longstr":
                        seen = octets((value or "").encode())
                elif kind == "bit":
                    value = next(bits)
                    seen = str(value).lower()
                else:
                    value, seen = filled(kind, attribute, number)
                ours = NAMES.get(attribute, attribute)
                reserved = attribute == "ticket" and name != "Access.RequestOk" or (name, attribute) in RESERVED
                says.append(f"{'reserved_' if reserved else ''}{ours}: {seen}")
                if attribute not in FIXED:
                    values[attribute] = value
            yield name, frame.marshal(cls(**values), 7), ", ".join(says)


def headers():
    everything = {
        "content_type": "text/plain", "content_encoding": "utf-8", "headers": {"a": {"b": [1, "c"]}}, "delivery_mode": 2,
        "priority": 3, "correlation_id": "c", "reply_to": "r", "expiration": "60000", "message_id": "m",
        "timestamp": datetime.datetime.fromtimestamp(1_700_000_000, datetime.timezone.utc), "message_type": "t",
        "user_id": "guest", "app_id": "app",
    }  # fmt: skip
    chosen = [everything, {}] + [{name: value} for name, value in everything.items()]
    for properties in chosen:
        says = []
        for name in everything:
            seen = "None"
            if name in properties:
                value = properties[name]
                seen = table(value) if isinstance(value, dict) else text(value) if isinstance(value, str) else value
                seen = int(value.timestamp()) if isinstance(value, datetime.datetime) else seen
                seen = f"Some({seen})"
            says.append(f"{NAMES.get(name, name)}: {seen}")
        says.append("cluster_id: None")
        content = header.ContentHeader(0, 1234567, commands.Basic.Properties(**properties))
        yield "header", frame.marshal(content, 7), ", ".join(says)


def tables():
    everything = {
        "yes": True, "small": -5, "short": 300, "int": 70_000, "long": 1 << 40, "negative": -(1 << 40), "float": 0.5,
        "decimal": decimal.Decimal("3.14"), "text": "å", "bytes": bytearray(b"\x00\xff"), "nothing": None,
        "time": datetime.datetime.fromtimestamp(1_700_000_000, datetime.timezone.utc), "list": [1, "two", [3]],
        "table": {"inner": {"innermost": True}}, "empty": {}, "none": [],
    }  # fmt: skip
    for name, value in everything.items():
        yield "table", encode.field_table({name: value}), table({name: value})
    yield "table", encode.field_table(everything), table(everything)


def main():
    assert issubclass(commands.Basic.Publish, base.Frame)
    rows = [f"{name}\t{data.hex()}\t{says}" for name, data, says in itertools.chain(methods(), headers(), tables())]
    (Path(__file__).parent / "pamqp.tsv").write_text("\n".join(dict.fromkeys(rows)) + "\n", encoding="utf-8")


main()
