//! Two nodes over one PostgreSQL: the one that serves is killed under load, and the other takes its place. No
//! acknowledged record and no confirmed message is lost, none is doubled, and order is kept.
//!
//! Clients have the addresses of both nodes; each of these serves, or relays to the one that does.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use crate::broker::{Port, binary, external, lines_of, new_folder, root};
use crate::peer;
use crate::server::Server;
use crate::slow_way::SlowWay;

const ROUNDS: usize = 4;
const KAFKA_AT_ONCE: u64 = 10_000;
const AMQP_AT_ONCE: u64 = 1_000;
/// Guard against a hanging test.
const LIMIT: Duration = Duration::from_mins(2);

#[test]
fn killed_owners_lose_and_double_no_record() {
    survives(
        |cluster| cluster.kafka.join(","),
        ["kill_load.py", "kill_verify.py"],
        KAFKA_AT_ONCE,
    );
}

#[test]
fn killed_owners_lose_no_confirmed_message() {
    if peer::python_with_amqp().is_some() {
        survives(
            |cluster| cluster.amqp.join(","),
            ["amqp_kill_load.py", "amqp_kill_verify.py"],
            AMQP_AT_ONCE,
        );
    }
}

/// Kills the node that serves, in turn, under the load of a script; another script checks the remains.
fn survives(address: fn(&Cluster) -> String, [load, verify]: [&str; 2], at_once: u64) {
    let Some(python) = peer::python() else { return };
    if external().is_some() {
        return;
    }
    let Some(mut cluster) = Cluster::start() else {
        return;
    };
    let address = address(&cluster);
    let scripts = root().join("tests/clients/python");
    let acknowledged = cluster.folder.join("acknowledged");
    let mut client = peer::command(&python)
        .arg(scripts.join(load))
        .args([&address, "killed"])
        .arg(&acknowledged)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(File::create(cluster.folder.join("client.log")).unwrap())
        .spawn()
        .unwrap();
    let mut stop = client.stdin.take().unwrap();
    let progress = lines_of(client.stdout.take().unwrap());
    let mut pauses = Vec::new();
    for round in 0..ROUNDS {
        await_count(&progress, at_once);
        let killed = Instant::now();
        cluster.kill(round % 2);
        progress.try_iter().for_each(drop);
        await_count(&progress, 1);
        pauses.push(killed.elapsed());
        cluster.launch(round % 2);
    }
    stop.write_all(b"stop\n").unwrap();
    progress.iter().for_each(drop);
    assert!(
        client.wait().unwrap().success(),
        "the client ended: {}",
        cluster.logs()
    );
    let verdict = peer::run_text(
        peer::command(&python)
            .arg(scripts.join(verify))
            .args([&address, "killed"])
            .arg(&acknowledged),
    );
    println!(
        "{}; from a kill to the next acknowledgement: {pauses:?}",
        verdict.trim_end()
    );
}

fn await_count(progress: &Receiver<String>, mut count: u64) {
    while count > 0 {
        let line = progress.recv_timeout(LIMIT).expect("the client makes progress");
        count = count.saturating_sub(line.parse().unwrap());
    }
}

