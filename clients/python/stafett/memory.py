"""An app in a test: topics, state, timers and commits in memory, no broker.

Handlers run through the same code as in a worker. What is stored is what was committed: `lose_next_commit` is a
worker that dies before its commit, and another that begins at the commit before.
"""

import json
import zlib
from typing import TYPE_CHECKING, Any

from .ahead import Ahead
from .batch import Batch, Delivery
from .types import Key, Record, Refused, Timer, read_key, read_value, shown_key

if TYPE_CHECKING:
    from .app import App


class WorkerDied(Exception):
    """A worker died before its commit."""


class MemoryApp:
    """Runs an app over partitions in memory. A key is always in one partition, though not in that of the broker."""

    def __init__(self, app: "App", partitions: int = 1):
        self._app = app
        self._handlers = app.handlers()
        self._emitted: list[dict[str, Any]] = []
        self._dead: list[tuple[Record | Timer, str]] = []
        self._loses = False
        self._refuses = False
        self._tasks = [MemoryTask(self, partition) for partition in range(partitions)]

    async def feed(self, topic: str, records: list[tuple[Any, ...]]) -> None:
        """Stores records - (key, value, timestamp) and, if there are any, headers - and has them worked through."""
        if topic not in self._app.definition["topics"]:
            raise ValueError(f"the app does not read {topic!r}")
        for key, value, timestamp, *headers in records:
            number = key.encode() if isinstance(key, str) else key
            task = self._tasks[zlib.crc32(number) % len(self._tasks)]
            place = (topic, task.partition, len(task.records[topic]))
            # As the broker keeps it: JSON has no tuples.
            kept = value if isinstance(value, bytes) else json.loads(json.dumps(value))
            task.records[topic].append(Record(*place, key, kept, timestamp, headers[0] if headers else {}))
        await self._run()

    async def advance(self, to: int) -> None:
        """Lets time go on without records, to ms since 1970: timers fire."""
        for task in self._tasks:
            task.time = max(task.time, to)
        await self._run()

    def lose_next_commit(self) -> None:
        """The worker dies before its next commit; another goes on from the commit before."""
        self._loses = True

    def refuse_next_emit(self) -> None:
        """The broker refuses the next `state.emit`, as for a queue that is full; the worker begins again from the
        commit before."""
        self._refuses = True

    async def prepare_move(self) -> None:
        """Another worker reads the state of all tasks ahead of a move."""
        for task in self._tasks:
            await task.prepare()

    async def move(self) -> None:
        """That worker takes the tasks over: it reads the changes since, and goes on."""
        for task in self._tasks:
            await task.move()

    def emitted(self, target: str) -> list[tuple[Key | None, Any]]:
        """Returns keys and values of all results for a topic, or for a queue."""
        found = [emit for emit in self._emitted if emit.get("topic", emit.get("queue")) == target]
        return [(read_key(emit["key"]) if "key" in emit else None, read_value(emit)) for emit in found]

    def state(self, table: str, key: Key) -> Any:
        """Returns an entry, or None."""
        found = [task.entries[table, key] for task in self._tasks if (table, key) in task.entries]
        return json.loads(found[0]) if found else None

    @property
    def dead_letters(self) -> list[tuple[Record | Timer, str]]:
        """Records and timers that failed as often as they may, with the error."""
        return list(self._dead)

    async def _run(self) -> None:
        for task in self._tasks:
            await task.run()


