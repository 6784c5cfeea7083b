//! Apps with the libraries for Python and TypeScript, and without one in Go: workers and the broker are
//! killed, and each session comes out once.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::broker::{Broker, binary, is_stafett, root};
use crate::peer;

/// Guard against a hanging test.
const LIMIT: Duration = Duration::from_mins(2);
/// Time in which workers, tasks and the broker come and go.
const CHAOS_SECONDS: &str = "12";
const KILLED_EVERY: Duration = Duration::from_secs(3);
/// Sessions that are fed before the worker, then the broker, are killed, and in all.
const SESSIONS: [usize; 3] = [40, 80, 120];

#[test]
fn the_library_for_python_passes_its_tests_with_the_newest_releases() {
    for python in peer::newest_pythons() {
        let mut command = library(&python);
        command.args(["-W", "error", "-m", "unittest", "discover", "-s"]);
        peer::run(command.arg(root().join("clients/python/tests")));
    }
}

#[test]
fn the_library_for_typescript_passes_the_expectations_on_the_double() {
    let (Some(node), Some(built)) = (peer::node_program(), typescript()) else {
        return;
    };
    let mut command = peer::command(&node);
    command.arg(root().join("clients/typescript/tests/conformance.mjs"));
    command.args([built.join("stafett/dist"), built.join("sources")]);
    peer::run(command.arg(root().join("clients/conformance.json")));
    let mut command = peer::command(&node);
    command.arg(root().join("clients/typescript/tests/worker.mjs"));
    peer::run(command.arg(built.join("stafett/dist")));
}

#[test]
fn sessions_come_out_once_though_a_worker_and_the_broker_are_killed() {
    let Some(python) = peer::python3().filter(|_| is_stafett()) else {
        return;
    };
    for release in peer::newest_pythons() {
        Play::new(python.clone()).run(&|broker, name| Worker::python(&release, broker, name));
    }
}

/// A small run of `scripts/app-kills`.
#[test]
fn sessions_and_payments_are_there_once_though_workers_and_the_broker_are_killed() {
    let Some(python) = peer::python3().filter(|_| is_stafett()) else {
        return;
    };
    let mut command = library(&python);
    command.arg(root().join("tests/clients/python/apps_kills.py"));
    command
        .arg(binary())
        .args(["--fragments", "20000", "--every", "1", "--kills", "8"]);
    println!("{}", peer::run_text(&mut command));
}

#[test]
fn sessions_come_out_once_with_workers_in_typescript() {
    let (Some(python), Some(node)) = (peer::python3(), peer::node_program()) else {
        return;
    };
    let Some(built) = typescript().filter(|_| is_stafett()) else {
        return;
    };
    Play::new(python).run(&|broker, name| Worker::typescript(&node, &built, broker, name));
}

#[test]
fn sessions_come_out_once_with_workers_in_go_without_a_library() {
    let Some(python) = peer::python3().filter(|_| is_stafett()) else {
        return;
    };
    let Some(program) = go_program() else { return };
    Play::new(python).run(&|broker, name| Worker::go(&program, broker, name));
}

#[test]
fn sessions_come_out_at_least_once_over_kafkas_protocol_alone() {
    let Some(python) = peer::python().filter(|_| is_stafett()) else {
        return;
    };
    let example = root().join("examples/apps/kafka");
    let mut command = peer::command(&python);
    command.arg(root().join("tests/clients/python/apps_over_kafka.py"));
    peer::run(command.arg(&example));
    let script = example.join("sessions.py");
    let mut play = Play::new(python.clone());
    play.verify = "verify-at-least";
    // Both are of one group.
    play.run(&|broker, _| Worker::start(&python, Some(script.clone()), &[broker.kafka(), "sessions"]));
}

/// Sums under kills of workers and of the broker, with tasks that are split and merged meanwhile.
#[test]
fn each_record_counts_once_whatever_happens() {
    let Some(python) = peer::python3().filter(|_| is_stafett()) else {
        return;
    };
    let mut broker = Broker::start();
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(python);
    command.arg(root().join("tests/clients/python/apps_chaos.py"));
    command.args([broker.http(), CHAOS_SECONDS]);
    let mut chaos = Worker(command.stdout(Stdio::piped()).spawn().unwrap());
    let said = BufReader::new(chaos.0.stdout.take().unwrap());
    let (drains, drained) = sync_channel(1);
    let (begun, begins) = sync_channel(1);
    let reading = thread::spawn(move || {
        let mut lines = said.lines().map_while(Result::ok);
        if lines.any(|line| line == "begun") {
            begun.send(()).unwrap();
        }
        if lines.any(|line| line == "drains") {
            drains.send(()).unwrap();
        }
        lines.collect::<Vec<_>>().join("\n")
    });
    // It fails without a line if the sender is dropped.
    let _ = begins.recv();
    // Until it has come to its end, or has failed.
    while let Err(RecvTimeoutError::Timeout) = drained.recv_timeout(KILLED_EVERY) {
        broker.kill_and_restart();
    }
    let ended = chaos.0.wait().unwrap();
    println!("{}", reading.join().unwrap());
    assert!(ended.success());
    assert!(broker.stop_and_check().status.success());
}

