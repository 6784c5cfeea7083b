"""Values that handlers take and return, and their form in JSON."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Key = str | bytes
"""A key: a text, or bytes where it is not UTF-8."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record of an input topic."""

    topic: str
    partition: int
    offset: int
    key: Key | None
    value: Any
    timestamp: int
    headers: Mapping[str, Key | None] = field(default_factory=dict)
    late: bool = False
    """True behind the end of its key, or before task time."""


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer that is due."""

    key: Key
    due: int
    name: Key = ""


@dataclass(frozen=True, slots=True)
class Emit:
    """A result: a record for a topic, or a message for a queue. `value` is JSON, or bytes as they are."""

    topic: str | None = None
    value: Any = None
    key: Key | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    queue: str | None = None
    priority: int | None = None
    """Priority in a queue."""

    def __post_init__(self) -> None:
        if (self.topic is None) == (self.queue is None):
            raise ValueError("a result names a topic or a queue")


class Reject(Exception):
    """Raised by a handler: another attempt at the record is of no use."""


class Refused(Exception):
    """A refusal of the broker. `code` is stable, `details` has the other fields."""

    def __init__(self, status: int, details: dict[str, Any]):
        self.status = status
        self.code: str = details.get("code", "")
        self.details = details
        super().__init__(f"{self.code}: {details.get('detail', status)}")


def shown_key(key: Key) -> Any:
    if isinstance(key, str):
        return key
    return {"base64": base64.b64encode(key).decode()}


def read_key(shown: Any) -> Key:
    return base64.b64decode(shown["base64"]) if isinstance(shown, dict) else str(shown)


def read_value(shown: dict[str, Any]) -> Any:
    if "value_base64" in shown:
        return base64.b64decode(shown["value_base64"])
    return shown.get("value")


def shown_emit(emit: Emit) -> dict[str, Any]:
    shown: dict[str, Any] = {"queue": emit.queue} if emit.topic is None else {"topic": emit.topic}
    if emit.priority is not None:
        shown["priority"] = emit.priority
    if emit.key is not None:
        shown["key"] = shown_key(emit.key)
    if emit.headers:
        shown["headers"] = dict(emit.headers)
    if isinstance(emit.value, bytes):
        shown["value_base64"] = base64.b64encode(emit.value).decode()
    else:
        shown["value"] = emit.value
    return shown


def read_record(topic: str, partition: int, shown: dict[str, Any]) -> Record:
    headers = {name: None if value is None else read_key(value) for name, value in shown["headers"].items()}
    key = shown["key"]
    return Record(
        topic,
        partition,
        shown["offset"],
        None if key is None else read_key(key),
        read_value(shown),
        shown["timestamp"],
        headers,
        shown["late"],
    )