pub(crate) struct Cluster {
    nodes: [Option<Child>; 2],
    pub(crate) kafka: [String; 2],
    pub(crate) amqp: [String; 2],
    pub(crate) http: [String; 2],
    pub(crate) folder: PathBuf,
    /// Address of the database, as each node has it.
    urls: [String; 2],
    /// Settings of each node, as variables of the environment.
    settings: [Vec<(&'static str, String)>; 2],
    /// No other program gets the ports.
    _ports: Vec<Port>,
    _server: Server,
}

impl Cluster {
    /// Starts PostgreSQL and two nodes, of which the first serves.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with([const { Vec::new() }; 2])
    }

    /// The same, with settings of each node.
    pub(crate) fn start_with(settings: [Vec<(&'static str, String)>; 2]) -> Option<Self> {
        let mut cluster = Self::prepare()?;
        cluster.settings = settings;
        cluster.launch(0);
        cluster.await_health(0, "/health");
        cluster.launch(1);
        cluster.await_health(1, "/health/any");
        Some(cluster)
    }

    /// The same; the first node has a way of its own to PostgreSQL.
    pub(crate) fn start_with_slow_way() -> Option<(Self, SlowWay)> {
        let mut cluster = Self::prepare()?;
        let url = cluster.urls[0].clone();
        let real = url
            .strip_prefix("host=")
            .and_then(|url| url.split(' ').next())
            .unwrap();
        let way = SlowWay::open(&cluster.folder.join("way"), Path::new(real));
        cluster.urls[0] = url.replace(real, way.folder().to_str().unwrap());
        cluster.launch(0);
        cluster.await_health(0, "/health");
        cluster.launch(1);
        cluster.await_health(1, "/health/any");
        Some((cluster, way))
    }

    /// Starts PostgreSQL alone.
    fn prepare() -> Option<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let server = runtime.block_on(Server::start())?;
        let ports: Vec<Port> = std::iter::repeat_with(Port::new).take(6).collect();
        let address = |index: usize| ports[index].address();
        Some(Self {
            nodes: [None, None],
            kafka: [address(0), address(1)],
            amqp: [address(2), address(3)],
            http: [address(4), address(5)],
            folder: new_folder(),
            urls: [server.url(), server.url()],
            settings: [const { Vec::new() }; 2],
            _ports: ports,
            _server: server,
        })
    }

    /// Waits until a node says that it is good.
    pub(crate) fn await_health(&self, node: usize, path: &str) {
        let begun = Instant::now();
        while !get(&self.http[node], path).is_some_and(|answer| answer.starts_with("HTTP/1.1 200")) {
            assert!(begun.elapsed() < LIMIT, "{path} of node {node}: {}", self.logs());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns what a node answers; empty if it does not.
    pub(crate) fn get(&self, node: usize, path: &str) -> String {
        get(&self.http[node], path).unwrap_or_default()
    }

    /// Returns the log of a node.
    pub(crate) fn log(&self, node: usize) -> String {
        fs::read_to_string(self.log_path(node)).unwrap_or_default()
    }

    /// Returns the folder of a node.
    pub(crate) fn data(&self, node: usize) -> PathBuf {
        self.folder.join(format!("node-{node}"))
    }

    /// Returns the process of a node.
    pub(crate) fn process(&mut self, node: usize) -> &mut Child {
        self.nodes[node].as_mut().unwrap()
    }

    /// Changes a setting of a node for its next start.
    pub(crate) fn set(&mut self, node: usize, name: &'static str, value: &str) {
        let settings = &mut self.settings[node];
        settings.retain(|(known, _)| *known != name);
        settings.push((name, value.to_owned()));
    }

    fn log_path(&self, node: usize) -> PathBuf {
        self.folder.join(format!("node-{node}.log"))
    }

    pub(crate) fn launch(&mut self, node: usize) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path(node));
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(binary())
            .args(["serve", "--kafka", &self.kafka[node], "--amqp", &self.amqp[node]])
            .args(["--http", &self.http[node], "--data-dir"])
            .arg(self.data(node))
            .env("STAFETT_CLUSTER_DATABASE", &self.urls[node])
            .envs(self.settings[node].iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.unwrap())
            .spawn();
        self.nodes[node] = Some(child.unwrap());
    }

    pub(crate) fn kill(&mut self, node: usize) {
        if let Some(mut child) = self.nodes[node].take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Counts the lines of both logs that have a text.
    pub(crate) fn count(&self, text: &str) -> usize {
        let logs = [0, 1].map(|node| fs::read_to_string(self.log_path(node)).unwrap_or_default());
        let lines = logs.iter().flat_map(|log| log.lines());
        lines.filter(|line| line.contains(text)).count()
    }

    /// Returns the ends of the nodes' logs.
    pub(crate) fn logs(&self) -> String {
        let logs = [0, 1].map(|node| fs::read_to_string(self.log_path(node)).unwrap_or_default());
        logs.map(|log| log.lines().rev().take(20).collect::<Vec<_>>().join("\n"))
            .join("\n\n")
    }
}

/// Sends a request, and returns the answer.
fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill(0);
        self.kill(1);
        if std::thread::panicking() {
            println!("kept in {}: {}", self.folder.display(), self.logs());
        } else {
            drop(fs::remove_dir_all(&self.folder));
        }
    }
}
