//! Client programs: paths, commands, and the report of a missing one.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, OnceLock};

use crate::broker::root;

/// A guard against a client that hangs, in seconds; no test comes near it.
const RUN_LIMIT_SECONDS: &str = "600";

pub(crate) fn kcat() -> Option<PathBuf> {
    let found = on_path("kcat");
    if found.is_none() {
        skip("kcat is not installed", "apt-get install kcat");
    }
    found
}

pub(crate) fn curl() -> Option<PathBuf> {
    let found = on_path("curl");
    if found.is_none() {
        skip("curl is not installed", "apt-get install curl");
    }
    found
}

pub(crate) fn chromium() -> Option<PathBuf> {
    let found = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find_map(on_path);
    if found.is_none() {
        skip("Chromium is not installed", "apt-get install chromium");
    }
    found
}

/// The launcher of Kafka's own tools, once its jars are there.
pub(crate) fn kafka_tools() -> Option<PathBuf> {
    static FETCHED: OnceLock<bool> = OnceLock::new();
    fetched("kafka", "Apache Kafka", &FETCHED)
}

/// The launcher of RabbitMQ's `PerfTest`, once its jars are there.
pub(crate) fn perf_test() -> Option<PathBuf> {
    static FETCHED: OnceLock<bool> = OnceLock::new();
    fetched("rabbitmq", "PerfTest", &FETCHED)
}

/// RabbitMQ's `rabbitmqadmin`, as the node of `tools/peers/rabbitmq` serves it, and a Python that runs it.
pub(crate) fn rabbitmqadmin() -> Option<(PathBuf, PathBuf)> {
    let python = python3()?;
    let peers = env::var_os("PEERS_DIR").map_or_else(|| root().join("target/peers"), PathBuf::from);
    let script = peers
        .join("rabbitmq-root/usr/lib/rabbitmq/lib/rabbitmq_server-4.0.5/plugins")
        .join("rabbitmq_management-4.0.5/priv/www/cli/rabbitmqadmin");
    if !script.is_file() {
        skip("rabbitmqadmin is not there", "tools/peers/rabbitmq build");
        return None;
    }
    Some((python, script))
}

/// `rabbitmqadmin` of the second generation, a program without Python.
pub(crate) fn rabbitmqadmin_2() -> Option<PathBuf> {
    let program = root().join("target/peers/rabbitmqadmin/bin/rabbitmqadmin");
    if !program.is_file() {
        let install = "cargo install rabbitmqadmin@2.35.0 --root target/peers/rabbitmqadmin";
        skip("rabbitmqadmin 2 is not there", install);
        return None;
    }
    Some(program)
}

/// Any Python 3, without packages.
pub(crate) fn python3() -> Option<PathBuf> {
    let found = on_path("python3");
    if found.is_none() {
        skip("Python is not installed", "apt-get install python3");
    }
    found
}

/// The three newest releases of Python on this machine that have 3.11's features: on the path, and pyenv's.
pub(crate) fn newest_pythons() -> Vec<PathBuf> {
    const COUNT: usize = 3;
    let found_in =
        |folder: PathBuf, minor: u32| Some(folder.join(format!("python3.{minor}"))).filter(|it| it.is_file());
    let pyenv = env::var_os("PYENV_ROOT").map(PathBuf::from);
    let pyenv = pyenv.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".pyenv")));
    let versions = pyenv.and_then(|root| root.join("versions").read_dir().ok());
    let own: Vec<PathBuf> = versions
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .collect();
    let of_minor = |minor: u32| {
        let on_path = on_path(&format!("python3.{minor}"));
        // A launcher of pyenv may stand for a release that is not chosen.
        let on_path = on_path.filter(|it| !it.to_string_lossy().contains("shims"));
        on_path.or_else(|| own.iter().find_map(|folder| found_in(folder.clone(), minor)))
    };
    let mut found: Vec<PathBuf> = (11..30).rev().filter_map(of_minor).take(COUNT).collect();
    if found.len() < COUNT {
        skip(
            "three releases of Python from 3.11 on are not installed",
            "pyenv install 3.12 3.13",
        );
        found.extend(python3().filter(|_| found.is_empty()));
    }
    found
}

pub(crate) fn node_program() -> Option<PathBuf> {
    let found = on_path("node");
    if found.is_none() {
        skip("Node is not installed", "apt-get install nodejs");
    }
    found
}

pub(crate) fn go_compiler() -> Option<PathBuf> {
    let found = on_path("go");
    if found.is_none() {
        skip("Go is not installed", "apt-get install golang");
    }
    found
}

