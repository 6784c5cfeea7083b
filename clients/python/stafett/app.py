"""An app: its definition and its handlers."""

import asyncio
from typing import Any

from .batch import Handler, Handlers, TimerHandler


class App:
    """A job over stored topics. Declare it once, give it a handler, and run any number of workers.

    `tables` are names of tables for state by key, or a mapping of names to settings such as `{"ttl_ms": 3600000}`.
    An `eager` worker reads the state of a task before a planned move brings it.
    Further settings are those of `PUT /v1/apps/APP`: `filter`, `dead_letter`, `attempts_max`, `worker_timeout_ms`, `time`, ...
    """

    def __init__(
        self,
        name: str,
        *,
        topics: list[str],
        tables: list[str] | dict[str, dict[str, Any]] | None = None,
        server: str = "http://127.0.0.1:7070",
        token: str | None = None,
        eager: bool = False,
        **settings: Any,
    ):
        self.name = name
        self.server = server
        self.token = token
        self.eager = eager
        described = tables if isinstance(tables, dict) else {table: {} for table in tables or []}
        if any(table.get("format", "json") != "json" for table in described.values()):
            raise ValueError("values of tables are JSON here")
        self.definition: dict[str, Any] = {"topics": topics, "tables": described, **settings}
        self._record: Handler | None = None
        self._timer: TimerHandler | None = None

    def record(self, handler: Handler) -> Handler:
        """Decorator of the handler of records."""
        self._record = handler
        return handler

    def timer(self, handler: TimerHandler) -> TimerHandler:
        """Decorator of the handler of timers that are due."""
        self._timer = handler
        return handler

    def handlers(self) -> Handlers:
        if self._record is None:
            raise ValueError(f"app {self.name} has no handler: decorate one with @app.record")
        time = self.definition.get("time", {})
        tables: dict[str, dict[str, Any]] = self.definition["tables"]
        return Handlers(
            self._record,
            self._timer,
            tuple(tables),
            frozenset(name for name, table in tables.items() if table.get("ttl_ms") is None),
            None if time.get("clock") == "wall" else time.get("grace_ms", 5000),
            self.definition.get("guarantee") == "at-most-once",
            self.definition.get("guarantee") == "at-least-once",
        )

    async def work(self, worker: str | None = None, *, weight: int = 1, stop: asyncio.Event | None = None) -> None:
        """Declares the app, and does tasks until `stop` is set. Work in hand is committed then."""
        from .worker import Worker

        await Worker(self, worker, weight).run(stop or asyncio.Event())

    def run(self, worker: str | None = None, *, weight: int = 1) -> None:
        """Does tasks of the app until SIGINT or SIGTERM."""
        from .worker import run

        run(self, worker, weight)
