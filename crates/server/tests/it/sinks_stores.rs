//! Sinks of the real binary into stores: each is killed behind each of its steps, and ends with each row once.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::process::Signal;

use crate::common::Running;
use crate::sinks::{PATIENCE, RECORDS, Scene, printed};

/// A store in a process of its own; it ends with this.
struct Peer {
    child: Child,
    port: u16,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Says that the calling test is skipped, and why.
fn skip(missing: &str) {
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    let line = format!("skipped: {test}: no {missing} (install with: scripts/setup)\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    let folder = checkout("target/clients");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("skipped");
    let mut file = File::options().create(true).append(true).open(path).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}

impl Peer {
    /// Returns `None`, and says so, where the store cannot be had.
    fn start(command: &mut Command, what: &str) -> Option<Self> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let peer = command.spawn().ok().and_then(|mut child| {
            let mut line = String::new();
            let stdout = child.stdout.take().unwrap();
            BufReader::new(stdout).read_line(&mut line).unwrap();
            let port = line.trim().parse().unwrap_or(0);
            let peer = Self { child, port };
            (port > 0).then_some(peer)
        });
        if peer.is_none() {
            skip(what);
        }
        peer
    }
}

/// Returns the output of a program in Python.
fn asked(program: &str) -> Option<String> {
    let python = checkout("target/clients/venv/bin/python");
    let output = Command::new(python).args(["-c", program]).output().ok()?;
    let text = String::from_utf8(output.stdout).unwrap();
    output.status.success().then(|| text.trim().to_owned())
}

#[test]
fn documents_are_there_once_although_the_sink_is_killed_between_its_steps() {
    let server = checkout("tools/peers/mongodb");
    let Some(peer) = Peer::start(Command::new(server).arg("run"), "mongo-java-server") else {
        return;
    };
    let url = format!("mongodb://127.0.0.1:{}/d", peer.port);
    let scene = Scene::into(&format!("to = \"mongodb\"\nurl = \"{url}\"\ncollection = \"c\""));
    scene.run_with_kills(&["opened:1", "checked:2", "inserted:2", "replaced:3", "position:2"]);
    let program = format!(
        "from pymongo import MongoClient\n\
         found = list(MongoClient('{url}').d.c.find())\n\
         print(len(found), len({{it['n'] for it in found}}), sum(it['words'] == f\"word {{it['n']}}\" for it in found))"
    );
    let Some(counts) = asked(&program) else {
        skip("pymongo");
        return;
    };
    assert_eq!(counts, format!("{RECORDS} {RECORDS} {RECORDS}"));
}

#[test]
fn inserts_count_once_although_the_sink_is_killed_between_its_steps() {
    let front = checkout("tests/clients/python/clickhouse_front.py");
    let python = checkout("target/clients/venv/bin/python");
    let Some(peer) = Peer::start(Command::new(python).arg(front), "chdb") else {
        return;
    };
    let url = format!("http://127.0.0.1:{}/", peer.port);
    let fields = format!("to = \"clickhouse\"\nurl = \"{url}\"\ntable = \"t\"\ncreate = true");
    let scene = Scene::into(&fields);
    scene.run_with_kills(&["opened:1", "bounds:2", "sent:2", "sent:3"]);
    let program = format!(
        "from urllib.request import Request, urlopen\nfrom urllib.parse import quote\n\
         query = \"SELECT concat(count(), ' ', uniqExact(_partition, _offset), ' ', uniqExact(n)) AS c FROM t\"\n\
         print(urlopen(Request('{url}?query=' + quote(query), data=b'')).read().decode())"
    );
    let counts = asked(&program).unwrap();
    assert_eq!(counts, format!("{{\"c\":\"{RECORDS} {RECORDS} {RECORDS}\"}}"));

    // Once more into another table: its app begins with the first run.
    let replay = |from: [&str; 2], name: &str| {
        let words = [&["events"][..], &from, &["--into", "t_new", "--as", name]].concat();
        scene.sink("replay", &words).output().unwrap()
    };
    let refused = replay(["--set", "log/0=3"], "again");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("begins all partitions alike: --from, and not --set"),
        "{said}"
    );
    let made = printed(replay(["--from", "earliest"], "again"));
    assert!(
        made.contains("table = \"t_new\"") && made.contains("begin = \"earliest\""),
        "{made}"
    );
    let text = fs::read_to_string(scene.file()).unwrap();
    fs::write(scene.file(), format!("{text}{made}")).unwrap();
    let sink = Running::start(scene.sink("run", &[]));
    let begun = Instant::now();
    while !scene
        .sink("position", &["again"])
        .output()
        .unwrap()
        .status
        .success()
    {
        assert!(begun.elapsed() < PATIENCE, "the second sink has no app");
    }
    sink.signal(Signal::TERM);
    sink.end();
    scene.run_to_the_end(2 * RECORDS);
    let counts = asked(&program.replace(" FROM t\"", " FROM t_new\"")).unwrap();
    assert_eq!(counts, format!("{{\"c\":\"{RECORDS} {RECORDS} {RECORDS}\"}}"));
    let refused = replay(["--from", "earliest"], "again");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("has positions already: --as gives"), "{said}");
}
