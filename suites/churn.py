"""A million channels, opened and closed, and a hundred thousand connections: nothing of them stays.

`make test` does a hundredth of it.
"""

import subprocess

import common

PROTOCOL = "amqp"
SCRIPT = common.ROOT / "tests/clients/python/amqp_churn.py"
TEST = "channels and connections leave nothing behind"


def run(work, start_broker, options):
    if options.subject == "rabbitmq":
        return {"churn": {TEST: ("skip", "its memory is its own affair")}}
    broker = start_broker()
    command = [common.VENV, SCRIPT, broker.amqp, broker.http, str(broker.process.pid), "1000000", "100000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    broker.kill()
    (work / "churn.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    print(f"churn: {done.stdout.strip() or 'see churn.log'}")
    last = (done.stderr.strip().splitlines() or [""])[-1]
    return {"churn": {TEST: ("pass", "") if done.returncode == 0 else ("fail", last)}}
