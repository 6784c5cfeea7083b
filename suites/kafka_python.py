"""kafka-python's integration tests, from its source package, against a running broker.

The package leaves out `test/service.py`, which starts brokers; `kafka_python_plugin.py` stands in for what the tests use
of it with a broker that runs already; `pytest_results.py` writes down what each test came to.
"""

import json
import os
import subprocess
import sys
import tarfile

PROTOCOL = "kafka"
PACKAGE = "kafka-python==3.0.12"
NEEDS = ["pytest==9.2.0", "pytest-mock==3.17.0", "pytest-timeout==2.4.0", "py==1.11.0", "crc32c==2.9.post0"]
CODECS = ["lz4==4.4.5", "python-snappy==0.7.3", "zstandard==0.25.0"]
KAFKA_VERSION = "4.3.0"


def prepare(work):
    """The unpacked source and a Python that can run it."""
    source = work / PACKAGE.replace("==", "-").replace("kafka-python", "kafka_python")
    if not source.exists():
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q"]
        subprocess.run([*pip, "--no-binary", ":all:", "--no-deps", "-d", work / "download", PACKAGE], check=True)
        with tarfile.open(next((work / "download").glob("kafka_python-*.tar.gz"))) as archive:
            archive.extractall(work, filter="data")
    # Without it `test` would be the package of the same name that comes with Python.
    (source / "test/__init__.py").touch()
    venv = work / "kafka-python-venv"
    wanted = "\n".join(NEEDS + CODECS)
    stamp = venv / "installed.txt"
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([venv / "bin/pip", "install", "-q", "--disable-pip-version-check", *NEEDS, *CODECS], check=True)
        stamp.write_text(wanted)
    return source, venv / "bin/python"


def run(work, start_broker, options):
    source, python = prepare(work)
    found = work / "kafka-python.json"
    found.unlink(missing_ok=True)
    broker = start_broker()
    environment = {
        **os.environ,
        "KAFKA_URI": f"kafka://{broker.address}",
        "KAFKA_ROOT": str(source),
        "KAFKA_VERSION": KAFKA_VERSION,
        "PYTHONPATH": os.pathsep.join([str(source), os.path.dirname(os.path.abspath(__file__))]),
        "SUITES_FOUND": str(found),
    }
    command = [str(python), "-m", "pytest", "-q", "--tb=short", "-p", "kafka_python_plugin", "-p", "pytest_results", "-o", "addopts=", "-o", "log_level=WARNING"]
    command += [f"--timeout={options.timeout}", "--timeout-method=signal", "test/integration"]
    if options.tests:
        command += ["-k", " or ".join(options.tests)]
    log = work / "kafka-python.log"
    with open(log, "w", encoding="utf-8") as output:
        subprocess.run(command, cwd=source, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False)
    broker.kill()
    print(f"kafka-python: the whole output is in {os.path.relpath(log)}")
    return {"kafka-python": {test: tuple(result) for test, result in json.loads(found.read_text()).items()}}
