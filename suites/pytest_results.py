"""A pytest plugin that writes what each test came to as JSON, to the file that SUITES_FOUND names.

Tests that SUITES_SKIP names (JSON, a piece of the test's name and the reason) are skipped with that reason.
"""

import json
import os

import pytest
from results import tidy

FOUND = {}
SKIPPED = json.loads(os.environ.get("SUITES_SKIP", "{}"))


def name(nodeid):
    return nodeid.removeprefix("test/integration/").removeprefix("t/integration/")


def pytest_collection_modifyitems(items):
    for item in items:
        for piece, reason in SKIPPED.items():
            if piece in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_runtest_logreport(report):
    test = name(report.nodeid)
    if report.skipped:
        FOUND[test] = ("skip", report.longrepr[2].removeprefix("Skipped: "))
    elif report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        FOUND[test] = ("fail", tidy(crash.message if crash else str(report.longrepr)))
    elif report.when == "call":
        FOUND.setdefault(test, ("pass", ""))


def pytest_collectreport(report):
    if report.failed:
        FOUND[name(report.nodeid)] = ("fail", tidy("not collected: " + str(report.longrepr).strip().splitlines()[-1]))


def pytest_sessionfinish():
    with open(os.environ["SUITES_FOUND"], "w", encoding="utf-8") as file:
        json.dump(FOUND, file)
