//! Two nodes over one PostgreSQL: the one that serves is killed under load, and the other takes its place. No
//! acknowledged record and no confirmed message is lost, none is doubled, and order is kept.
//!
//! Clients of Kafka's protocol have the addresses of both nodes. AMQP has one address, as behind a load
//! balancer: only the node that serves listens there.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use crate::broker::{Port, binary, external, lines_of, new_folder, root};
use crate::peer;
use crate::server::Server;

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
            |cluster| cluster.amqp.clone(),
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
    println!("{verdict}; from a kill to the next acknowledgement: {pauses:?}");
}

fn await_count(progress: &Receiver<String>, mut count: u64) {
    while count > 0 {
        let line = progress.recv_timeout(LIMIT).expect("the client makes progress");
        count = count.saturating_sub(line.parse().unwrap());
    }
}

struct Cluster {
    nodes: [Option<Child>; 2],
    kafka: [String; 2],
    amqp: String,
    http: [String; 2],
    folder: PathBuf,
    url: String,
    /// No other program gets the ports.
    _ports: Vec<Port>,
    _server: Server,
}

impl Cluster {
    /// Starts PostgreSQL and two nodes, of which the first serves.
    fn start() -> Option<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let server = runtime.block_on(Server::start())?;
        let ports: Vec<Port> = std::iter::repeat_with(Port::new).take(5).collect();
        let address = |index: usize| ports[index].address();
        let mut cluster = Self {
            nodes: [None, None],
            kafka: [address(0), address(1)],
            amqp: address(2),
            http: [address(3), address(4)],
            folder: new_folder(),
            url: server.url(),
            _ports: ports,
            _server: server,
        };
        cluster.launch(0);
        let begun = Instant::now();
        while !fs::read_to_string(cluster.log_path(0))
            .unwrap()
            .contains(" ready")
        {
            assert!(begun.elapsed() < LIMIT, "{}", cluster.logs());
            std::thread::yield_now();
        }
        cluster.launch(1);
        Some(cluster)
    }

    fn log_path(&self, node: usize) -> PathBuf {
        self.folder.join(format!("node-{node}.log"))
    }

    fn launch(&mut self, node: usize) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path(node));
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(binary())
            .args(["serve", "--kafka", &self.kafka[node], "--amqp", &self.amqp])
            .args(["--http", &self.http[node], "--data-dir"])
            .arg(self.folder.join(format!("node-{node}")))
            .env("STAFETT_CLUSTER_DATABASE", &self.url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.unwrap())
            .spawn();
        self.nodes[node] = Some(child.unwrap());
    }

    fn kill(&mut self, node: usize) {
        if let Some(mut child) = self.nodes[node].take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Returns the ends of the nodes' logs.
    fn logs(&self) -> String {
        let logs = [0, 1].map(|node| fs::read_to_string(self.log_path(node)).unwrap_or_default());
        logs.map(|log| log.lines().rev().take(20).collect::<Vec<_>>().join("\n"))
            .join("\n\n")
    }
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
