"""librdkafka's own broker tests: its test runner, built here, and each test run by itself against a fresh topic prefix.

The sources come in the npm package of Confluent's JavaScript client. Tests that librdkafka marks as local need no broker
and are left out, but for those of its smoke list. Tests that can tell the two group protocols apart run with both.
`librdkafka.tsv` names those that cannot apply, with the reason.
"""

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

from results import tidy

PROTOCOL = "kafka"
PACKAGE = "@confluentinc/kafka-javascript@1.10.1"
# Three tests read statistics with RapidJSON, which is headers only: the source package of its Python wrapper carries them.
RAPIDJSON = "python-rapidjson==1.25"
HERE = Path(__file__).resolve().parent
SMOKE = ["0000", "0001", "0004", "0012", "0017", "0022", "0030", "0039", "0049", "0087", "0103"]
PROTOCOLS = ["classic", "consumer"]
KAFKA_VERSION = "4.3.0"
# A test that ends with the first part that cannot apply (access control lists, here) is run part by part.
PARTS = {
    "0081_admin": [
        "do_test_CreateTopics", "do_test_DeleteTopics", "do_test_CreatePartitions", "do_test_AlterConfigs",
        "do_test_IncrementalAlterConfigs", "do_test_DescribeConfigs", "do_test_DeleteRecords", "do_test_ListConsumerGroups",
        "do_test_DescribeConsumerGroups", "do_test_DescribeTopics", "do_test_DescribeCluster", "do_test_DeleteGroups",
        "do_test_DeleteConsumerGroupOffsets", "do_test_ListOffsets", "do_test_AlterConsumerGroupOffsets",
        "do_test_ListConsumerGroupOffsets", "do_test_UserScramCredentials", "do_test_ElectLeaders",
    ]
}  # fmt: skip
# No library but OpenSSL and zlib, so that a plain build machine will do; zstd, lz4 and the rest are tested elsewhere.
CONFIGURE = ["--disable-gssapi", "--disable-curl", "--disable-zstd", "--disable-lz4-ext"]


def prepare(work):
    """The folder with the built test runner."""
    source = work / "librdkafka"
    if not source.exists():
        (work / "download").mkdir(exist_ok=True)
        subprocess.run(["npm", "pack", "--silent", "--pack-destination", work / "download", PACKAGE], check=True, stdout=subprocess.DEVNULL)
        prefix = "package/deps/librdkafka/"
        with tarfile.open(next((work / "download").glob("confluentinc-kafka-javascript-*.tgz"))) as archive:
            members = [member for member in archive.getmembers() if member.name.startswith(prefix)]
            for member in members:
                member.name = member.name.removeprefix(prefix)
            archive.extractall(source, members, filter="data")
        one_replica(source / "tests")
        for script in [source / "configure", *source.glob("mklove/*"), source / "lds-gen.py"]:
            if script.is_file():
                script.chmod(0o755)
    tests = source / "tests"
    if not (tests / "test-runner").exists():
        log = work / "librdkafka-build.log"
        print(f"librdkafka: building its tests, some minutes; see {os.path.relpath(log)}", flush=True)
        with open(log, "w", encoding="utf-8") as output:
            for command in (["./configure", f"--CPPFLAGS=-I{rapidjson(work)}", *CONFIGURE], ["make", "-j2", "libs"], ["make", "-j2", "-C", "tests", "test-runner"]):
                subprocess.run(command, cwd=source, stdout=output, stderr=subprocess.STDOUT, check=True)
    return tests


def rapidjson(work):
    """The folder with the headers of RapidJSON."""
    headers = work / "rapidjson"
    if not headers.exists():
        fetch = ["pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", work / "download", RAPIDJSON]
        subprocess.run([sys.executable, "-m", *fetch], check=True)
        with tarfile.open(next((work / "download").glob("python_rapidjson-*.tar.gz"))) as archive:
            members = [member for member in archive.getmembers() if "/rapidjson/include/rapidjson/" in member.name]
            for member in members:
                member.name = member.name.split("/include/", 1)[1]
            archive.extractall(headers, members, filter="data")
    return headers


def one_replica(tests):
    """Lets tests that create topics with three replicas be content with one, as there is one broker."""
    for path in [*tests.glob("*.c"), *tests.glob("*.cpp")]:
        text = path.read_text(encoding="utf-8")
        fewer = re.sub(r"(\b(?:test_|Test::)create_topic_wait_exists\([^;]*), 3, (\d+\);)", r"\1, 1, \2", text)
        fewer = re.sub(r"(\bTest::create_topic\([^;]*), 3\);", r"\1, 1);", fewer)
        if fewer != text:
            path.write_text(fewer, encoding="utf-8")


def kafka_path(work):
    """A folder that looks like Kafka's own to the tests that call its scripts: they are our launcher of its tools. Tests
    have Java clients of their own, which are compiled and run with the jars in `libs`."""
    scripts = work / "kafka-path/bin"
    scripts.mkdir(parents=True, exist_ok=True)
    launcher = HERE.parent / "tools/peers/kafka"
    for script, tool in (("kafka-topics.sh", "TopicCommand"), ("kafka-configs.sh", "kafka.admin.ConfigCommand")):
        path = scripts / script
        path.write_text(f'#!/bin/sh\nexec "{launcher}" run {tool} "$@"\n')
        path.chmod(0o755)
    runner = scripts / "kafka-run-class.sh"
    runner.write_text('#!/bin/sh\nexec java -cp "$CLASSPATH:$(dirname "$0")/../libs/*" "$@"\n')
    runner.chmod(0o755)
    libs = scripts.parent / "libs"
    if not libs.exists():
        subprocess.run([launcher, "fetch"], check=True, stdout=subprocess.DEVNULL)
        peers = Path(os.environ.get("PEERS_DIR", HERE.parent / "target/peers"))
        libs.symlink_to(next(peers.glob("kafka-*/libs")).resolve())
    return scripts.parent


