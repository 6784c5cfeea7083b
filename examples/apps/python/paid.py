"""Joins two topics: an order and its payment, in whichever order they come.

Both topics have equally many partitions, so what has the same key is in the same task.

    python paid.py [SERVER]
"""

import sys

from stafett import App, Emit, Record, State

app = App("paid", topics=["orders", "payments"], tables=["waiting"])


@app.record
async def match(record: Record, state: State) -> Emit | None:
    waiting = state.get("waiting", {}) | {record.topic: record.value}
    if len(waiting) < 2:
        state["waiting"] = waiting
        return None
    del state["waiting"]
    return Emit("paid", waiting, key=record.key)


if __name__ == "__main__":
    app.server = sys.argv[1] if len(sys.argv) > 1 else app.server
    app.run()
