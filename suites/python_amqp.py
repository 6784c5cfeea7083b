"""The integration tests of py-amqp and of kombu over it, from their source packages.

`python_amqp.tsv` names those that cannot apply, with the reason.
"""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

PROTOCOL = "amqp"
HERE = Path(__file__).resolve().parent
# The same versions as in tests/clients/requirements.txt.
PACKAGES = {"py-amqp": ("amqp==5.4.2", ["t/integration/test_rmq.py"]), "kombu": ("kombu==5.7.0", ["t/integration/test_py_amqp.py"])}
NEEDS = ["amqp==5.4.2", "kombu==5.7.0", "pytest==9.2.0", "pytest-timeout==2.4.0"]


def prepare(work):
    """The unpacked sources by name, and a Python that can run them."""
    sources = {}
    for name, (package, _) in PACKAGES.items():
        sources[name] = work / package.replace("==", "-")
        if sources[name].exists():
            continue
        download = work / "download"
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q"]
        subprocess.run([*pip, "--no-binary", ":all:", "--no-deps", "-d", download, package], check=True)
        with tarfile.open(next(download.glob(f"{sources[name].name}.tar.gz"))) as archive:
            archive.extractall(work, filter="data")
    venv = work / "python-amqp-venv"
    wanted = "\n".join(NEEDS)
    stamp = venv / "installed.txt"
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([venv / "bin/pip", "install", "-q", "--disable-pip-version-check", *NEEDS], check=True)
        stamp.write_text(wanted)
    return sources, venv / "bin/python"


def excluded(name):
    """{piece of a test's name: reason} of one of the suites."""
    table = {}
    for line in (HERE / "python_amqp.tsv").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            suite, piece, reason = line.split("\t")
            if suite == name:
                table[piece] = reason
    return table


def run(work, start_broker, options):
    sources, python = prepare(work)
    results = {}
    for name, (_, files) in PACKAGES.items():
        found = work / f"{name}.json"
        found.unlink(missing_ok=True)
        broker = start_broker()
        host, port = broker.amqp.rsplit(":", 1)
        environment = {
            **os.environ,
            "RABBITMQ_HOST": host,
            "RABBITMQ_5672_TCP": port,
            "PYTHONPATH": os.pathsep.join([str(sources[name]), str(HERE)]),
            "SUITES_FOUND": str(found),
            "SUITES_SKIP": json.dumps(excluded(name)),
        }
        # Nothing is tried again: a test that fails now and then shows.
        command = [str(python), "-m", "pytest", "-q", "--tb=short", "-p", "pytest_results", "-o", "addopts="]
        command += [f"--timeout={options.timeout}", "--timeout-method=signal", *files]
        if options.tests:
            command += ["-k", " or ".join(options.tests)]
        log = work / f"{name}.log"
        with open(log, "w", encoding="utf-8") as output:
            subprocess.run(command, cwd=sources[name], env=environment, stdout=output, stderr=subprocess.STDOUT, check=False)
        broker.kill()
        print(f"{name}: the whole output is in {os.path.relpath(log)}")
        results[name] = {test: tuple(result) for test, result in json.loads(found.read_text()).items()}
    return results