/// The folder with the jars of an example in Java, which is built once per process.
pub(crate) fn example(name: &str) -> Option<PathBuf> {
    static BUILT: Mutex<BTreeMap<String, bool>> = Mutex::new(BTreeMap::new());
    if !has_java() {
        return None;
    }
    let script = root().join("examples/build");
    let run = || command(&script).arg(name).status();
    let mut examples = BUILT.lock().unwrap();
    let is_built = examples
        .entry(name.to_owned())
        .or_insert_with(|| run().is_ok_and(|status| status.success()));
    if !*is_built {
        skip(
            &format!("the example {name} cannot be built"),
            &format!("examples/build {name}"),
        );
        return None;
    }
    Some(root().join("target/examples").join(name))
}

/// True if Java programs can be built.
fn has_java() -> bool {
    let missing = ["java", "javac", "mvn"]
        .into_iter()
        .find(|program| on_path(program).is_none());
    if let Some(program) = missing {
        skip(
            &format!("{program} is not installed"),
            "apt-get install default-jdk-headless maven",
        );
    }
    missing.is_none()
}

/// A launcher of `tools/peers`, which fetches its jars once per process.
fn fetched(launcher: &str, name: &str, fetched: &OnceLock<bool>) -> Option<PathBuf> {
    if !has_java() {
        return None;
    }
    let program = root().join("tools/peers").join(launcher);
    let fetch = || command(&program).arg("fetch").status();
    if !fetched.get_or_init(|| fetch().is_ok_and(|status| status.success())) {
        skip(
            &format!("the jars of {name} are not there"),
            &format!("tools/peers/{launcher} fetch"),
        );
        return None;
    }
    Some(program)
}

/// Returns a Python with confluent-kafka and the other packages of the scripts.
pub(crate) fn python() -> Option<PathBuf> {
    python_with(
        "confluent_kafka, websockets, msgpack",
        "confluent-kafka, websockets or msgpack",
    )
}

/// A Python that has RabbitMQ's clients.
pub(crate) fn python_with_amqp() -> Option<PathBuf> {
    python_with("pika, aio_pika, kombu, celery", "pika, aio-pika, kombu or Celery")
}

/// A Python that has Celery and its monitor.
pub(crate) fn python_with_flower() -> Option<PathBuf> {
    python_with("celery, flower", "Celery or Flower")
}

fn python_with(modules: &str, name: &str) -> Option<PathBuf> {
    let python = root().join("target/clients/venv/bin/python");
    let works = command(&python)
        .args(["-c", &format!("import {modules}")])
        .output()
        .is_ok_and(|o| o.status.success());
    if !works {
        skip(&format!("{name} for Python is not there"), "scripts/setup");
    }
    works.then_some(python)
}

/// The Python with the generator of clients.
pub(crate) fn python_generator() -> Option<PathBuf> {
    let folder = root().join("target/generated-clients/venv/bin");
    if !folder.join("openapi-python-client").exists() {
        skip("openapi-python-client is not there", "scripts/setup");
        return None;
    }
    Some(folder.join("python"))
}

/// Node, and the folder with the generator of types for TypeScript and its compiler.
pub(crate) fn typescript_generator() -> Option<(PathBuf, PathBuf)> {
    let modules = root().join("target/generated-clients/node/node_modules");
    if !modules.join("openapi-typescript").exists() {
        skip("openapi-typescript is not there", "scripts/setup");
        return None;
    }
    Some((on_path("node")?, modules))
}

/// The program with aiokafka.
pub(crate) fn aiokafka() -> Option<Command> {
    let python = python_with("aiokafka, cramjam", "aiokafka or cramjam")?;
    let mut command = command(&python);
    command.arg(root().join("tests/clients/python/kafka_aio.py"));
    Some(command)
}

/// The program with amqplib.
pub(crate) fn amqplib() -> Option<Command> {
    node("amqplib", "amqp.js")
}

/// The program with `KafkaJS`.
pub(crate) fn kafkajs() -> Option<Command> {
    node("kafkajs", "kafka.js")
}

/// The program with `KafkaJS` and amqplib over TLS with each mechanism.
pub(crate) fn mechanisms_in_node() -> Option<Command> {
    node("kafkajs", "mechanisms.js")
}

fn node(package: &str, script: &str) -> Option<Command> {
    let Some(node) = on_path("node") else {
        skip("Node is not installed", "apt-get install nodejs npm");
        return None;
    };
    let modules = root().join("target/clients/node/node_modules");
    if !modules.join(package).exists() {
        skip(&format!("{package} for Node is not there"), "scripts/setup");
        return None;
    }
    let mut command = command(&node);
    command
        .env("NODE_PATH", modules)
        .arg(root().join("tests/clients/node").join(script));
    Some(command)
}

