//! Apps with the library for Python: workers and the broker are killed, and each session comes out once.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::broker::{Broker, is_stafett, root};
use crate::peer;

/// Guard against a hanging test.
const LIMIT: Duration = Duration::from_mins(2);
/// Sessions that are fed before the worker, then the broker, are killed, and in all.
const SESSIONS: [usize; 3] = [40, 80, 120];

#[test]
fn the_library_for_python_passes_its_tests_on_the_double() {
    let Some(python) = peer::python3() else { return };
    let mut command = library(&python);
    command.args(["-W", "error", "-m", "unittest", "discover", "-s"]);
    peer::run(command.arg(root().join("clients/python/tests")));
}

#[test]
fn sessions_come_out_once_though_a_worker_and_the_broker_are_killed() {
    let Some(python) = peer::python3().filter(|_| is_stafett()) else {
        return;
    };
    let mut broker = Broker::start();
    let script = |arguments: &[&str], broker: &Broker| {
        let mut command = library(&python);
        command.arg(root().join("tests/clients/python/apps_sessions.py"));
        peer::run_text(command.arg(broker.http()).args(arguments))
    };
    let come_out = |count: usize, broker: &Broker| {
        let began = Instant::now();
        while script(&["count"], broker).trim().parse::<usize>().unwrap() < count {
            assert!(began.elapsed() < LIMIT, "{count} sessions do not come out");
            thread::sleep(Duration::from_millis(50));
        }
    };
    let feed = |from: usize, to: usize, broker: &Broker| {
        script(&["feed", &from.to_string(), &to.to_string()], broker);
    };
    script(&["create"], &broker);
    let mut killed = Worker::start(&python, &broker, "w-1");
    let mut kept = Worker::start(&python, &broker, "w-2");
    let [first, second, all] = SESSIONS;
    feed(0, first, &broker);
    come_out(first / 2, &broker);
    killed.0.kill().unwrap();
    feed(first, second, &broker);
    come_out(second / 2, &broker);
    broker.kill_and_restart();
    feed(second, all, &broker);
    script(&["end"], &broker);
    come_out(all, &broker);
    script(&["verify", &all.to_string()], &broker);
    peer::run(Command::new("kill").arg("-TERM").arg(kept.0.id().to_string()));
    assert!(
        kept.0.wait().unwrap().success(),
        "a worker ends by itself when it is asked to"
    );
    assert!(broker.stop_and_check().status.success());
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
    fn start(python: &Path, broker: &Broker, name: &str) -> Self {
        let mut command = Command::new(python);
        command
            .env("PYTHONPATH", root().join("clients/python"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .arg(root().join("examples/apps/python/sessions.py"))
            .arg(format!("http://{}", broker.http()))
            .arg(name)
            .stdin(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
