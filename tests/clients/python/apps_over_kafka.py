"""The example over Kafka's protocol, without a broker: apps_over_kafka.py FOLDER. Safe offsets and done sessions by the example
of session assembly that the method comes with: eight fragments of four sessions."""

import json
import sys

sys.path.insert(0, sys.argv[1])
from sessions import TEXT_BYTES_MAX, TIMEOUT_MS, Progress  # noqa: E402

progress = Progress(0)


def take(offset, key, ends=False):
    assert progress.take(key, offset, offset, offset)
    if ends:
        return progress.finish(key)
    return None


take(0, "s1")
take(1, "s2")
take(2, "s1")
assert take(3, "s1", ends=True) == [0, 2, 3]
assert (progress.safe, set(progress.done)) == (1, {"s1"})
take(4, "s3")
take(5, "s2")
take(6, "s4")
take(7, "s3", ends=True)
assert (progress.safe, set(progress.done)) == (1, {"s1", "s3"}), "s2 is open"
take(8, "s2", ends=True)
assert (progress.safe, progress.done) == (6, {"s3": 7, "s2": 8}), "s1 has nothing behind s4's beginning"

# Another one goes on: it meets s4 alone.
other = Progress(progress.safe, json.loads(progress.text()))
taken = [(offset, key) for offset, key in [(6, "s4"), (7, "s3"), (8, "s2"), (9, "s4")] if other.take(key, offset, offset, offset)]
assert taken == [(6, "s4"), (9, "s4")], taken
assert other.timed_out(9 + TIMEOUT_MS) == [] and other.timed_out(10 + TIMEOUT_MS) == ["s4"]
# A key that ended begins anew behind its end.
assert other.take("s2", 10, 10, 10)

many = Progress(0, {f"session-{number}": number for number in range(1000)})
text = json.loads(many.text())
assert len(many.text()) <= TEXT_BYTES_MAX and "session-999" in text and "session-0" not in text
