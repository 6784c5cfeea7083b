#!/usr/bin/env python3
"""Whether a run of the lab is disturbed by a page that watches it: the same run of many short points, with pages and without, in turn.

Watched runs have `stafett lab serve` over their folder and as many watchers as asked for, each with the requests of the page of
a run (its events, its state every second, its points every two, the list of runs); with --browser, one of them is Chromium.
Prints, for each combination and figure, the mean of both kinds with its 95 % interval, and whether the intervals overlap.
"""

import argparse
import json
import math
import subprocess
import threading
import time
import urllib.request

import common

EXPERIMENT = """
question = "Is a watched run the same?"
systems = ["stafett"]

[run]
duration = "{duration}ms"
warmup = "300ms"
break_in = "1s"
repetitions = {repetitions}

[system]
durability = "os"

[roles.producers]
does = "produce"
rate = {rate}

[roles.consumers]
does = "consume"

[grid]
"roles.producers.clients" = [1, 2, 4, 8]

[[figures]]
title = "Rate"
kind = "bars"
x = "roles.producers.clients"
y = ["produce_rate"]
"""
FIGURES = ["produce_rate", "acknowledged_p50_us", "acknowledged_p99_us", "delivery_p99_us"]
# Student's t for 95 %, by degrees of freedom; beyond, that of the normal distribution is near.
T = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23, 12: 2.18, 14: 2.14, 19: 2.09, 24: 2.06, 29: 2.05}


def interval(values):
    mean = sum(values) / len(values)
    degrees = len(values) - 1
    if degrees < 1:
        return mean, math.inf
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / degrees)
    t = T[max((known for known in T if known <= degrees), default=1)]
    return mean, t * deviation / math.sqrt(len(values))


def lab():
    return common.stafett_binary().with_name("stafett-lab")


class Page:
    """`stafett lab serve` over a folder, with watchers of one run."""

    def __init__(self, folder, run, watchers, browser):
        command = [lab(), "serve", "--listen", "127.0.0.1:0", "--runs", folder, "--experiments", folder / ".experiments"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.base = self.process.stdout.readline().split()[-1].removesuffix("/lab/")
        self.over = threading.Event()
        self.requests = 0
        run_path = f"{self.base}/lab/v1/runs/{run}"
        tasks = [(self.follow, f"{run_path}/events", 0)]
        for path, every in [(run_path, 1), (f"{run_path}/points?count=1000", 2), (f"{self.base}/lab/v1/runs?count=1000", 2)]:
            tasks.append((self.poll, path, every))
        tasks = tasks * watchers
        self.threads = [threading.Thread(target=task, args=(path, every)) for task, path, every in tasks]
        for thread in self.threads:
            thread.start()
        self.browser = None
        if browser:
            profile = folder / ".profile"
            command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", f"--user-data-dir={profile}", f"{self.base}/lab/runs/{run}"]
            self.browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def poll(self, path, every):
        while not self.over.wait(every):
            try:
                with urllib.request.urlopen(path, timeout=5) as response:
                    response.read()
                self.requests += 1
            except OSError:
                # The run has not begun yet.
                pass

    def follow(self, path, _):
        while not self.over.wait(0.2):
            try:
                with urllib.request.urlopen(path, timeout=15) as response:
                    while not self.over.is_set() and response.readline():
                        pass
            except OSError:
                pass

    def close(self):
        self.over.set()
        for process in [self.browser, self.process]:
            if process:
                process.terminate()
                process.wait()
        for thread in self.threads:
            thread.join()
        used = self.cpu
        return used

    def measure(self):
        fields = (common.Path("/proc") / str(self.process.pid) / "stat").read_text().rsplit(") ", 1)[1].split()
        self.cpu = (int(fields[11]) + int(fields[12])) / common.TICKS


def run(folder, name, text, options, watched):
    (folder / "watched.toml").write_text(text)
    page = Page(folder, name, options.watchers, options.browser) if watched else None
    begun = time.monotonic()
    command = [lab(), "run", folder / "watched.toml", "--out", folder / name]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = time.monotonic() - begun
    said = ""
    if page:
        page.measure()
        cpu = page.close()
        said = f", page {100 * cpu / seconds:.1f} % of a core, {page.requests} requests"
    print(f"{name}: {seconds:.0f} s{said}", flush=True)
    values = {}
    for path in sorted((folder / name / "points").glob("*.json")):
        point = json.loads(path.read_text())
        clients = point["parameters"]["roles.producers.clients"]
        for figure in FIGURES:
            if figure in point["metrics"]:
                values.setdefault((clients, figure), []).append(point["metrics"][figure])
    return values


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="runs of each kind, in turn (3)")
    parser.add_argument("--repetitions", type=int, default=6, help="of each of the four combinations in a run (6)")
    parser.add_argument("--duration", type=int, default=1000, help="of a point, in ms (1000)")
    parser.add_argument("--rate", default='"closed"', help='of the producers, as in a file of the lab ("closed")')
    parser.add_argument("--watchers", type=int, default=3, help="pages that watch (3)")
    parser.add_argument("--browser", action="store_true", help="one more watcher, in Chromium on this machine")
    options = parser.parse_args()
    folder = common.work_folder()
    text = EXPERIMENT.format(duration=options.duration, repetitions=options.repetitions, rate=options.rate)
    both = {True: {}, False: {}}
    for number in range(options.rounds):
        order = [False, True] if number % 2 == 0 else [True, False]
        for watched in order:
            name = f"{'watched' if watched else 'alone'}-{number + 1}"
            for key, found in run(folder, name, text, options, watched).items():
                both[watched].setdefault(key, []).extend(found)
    print(f"\n{'clients':>7} {'figure':<22} {'alone':>24} {'watched':>24}  ratio  intervals (os)")
    apart = 0
    for key in sorted(both[False]):
        (alone, reach_alone), (watched, reach_watched) = interval(both[False][key]), interval(both[True][key])
        overlap = abs(alone - watched) <= reach_alone + reach_watched
        apart += not overlap
        shown = [f"{mean:,.0f} ± {reach:,.0f}" for mean, reach in [(alone, reach_alone), (watched, reach_watched)]]
        print(f"{key[0]:>7} {key[1]:<22} {shown[0]:>24} {shown[1]:>24}  {watched / alone:.3f}  {'overlap' if overlap else 'APART'}")
    print(f"{apart} of {len(both[False])} apart")


if __name__ == "__main__":
    main()
