"""Assembles sessions out of fragments: one ends by a fragment of type END, or after half an hour of silence.

    python sessions.py [SERVER [WORKER]]
"""

import sys

from stafett import App, Emit, Record, State, Timer

SILENCE_MS = 30 * 60_000

app = App("sessions", topics=["fragments"], tables=["open"], worker_timeout_ms=2000)


@app.record
async def fragment(record: Record, state: State) -> Emit | None:
    parts = state.get("open", []) + [record.value]
    if record.headers.get("type") != "END":
        state["open"] = parts
        state.set_timer(record.timestamp + SILENCE_MS)
        return None
    del state["open"]
    state.clear_timer()
    return Emit("sessions", {"parts": parts, "timed_out": False}, key=record.key)


@app.timer
async def silence(timer: Timer, state: State) -> Emit:
    parts = state["open"]
    del state["open"]
    return Emit("sessions", {"parts": parts, "timed_out": True}, key=timer.key)


if __name__ == "__main__":
    app.server = sys.argv[1] if len(sys.argv) > 1 else app.server
    app.run(sys.argv[2] if len(sys.argv) > 2 else None)