class MemoryTask:
    """A task: a source of deliveries."""

    def __init__(self, memory: MemoryApp, partition: int):
        self._memory = memory
        self.partition = partition
        self.records: dict[str, list[Record]] = {topic: [] for topic in memory._app.definition["topics"]}
        self.entries: dict[tuple[str, Key], str] = {}
        self.timers: dict[tuple[Key, Key], int] = {}
        self.time = -(1 << 63)
        self._next: dict[str, int] = dict.fromkeys(self.records, 0)
        self._high: dict[str, int] = {}
        self._attempts = 0
        self._timer_attempts: dict[tuple[Key, Key], int] = {}
        self._changes: list[tuple[str, Key]] = []
        self._ahead: Ahead | None = None
        self._cache: dict[tuple[str, Key], Any] = {}

    async def prepare(self) -> None:
        self._ahead = Ahead(sorted(self._memory._handlers.cached))
        await self._ahead.read(self._scan)

    async def move(self) -> None:
        if self._ahead is not None:
            await self._ahead.read(self._scan)
            self._cache = self._ahead.entries
            self._ahead = None

    async def _scan(self, table: str, after: Any) -> dict[str, Any]:
        """All entries, or those that have changed behind a place."""
        changed = dict.fromkeys(key for name, key in self._changes[after or 0 :] if name == table)
        entries = [key for key in changed if (table, key) in self.entries]
        return {
            "entries": [{"key": shown_key(key), "value": json.loads(self.entries[table, key])} for key in entries],
            "deleted": [shown_key(key) for key in changed if (table, key) not in self.entries],
            "next": None,
            "place": len(self._changes),
        }

    async def run(self) -> None:
        batch, self._cache = Batch(self, self._memory._handlers, self._cache), {}
        while (delivery := self._delivery()) is not None:
            if self._memory._handlers.passes_first:
                # The place is stored, and timers are cleared, before the handlers run.
                self._pass(delivery.next)
                for timer in delivery.due:
                    del self.timers[timer.key, timer.name]
            try:
                await batch.work(delivery)
            except (WorkerDied, Refused):
                batch = Batch(self, self._memory._handlers, {})

    def _delivery(self) -> Delivery | None:
        """Timers that are due, then records of one topic up to the one at which a stored timer falls due."""
        ready = sorted((at, key, name) for (key, name), at in self.timers.items() if at <= self.time)
        due = [Timer(key, at, name) for at, key, name in ready]
        waiting = [topic for topic, records in self.records.items() if self._next[topic] < len(records)]
        if not due and not waiting:
            return None
        if due or not waiting:
            return Delivery(next(iter(self.records)), due, [], {})
        # The oldest record first, so that topics go on together.
        topic = min(waiting, key=lambda topic: self.records[topic][self._next[topic]].timestamp)
        grace = self._memory._handlers.grace_ms
        first = min(self.timers.values(), default=None)
        taken: list[Record] = []
        for record in self.records[topic][self._next[topic] :]:
            taken.append(record)
            if grace is not None and first is not None and record.timestamp - grace >= first:
                break
        return Delivery(topic, [], taken, {topic: taken[-1].offset + 1})

    async def get(self, table: str, keys: list[Key]) -> list[Any]:
        found = [self.entries.get((table, key)) for key in keys]
        return [None if value is None else json.loads(value) for value in found]

    async def commit(self, commit: dict[str, Any]) -> None:
        if self._memory._loses:
            self._memory._loses = False
            raise WorkerDied
        # As the broker reads it.
        commit = json.loads(json.dumps(commit))
        for table, entries in commit["put"].items():
            self.entries.update(((table, read_key(key)), json.dumps(value)) for key, value in entries)
            self._changes += [(table, read_key(key)) for key, _ in entries]
        for table, keys in commit["delete"].items():
            for key in keys:
                self.entries.pop((table, read_key(key)), None)
                self._changes.append((table, read_key(key)))
        for key, at, *name in commit["timers"]:
            place = (read_key(key), read_key(name[0]) if name else "")
            self._timer_attempts.pop(place, None)
            if at is None:
                self.timers.pop(place, None)
            else:
                self.timers[place] = at
        self._memory._emitted += commit["emit"]
        self._pass(commit["next"])

    def _pass(self, places: dict[str, int]) -> None:
        for topic, place in places.items():
            done = self.records[topic][self._next[topic] : place]
            if done:
                self._attempts = 0
                self._high[topic] = max([self._high.get(topic, done[0].timestamp), *(it.timestamp for it in done)])
            self._next[topic] = place
        grace = self._memory._handlers.grace_ms
        if grace is not None and len(self._high) == len(self.records):
            self.time = max(self.time, min(self._high.values()) - grace)

    async def emit(self, emit: list[dict[str, Any]]) -> None:
        if self._memory._refuses:
            self._memory._refuses = False
            raise Refused(409, {"code": "queue_full"})
        self._memory._emitted += json.loads(json.dumps(emit))

    def _is_last(self, attempts: int, retry: bool) -> bool:
        return not retry or attempts >= self._memory._app.definition.get("attempts_max", 5)

    async def fail_timer(self, timer: Timer, error: str, retry: bool) -> None:
        place = (timer.key, timer.name)
        attempts = self._timer_attempts.get(place, 0) + 1
        self._timer_attempts[place] = attempts
        if self._is_last(attempts, retry):
            self._memory._dead.append((timer, error))
            del self.timers[place], self._timer_attempts[place]

    async def fail(self, topic: str, offset: int, error: str, retry: bool) -> None:
        self._attempts += 1
        if not self._is_last(self._attempts, retry):
            return
        self._memory._dead.append((self.records[topic][offset], error))
        self._pass({topic: offset + 1})
