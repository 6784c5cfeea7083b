//! `examples/connect`: lines go from a file through a topic into a file, while the broker and a worker are
//! killed. In the topic each line is there once, in order; the file may have some again, as sinks do.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use crate::broker::{Broker, root};
use crate::peer;
use crate::program::{Program, await_some};

/// Lines that are written to the source's file at a time, and how many of them reach the sink before the kill.
const STEP: usize = 10_000;
const REACHED: usize = 1_000;
const KILLS: usize = 3;
/// A worker is missed soon after a kill, and its tasks run elsewhere.
const MISSED_SOON: &str =
    "session.timeout.ms=6000\nheartbeat.interval.ms=1000\nscheduled.rebalance.max.delay.ms=0\n";

struct Pipeline {
    broker: Broker,
    folder: PathBuf,
    written: usize,
}

impl Pipeline {
    /// `None` if something that it needs is missing.
    fn start() -> Option<Self> {
        peer::kcat()?;
        super::build("connect")?;
        let broker = Broker::start();
        let folder = broker.folder();
        File::create(folder.join("lines.txt")).unwrap();
        Some(Self {
            broker,
            folder,
            written: 0,
        })
    }

    /// A file of the example with the addresses and paths of this test, and `more` at its end.
    fn file(&self, name: &str, more: &str) -> String {
        let text = fs::read_to_string(root().join("examples/connect").join(name)).unwrap();
        let text = text
            .replace("127.0.0.1:9092", self.broker.kafka())
            .replace("127.0.0.1:8083", "127.0.0.1:0")
            .replace("/tmp", self.folder.to_str().unwrap());
        let path = self.folder.join(name);
        fs::write(&path, text + more).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn worker(&self, arguments: &[&str], log: &str) -> Program {
        let script = root().join("examples/connect/worker");
        Program::start(&script, arguments.iter().copied(), &self.folder.join(log))
    }

    /// Appends lines to the source's file.
    fn write(&mut self) {
        let mut lines = String::new();
        for number in self.written..self.written + STEP {
            writeln!(lines, "line {number}").unwrap();
        }
        self.written += STEP;
        let mut file = File::options()
            .append(true)
            .open(self.folder.join("lines.txt"))
            .unwrap();
        file.write_all(lines.as_bytes()).unwrap();
    }

    fn copied(&self) -> Vec<String> {
        let copy = fs::read_to_string(self.folder.join("lines.copy.txt")).unwrap_or_default();
        copy.lines().map(str::to_owned).collect()
    }

    /// Waits until a line has reached the sink's file.
    fn await_line(&self, number: usize) {
        let line = format!("line {number}");
        await_some(&line, || self.copied().contains(&line).then_some(()));
    }

    /// Kills the broker repeatedly while lines are on their way, and with the second time `also` something else.
    fn kill_broker(&mut self, mut also: impl FnMut(&Self)) {
        for round in 0..KILLS {
            self.write();
            self.await_line(self.written - STEP + REACHED);
            if round == 1 {
                also(self);
            }
            self.broker.kill_and_restart();
        }
        self.write();
        self.await_line(self.written - 1);
    }

    fn check(&self) {
        let expected: Vec<String> = (0..self.written).map(|number| format!("line {number}")).collect();
        let mut kcat = peer::command(&peer::kcat().unwrap());
        kcat.args(["-C", "-q", "-e", "-t", "lines", "-b", self.broker.kafka()]);
        let topic = peer::run_text(&mut kcat);
        assert!(
            topic.lines().eq(&expected),
            "{} lines are in the topic, not {}; or in another order",
            topic.lines().count(),
            expected.len()
        );
        let copied = self.copied();
        let mut seen = HashSet::new();
        let firsts = copied.iter().filter(|line| seen.insert(line.as_str()));
        assert!(firsts.eq(&expected), "the sink has lost lines, or their order");
        println!("{} lines; the sink has {}", expected.len(), copied.len());
    }
}

#[test]
fn lines_pass_a_standalone_worker_while_the_broker_is_killed() {
    let Some(mut pipeline) = Pipeline::start() else {
        return;
    };
    let files = ["standalone.properties", "source.json", "sink.json"].map(|name| pipeline.file(name, ""));
    let [worker, source, sink] = files.each_ref().map(String::as_str);
    let worker = pipeline.worker(&["standalone", worker, source, sink], "worker.log");
    pipeline.kill_broker(|_| {});
    worker.stop();
    pipeline.check();
}

#[test]
fn lines_pass_two_workers_while_the_broker_and_a_worker_are_killed() {
    let Some(mut pipeline) = Pipeline::start() else {
        return;
    };
    let settings = pipeline.file("distributed.properties", MISSED_SOON);
    let start = |pipeline: &Pipeline, log: &str| pipeline.worker(&["distributed", &settings], log);
    let mut workers = ["a.log", "b.log"].map(|log| Some(start(&pipeline, log)));
    let addresses = ["a.log", "b.log"].map(|log| rest_address(&pipeline.folder.join(log)));
    for name in ["source.json", "sink.json"] {
        let connector = fs::read_to_string(pipeline.file(name, "")).unwrap();
        await_some("an answer to a new connector", || {
            let answer = request(&addresses[1], "POST", "/connectors", &connector)?;
            answer.starts_with("HTTP/1.1 201").then_some(())
        });
    }
    pipeline.kill_broker(|pipeline| {
        let status = await_some("the state of the source", || {
            let answer = request(&addresses[0], "GET", "/connectors/lines-in/status", "")?;
            let task = answer.split_once("\"tasks\":")?.1;
            task.contains("worker_id").then(|| task.to_owned())
        });
        let at = usize::from(status.contains(&addresses[1]));
        workers[at].take().unwrap().kill();
        workers[at] = Some(start(pipeline, "c.log"));
    });
    for worker in workers.into_iter().flatten() {
        worker.stop();
    }
    pipeline.check();
}

/// Returns `HOST:PORT` of a worker, from its log.
fn rest_address(log: &Path) -> String {
    await_some("the address of a worker", || {
        let text = fs::read_to_string(log).ok()?;
        let (_, rest) = text.split_once("REST server listening at http://")?;
        Some(rest.split_once('/')?.0.to_owned())
    })
}

/// The answer to a request in JSON; `None` while there is none.
fn request(address: &str, method: &str, path: &str, body: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all((head + body).as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}
