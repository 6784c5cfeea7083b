//! `examples/streams`: two instances assemble sessions exactly once, while the broker is killed, and one of them
//! loses its stores.

use std::fs;
use std::path::{Path, PathBuf};

use crate::broker::Broker;
use crate::program::{JVM, Program};

const SESSIONS: &str = "5000";
/// Fragments a second. All of them are 37,896.
const RATE: &str = "2000";
/// Acknowledged fragments at which the broker is killed.
const BROKER_KILLS: [u32; 3] = [6_000, 14_000, 30_000];
/// Acknowledged fragments at which an instance is killed.
const INSTANCE_KILL: u32 = 22_000;

struct Example {
    jar: PathBuf,
    folder: PathBuf,
    broker: String,
}

impl Example {
    fn new(build: &Path, broker: &Broker) -> Self {
        Self {
            jar: build.join("sessions.jar"),
            folder: broker.folder(),
            broker: broker.kafka().to_owned(),
        }
    }

    fn start(&self, command: &str, log: &str, options: &[&str]) -> Program {
        let jar = self.jar.to_str().unwrap();
        let arguments = ["-jar", jar, command, "--broker", &self.broker];
        Program::start(
            Path::new("java"),
            JVM.into_iter().chain(arguments).chain(options.iter().copied()),
            &self.folder.join(log),
        )
    }

    /// Starts an instance of the application. It is missed soon after a kill.
    fn assemble(&self, name: &str) -> Program {
        let state = self.folder.join("state");
        let missed = "consumer.session.timeout.ms=6000";
        let options = [
            "--name",
            name,
            "--state",
            state.to_str().unwrap(),
            "--set",
            missed,
        ];
        self.start("assemble", &format!("{name}.log"), &options)
    }

    /// Checks the committed sessions. Waits as long for the last ones.
    fn check(&self, wait_seconds: &str) {
        let options = ["--sessions", SESSIONS, "--wait", wait_seconds];
        let (status, lines) = self.start("check", "check.log", &options).end();
        assert!(status.success(), "{}", lines.join("\n"));
        println!("{}", lines.join("\n"));
    }
}

#[test]
fn sessions_are_assembled_once_and_completely_while_broker_and_application_are_killed() {
    let Some(build) = super::build("streams") else {
        return;
    };
    let mut broker = Broker::start();
    let example = Example::new(&build, &broker);
    let is_running = |line: &str| line == "RUNNING";
    let mut instances = ["a", "b"].map(|name| example.assemble(name));
    for instance in &instances {
        instance.await_line(is_running);
    }

    let producer = example.start(
        "produce",
        "produce.log",
        &["--sessions", SESSIONS, "--rate", RATE],
    );
    let reach = |count: u32| {
        producer.await_line(|line| line.parse::<u32>().is_ok_and(|written| written >= count));
    };
    for count in BROKER_KILLS {
        if count > INSTANCE_KILL {
            reach(INSTANCE_KILL);
            let [killed, other] = instances;
            killed.kill();
            fs::remove_dir_all(example.folder.join("state/a")).unwrap();
            instances = [example.assemble("a"), other];
        }
        reach(count);
        broker.kill_and_restart();
    }
    assert!(producer.end().0.success());

    example.check("90");
    let mut restored = 0;
    for instance in instances {
        let (_, lines) = instance.stop();
        assert!(lines.iter().any(|line| line == "closed"), "{lines:?}");
        restored += lines.iter().filter(|line| line.starts_with("restored ")).count();
    }
    assert!(restored > 0, "stores come from their changelogs");
    example.check("0");
}
