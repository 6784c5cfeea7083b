"""One delivery worked through: handlers called in order, and all they do gathered for one commit.

The same code runs against the broker and against the double: a `Source` is a claimed task of either.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from .state import State
from .types import Emit, Key, Record, Reject, Timer, shown_emit, shown_key

Results = Emit | Iterable[Emit] | None
Handler = Callable[[Record, State], Awaitable[Results]]
TimerHandler = Callable[[Timer, State], Awaitable[Results]]

log = logging.getLogger("stafett")
T = TypeVar("T")

ABSENT = object()
CACHED_MAX = 100_000
"""Entries that a task keeps in memory."""


@dataclass(slots=True)
class Delivery:
    """Timers and records of a task, in this order."""

    topic: str
    due: list[Timer]
    records: list[Record]
    next: dict[str, int]


@dataclass(slots=True)
class Handlers:
    """What an app does, and the rules that matter for its order."""

    record: Handler
    timer: TimerHandler | None
    tables: tuple[str, ...]
    cached: frozenset[str]
    """Tables whose entries do not expire."""
    grace_ms: int | None
    """None if the clock gives the time."""
    passes_first: bool = False
    """True if the place behind a delivery is stored before it comes."""
    emits_early: bool = False
    """True if results may be stored before the commit of their batch."""


class Source(Protocol):
    """A claimed task."""

    async def get(self, table: str, keys: list[Key]) -> list[Any]: ...

    async def commit(self, commit: dict[str, Any]) -> None: ...

    async def emit(self, emit: list[dict[str, Any]]) -> None: ...

    async def fail(self, topic: str, offset: int, error: str, retry: bool) -> None: ...

    async def fail_timer(self, timer: Timer, error: str, retry: bool) -> None: ...


class Batch:
    """A commit that is being built."""

    def __init__(self, source: Source, handlers: Handlers, cache: dict[tuple[str, Key], Any]):
        self._source = source
        self._handlers = handlers
        self._cache = cache
        self._begin()

    def _begin(self) -> None:
        self._changed: dict[tuple[str, Key], Any] = {}
        self._timers: dict[tuple[Key, Key], int | None] = {}
        # No timer of the batch is earlier; one that was cleared may have been.
        self._first_due: int | None = None
        self._emit: list[Emit] = []
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []
        self._refusals: list[Exception] = []

    async def load(self, keys: Iterable[Key]) -> None:
        """Reads entries that are not known yet."""
        wanted = list(dict.fromkeys(keys))
        for table in self._handlers.tables:
            missing = [key for key in wanted if (table, key) not in self._cache]
            if missing:
                values = await self._asked(self._source.get(table, missing))
                self._cache.update(((table, key), value) for key, value in zip(missing, values, strict=True))

    def value(self, table: str, key: Key) -> Any:
        if table not in self._handlers.tables:
            raise KeyError(f"the app has no table {table!r}")
        known = self._changed if (table, key) in self._changed else self._cache
        # A handler may change its argument, and fail.
        return copied(known.get((table, key)))

    def put(self, table: str, key: Key, value: Any) -> None:
        if table not in self._handlers.tables:
            raise KeyError(f"the app has no table {table!r}")
        self._set(self._changed, (table, key), value)

    def set_timer(self, key: Key, name: Key, due: int | None) -> None:
        self._set(self._timers, (key, name), due)
        if due is not None and (self._first_due is None or due < self._first_due):
            self._first_due = due

    async def emit(self, emit: Emit) -> None:
        """Stores a result at once."""
        if not self._handlers.emits_early:
            raise ValueError("results go with the commit, unless the app has guarantee='at-least-once'")
        await self._asked(self._source.emit([shown_emit(emit)]))

    async def _asked(self, answer: Awaitable[T]) -> T:
        """Awaits the task for a handler, and notes its refusal."""
        try:
            return await answer
        except Exception as error:
            self._refusals.append(error)
            raise

    def _raise_refusal(self, error: Exception) -> None:
        """Raises the refusal of the task with which a handler ended: the handler did not fail by itself."""
        cause: BaseException | None = error
        while cause is not None:
            for refusal in self._refusals:
                if refusal is cause:
                    raise refusal
            cause = cause.__cause__ or cause.__context__

    async def work(self, delivery: Delivery) -> None:
        """Handles a delivery, and commits it: all of it, or up to a record or timer that failed, or to a timer that
        fell due."""
        keys = [timer.key for timer in delivery.due]
        await self.load(keys + [record.key for record in delivery.records if record.key is not None])
        for at, timer in enumerate(delivery.due):
            place = (timer.key, timer.name)
            if self._timers.get(place, timer.due) != timer.due:
                # The handler of an earlier one has moved or cleared it.
                continue
            self._undo.clear()
            emitted = len(self._emit)
            # One that is not set again has fired.
            self._set(self._timers, place, None)
            try:
                if self._handlers.timer is not None:
                    self._take(await self._handlers.timer(timer, State(self, timer.key)))
            except Exception as error:
                self._take_back(emitted)
                self._raise_refusal(error)
                log.warning("timer %r of %r failed", timer.name, timer.key, exc_info=error)
                if self._handlers.passes_first:
                    self._timers[place] = None
                    continue
                if at > 0:
                    await self._commit({})
                await self._source.fail_timer(timer, words(error), not isinstance(error, Reject))
                return
        for at, record in enumerate(delivery.records):
            self._undo.clear()
            emitted = len(self._emit)
            try:
                self._take(await self._handlers.record(record, State(self, record.key)))
            except Exception as error:
                self._take_back(emitted)
                self._raise_refusal(error)
                if self._handlers.passes_first:
                    # Its place is stored: it does not come again.
                    log.warning("record %s/%d@%d failed", record.topic, record.partition, record.offset, exc_info=error)
                    continue
                await self._fail(record, error, has_work=at > 0 or bool(delivery.due))
                return
            is_last = at + 1 == len(delivery.records)
            if not is_last and not self._handlers.passes_first and self._falls_due(record.timestamp):
                # The broker delivers it before the records that follow.
                await self._commit({record.topic: record.offset + 1})
                return
        await self._commit({} if self._handlers.passes_first else delivery.next)

    def _take(self, results: Results) -> None:
        if results is None:
            return
        self._emit.extend([results] if isinstance(results, Emit) else results)

    def _falls_due(self, timestamp: int) -> bool:
        grace = self._handlers.grace_ms
        if grace is None or self._first_due is None or self._first_due > timestamp - grace:
            return False
        self._first_due = min((due for due in self._timers.values() if due is not None), default=None)
        return self._first_due is not None and self._first_due <= timestamp - grace

    def _set(self, where: dict[Any, Any], key: Any, value: Any) -> None:
        self._undo.append((where, key, where.get(key, ABSENT)))
        where[key] = value

    def _take_back(self, emitted: int) -> None:
        """Takes back what the handler did since it was called."""
        for where, key, before in reversed(self._undo):
            if before is ABSENT:
                del where[key]
            else:
                where[key] = before
        del self._emit[emitted:]

    async def _fail(self, record: Record, error: Exception, has_work: bool) -> None:
        place = f"{record.topic}/{record.partition}@{record.offset}"
        log.warning("record %s failed", place, exc_info=error)
        if has_work:
            await self._commit({record.topic: record.offset})
        await self._source.fail(record.topic, record.offset, words(error), not isinstance(error, Reject))

    async def _commit(self, next: dict[str, int]) -> None:
        put: dict[str, list[Any]] = {}
        delete: dict[str, list[Any]] = {}
        for (table, key), value in self._changed.items():
            if value is None:
                delete.setdefault(table, []).append(shown_key(key))
            else:
                put.setdefault(table, []).append([shown_key(key), value])
        timers = [
            [shown_key(key), due, shown_key(name)] if name else [shown_key(key), due]
            for (key, name), due in self._timers.items()
        ]
        commit: dict[str, Any] = {"next": next, "put": put, "delete": delete, "timers": timers}
        commit["emit"] = [shown_emit(emit) for emit in self._emit]
        await self._source.commit(commit)
        self._cache.update(self._changed)
        if len(self._cache) > CACHED_MAX or len(self._handlers.cached) < len(self._handlers.tables):
            kept = self._cache if len(self._cache) <= CACHED_MAX else {}
            keep = {place: value for place, value in kept.items() if place[0] in self._handlers.cached}
            self._cache.clear()
            self._cache.update(keep)
        self._begin()


def words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def copied(value: Any) -> Any:
    """Copies a value of JSON."""
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [copied(inner) for inner in value]
    return value
