"""Flower, the monitor of Celery, over a broker: python flower_monitor.py AMQP_HOST:PORT HTTP_HOST:PORT FOLDER

Flower asks the management API for the lengths of queues, and AMQP for workers and events. Tasks wait first, and are shown as such;
then a worker comes, and Flower shows it and what became of the tasks.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request

from celery import Celery

amqp, http, folder = sys.argv[1:]
LIMIT = 240
URL = f"amqp://guest:guest@{amqp}//"
TASKS = 3
APP = f"""
from celery import Celery
app = Celery("shop", broker="{URL}", backend="rpc://")
app.conf.update(worker_send_task_events=True, broker_connection_retry_on_startup=True)

@app.task(name="double")
def double(number):
    return 2 * number
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until(noun, look):
    deadline = time.monotonic() + LIMIT
    while True:
        try:
            found = look()
        except OSError as error:
            found = None
            last = error
        else:
            last = found
        if found:
            return found
        assert time.monotonic() < deadline, f"{noun}: {last}"
        time.sleep(0.2)


def main():
    with open(f"{folder}/shop.py", "w") as app:
        app.write(APP)
    port = free_port()
    environment = {**os.environ, "PYTHONPATH": folder, "FLOWER_UNAUTHENTICATED_API": "true"}
    celery = [sys.executable, "-m", "celery", "-A", "shop"]
    log = open(f"{folder}/programs.log", "ab")

    def start(*arguments):
        return subprocess.Popen([*celery, *arguments], env=environment, cwd=folder, stdout=log, stderr=log)

    def shown(path):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/{path}", timeout=LIMIT) as answer:
            return json.load(answer)

    def lengths():
        return [(queue["name"], queue["messages"]) for queue in shown("queues/length")["active_queues"]]

    client = Celery("shop", broker=URL)
    for number in range(TASKS):
        client.send_task("double", [number])
    programs = [start("flower", f"--port={port}", "--address=127.0.0.1", f"--broker_api=http://guest:guest@{http}/api/")]
    try:
        # Flower gives the management API a second, and shows no queues after that.
        until("the waiting tasks", lambda: lengths() == [("celery", TASKS)])
        programs.append(start("worker", "--pool=solo", "--hostname=one@shop", "--events"))
        until("the worker", lambda: "one@shop" in shown("workers?refresh=1"))

        def done():
            tasks = shown("tasks").values()
            return len(tasks) == TASKS and all(task["state"] == "SUCCESS" for task in tasks)

        until("the ends of the tasks", done)
        until("an empty queue", lambda: lengths() == [("celery", 0)])
    finally:
        for program in programs:
            program.terminate()
        for program in programs:
            program.wait(LIMIT)
    print("ok")


main()
