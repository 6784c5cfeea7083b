"""Apps on the double, without a broker."""

import importlib.util
import unittest
from pathlib import Path
from typing import Any

from stafett import App, Emit, MemoryApp, Record, Reject, State

EXAMPLES = Path(__file__).parents[3] / "examples/apps/python"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


END = {"type": "END"}


class Sessions(unittest.IsolatedAsyncioTestCase):
    async def test_a_session_ends_by_its_last_fragment_or_by_silence(self) -> None:
        sessions = example("sessions")
        memory = MemoryApp(sessions.app, partitions=3)
        await memory.feed("fragments", [("s1", "a", 0), ("s2", "b", 10), ("s1", "c", 20, END)])
        self.assertEqual(memory.emitted("sessions"), [("s1", {"parts": ["a", "c"], "timed_out": False})])
        self.assertEqual(memory.state("open", "s2"), ["b"])
        await memory.advance(to=10 + sessions.SILENCE_MS)
        self.assertEqual(memory.emitted("sessions")[1:], [("s2", {"parts": ["b"], "timed_out": True})])
        self.assertIsNone(memory.state("open", "s2"))

    async def test_a_session_survives_a_crash_in_the_middle(self) -> None:
        sessions = example("sessions")
        memory = MemoryApp(sessions.app)
        await memory.feed("fragments", [("s1", "a", 0)])
        memory.lose_next_commit()
        await memory.feed("fragments", [("s1", "b", 10), ("s1", "c", 20, END)])
        self.assertEqual(memory.emitted("sessions"), [("s1", {"parts": ["a", "b", "c"], "timed_out": False})])

    async def test_a_timer_of_a_batch_fires_before_its_later_records(self) -> None:
        sessions = example("sessions")
        late = sessions.SILENCE_MS + 60_000
        # All in one delivery: s1 is silent for longer than it may be.
        memory = MemoryApp(sessions.app)
        await memory.feed("fragments", [("s1", "a", 0), ("s2", "x", late), ("s1", "b", late + 1), ("s1", "c", late + 2, END)])
        ended = [(key, value["parts"], value["timed_out"]) for key, value in memory.emitted("sessions")]
        self.assertEqual(ended, [("s1", ["a"], True), ("s1", ["b", "c"], False)])


class Examples(unittest.IsolatedAsyncioTestCase):
    async def test_once(self) -> None:
        memory = MemoryApp(example("once").app, partitions=2)
        await memory.feed("raw", [("a", 1, 0), ("b", 2, 1), ("a", 3, 2)])
        memory.lose_next_commit()
        await memory.feed("raw", [("b", 4, 3), ("c", 5, 4)])
        self.assertEqual(sorted(value for _, value in memory.emitted("clean")), [1, 2, 5])

    async def test_paid(self) -> None:
        memory = MemoryApp(example("paid").app, partitions=2)
        await memory.feed("orders", [("a", 1, 0), ("b", 2, 1)])
        await memory.feed("payments", [("b", 20, 2), ("c", 30, 3)])
        await memory.feed("orders", [("c", 3, 4)])
        pairs = sorted((key, value["orders"], value["payments"]) for key, value in memory.emitted("paid"))
        self.assertEqual(pairs, [("b", 2, 20), ("c", 3, 30)])
        self.assertEqual(memory.state("waiting", "a"), {"orders": 1})


class Failures(unittest.IsolatedAsyncioTestCase):
    async def test_a_failing_record_takes_nothing_else_with_it(self) -> None:
        app = App("sum", topics=["in"], tables=["sums"], attempts_max=3)
        calls: list[Any] = []

        @app.record
        async def add(record: Record, state: State) -> list[Emit]:
            calls.append(record.value)
            state["sums"] = {"sum": state.get("sums", {"sum": 0})["sum"] + record.offset}
            state.set_timer(5)
            if record.value == "odd":
                raise ValueError("odd")
            if record.value == "never":
                raise Reject("never")
            return [Emit("out", record.value)]

        memory = MemoryApp(app)
        await memory.feed("in", [("k", "one", 1), ("k", "odd", 2), ("k", "never", 3), ("k", "two", 4)])
        self.assertEqual(calls, ["one", "odd", "odd", "odd", "never", "two"])
        self.assertEqual([value for _, value in memory.emitted("out")], ["one", "two"])
        self.assertEqual(memory.state("sums", "k"), {"sum": 3})
        letters = [(record.value, error) for record, error in memory.dead_letters]
        self.assertEqual(letters, [("odd", "ValueError: odd"), ("never", "Reject: never")])

    async def test_a_value_that_was_changed_and_not_set_is_as_before(self) -> None:
        app = App("list", topics=["in"], tables=["seen"])

        @app.record
        async def note(record: Record, state: State) -> None:
            seen = state.get("seen", [])
            seen.append(record.value)
            if record.value != "skip":
                state["seen"] = seen

        memory = MemoryApp(app)
        await memory.feed("in", [("k", "a", 1), ("k", "skip", 2), ("k", "b", 3)])
        self.assertEqual(memory.state("seen", "k"), ["a", "b"])

    async def test_another_key_and_keys_that_are_not_text(self) -> None:
        app = App("moves", topics=["in"], tables=["sums"])

        @app.record
        async def move(record: Record, state: State) -> Emit:
            other = await state.of(b"\xff")
            other["sums"] = other.get("sums", 0) + record.value
            with self.assertRaises(KeyError):
                state["none"]
            return Emit("out", b"\x00", key=b"\xff")

        memory = MemoryApp(app)
        await memory.feed("in", [("k", 2, 1), ("k", 3, 2)])
        self.assertEqual(memory.state("sums", b"\xff"), 5)
        self.assertEqual(memory.emitted("out"), [(b"\xff", b"\x00")] * 2)


if __name__ == "__main__":
    unittest.main()
