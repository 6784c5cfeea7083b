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
const KEY: &str = "a key of sixteen bytes or more";

struct Pipeline {
    broker: Broker,
    folder: PathBuf,
    url: String,
    _server: Server,
}

impl Pipeline {
    fn start() -> Option<Self> {
        python3()?;
        let duckdb = root().join("target/clients/venv/bin/python");
        let has_duckdb = Command::new(&duckdb).args(["-c", "import duckdb"]).output();
        if !has_duckdb.is_ok_and(|output| output.status.success()) {
            skip("DuckDB for Python is not installed", "scripts/setup");
            return None;
        }
        if !Path::new("/usr/bin/psql").exists() {
            skip("psql is not installed", "scripts/setup");
            return None;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let server = runtime.block_on(Server::start())?;
        let folder = std::env::temp_dir().join(format!("stafett-pipeline-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        for name in ["pipeline.toml", "events", "verify", "apps.txt"] {
            fs::copy(root().join("examples/pipeline").join(name), folder.join(name)).unwrap();
        }
        let key = folder.join("key");
        fs::write(&key, KEY).unwrap();
        // The files are flushed sooner, so that the test need not wait for them; the broker has the key from a file.
        let whole = fs::read_to_string(folder.join("pipeline.toml")).unwrap();
        let sooner = whole
            .replace("every = \"20m\"", "every = \"1s\"")
            .replace("env:EVENT_KEY", &format!("file:{}", key.display()));
        fs::write(folder.join("pipeline.toml"), sooner).unwrap();
        let endpoints = format!("ingest.endpoints={}", folder.join("pipeline.toml").display());
        // It lasts as long as the test.
        let settings: &'static [&'static str] = vec![&*endpoints.leak()].leak();
        let broker = Broker::start_with("sync", settings);
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
        arguments.push(format!("EVENT_KEY={KEY}"));
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

    /// `stafett sink WORD -f pipeline.toml`.
    fn sink(&self, word: &str, more: &[&str]) -> String {
        let known = ["sink", word, "-f", "pipeline.toml", "--http", self.broker.http()];
        self.stafett(&[&known, more].concat())
    }

    /// Compares the table with the files. Returns the code and all that is printed.
    fn compared(&self) -> (Option<i32>, String) {
        let arguments = [
            "rollup",
            "verify",
            "-f",
            "pipeline.toml",
            "events-pg",
            "events-parquet",
        ];
        let output = self.run(binary().to_str().unwrap(), &arguments);
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }

    fn run_sinks(&self) -> Program {
        let program = binary();
        let arguments = [
            program.to_str().unwrap(),
            "sink",
            "run",
            "-f",
            "pipeline.toml",
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

    /// Waits until the table has a number of events.
    fn await_events(&self, count: u64) {
        await_some(&format!("{count} events"), || {
            std::thread::sleep(Duration::from_millis(100));
            let found = self.ask("SELECT count(*) FROM event_log");
            (found.trim().parse::<u64>().unwrap() >= count).then_some(())
        });
    }

    fn ask(&self, question: &str) -> String {
        self.done("psql", &[&self.url, "-At", "-c", question])
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
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
    for topic in ["EventLog", "EventLog.full"] {
        pipeline.stafett(&["topic", "create", topic, "-p", "2"]);
    }
    pipeline.stafett(&[
        "topic",
        "create",
        "Apps",
        "-p",
        "1",
        "--set",
        "cleanup.policy=compact",
    ]);
    let produce = format!("{} produce Apps -K : < apps.txt", binary().display());
    pipeline.done("sh", &["-c", &produce]);
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
    pipeline.await_events(EVENTS + 1);
    pipeline.broker.kill_and_restart();
    pipeline.await_position("enrich", 2 * EVENTS);
    pipeline.await_events(2 * EVENTS);
    let end = pipeline.position("events-pg");
    for sink in ["events-parquet", "app-usage"] {
        pipeline.await_position(sink, end);
    }
    let (status, _) = sinks.stop();
    assert!(status.success(), "{status}");

    let counts =
        "SELECT count(*), count(DISTINCT (_topic, _partition, _offset)), count(owner) FROM event_log";
    assert_eq!(pipeline.ask(counts).trim(), format!("{0}|{0}|{0}", 2 * EVENTS));
    let python = root().join("target/clients/venv/bin/python");
    let python = python.to_str().unwrap();
    let shown = pipeline.done(python, &["verify"]);
    assert!(!shown.contains("differs"), "{shown}");
    assert!(shown.contains("roll-up"), "{shown}");
    let (code, shown) = pipeline.compared();
    let counts = format!("{0} rows in events-pg, {0} in events-parquet; 0 of", 2 * EVENTS);
    assert!(code == Some(0) && shown.contains(&counts), "{shown}");
    pipeline.sink("verify", &[]);
    let days = "SELECT count(DISTINCT zone) FROM app_usage WHERE every = 'day'";
    assert_eq!(pipeline.ask(days).trim(), "3");
    check_of_rows(&pipeline);
    check_of_sums(&pipeline);
}

fn check_of_rows(pipeline: &Pipeline) {
    // A row that is changed, and one that is there twice, are found among all.
    let place = "(SELECT _topic, _partition, _offset FROM event_log ORDER BY 1, 2, 3 LIMIT 1)";
    pipeline.ask(&format!(
        "UPDATE event_log SET retention = 123456789 WHERE (_topic, _partition, _offset) = {place}"
    ));
    pipeline.ask(&format!(
        "INSERT INTO event_log SELECT * FROM event_log WHERE (_topic, _partition, _offset) = {place}"
    ));
    let (code, shown) = pipeline.compared();
    assert_eq!(code, Some(1), "{shown}");
    let only_in = |store: &str| shown.lines().filter(|line| line.starts_with(store)).count();
    assert_eq!(
        (only_in("events-pg"), only_in("events-parquet")),
        (1, 1),
        "{shown}"
    );
    let copies = shown.lines().find(|line| line.starts_with("events-pg")).unwrap();
    assert_eq!(copies.split_whitespace().nth(1), Some("2"), "{shown}");
}

fn check_of_sums(pipeline: &Pipeline) {
    // A row that is made wrong is found, and put right.
    pipeline.ask("UPDATE app_usage SET visits = visits + 1 WHERE every = 'month' AND by = '' AND zone = 'Asia/Kolkata'");
    let known = [
        "sink",
        "verify",
        "-f",
        "pipeline.toml",
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
