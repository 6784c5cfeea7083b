//! `examples/pipeline`, as its README runs it, while its sinks and the broker are killed in the middle.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::broker::{Broker, binary, external, root};
use crate::peer::{python3, skip};
use crate::program::{Program, await_some};
use crate::server::Server;

/// Events that are posted before and behind the kills.
const EVENTS: u64 = 20_000;

struct Pipeline {
    broker: Broker,
    folder: PathBuf,
    url: String,
    _server: Server,
}

impl Pipeline {
    fn start() -> Option<Self> {
        python3()?;
        if !Path::new("/usr/bin/psql").exists() {
            skip("psql is not installed", "scripts/setup");
            return None;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let server = runtime.block_on(Server::start())?;
        let broker = Broker::start();
        let folder = broker.folder().join("pipeline");
        fs::create_dir(&folder).unwrap();
        for name in ["sinks.toml", "events", "verify"] {
            fs::copy(root().join("examples/pipeline").join(name), folder.join(name)).unwrap();
        }
        // The files are flushed sooner, so that the test need not wait for them.
        let sinks = fs::read_to_string(folder.join("sinks.toml")).unwrap();
        let sooner = sinks.replace("every = \"20m\"", "every = \"1s\"");
        assert_ne!(sooner, sinks);
        fs::write(folder.join("sinks.toml"), sooner).unwrap();
        Some(Self {
            url: server.url(),
            broker,
            folder,
            _server: server,
        })
    }

    /// Variables and folder of a program of the example, as arguments of `env`.
    fn surroundings(&self) -> Vec<String> {
        let mut arguments = vec!["-C".to_owned(), self.folder.to_str().unwrap().to_owned()];
        arguments.push(format!("PG_URL={}", self.url));
        arguments.push(format!("STAFETT_SERVER={}", self.broker.kafka()));
        arguments
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new("env");
        let command = command.args(self.surroundings()).arg(program).args(arguments);
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn done(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.run(program, arguments);
        let (told, errors) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{program} {arguments:?}: {told}{errors}");
        told.into_owned()
    }

    fn stafett(&self, arguments: &[&str]) -> String {
        self.done(binary().to_str().unwrap(), arguments)
    }

    /// `stafett sink WORD -f sinks.toml`.
    fn sink(&self, word: &str, more: &[&str]) -> String {
        let known = ["sink", word, "-f", "sinks.toml", "--http", self.broker.http()];
        self.stafett(&[&known, more].concat())
    }

    fn run_sinks(&self) -> Program {
        let program = binary();
        let arguments = [
            program.to_str().unwrap(),
            "sink",
            "run",
            "-f",
            "sinks.toml",
            "--http",
            self.broker.http(),
        ];
        let surroundings = self.surroundings();
        let all = surroundings.iter().map(String::as_str).chain(arguments);
        Program::start(Path::new("env"), all, &self.folder.join("sinks.log"))
    }

    fn post_events(&self) {
        self.done("./events", &[&EVENTS.to_string(), self.broker.http()]);
    }

    /// Returns the sum of a sink's positions.
    fn position(&self, sink: &str) -> u64 {
        let lines = self.sink("position", &["--json", sink]);
        let next = |line: &str| serde_json::from_str::<Value>(line).unwrap()["next"].as_u64();
        lines.lines().filter_map(next).sum()
    }

    fn await_position(&self, sink: &str, at: u64) {
        await_some(&format!("position {at} of {sink}"), || {
            std::thread::sleep(Duration::from_millis(100));
            (self.position(sink) >= at).then_some(())
        });
    }

    fn ask(&self, question: &str) -> String {
        self.done("psql", &[&self.url, "-At", "-c", question])
    }
}

#[test]
fn a_pipeline_ends_right_whatever_is_killed_in_the_middle() {
    if external().is_some() {
        skip(
            "a broker that runs elsewhere cannot be killed",
            "unset STAFETT_TEST_KAFKA_ADDR",
        );
        return;
    }
    let Some(mut pipeline) = Pipeline::start() else {
        return;
    };
    pipeline.stafett(&["topic", "create", "EventLog", "-p", "2"]);
    pipeline.sink("check", &[]);
    pipeline.sink("apply", &[]);
    let sinks = pipeline.run_sinks();
    pipeline.post_events();
    // In the middle of the work, as far as it is.
    pipeline.await_position("app-usage", 1);
    sinks.kill();
    pipeline.broker.kill_and_restart();
    let sinks = pipeline.run_sinks();
    pipeline.post_events();
    pipeline.await_position("events-pg", EVENTS + 1);
    pipeline.broker.kill_and_restart();
    for sink in ["events-pg", "events-files", "app-usage"] {
        pipeline.await_position(sink, 2 * EVENTS);
    }
    let (status, _) = sinks.stop();
    assert!(status.success(), "{status}");

    let counts = "SELECT count(*), count(DISTINCT (_topic, _partition, _offset)) FROM event_log";
    assert_eq!(pipeline.ask(counts).trim(), format!("{0}|{0}", 2 * EVENTS));
    let shown = pipeline.done("./verify", &[]);
    assert!(!shown.contains("differs"), "{shown}");
    assert!(shown.contains("roll-up"), "{shown}");
    pipeline.sink("verify", &[]);
    let days = "SELECT count(DISTINCT zone) FROM app_usage WHERE every = 'day'";
    assert_eq!(pipeline.ask(days).trim(), "3");

    // A row that is made wrong is found, and put right.
    pipeline.ask("UPDATE app_usage SET visits = visits + 1 WHERE every = 'month' AND by = '' AND zone = 'Asia/Kolkata'");
    let known = [
        "sink",
        "verify",
        "-f",
        "sinks.toml",
        "--http",
        pipeline.broker.http(),
    ];
    let refused = pipeline.run(binary().to_str().unwrap(), &known);
    assert_eq!(refused.status.code(), Some(1));
    let shown = String::from_utf8_lossy(&refused.stdout);
    assert!(shown.contains("Asia/Kolkata"), "{shown}");
    pipeline.sink("recompute", &["app-usage"]);
    pipeline.sink("verify", &[]);
}
