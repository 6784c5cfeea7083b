"""The expectations that all libraries share (`clients/conformance.json`), on the double."""

import json
import unittest
from pathlib import Path
from typing import Any

from stafett import App, Emit, MemoryApp, Record, Reject, State, Timer
from test_memory import example

SCRIPTS = json.loads((Path(__file__).parents[2] / "conformance.json").read_text())


def picky(settings: dict[str, Any], calls: list[Any]) -> App:
    app = App("picky", topics=["in"], tables=["seen"], **settings)

    @app.record
    async def handle(record: Record, state: State) -> list[Emit]:
        calls.append(record.value)
        state["seen"] = state.get("seen", []) + [record.value]
        state.set_timer(5)
        if record.value == "odd":
            raise ValueError("odd")
        if record.value == "never":
            raise Reject("never")
        return [Emit("out", record.value)]

    return app


def alerts(settings: dict[str, Any], calls: list[Any]) -> App:
    app = App("alerts", topics=["in"], **settings)

    @app.record
    async def handle(record: Record, state: State) -> Emit | None:
        return Emit(queue="alarms", value={"value": record.value}, key=record.key) if record.value > 100 else None

    return app


def early(settings: dict[str, Any], calls: list[Any]) -> App:
    app = App("early", topics=["in"], **settings)

    @app.record
    async def handle(record: Record, state: State) -> Emit:
        await state.emit(Emit("out", record.value))
        return Emit("whole", record.value)

    return app


def alarm(settings: dict[str, Any], calls: list[Any]) -> App:
    app = App("alarm", topics=["in"], tables=["seen"], time={"grace_ms": 0}, **settings)

    @app.record
    async def handle(record: Record, state: State) -> Emit:
        state.set_timer(record.timestamp + 100, record.value)
        return Emit("out", record.value)

    @app.timer
    async def due(timer: Timer, state: State) -> Emit:
        calls.append(timer.name)
        state["seen"] = state.get("seen", []) + [timer.name]
        if timer.name == "odd":
            raise ValueError("odd")
        return Emit("due", timer.name)

    return app


def mover(settings: dict[str, Any], calls: list[Any]) -> App:
    app = App("mover", topics=["in"], time={"grace_ms": 0}, **settings)

    @app.record
    async def handle(record: Record, state: State) -> None:
        state.set_timer(record.timestamp + 100, record.value)

    @app.timer
    async def due(timer: Timer, state: State) -> Emit:
        calls.append(timer.name)
        if timer.name == "odd":
            raise ValueError("odd")
        if timer.name == "first":
            state.set_timer(timer.due + 5000, "moved")
            state.clear_timer("cleared")
        return Emit("due", timer.name)

    return app


OWN = {"picky": picky, "alerts": alerts, "early": early, "alarm": alarm, "mover": mover}


class Conformance(unittest.IsolatedAsyncioTestCase):
    async def test_expectations(self) -> None:
        for script in SCRIPTS:
            with self.subTest(script["does"]):
                await self.run_script(script)

    async def run_script(self, script: dict[str, Any]) -> None:
        calls: list[Any] = []
        build = OWN.get(script["app"])
        app = build(script.get("settings", {}), calls) if build else example(script["app"]).app
        memory = MemoryApp(app, script.get("partitions", 1))
        for step in script["steps"]:
            if "feed" in step:
                await memory.feed(step["feed"], step["records"])
            if "advance" in step:
                await memory.advance(to=step["advance"])
            if "lose" in step:
                memory.lose_next_commit()
            if "refuse" in step:
                memory.refuse_next_emit()
            if "prepare" in step:
                await memory.prepare_move()
            if "move" in step:
                await memory.move()
        for target, expected in script["emitted"].items():
            found = [list(pair) for pair in memory.emitted(target)]
            if "partitions" in script:
                found.sort(key=lambda pair: str(pair[0]))
                expected.sort(key=lambda pair: str(pair[0]))
            self.assertEqual(found, expected)
        for table, key, value in script.get("state", []):
            self.assertEqual(memory.state(table, key), value)
        if "calls" in script:
            self.assertEqual(calls, script["calls"])
        if "dead" in script:
            dead = [[it.name if isinstance(it, Timer) else it.value, error.split(": ")[1]] for it, error in memory.dead_letters]
            self.assertEqual(dead, script["dead"])
