"""Results of a suite, kept as a table in the repository: one line per test, sorted, without anything that varies.

A line is `test`, `outcome` (pass, fail, skip), `note`: for a skip its reason, for a failure the first line of what went
wrong. Notes of failures are for people; only outcomes are compared.
"""

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "results"
HEADER = "test\toutcome\tnote"
# What differs from run to run in a message: addresses, ids, times. Replaced, so that the tables stay stable.
VARYING = [
    (re.compile(r"0x[0-9a-f]+"), "ADDRESS"),
    (re.compile(r"\b(127\.0\.0\.1|localhost):\d+"), r"\1:PORT"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"rnd[0-9a-f]{8,}"), "RANDOM"),
    (re.compile(r"/\S*/(?=\S)"), ""),
    (re.compile(r"\d+"), "N"),
]


def tidy(note):
    """One line without what changes from run to run."""
    line = " ".join(note.split())
    for pattern, replacement in VARYING:
        line = pattern.sub(replacement, line)
    return line[:200]


def path(name):
    return FOLDER / f"{name}.tsv"


def load(name):
    """{test: (outcome, note)} as it was kept."""
    if not path(name).exists():
        return {}
    lines = path(name).read_text(encoding="utf-8").splitlines()[1:]
    return {test: (outcome, note) for test, outcome, note in (line.split("\t") for line in lines)}


def keep(name, found, partial):
    """Writes the table, says sums and changes, and returns the tests that were passed before and are not now.

    With `partial` the tests that did not run keep their lines.
    """
    before = load(name)
    table = {**before, **found} if partial else found
    FOLDER.mkdir(exist_ok=True)
    rows = [f"{test}\t{outcome}\t{note}".rstrip("\t") + ("" if note else "\t") for test, (outcome, note) in sorted(table.items())]
    path(name).write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    lost = []
    for test in sorted(set(before) | set(table)):
        old, new = before.get(test, ("absent", ""))[0], table.get(test, ("absent", ""))[0]
        if old != new:
            print(f"{name}: {test}: {old} -> {new}")
        if old == "pass" and new != "pass":
            lost.append(test)
    outcomes = [outcome for outcome, _ in found.values()]
    sums = ", ".join(f"{outcomes.count(kind)} {word}" for kind, word in (("pass", "passed"), ("fail", "failed"), ("skip", "skipped")))
    print(f"{name}: {sums}", flush=True)
    return lost
