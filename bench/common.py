"""What the benches share: brokers to measure, started and stopped alike, and what the kernel says of them.

A subject is a broker with a durability: `stafett-os`, `stafett-sync`, `stafett-memory`, `stafett-interval:N,T`, `kafka`
(Apache Kafka, which acknowledges at `os`), `rabbitmq` (its classic queues, at `os` too), `stub` (answers without storing). Nothing here judges a number.
"""

import atexit
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
LAUNCHER = ROOT / "tools/peers/kafka"
RABBITMQ = ROOT / "tools/peers/rabbitmq"
TICKS = os.sysconf("SC_CLK_TCK")
# What each partition of the stub seems to hold: enough for the rows that read.
STUB_RECORDS = 4_000_000
VENV = ROOT / "target/clients/venv/bin/python"


def in_venv():
    """Starts the script again with the Python that has confluent-kafka; call it before importing that."""
    if Path(sys.prefix) != VENV.parent.parent:
        if not VENV.exists():
            sys.exit("confluent-kafka is not there: run scripts/setup")
        os.execv(VENV, [str(VENV), *sys.argv])


def work_folder():
    """A folder on the disk that target/ is on, deleted when the script ends."""
    parent = TARGET / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=parent))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def available(subject):
    """None if the subject can be started, else why not."""
    program = {"kafka": LAUNCHER, "rabbitmq": RABBITMQ}.get(subject, stafett_binary())
    return None if program.exists() else f"{program} is missing"


def stafett_binary():
    return Path(os.environ.get("STAFETT_BIN", TARGET / "release/stafett"))


def durability(subject):
    """The level at which the subject acknowledges, to stand beside its numbers."""
    return {"kafka": "os", "rabbitmq": "os", "stub": "none"}.get(subject, subject.removeprefix("stafett-"))


class Broker:
    """A running broker of its own, on free ports."""

    def __init__(self, subject, folder, arguments=(), address="127.0.0.1:0"):
        self.subject = subject
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.arguments = list(arguments)
        self.address = address
        self.amqp = self.http = self.kafka_tls = None
        self.process = None
        atexit.register(self.kill)
        self.start()

    def command(self):
        if self.subject == "stub":
            held = self.arguments or ["--records", str(STUB_RECORDS)]
            return [str(stafett_binary()), "lab", "stub", "--listen", self.address, *held]
        if self.subject == "rabbitmq":
            return [str(RABBITMQ), "serve", "--data-dir", str(self.folder / "data"), "--amqp", "127.0.0.1:0", *self.arguments]
        serve = ["serve", "--data-dir", str(self.folder / "data"), "--kafka", self.address, "--http", "127.0.0.1:0"]
        if self.subject == "kafka":
            return [str(LAUNCHER), *serve, *self.arguments]
        serve += ["--amqp", "127.0.0.1:0", "--durability", durability(self.subject)]
        return [str(stafett_binary()), *serve, *self.arguments]

    def start(self):
        log = open(self.folder / "stderr.log", "ab")
        self.process = subprocess.Popen(
            self.command(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, preexec_fn=many_files
        )
        last = "kafka listening on " if self.subject == "stub" else "ready"
        for line in self.process.stdout:
            if line.startswith("kafka listening on "):
                self.address = line.split()[-1]
            if line.startswith("kafka-tls listening on "):
                self.kafka_tls = line.split()[-1]
            if line.startswith("amqp listening on "):
                self.amqp = line.split()[-1]
            if line.startswith("http listening on "):
                self.http = line.split()[-1]
            if line.startswith(last):
                return
        sys.exit(f"{self.subject} did not start: see {self.folder}/stderr.log")

    def stop(self):
        """Ends it as an operator would, and returns the seconds that it took."""
        start = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.process = None
        return time.monotonic() - start

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    @property
    def proc(self):
        return Path("/proc") / str(self.process.pid)

    def cpu_seconds(self):
        """User and system time of all its threads."""
        fields = (self.proc / "stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_mib(self):
        return self.status_kib("VmRSS") / 1024

    def status_kib(self, key):
        for line in (self.proc / "status").read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1])
        return 0

    def open_files(self):
        """Open regular files; sockets and the like are left out."""
        count = 0
        for link in (self.proc / "fd").iterdir():
            try:
                path = os.readlink(link)
            except FileNotFoundError:
                continue
            count += path.startswith("/") and not path.startswith("/dev/")
        return count

    def written_bytes(self):
        for line in (self.proc / "io").read_text().splitlines():
            if line.startswith("write_bytes:"):
                return int(line.split()[1])
        return 0

    def await_idle(self, quiet=10, limit=900):
        """Until it has neither written nor used the CPU to speak of for some seconds; returns how long that took."""
        start = since = time.monotonic()
        written, cpu = self.written_bytes(), self.cpu_seconds()
        while time.monotonic() - since < quiet and time.monotonic() - start < limit:
            time.sleep(1)
            now_written, now_cpu = self.written_bytes(), self.cpu_seconds()
            if now_written - written > 1 << 20 or now_cpu - cpu > 0.1:
                since = time.monotonic()
            written, cpu = now_written, now_cpu
        return since - start


def many_files():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def tool(*arguments, **environment):
    """A Java tool's output; see tools/peers/kafka."""
    done = subprocess.run(
        [str(LAUNCHER), "run", *map(str, arguments)], capture_output=True, text=True, env={**os.environ, **environment}
    )
    if done.returncode != 0:
        raise RuntimeError(f"{arguments[0]} failed: {done.stderr[-2000:]}{done.stdout[-2000:]}")
    return done.stdout


def pairs(line):
    """The numbers of a line of name=value pairs."""
    return {name: float(value) for name, value in (pair.split("=") for pair in line.split())}


def drop_caches():
    """Empties the page cache; False where that is not allowed."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    except OSError:
        return False
    return True


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def machine():
    model = next((l.split(": ")[1] for l in Path("/proc/cpuinfo").read_text().splitlines() if l.startswith("model name")), "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    commit = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    return f"{time.strftime('%Y-%m-%d')}, commit {commit}, {os.cpu_count()} cores ({model}), {memory:.0f} GiB, Linux {platform.release()}"
