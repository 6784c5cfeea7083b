//! Nodes of a cluster as clients and operators meet them: any node serves any client, an owner that ends or lets
//! go is replaced at once, and one that cannot go on stands by.

use std::io::Read as _;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::broker::{Port, binary, external, new_folder, root};
use crate::cluster::Cluster;
use crate::peer;

/// Guard against a hanging test.
const LIMIT: Duration = Duration::from_mins(2);

/// Starts two nodes, of which the owner has listed both: it reads the list now and then.
fn start() -> Option<Cluster> {
    let cluster = external().is_none().then(Cluster::start).flatten()?;
    until("both are listed", &cluster, |it| nodes(it, 0) == 2);
    Some(cluster)
}

/// Runs a command of the program, and returns its output.
pub(crate) fn stafett(arguments: &[&str]) -> String {
    peer::run_text(Command::new(binary()).args(arguments))
}

pub(crate) fn until(what: &str, cluster: &Cluster, mut is_so: impl FnMut(&Cluster) -> bool) {
    let begun = Instant::now();
    while !is_so(cluster) {
        assert!(begun.elapsed() < LIMIT, "{what}: {}", cluster.logs());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the cluster as a node shows it.
pub(crate) fn shown(cluster: &Cluster, node: usize) -> Value {
    let answer = cluster.get(node, "/v1/cluster");
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).unwrap_or_default()
}

/// Returns how many nodes one of them sees.
fn nodes(cluster: &Cluster, node: usize) -> usize {
    shown(cluster, node)["nodes"].as_array().map_or(0, Vec::len)
}

/// Returns the number of nodes that a node hears.
fn heard(cluster: &Cluster, node: usize) -> usize {
    let shown = shown(cluster, node);
    let nodes = shown["nodes"].as_array().into_iter().flatten();
    nodes.filter(|node| node["state"] != "silent").count()
}

pub(crate) fn signal(cluster: &mut Cluster, node: usize, signal: Signal) {
    let process = Pid::from_child(cluster.process(node));
    kill_process(process, signal).unwrap();
}

#[test]
fn a_node_that_stands_by_serves_clients_of_all_protocols() {
    let Some(cluster) = start() else { return };
    let standby = 1;
    let refused = cluster.get(standby, "/health");
    assert!(
        refused.starts_with("HTTP/1.1 503") && refused.contains("standing_by"),
        "{refused}"
    );
    assert!(cluster.get(0, "/health/any").starts_with("HTTP/1.1 200"));
    let metrics = cluster.get(standby, "/metrics");
    assert!(metrics.contains("stafett_cluster_is_owner 0"), "{metrics}");
    assert!(cluster.get(0, "/metrics").contains("stafett_cluster_is_owner 1"));

    let server = cluster.kafka[standby].as_str();
    stafett(&["topic", "create", "demo", "--server", server]);
    if let Some(kcat) = peer::kcat() {
        let listed = peer::run_text(peer::command(&kcat).args(["-b", server, "-L"]));
        for address in &cluster.kafka {
            assert!(listed.contains(address.as_str()), "{listed}");
        }
        assert!(listed.contains("topic \"demo\" with"), "{listed}");
    }
    if let Some(python) = peer::python_with_amqp() {
        let script = root().join("tests/clients/python/amqp_basics.py");
        peer::run_text(peer::command(&python).arg(script).arg(&cluster.amqp[standby]));
    }
    let queues = cluster.get(standby, "/v1/topics/demo");
    assert!(queues.starts_with("HTTP/1.1 200"), "{queues}");
    let status = shown(&cluster, standby);
    assert_eq!(status["nodes"].as_array().map(Vec::len), Some(2), "{status}");
    assert_eq!(
        status["owner"], status["this"],
        "a node that stands by relays the question"
    );
    assert_eq!(
        status["problems"][0],
        "PostgreSQL has fsync or full_page_writes off: a crash of its machine loses data"
    );
}

/// Returns true if a node closes a connection at once that no client sends anything on.
fn is_refused(stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    matches!((&*stream).read(&mut [0]), Ok(0) | Err(_))
}

#[test]
fn a_node_relays_no_more_connections_than_it_may() {
    if external().is_some() {
        return;
    }
    let settings = [0, 1].map(|_| vec![("STAFETT_CLUSTER_RELAYS_MAX", "2".to_owned())]);
    let Some(cluster) = Cluster::start_with(settings) else {
        return;
    };
    let metric = |name: &str| -> String {
        let metrics = cluster.get(1, "/metrics");
        let line = metrics.lines().find(|line| line.starts_with(&format!("{name} ")));
        line.map_or(String::new(), |line| line.replace(&format!("{name} "), ""))
    };
    let connect = || TcpStream::connect(&cluster.kafka[1]).unwrap();
    let relayed = [connect(), connect()];
    until("two are relayed", &cluster, |_| {
        metric("stafett_cluster_relays") == "2"
    });
    let third = connect();
    assert!(is_refused(&third), "{}", cluster.logs());
    assert_eq!(metric("stafett_cluster_refused_relays_total"), "1");
    assert!(cluster.get(1, "/health/any").starts_with("HTTP/1.1 200"));
    drop(relayed);
    until("they are gone", &cluster, |_| {
        metric("stafett_cluster_relays") == "0"
    });
    let served = cluster.get(1, "/v1/topics");
    assert!(served.starts_with("HTTP/1.1 200"), "{served}");
}

#[test]
fn a_node_that_stands_by_answers_about_itself_over_tls() {
    if external().is_some() {
        return;
    }
    let Some(curl) = peer::curl() else { return };
    let folder = new_folder();
    peer::run_text(
        Command::new(binary())
            .args(["tls", "self-signed", "--dir"])
            .arg(&folder),
    );
    let file = |name: &str| folder.join(name).display().to_string();
    let ports = [Port::new(), Port::new()];
    let settings = [0, 1].map(|node: usize| {
        vec![
            ("STAFETT_TLS_CERTIFICATE", file("server.pem")),
            ("STAFETT_TLS_KEY", file("server.key")),
            ("STAFETT_HTTP_TLS_OWN", ports[node].address()),
            // The usual ports are one machine's.
            ("STAFETT_HTTP_TLS_LISTEN", String::new()),
            ("STAFETT_KAFKA_TLS_LISTEN", String::new()),
            ("STAFETT_AMQP_TLS_LISTEN", String::new()),
        ]
    });
    let Some(cluster) = Cluster::start_with(settings) else {
        return;
    };
    let ask = |node: usize, path: &str| {
        let mut command = Command::new(&curl);
        command.args([
            "--silent",
            "--cacert",
            &file("ca.pem"),
            "--write-out",
            " %{http_code}",
        ]);
        peer::run_text(command.arg(format!("https://{}{path}", ports[node].address())))
    };
    assert!(ask(0, "/health").ends_with(" 200"), "{}", cluster.logs());
    let standby = ask(1, "/health");
    assert!(
        standby.contains("standing_by") && standby.ends_with(" 503"),
        "{standby}"
    );
    assert!(ask(1, "/health/any").ends_with(" 200"));
    assert!(ask(1, "/metrics").contains("stafett_cluster_is_owner 0"));
    assert!(ask(1, "/v1/topics").ends_with(" 404"), "nothing else is there");
    drop(std::fs::remove_dir_all(folder));
}

#[test]
fn a_client_with_a_list_of_nodes_finds_the_next_owner() {
    let Some(python) = peer::python() else { return };
    let Some(mut cluster) = start() else { return };
    let script = root().join("tests/clients/python/cluster_follow.py");
    let mut client = peer::command(&python)
        .arg(script)
        .args([&*cluster.kafka.join(","), "followed"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut go_on = client.stdin.take().unwrap();
    let said = crate::broker::lines_of(client.stdout.take().unwrap());
    assert_eq!(said.recv_timeout(LIMIT).unwrap(), "stored");
    cluster.kill(0);
    std::io::Write::write_all(&mut go_on, b"go on\n").unwrap();
    assert_eq!(
        said.recv_timeout(LIMIT).unwrap(),
        "stored again",
        "{}",
        cluster.logs()
    );
    assert!(client.wait().unwrap().success());
}

#[test]
fn an_owner_whose_process_ends_is_replaced_before_its_lease() {
    let Some(mut cluster) = start() else { return };
    cluster.kill(0);
    until("the other node serves", &cluster, |cluster| {
        cluster.get(1, "/health").starts_with("HTTP/1.1 200")
    });
    assert!(
        cluster.log(1).contains("the owner's process has ended"),
        "{}",
        cluster.logs()
    );
}

#[test]
fn an_order_moves_the_cell_and_both_nodes_go_on() {
    let Some(cluster) = start() else { return };
    until("the owner sees the other node", &cluster, |cluster| {
        nodes(cluster, 0) == 2
    });
    let status = stafett(&["cluster", "status", "--http", &cluster.http[1]]);
    assert!(status.contains("owner") && status.contains("standby"), "{status}");
    // The node that stands by passes the order on.
    stafett(&["cluster", "move", "2", "--yes", "--http", &cluster.http[1]]);
    cluster.await_health(1, "/health");
    cluster.await_health(0, "/health/any");
    let refused = cluster.get(0, "/health");
    assert!(refused.contains("standing_by"), "{refused}");
    stafett(&["cluster", "move", "--yes", "--http", &cluster.http[0]]);
    cluster.await_health(0, "/health");
    cluster.await_health(1, "/health/any");
    assert_eq!(shown(&cluster, 1)["owner"], 1);
}

#[test]
fn an_owner_that_is_stopped_for_a_while_stands_by_afterwards() {
    let Some(mut cluster) = start() else { return };
    signal(&mut cluster, 0, Signal::STOP);
    cluster.await_health(1, "/health");
    signal(&mut cluster, 0, Signal::CONT);
    until("it stands by", &cluster, |cluster| {
        cluster.get(0, "/health").contains("standing_by")
    });
    cluster.await_health(0, "/health/any");
    stafett(&["topic", "create", "later", "--server", &cluster.kafka[0]]);
}

#[test]
fn an_owner_whose_folder_vanishes_lets_go_of_the_cell() {
    let Some(cluster) = start() else { return };
    let folder: PathBuf = cluster.data(0).join("cluster");
    // It may make a file while the folder is emptied.
    let aside = cluster.data(0).join("aside");
    std::fs::rename(&folder, &aside).unwrap();
    std::fs::remove_dir_all(&aside).unwrap();
    cluster.await_health(1, "/health");
    assert!(cluster.log(0).contains("is gone"), "{}", cluster.logs());
    // It made its folder again, and would take over.
    cluster.await_health(0, "/health/any");
    stafett(&["cluster", "move", "--yes", "--http", &cluster.http[1]]);
    cluster.await_health(0, "/health");
}

#[test]
fn a_node_that_is_told_to_stop_lets_go_of_the_cell_at_once() {
    let Some(mut cluster) = start() else { return };
    signal(&mut cluster, 0, Signal::TERM);
    let ended = Instant::now();
    cluster.await_health(1, "/health");
    let took = ended.elapsed();
    println!("from SIGTERM to a node that serves: {took:?}");
    assert!(cluster.process(0).wait().unwrap().success());
    until("it has left", &cluster, |cluster| nodes(cluster, 1) == 1);
}

#[test]
fn an_owner_with_a_slow_database_stands_by_and_does_not_end() {
    if external().is_some() {
        return;
    }
    let Some((mut cluster, way)) = Cluster::start_with_slow_way() else {
        return;
    };
    stafett(&["topic", "create", "demo", "--server", &cluster.kafka[0]]);
    for pause_ms in [700, 3000] {
        way.set_pause(Duration::from_millis(pause_ms));
        cluster.await_health(1, "/health");
        way.set_pause(Duration::ZERO);
        cluster.await_health(0, "/health/any");
        assert_eq!(cluster.process(0).try_wait().unwrap(), None, "{}", cluster.logs());
        until("both nodes are heard", &cluster, |cluster| heard(cluster, 1) == 2);
        stafett(&["cluster", "move", "1", "--yes", "--http", &cluster.http[1]]);
        cluster.await_health(0, "/health");
        cluster.await_health(1, "/health/any");
    }
}
