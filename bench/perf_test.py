#!/usr/bin/env python3
"""RabbitMQ's own load tool, PerfTest, against Stafett and against RabbitMQ in turn.

Prints a Markdown table of medians, with the durability beside every subject. PerfTest counts latency from the moment at
which it sent a message, and does not look for lost messages; the lab does both (`stafett lab run queue-confirms`).
"""

import argparse
import re
import statistics
import subprocess

import common

PERF = common.ROOT / "tools/peers/rabbitmq"
QUEUES = ["--queue-pattern", "fan-%d", "--queue-pattern-from", "0", "--queue-pattern-to", "9"]
# Those of the lab's experiments queue-auto-ack, queue-confirms, queue-fan-out and queue-latency.
ROWS = {
    "autoack": ["--autoack"],
    "confirms": ["--confirm", "500", "--qos", "500", "--flag", "persistent"],
    "fanout": ["--confirm", "500", "--qos", "500", "--flag", "persistent", "--exchange", "fan", "--type", "fanout", "--consumers", "10", *QUEUES],
    "latency": ["--confirm", "500", "--qos", "500", "--flag", "persistent", "--rate", "2000"],
}
FIGURES = {
    "sent, 1/s": re.compile(r"sending rate avg: (\d+) msg/s"),
    "received, 1/s": re.compile(r"receiving rate avg: (\d+) msg/s"),
    "confirm p50, µs": re.compile(r"confirm latency min/median/75th/95th/99th \d+/(\d+)"),
    "confirm p99, µs": re.compile(r"confirm latency min/median/75th/95th/99th (?:\d+/){4}(\d+)"),
    "delivery p50, µs": re.compile(r"consumer latency min/median/75th/95th/99th \d+/(\d+)"),
    "delivery p99, µs": re.compile(r"consumer latency min/median/75th/95th/99th (?:\d+/){4}(\d+)"),
}


def measured(broker, row, seconds):
    """The figures of one run, those that PerfTest printed."""
    uri = f"amqp://guest:guest@{broker.amqp}"
    command = [str(PERF), "perf", "--uri", uri, "--size", "100", "--time", str(seconds), "--metrics-format", "default", *ROWS[row]]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{row} failed: {done.stderr[-2000:]}{done.stdout[-2000:]}")
    found = {name: figure.search(done.stdout) for name, figure in FIGURES.items()}
    return {name: float(match[1]) for name, match in found.items() if match}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--subjects", nargs="+", default=["stafett-os", "rabbitmq"], help="stafett-LEVEL, rabbitmq")
    options.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS)
    options.add_argument("--seconds", type=int, default=20)
    options.add_argument("--runs", type=int, default=3)
    options = options.parse_args()
    folder = common.work_folder()
    results = {}
    for run in range(options.runs):
        for subject in options.subjects:
            broker = common.Broker(subject, folder / f"{subject}-{run}")
            for row in options.rows:
                for name, value in measured(broker, row, options.seconds).items():
                    results.setdefault((row, name), {}).setdefault(subject, []).append(value)
            broker.stop()
    print(f"{common.machine()}; medians of {options.runs} runs of {options.seconds} s\n")
    print("| what | " + " | ".join(f"{subject} ({common.durability(subject)})" for subject in options.subjects) + " |")
    print("|---|" + "---:|" * len(options.subjects))
    for (row, name), values in results.items():
        cells = (f"{statistics.median(values[subject]):,.0f}" if subject in values else "" for subject in options.subjects)
        print(f"| {row}: {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
