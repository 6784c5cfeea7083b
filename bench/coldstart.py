#!/usr/bin/env python3
"""The time from starting the broker's process to its first answer to a Metadata request.

Without --data-dir: on an empty folder each time. With it: on that folder, after a clean stop. --fill GIB --topics N
first fills a folder of its own, and also measures a start after a kill.
"""

import argparse
import socket
import statistics
import struct
import threading
import time

import common


def free_address():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()


def first_answer(address):
    """Returns once the broker has answered a Metadata request (version 4) for no topic."""
    body = struct.pack(">hhih4s", 3, 4, 1, 4, b"cold") + struct.pack(">i?", 0, False)
    while True:
        try:
            with socket.create_connection(address) as connection:
                connection.sendall(struct.pack(">i", len(body)) + body)
                if len(connection.recv(4)) == 4:
                    return
        except OSError:
            pass
        time.sleep(0.0005)


class Timed(common.Broker):
    """A broker whose start is measured from outside, and not by the lines it prints."""

    def start(self):
        host, port = free_address()
        self.address = f"{host}:{port}"
        begun = time.monotonic()
        answered = []
        waiter = threading.Thread(target=lambda: (first_answer((host, port)), answered.append(time.monotonic())))
        waiter.start()
        super().start()
        waiter.join()
        self.seconds = answered[0] - begun


def show(what, subject, seconds):
    level = common.durability(subject)
    times = " ".join(f"{1000 * value:.1f}" for value in seconds)
    print(f"{what}: median {1000 * statistics.median(seconds):.1f} ms of {times} ({subject}, durability {level})", flush=True)


def restarts(subject, folder, runs, end):
    seconds = []
    broker = Timed(subject, folder)
    for _ in range(runs):
        getattr(broker, end)()
        broker.start()
        seconds.append(broker.seconds)
    broker.stop()
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subject", default="stafett-sync")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--data-dir", help="the folder that holds data/, as the broker left it")
    parser.add_argument("--fill", type=float, metavar="GIB")
    parser.add_argument("--topics", type=int, default=10_000)
    options = parser.parse_args()
    if options.fill:
        common.in_venv()
    folder = common.work_folder()
    print(common.machine())
    if options.data_dir:
        show("start on data, stopped cleanly", options.subject, restarts(options.subject, options.data_dir, options.runs, "stop"))
        return
    empty = []
    for run in range(options.runs):
        broker = Timed(options.subject, folder / f"empty-{run}")
        empty.append(broker.seconds)
        broker.stop()
    show("start, empty", options.subject, empty)
    if options.fill:
        import load

        broker = Timed(options.subject, folder / "filled")
        load.fill(broker.address, options.topics, int(options.fill * 2**30))
        broker.stop()
        what = f"start on {options.fill:g} GiB in {options.topics} topics"
        for end in ("stop", "kill"):
            show(f"{what}, after {end}", options.subject, restarts(options.subject, folder / "filled", options.runs, end))


if __name__ == "__main__":
    main()
