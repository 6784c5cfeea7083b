"""A worker against answers that a broker gives, without a broker."""

import asyncio
import unittest
from typing import Any

from stafett import App, Emit, Record, State
from stafett.types import Refused
from stafett.worker import RECORDS_MAX, Claim, ClaimOver, Worker


class Joined(Exception):
    """The worker asked to join."""


class Shelf:
    """A session that refuses answers of more than 3 values."""

    wait_ms = 0

    async def ask(self, command: str, body: dict[str, Any]) -> Any:
        if command == "fetch":
            await asyncio.Event().wait()
        if len(body["keys"]) > 3:
            raise Refused(413, {"code": "too_large"})
        return {"values": [{"value": int(key)} for key in body["keys"]]}


class Operator:
    """A client whose app was declared otherwise."""

    def __init__(self, field: str):
        self.field = field

    async def ask(self, method: str, path: str, body: Any) -> Any:
        if method == "PUT":
            raise Refused(409, {"code": "exists_differently", "field": self.field})
        raise Joined


class Broker:
    """A session that refuses commits of more than `takes` records."""

    wait_ms = 0

    def __init__(self, count: int, takes: int):
        self.count, self.takes, self.place, self.delivered = count, takes, 0, 0
        self.done = asyncio.Event()

    async def ask(self, command: str, body: dict[str, Any]) -> Any:
        if command == "fetch":
            if self.place == self.count:
                await asyncio.Event().wait()
            behind = min(self.count, self.place + body["records_max"])
            self.delivered = behind - self.place
            record = {"key": "a", "value": 1, "timestamp": 0, "headers": {}, "late": False}
            records = [record | {"offset": offset} for offset in range(self.place, behind)]
            return {"topic": "in", "due": [], "records": records, "next": {"in": behind}}
        assert command == "commit"
        if self.delivered > self.takes:
            raise Refused(413, {"code": "too_large"})
        self.place = body["next"]["in"]
        if self.place == self.count:
            self.done.set()
        return {}


class Refusing:
    """A session with two records, which refuses the result of the second one: `times` times."""

    wait_ms = 0

    def __init__(self, refusal: Exception, times: int):
        self.refusal, self.times = refusal, times
        self.asked: list[str] = []
        self.done = asyncio.Event()

    async def ask(self, command: str, body: dict[str, Any]) -> Any:
        if command == "fetch" and self.done.is_set():
            await asyncio.Event().wait()
        self.asked.append(command)
        if command == "fetch":
            record = {"key": "a", "timestamp": 0, "headers": {}, "late": False}
            records = [record | {"offset": offset, "value": offset} for offset in range(2)]
            return {"topic": "in", "due": [], "records": records, "next": {"in": 2}}
        if command == "emit" and body["emit"][0]["value"] == 1 and self.times > 0:
            self.times -= 1
            raise self.refusal
        if command == "commit":
            self.done.set()
        return {"dead_letter": None}


def early() -> App:
    app = App("app", topics=["in"], guarantee="at-least-once")

    @app.record
    async def emit(record: Record, state: State) -> None:
        try:
            await state.emit(Emit("out", record.value))
        except Exception as error:
            raise ValueError("a handler says it in its own words") from error

    return app


class Patient:
    """A session whose worker is silent but for its signs of life."""

    wait_ms = 0

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.beats = asyncio.Event()

    async def ask(self, command: str, body: dict[str, Any]) -> Any:
        if command == "fetch" and "fetch" in self.asked:
            await asyncio.Event().wait()
        self.asked.append(command)
        if command == "fetch":
            record = {"offset": 0, "key": "a", "value": 1, "timestamp": 0, "headers": {}, "late": False}
            return {"topic": "in", "due": [], "records": [record], "next": {"in": 1}}
        if command == "beat":
            self.beats.set()
        return {}


def counting() -> App:
    app = App("app", topics=["in"])

    @app.record
    async def count(record: Record, state: State) -> None:
        pass

    return app


class Workers(unittest.IsolatedAsyncioTestCase):
    async def test_settings_that_an_operator_changed_end_no_worker(self) -> None:
        for field, ends in [("dead_letter", Joined), ("time", Joined), ("tables", Refused), ("topics", Refused)]:
            worker = Worker(counting(), "w", 1)
            worker._client = Operator(field)  # type: ignore[assignment]
            with self.assertRaises(ends):
                await worker._session(asyncio.Event())

    async def test_an_answer_that_is_too_large_is_asked_for_in_parts(self) -> None:
        claim = Claim(Shelf(), counting().handlers(), {"task": "0", "epoch": 1, "seq": 0})  # type: ignore[arg-type]
        keys = [str(key) for key in range(2500)]
        self.assertEqual(await claim.get("t", keys), list(range(2500)))
        await claim.drop()

    async def test_a_commit_that_is_too_large_is_made_smaller(self) -> None:
        broker = Broker(count=RECORDS_MAX, takes=RECORDS_MAX // 3)
        event = {"task": "0", "epoch": 1, "seq": 0}
        claim = Claim(broker, counting().handlers(), event)  # type: ignore[arg-type]
        await broker.done.wait()
        await claim.finish()
        self.assertEqual(broker.place, RECORDS_MAX)

    async def test_a_refused_result_is_no_failure_of_the_record(self) -> None:
        event = {"task": "0", "epoch": 1, "seq": 0}
        session = Refusing(Refused(409, {"code": "queue_full"}), times=1)
        claim = Claim(session, early().handlers(), event)  # type: ignore[arg-type]
        await session.done.wait()
        await claim.finish()
        begun = ["fetch", "emit", "emit"]
        self.assertEqual(session.asked, [*begun, *begun, "commit"])

    async def test_a_result_under_a_claim_that_is_over_ends_it(self) -> None:
        session = Refusing(ClaimOver("lost_claim"), times=1)
        claim = Claim(session, early().handlers(), {"task": "0", "epoch": 1, "seq": 0})  # type: ignore[arg-type]
        with self.assertRaises(ClaimOver):
            await claim.done
        self.assertEqual(session.asked, ["fetch", "emit", "emit"])

    async def test_a_worker_gives_signs_of_life_while_a_revoked_task_ends(self) -> None:
        app, session, begun = App("app", topics=["in"]), Patient(), asyncio.Event()

        @app.record
        async def until_a_beat(record: Record, state: State) -> None:
            begun.set()
            await session.beats.wait()

        worker = Worker(app, "w", 1)
        event = {"task": "0", "epoch": 1, "seq": 0}
        await worker._take(session, event | {"event": "claimed"})  # type: ignore[arg-type]
        await begun.wait()
        await worker._take(session, event | {"event": "revoke"})  # type: ignore[arg-type]
        asked = [command for command in session.asked if command != "beat"]
        self.assertEqual(asked, ["fetch", "commit", "release"])


if __name__ == "__main__":
    unittest.main()