/// The program with amqplib over TLS.
pub(crate) fn amqplib_with_tls() -> Option<Command> {
    node("amqplib", "tls.js")
}

/// The program with amqp091-go over TLS.
pub(crate) fn amqp091_go_with_tls() -> Option<Command> {
    built("target/clients/go/tls", "amqp091-go over TLS")
}

/// The program with amqp091-go over TLS with each mechanism.
pub(crate) fn amqp091_go_with_mechanisms() -> Option<Command> {
    built(
        "target/clients/go/amqp-mechanisms",
        "amqp091-go and each mechanism",
    )
}

/// The program with Kafka's clients for Go over TLS with each mechanism.
pub(crate) fn kafka_in_go_with_mechanisms() -> Option<Command> {
    built(
        "target/clients/go/kafka-mechanisms",
        "Kafka's clients for Go and each mechanism",
    )
}

/// The program with Kafka's and RabbitMQ's clients for Java, compiled as it starts.
pub(crate) fn mechanisms_in_java() -> Option<Command> {
    let jars = |launcher: PathBuf| {
        let path = run_text(Command::new(launcher).arg("classpath"));
        path.trim().to_owned()
    };
    let (kafka, rabbitmq) = (jars(kafka_tools()?), jars(perf_test()?));
    let mut command = command(&on_path("java")?);
    command
        .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"])
        .args(["-cp", &format!("{kafka}:{rabbitmq}")])
        .arg(root().join("tests/clients/java/Mechanisms.java"));
    Some(command)
}

/// The program with amqp091-go.
pub(crate) fn amqp091_go() -> Option<Command> {
    built("target/clients/go/amqp", "amqp091-go")
}

/// Returns the program with one of Kafka's clients for Go.
pub(crate) fn kafka_in_go(library: &str) -> Option<Command> {
    let mut command = built("target/clients/go/kafka", library)?;
    command.arg(library);
    Some(command)
}

/// The program with lapin.
pub(crate) fn lapin() -> Option<Command> {
    built("target/clients/rust/debug/stafett-lapin-test", "lapin")
}

/// The lab's program with lapin, without librdkafka.
pub(crate) fn lab_lapin() -> Option<PathBuf> {
    let program = root().join("target/clients/rust/debug/stafett-lab-clients");
    if !program.exists() {
        skip("the lab's program with lapin is not built", "scripts/setup");
        return None;
    }
    Some(program)
}

/// The lab's program with librdkafka, which takes a minute to build and is not needed for anything else.
pub(crate) fn lab_librdkafka() -> Option<PathBuf> {
    let program = match env::var_os("STAFETT_LAB_CLIENTS") {
        Some(program) => root().join(program),
        None => root().join("target/release/stafett-lab-clients"),
    };
    if !program.exists() {
        skip(
            "the lab's program with librdkafka is not built",
            "make lab-clients",
        );
        return None;
    }
    Some(program)
}

fn built(program: &str, name: &str) -> Option<Command> {
    let program = root().join(program);
    if !program.exists() {
        skip(&format!("the program with {name} is not built"), "scripts/setup");
        return None;
    }
    Some(command(&program))
}

/// Reports that the calling test is skipped, with the reason: on stderr, past the capture of the test runner,
/// and in a file.
pub(crate) fn skip(reason: &str, install: &str) {
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    let line = format!("skipped: {test}: {reason} (install with: {install})\n");
    io::stderr().write_all(line.as_bytes()).unwrap();
    let folder = root().join("target/clients");
    fs::create_dir_all(&folder).unwrap();
    let mut file = File::options()
        .create(true)
        .append(true)
        .open(folder.join("skipped"))
        .unwrap();
    file.write_all(line.as_bytes()).unwrap();
}

/// A command that ends with its test, and after [`RUN_LIMIT_SECONDS`] at the latest.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "TERM", "timeout", "-k", "5", RUN_LIMIT_SECONDS])
        .arg(program);
    command.stdin(Stdio::null());
    command
}

/// Runs to the end, insists on success, and gives back stdout.
pub(crate) fn run(command: &mut Command) -> Vec<u8> {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    assert!(
        status.success(),
        "{command:?} ended with {status}\n{}\n{}",
        String::from_utf8_lossy(&stdout[stdout.len().saturating_sub(4096)..]),
        String::from_utf8_lossy(&stderr)
    );
    stdout
}

pub(crate) fn run_text(command: &mut Command) -> String {
    String::from_utf8(run(command)).unwrap()
}

pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}
