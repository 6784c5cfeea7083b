"""Running totals: the sum of all amounts by customer.

    python totals.py [SERVER [WORKER]]
"""

import sys

from stafett import App, Emit, Record, State

app = App("totals", topics=["orders"], tables=["sums"])


@app.record
async def add(record: Record, state: State) -> Emit:
    total = state.get("sums", 0) + record.value
    state["sums"] = total
    return Emit("totals", total, key=record.key)


if __name__ == "__main__":
    app.server = sys.argv[1] if len(sys.argv) > 1 else app.server
    app.run(sys.argv[2] if len(sys.argv) > 2 else None)
