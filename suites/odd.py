"""The requests of tests/clients/odd, asked of Apache Kafka itself: whether the answers that are kept are still its answers.

`make test` asks them of Stafett and compares with what is kept; this needs a broker of Kafka's, which takes its time.
"""

import os
import re
import subprocess

PROTOCOL = "kafka"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TEST = "odd_requests_are_answered_as_kafka_answers_them"


def run(work, _start_broker, _options):
    environment = {**os.environ, "STAFETT_BIN": "tools/peers/kafka"}
    command = ["cargo", "test", "-p", "stafett-client-tests", TEST]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    log = work / "odd.log"
    log.write_text(done.stdout + done.stderr, encoding="utf-8")
    for difference in re.findall(r"^.*: expected .*, got .*$", done.stdout, re.MULTILINE):
        print(f"odd: {difference}")
    passed = done.returncode == 0 and "1 passed" in done.stdout
    return {"odd": {TEST: ("pass", "") if passed else ("fail", "see odd.log")}}
