#!/usr/bin/env python3
"""Instructions of a check of a right, with rules and without, beside what it precedes.

Times of a shared machine do not show one percent; instructions do, as valgrind (callgrind) counts them. A check is what each
request asks: whether its user is there, and for the right to write to its topic. The counts of a produced batch and of a
published message are those of docs/instructions.md, which have no session, socket or thread in them: all of a request is
more.
"""

import argparse
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUMMARY = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)
# Rows of the table, and what part of each is counted: requests there have six batches.
WIRE = {"decode a Produce request, 6 batches of 64 KiB": 6, "encode its answer": 6}
ROWS = {
    "a batch of one record": {**WIRE, "append a batch of one record at `os`": 1, "validate a batch of one record": 1},
    "a batch of 64 KiB": {**WIRE, "append a batch of 64 KiB at `sync`": 1, "validate a batch of 64 KiB": 1},
    "64 messages published together": {"publish 64 messages through a topic exchange into a queue": 1},
}


def program():
    command = ["cargo", "build", "--quiet", "--release", "--locked", "--package", "stafett-access", "--example", "decisions"]
    subprocess.run(command, cwd=ROOT, check=True)
    return ROOT / "target/release/examples/decisions"


def counted(path, rules, decisions, topics):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "counts")
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--quiet", path, rules, str(decisions), str(topics)]
        subprocess.run(command, check=True)
        return int(SUMMARY.search(out.read_text()).group(1))


def whole(rows):
    """The sum of the counts of some rows of the table."""
    text = (ROOT / "docs/instructions.md").read_text()

    def count(row):
        found = re.search(rf"^\| {re.escape(row)} \| ([\d,]+) ", text, re.MULTILINE)
        return int(found.group(1).replace(",", ""))

    return sum(count(row) / parts for row, parts in rows.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=10_000)
    options = parser.parse_args()
    path = program()
    for topics in (1, 6, 100):
        each = {}
        for rules in ("open", "1", "10000"):
            # All decisions are made twice before they count.
            less, more = (counted(path, rules, 2 * topics + count, topics) for count in (0, options.decisions))
            each[rules] = (more - less) / options.decisions
        print(f"{topics} topics in turn: {each['open']:.0f} instructions without users, {each['1']:.0f} with one rule, {each['10000']:.0f} with 10,000")
        for what, rows in ROWS.items():
            base = whole(rows)
            print(f"  of {what} ({base:,.0f}): {(each['10000'] - each['open']) / base:.2%} more than without users, {(each['10000'] - each['1']) / base:.2%} more than one rule")


main()
