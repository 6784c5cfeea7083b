#!/usr/bin/env python3
"""Reading one topic that was written in the midst of many others, from disk, against one that was written alone.

One topic gets a tenth of all records, the other 999 share the rest. Before each read the page cache is emptied (as
root). The interleaved topic is read at once, and again when the broker has done its background work.
"""

import argparse
import os
import time

import common

common.in_venv()

import load  # noqa: E402


def interleaved(records, others, value):
    """Every tenth record goes to the one topic, the others take turns."""
    other = 0
    for number in range(records):
        if number % 10 == 0:
            yield "interleaved", value
        else:
            yield f"other-{other}", value
            other = (other + 1) % others


def read(broker, topic, records, what):
    dropped = common.drop_caches()
    numbers = common.pairs(common.tool("AssignConsumer", broker.address, topic, records))
    cache = "caches dropped" if dropped else "caches could NOT be dropped (not root)"
    print(f"{what}: {numbers['mb_per_s']:.1f} MB/s, {numbers['seconds']:.2f} s ({cache})", flush=True)
    return numbers["mb_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subject", default="stafett-os")
    parser.add_argument("--gib", type=float, default=1, help="size of the topic that is read")
    parser.add_argument("--others", type=int, default=999)
    parser.add_argument("--record-bytes", type=int, default=4096)
    options = parser.parse_args()
    broker = common.Broker(options.subject, common.work_folder())
    records = int(options.gib * 2**30 / options.record_bytes)
    value = os.urandom(options.record_bytes)
    print(f"{common.machine()}; {options.subject}, durability {common.durability(options.subject)}")
    load.create(broker.address, ["alone", "interleaved", *(f"other-{number}" for number in range(options.others))])
    load.produce(broker.address, (("alone", value) for _ in range(records)))
    start = time.monotonic()
    load.produce(broker.address, interleaved(records * 10, options.others, value))
    seconds = time.monotonic() - start
    total = records * 10 * options.record_bytes / 1e6
    print(f"wrote {total:.0f} MB over {options.others + 1} topics at {total / seconds:.0f} MB/s", flush=True)
    at_once = read(broker, "interleaved", records, "written interleaved, read at once")
    waited = broker.await_idle()
    print(f"the broker fell quiet after {waited:.0f} s, having written {broker.written_bytes() / 1e6:.0f} MB in all", flush=True)
    alone = read(broker, "alone", records, "written alone")
    later = read(broker, "interleaved", records, "written interleaved, read later")
    print(f"interleaved against alone: {at_once / alone:.2f} at once, {later / alone:.2f} later")


main()
