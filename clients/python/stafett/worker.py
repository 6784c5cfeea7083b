"""A worker: joins, is given tasks, and does each in a coroutine of its own.

Whatever breaks - connections, the broker, a claim - what was not committed never happened: the worker forgets
what it knows of a task, and begins again at the last commit.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from .ahead import Ahead, Scan
from .batch import Batch, Delivery, Handlers
from .http import Client
from .types import Key, Refused, Timer, read_key, read_record, read_value, shown_key

if TYPE_CHECKING:
    from .app import App

log = logging.getLogger("stafett")
T = TypeVar("T")

CLAIM_OVER = frozenset({"lost_claim", "no_such_task", "out_of_order"})
RECORDS_MAX = 1000
RECORDS_MORE = 10
"""Records by which a delivery grows again after a commit that was too large."""
FIXED = frozenset({"topics", "guarantee", "tables"})
"""Parts of a definition without which a worker cannot work; operators may change the others."""
KEYS_MAX = 1000
SCAN_COUNT = 10_000
END_S = 10.0
"""Time for the last commits of a worker that is to stop."""
WAIT_MS = 5000
PAUSE_MAX = 2.0


class SessionOver(Exception):
    """The worker has to join again."""


class ClaimOver(Exception):
    """The task is no longer the worker's, or has to be begun again."""


