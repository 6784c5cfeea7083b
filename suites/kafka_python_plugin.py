"""A pytest plugin that lets kafka-python's tests use a broker that runs already, and writes results as JSON."""

import json
import os
import sys
import types

from results import tidy


class ExternalService:
    """A broker that somebody else starts and stops."""

    def __init__(self, host, port):
        self.host = host
        self.port = port

    def open(self):
        pass

    def close(self):
        pass

    stop = close


class SpawnedService:
    def __init__(self, *_):
        raise RuntimeError("this test starts a broker of its own")


service = types.ModuleType("test.service")
service.ExternalService = ExternalService
service.SpawnedService = SpawnedService
sys.modules["test.service"] = service

FOUND = {}


def name(nodeid):
    return nodeid.removeprefix("test/integration/")


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
