#!/usr/bin/env python3
"""What the lab's lean driver of Kafka's protocol reaches against a stub that answers without storing: its ceiling.

The same load as in the experiment `peak`, as long as is wanted, on `stafett lab run` itself; the stub is another process, so both
share the machine's cores. The goal on two cores is 2,000,000 messages of 100 B a second.
"""

import argparse
import json
import subprocess
from contextlib import contextmanager

import common

EXPERIMENT = """question = "What does the lean driver reach?"
systems = ["kafka"]

[run]
duration = "{seconds}s"
warmup = "2s"
repetitions = {runs}

[topics.main]
partitions = 6

[roles.producers]
does = "produce"
clients = {clients}
size = {size}

[[figures]]
title = "Rate"
kind = "bars"
x = "system"
y = ["produce_rate"]
"""


@contextmanager
def stub():
    """The address of a stub; unlike the one that other benches use, it has the topics that are created, and no others."""
    command = [str(common.stafett_binary()), "lab", "stub", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait()


def measure(arguments, folder):
    experiment = folder / "lean.toml"
    experiment.write_text(EXPERIMENT.format(**vars(arguments)))
    out = folder / "run"
    command = [str(common.stafett_binary()), "lab", "run", str(experiment), "--out", str(out)]
    with stub() as address:
        subprocess.run([*command, "--address", f"kafka={address}"], check=True, stdout=subprocess.DEVNULL)
    return [json.loads(path.read_text()) for path in sorted((out / "points").glob("*.json"))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    for point in measure(arguments, common.work_folder()):
        outcome, metrics = point["outcome"], point["metrics"]
        if outcome["kind"] != "done":
            print(f"{outcome['kind']}: {outcome['reason']}")
            continue
        print(
            f"{metrics['produce_rate']:,.0f} messages/s of {arguments.size} B from {arguments.clients} clients (stub, durability none); "
            f"client CPU {metrics['client_cpu_per_million']:.2f} s per million; {point['driver']['limited'] or 'not called the limit'}",
            flush=True,
        )


if __name__ == "__main__":
    main()