class Session:
    """One join, and the requests of it."""

    def __init__(self, client: Client, app: str, worker: str, token: str, timeout_ms: int):
        self._client = client
        self._path = f"/v1/apps/{quote(app, safe='')}/workers/{quote(worker, safe='')}/"
        self._headers = {"Stafett-Worker": token}
        self.wait_ms = min(WAIT_MS, timeout_ms // 3)

    async def ask(self, command: str, body: dict[str, Any]) -> Any:
        """Sends a command until it is answered: all of them may be repeated."""
        pause = 0.05
        while True:
            try:
                return await self._client.ask("POST", self._path + command, body, self._headers)
            except Refused as refused:
                if refused.code == "no_such_worker":
                    raise SessionOver(str(refused)) from refused
                if refused.code in CLAIM_OVER:
                    raise ClaimOver(str(refused)) from refused
                if refused.status < 500 and refused.code != "paused":
                    raise
                log.info("%s: %s", command, refused)
            except OSError as error:
                log.info("%s: %s", command, error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_MAX)


def scan_of(session: Session, of: dict[str, Any]) -> Scan:
    """Scans tables of a task that is claimed, or about to be."""

    async def scan(table: str, after: Any) -> dict[str, Any]:
        page: dict[str, Any] = await session.ask("scan", of | {"table": table, "after": after, "count": SCAN_COUNT})
        return page

    return scan


class Claim:
    """A claimed task: a source of deliveries."""

    def __init__(self, session: Session, handlers: Handlers, event: dict[str, Any], ahead: Ahead | None = None):
        self._session = session
        self._handlers = handlers
        self._ahead = ahead
        self.task: str = event["task"]
        self.epoch: int = event["epoch"]
        self._seq: int = event["seq"]
        self._partition = int(self.task.split(".")[0])
        self._records = RECORDS_MAX
        self.revoked = asyncio.Event()
        self.done = asyncio.create_task(self._run(), name=f"task {self.task}")

    def _of(self, **more: Any) -> dict[str, Any]:
        return {"task": self.task, "epoch": self.epoch, **more}

    async def get(self, table: str, keys: list[Key]) -> list[Any]:
        if len(keys) <= KEYS_MAX:
            try:
                answer = await self._session.ask("get", self._of(table=table, keys=[shown_key(key) for key in keys]))
                return [None if value is None else read_value(value) for value in answer["values"]]
            except Refused as refused:
                if refused.code != "too_large" or len(keys) < 2:
                    raise
        half = len(keys) // 2
        return await self.get(table, keys[:half]) + await self.get(table, keys[half:])

    async def commit(self, commit: dict[str, Any]) -> None:
        await self._session.ask("commit", self._of(seq=self._seq + 1, **commit))
        self._seq += 1

    async def fail(self, topic: str, offset: int, error: str, retry: bool) -> None:
        failure = self._of(seq=self._seq + 1, topic=topic, offset=offset, error=error, retry=retry)
        answer = await self._session.ask("fail", failure)
        self._seq += 1
        if answer["dead_letter"] is not None:
            log.warning("record %s@%d went to %s", topic, offset, answer["dead_letter"])

    async def emit(self, emit: list[dict[str, Any]]) -> None:
        await self._session.ask("emit", self._of(emit=emit))

    async def fail_timer(self, timer: Timer, error: str, retry: bool) -> None:
        named = {"timer": shown_key(timer.key), "timer_name": shown_key(timer.name)}
        answer = await self._session.ask("fail", self._of(seq=self._seq + 1, error=error, retry=retry, **named))
        self._seq += 1
        if answer["dead_letter"] is not None:
            log.warning("timer %r of %r went to %s", timer.name, timer.key, answer["dead_letter"])

    async def _fetch(self) -> Delivery:
        wanted = self._of(records_max=self._records, wait_ms=self._session.wait_ms)
        answer = await self._session.ask("fetch", wanted)
        due = [Timer(read_key(key), at, read_key(name)) for key, at, name in answer["due"]]
        records = [read_record(answer["topic"], self._partition, shown) for shown in answer["records"]]
        return Delivery(answer["topic"], due, records, answer["next"])

    async def _run(self) -> None:
        """Does the task until it is revoked. Ends without an error if the claim does."""
        if self._ahead is not None:
            await self._ahead.read(scan_of(self._session, self._of()))
        batch, pause = Batch(self, self._handlers, self._ahead.entries if self._ahead else {}), 0.1
        while not self.revoked.is_set():
            try:
                delivery = await until(self.revoked, self._fetch())
                if delivery is not None and (delivery.due or delivery.records):
                    await batch.work(delivery)
                    self._records = min(RECORDS_MAX, self._records + RECORDS_MORE)
                pause = 0.1
            except (ClaimOver, SessionOver):
                raise
            except Refused as refused:
                log.warning("task %s: %s", self.task, refused)
                if refused.code == "too_large":
                    self._records = max(1, self._records // 2)
                batch = Batch(self, self._handlers, {})
                await until(self.revoked, asyncio.sleep(pause))
                pause = min(pause * 2, PAUSE_MAX)
            except Exception:
                # Again from the last commit on.
                log.exception("task %s", self.task)
                batch = Batch(self, self._handlers, {})
                await until(self.revoked, asyncio.sleep(pause))
                pause = min(pause * 2, PAUSE_MAX)

    async def finish(self) -> None:
        """Ends after the batch in hand."""
        self.revoked.set()
        with contextlib.suppress(ClaimOver, SessionOver, TimeoutError):
            await asyncio.wait_for(self.done, END_S)

    async def drop(self) -> None:
        """Ends at once."""
        self.done.cancel()
        with contextlib.suppress(ClaimOver, SessionOver, asyncio.CancelledError):
            await self.done


async def until(event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Awaits something, unless the event comes first: then it is cancelled."""
    working, over = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({working, over}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        over.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait({working})


async def alive(session: Session, work: Coroutine[Any, Any, T]) -> T:
    """Awaits the end of a batch, and gives signs of life meanwhile: nothing else does."""

    async def beat() -> None:
        # The next poll says so.
        with contextlib.suppress(SessionOver, Refused):
            while True:
                await asyncio.sleep(session.wait_ms / 1000)
                await session.ask("beat", {})

    beating = asyncio.create_task(beat())
    try:
        return await work
    finally:
        beating.cancel()
        await asyncio.wait({beating})


class Worker:
    """A worker of an app."""

    def __init__(self, app: "App", name: str | None, weight: int):
        self._app = app
        self._name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._weight = weight
        self._client = Client(app.server, app.token)
        self._handlers = app.handlers()
        self._claims: dict[str, Claim] = {}
        self._ahead: dict[str, asyncio.Task[Ahead | None]] = {}
        self._after = 0

    async def run(self, stop: asyncio.Event) -> None:
        stopped = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                working = asyncio.ensure_future(self._session(stop))
                await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if not working.done():
                    # It ends by itself: work in hand is committed first.
                    await asyncio.wait({working})
                try:
                    working.result()
                except SessionOver as error:
                    log.info("joining again: %s", error)
                except (OSError, Refused) as error:
                    if isinstance(error, Refused) and error.status < 500:
                        raise
                    log.info("%s", error)
                    await asyncio.wait({stopped}, timeout=0.2)
        finally:
            stopped.cancel()
            self._client.close()

    async def _session(self, stop: asyncio.Event) -> None:
        """One session, from its join to its end."""
        path = f"/v1/apps/{quote(self._app.name, safe='')}"
        try:
            await self._client.ask("PUT", path, self._app.definition)
        except Refused as refused:
            differs = refused.code == "exists_differently" and refused.details.get("field") not in FIXED
            if not differs and refused.code != "forbidden":
                raise
            # A worker may work without the right to declare, and with settings that an operator has changed.
            log.log(logging.WARNING if differs else logging.INFO, "the app stays as it is: %s", refused)
        join = {"weight": self._weight, "state": "eager" if self._app.eager else "lazy"}
        joined = await self._client.ask("POST", f"{path}/workers/{quote(self._name, safe='')}/join", join)
        session = Session(self._client, self._app.name, self._name, joined["token"], joined["worker_timeout_ms"])
        self._after = 0
        for resumed in joined["resumed"]:
            # A commit of the session before may still be under way: under a new epoch it cannot come between.
            await self._release(session, resumed)
        try:
            await self._follow(session, stop)
        except BaseException:
            await self._end(Claim.drop)
            raise
        await alive(session, self._end(Claim.finish))
        with contextlib.suppress(SessionOver, Refused):
            await asyncio.wait_for(session.ask("leave", {}), timeout=5)

    async def _follow(self, session: Session, stop: asyncio.Event) -> None:
        """Takes events until the worker is to stop."""
        stopped = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                wanted = {"after": self._after, "wait_ms": session.wait_ms}
                polling = asyncio.ensure_future(session.ask("poll", wanted))
                ends = {claim.done for claim in self._claims.values()}
                try:
                    await asyncio.wait({polling, stopped, *ends}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not polling.done():
                        polling.cancel()
                        await asyncio.wait({polling})
                for event in [] if polling.cancelled() else polling.result()["events"]:
                    self._after = event["number"]
                    await self._take(session, event)
                await self._drop_ended(session)
        finally:
            stopped.cancel()

    async def _drop_ended(self, session: Session) -> None:
        for task, claim in list(self._claims.items()):
            if not claim.done.done():
                continue
            del self._claims[task]
            error = claim.done.exception()
            if isinstance(error, ClaimOver):
                log.info("task %s: %s", task, error)
                await self._release(session, {"task": task, "epoch": claim.epoch})
            elif error is not None:
                raise error

    async def _take(self, session: Session, event: dict[str, Any]) -> None:
        claim = self._claims.get(event["task"])
        is_known = claim is not None and claim.epoch == event["epoch"]
        if event["event"] == "claimed" and not is_known and "seq" in event:
            if claim is not None:
                await claim.drop()
            ahead = self._ahead.pop(event["task"], None)
            self._begin(session, event, await ahead if ahead is not None and ahead.done() else None)
        elif event["event"] == "prepare":
            # The holder goes on meanwhile.
            self._ahead[event["task"]] = asyncio.create_task(self._prepare(session, event))
        elif event["event"] == "lost" and claim is not None and is_known:
            await claim.drop()
            self._claims.pop(claim.task, None)
        elif event["event"] == "revoke" and claim is not None and is_known:
            await alive(session, claim.finish())
            self._claims.pop(claim.task, None)
            await self._release(session, event)

    async def _prepare(self, session: Session, event: dict[str, Any]) -> Ahead | None:
        """Reads the state of a task that is about to come."""
        of = {"task": event["task"], "epoch": event["epoch"]}
        ahead = Ahead(sorted(self._handlers.cached))
        try:
            await ahead.read(scan_of(session, of))
            await session.ask("prepared", of)
        except (ClaimOver, SessionOver, Refused) as error:
            log.info("task %s does not come: %s", event["task"], error)
            return None
        return ahead

    async def _release(self, session: Session, claim: dict[str, Any]) -> None:
        with contextlib.suppress(ClaimOver):
            await session.ask("release", {"task": claim["task"], "epoch": claim["epoch"]})

    def _begin(self, session: Session, event: dict[str, Any], ahead: Ahead | None) -> None:
        log.info("task %s, epoch %d", event["task"], event["epoch"])
        self._claims[event["task"]] = Claim(session, self._handlers, event, ahead)

    async def _end(self, how: Any) -> None:
        for ahead in self._ahead.values():
            ahead.cancel()
        self._ahead.clear()
        claims = list(self._claims.values())
        self._claims.clear()
        await asyncio.gather(*(how(claim) for claim in claims))


def run(app: "App", worker: str | None, weight: int) -> None:
    """Runs a worker until SIGINT or SIGTERM."""

    async def main() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await app.work(worker, weight=weight, stop=stop)

    asyncio.run(main())
