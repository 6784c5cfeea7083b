"""Celery: results, retries, a chord, an ETA, and a worker that is killed with a task in hand."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta, timezone

from celery import Celery, chord

ADDRESS = os.environ.get("STAFETT_AMQP") or sys.argv[1]
LIMIT = 240

app = Celery("amqp_celery", broker=f"amqp://guest:guest@{ADDRESS}//", backend="rpc://")
# Chords need results that everybody sees; a folder is enough.
FOLDER = os.environ.get("STAFETT_CELERY_FOLDER") or tempfile.mkdtemp()
app.conf.update(
    result_backend=f"file://{FOLDER}",
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    worker_cancel_long_running_tasks_on_connection_loss=False,
)


@app.task(name="add")
def add(left, right):
    return left + right


@app.task(name="total")
def total(numbers):
    return sum(numbers)


@app.task(name="flaky", bind=True, max_retries=3)
def flaky(self):
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return self.request.retries


@app.task(name="first_time_hangs")
def first_time_hangs(path):
    if not os.path.exists(path):
        with open(path, "w", encoding="ascii"):
            pass
        time.sleep(LIMIT)
    return "done"


def worker():
    environment = dict(os.environ, STAFETT_AMQP=ADDRESS, STAFETT_CELERY_FOLDER=FOLDER)
    command = [sys.executable, "-m", "celery", "-A", "amqp_celery", "worker", "--pool=solo", "--loglevel=WARNING"]
    folder = os.path.dirname(os.path.abspath(__file__))
    return subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True)


def main():
    process = worker()
    try:
        assert add.delay(2, 3).get(timeout=LIMIT) == 5
        assert flaky.delay().get(timeout=LIMIT) == 2
        assert chord(add.s(n, n) for n in range(10))(total.s()).get(timeout=LIMIT) == 90
        soon = datetime.now(timezone.utc) + timedelta(seconds=1)
        assert add.apply_async((1, 1), eta=soon).get(timeout=LIMIT) == 2
        path = os.path.join(FOLDER, "begun")
        held = first_time_hangs.delay(path)
        deadline = time.monotonic() + LIMIT
        while not os.path.exists(path):
            assert time.monotonic() < deadline, "no worker took the task"
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process = worker()
        assert held.get(timeout=LIMIT) == "done"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


if __name__ == "__main__":
    main()