#[test]
fn a_commit_that_is_too_large_is_refused_with_the_limit() {
    let Some(python) = peer::python().filter(|_| is_stafett()) else {
        return;
    };
    let mut broker = Broker::start();
    let mut command = peer::command(&python);
    command.arg(root().join("tests/clients/python/apps_large.py"));
    peer::run(command.arg(broker.http()));
    assert!(broker.stop_and_check().status.success());
}

/// Starts a worker of the name.
type Start<'a> = &'a dyn Fn(&Broker, &str) -> Worker;

/// Sessions fed while a worker, then the broker, is killed.
struct Play {
    python: PathBuf,
    broker: Broker,
    verify: &'static str,
}

impl Play {
    fn new(python: PathBuf) -> Self {
        let broker = Broker::start();
        Self {
            python,
            broker,
            verify: "verify",
        }
    }

    fn script(&self, arguments: &[&str]) -> String {
        let mut command = library(&self.python);
        command.arg(root().join("tests/clients/python/apps_sessions.py"));
        peer::run_text(command.arg(self.broker.http()).args(arguments))
    }

    fn feed(&self, from: usize, to: usize) {
        self.script(&["feed", &from.to_string(), &to.to_string()]);
    }

    /// Waits until this many sessions have come out.
    fn come_out(&self, count: usize) {
        let began = Instant::now();
        while self.script(&["count"]).trim().parse::<usize>().unwrap() < count {
            assert!(began.elapsed() < LIMIT, "{count} sessions do not come out");
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn run(mut self, start: Start<'_>) {
        self.script(&["create"]);
        let mut killed = start(&self.broker, "w-1");
        let mut kept = start(&self.broker, "w-2");
        let [first, second, all] = SESSIONS;
        self.feed(0, first);
        self.come_out(first / 2);
        killed.0.kill().unwrap();
        self.feed(first, second);
        self.come_out(second / 2);
        self.broker.kill_and_restart();
        self.feed(second, all);
        self.script(&["end"]);
        self.come_out(all);
        self.script(&[self.verify, &all.to_string()]);
        peer::run(Command::new("kill").arg("-TERM").arg(kept.0.id().to_string()));
        assert!(
            kept.0.wait().unwrap().success(),
            "a worker ends by itself when it is asked to"
        );
        assert!(self.broker.stop_and_check().status.success());
    }
}

/// Builds the library for TypeScript and its examples. `None` without the compiler.
fn typescript() -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        if !root().join("console/node_modules/.bin/tsc").exists() {
            peer::skip("TypeScript is not installed", "scripts/setup");
            return None;
        }
        let built = root().join("target/clients/typescript-apps");
        peer::run(Command::new(root().join("scripts/typescript-apps")).arg(&built));
        Some(built)
    };
    BUILT.get_or_init(build).clone()
}

/// Builds the example in Go.
fn go_program() -> Option<PathBuf> {
    let go = peer::go_compiler()?;
    let program = root().join("target/clients/go-apps");
    let mut command = peer::command(&go);
    command.args(["build", "-o"]).arg(&program).arg(".");
    peer::run(command.current_dir(root().join("examples/apps/go")));
    Some(program)
}

/// Returns a Python that knows the library.
fn library(python: &Path) -> Command {
    let mut command = peer::command(python);
    command.env("PYTHONPATH", root().join("clients/python"));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// A process of the example, which ends with the test.
struct Worker(Child);

impl Worker {
    /// Starts a program in the place of `setpriv`, so that a kill meets the worker itself.
    fn start(program: &Path, script: Option<PathBuf>, arguments: &[&str]) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program).args(script);
        command.env("PYTHONPATH", root().join("clients/python"));
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command.args(arguments);
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }

    fn python(python: &Path, broker: &Broker, name: &str) -> Self {
        let script = root().join("examples/apps/python/sessions.py");
        Self::start(python, Some(script), &[&server(broker), name])
    }

    fn typescript(node: &Path, built: &Path, broker: &Broker, name: &str) -> Self {
        let script = built.join("sources/sessions.js");
        Self::start(node, Some(script), &[&server(broker), name])
    }

    fn go(program: &Path, broker: &Broker, name: &str) -> Self {
        Self::start(program, None, &[&server(broker), name])
    }
}

fn server(broker: &Broker) -> String {
    format!("http://{}", broker.http())
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
