"""Passes on the first record of each key within an hour, and no other.

    python once.py [SERVER]
"""

import sys

from stafett import App, Emit, Record, State

app = App("once", topics=["raw"], tables={"seen": {"ttl_ms": 3_600_000}})


@app.record
async def first(record: Record, state: State) -> Emit | None:
    if state["seen"]:
        return None
    state["seen"] = True
    return Emit("clean", record.value, key=record.key)


if __name__ == "__main__":
    app.server = sys.argv[1] if len(sys.argv) > 1 else app.server
    app.run()