def declared(tests):
    """{name: flags and the like} of all tests that the runner knows, in its order."""
    text = (tests / "test.c").read_text(encoding="utf-8")
    text = text[text.index("struct test tests[] = {") :]
    found = {}
    for name, rest in re.findall(r"_TEST\((\w+),(.*?)\)[,;]\s*(?=\n\s*(?:_TEST|#|/\*|\{|\}))", text, re.DOTALL):
        found[name] = rest
    return found


def excluded():
    """{(test, protocol or *): reason}."""
    table = {}
    for line in (HERE / "librdkafka.tsv").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            test, protocol, reason = line.split("\t")
            table[test, protocol] = reason
    return table


def reason_to_skip(name, rest, protocol, table):
    for key in ((name, protocol), (name, "*")):
        if key in table:
            return table[key]
    if "TEST_F_LOCAL" in rest and name[:4] not in SMOKE:
        return "needs no broker"
    if "TEST_F_MANUAL" in rest or name.startswith("8"):
        return "run by hand only"
    if re.search(r"TEST_F_KNOWN_ISSUE\b", rest):
        return "librdkafka lists it as a known issue of its own"
    return None


def scenario(rest):
    match = re.search(r'\.scenario = "([\w,]+)"', rest)
    return match.group(1).split(",")[0] if match else "default"


def outcome(report, log, name, ended):
    """What the runner says of the test, with the first complaint in its output."""
    text = log.read_text(encoding="utf-8", errors="replace")
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    state = None
    if report.exists():
        try:
            tests = json.loads(re.sub(r",(\s*[}\]])", r"\1", report.read_text()))["tests"]
            state = tests.get(name, {}).get("state")
        except ValueError:
            state = None
    if state == "PASSED" and ended == 0:
        return "pass", ""
    if state == "SKIPPED":
        why = re.findall(rf"^\| {name} +\| +SKIPPED \| +[\d.]+s \| (.*)$", text, re.MULTILINE)
        return "skip", " ".join(why[0].split()).split(": ", 1)[-1] if why else "it skips itself"
    if ended == "timeout":
        return "fail", "it came to no end"
    complaints = re.findall(r"^### Test .* failed at .* ###\n(.*)", text, re.MULTILINE)
    return "fail", complaints[0] if complaints else f"it ended with {ended}"


def run(work, start_broker, options):
    tests = prepare(work)
    table = excluded()
    brokers = {}
    results = {}
    for protocol in options.protocols or PROTOCOLS:
        found = results.setdefault(f"librdkafka-{protocol}", {})
        for name, rest in declared(tests).items():
            if options.tests and not any(name.startswith(wanted) for wanted in options.tests):
                continue
            reason = reason_to_skip(name, rest, protocol, table)
            if reason:
                found[name] = ("skip", reason)
                continue
            kind = scenario(rest)
            for part in PARTS.get(name, [""]):
                test = f"{name}/{part}" if part else name
                if (test, "*") in table:
                    found[test] = ("skip", table[test, "*"])
                    continue
                if kind not in brokers:
                    brokers[kind] = start_broker(auto_create=kind != "noautocreate")
                found[test] = one(tests, work, brokers[kind], name, rest, part, protocol, options.timeout)
                print(f"librdkafka-{protocol}: {test}: {' '.join(found[test])}".rstrip(), flush=True)
                if brokers[kind].process.poll() is not None:
                    found[test] = ("fail", "the broker ended")
                    del brokers[kind]
    for broker in brokers.values():
        broker.kill()
    return results


def one(tests, work, broker, name, rest, part, protocol, timeout):
    """Runs a test, or a part of one, by itself."""
    stem = f"{name}{part and '-' + part}-{protocol}"
    # The runner reads its settings again and again: each broker's tests have files of their own.
    logs = work / "librdkafka-logs" / broker.subject
    logs.mkdir(parents=True, exist_ok=True)
    report, log, conf = (logs / f"{stem}.{kind}" for kind in ("json", "log", "conf"))
    report.unlink(missing_ok=True)
    conf.write_text(f"bootstrap.servers={broker.address}\ntest.topic.prefix=suite-{stem}\ntest.timeout.multiplier=2\n")
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": f"{tests.parent}/src:{tests.parent}/src-cpp",
        "RDKAFKA_TEST_CONF": str(conf),
        "TESTS": name,
        "TEST_CONSUMER_GROUP_PROTOCOL": protocol,
        "TEST_KAFKA_VERSION": KAFKA_VERSION,
        "TEST_REPORT": str(report),
        "KAFKA_PATH": str(kafka_path(work)),
        "BROKERS": broker.address,
        "TEST_SCENARIO": scenario(rest),
        "TEST_LEVEL": "2",
    }
    if part:
        environment["SUBTESTS"] = part
    command = ["timeout", "-k", "5", str(timeout), "./test-runner", "-p1", "-Q"]
    if "TEST_F_LOCAL" not in rest:
        # The name is matched as a part: `-L` keeps a test's local sibling from running with it.
        command.append("-L")
    with open(log, "w", encoding="utf-8") as output:
        ended = subprocess.run(command, cwd=tests, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    result, note = outcome(report, log, name, "timeout" if ended in (124, 137) else ended)
    return result, tidy(note) if result == "fail" else note
