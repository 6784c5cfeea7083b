//! Several cells over two nodes: both serve, virtual hosts are found through either, and the cells of a node that
//! is killed go on at the other one.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::broker::{binary, external, lines_of, root};
use crate::cluster::Cluster;
use crate::cluster_nodes::{shown, signal, stafett, until};
use crate::peer;

const CELLS: u32 = 4;
/// Virtual hosts of the cells, in their order, as the scripts have them.
const HOSTS: [&str; CELLS as usize] = ["red", "shop", "shop-2", "shop-1"];
/// Guard against a hanging test.
const LIMIT: Duration = Duration::from_mins(2);
/// Time after which a cell is ordered to move again.
const ORDER_AGAIN: Duration = Duration::from_secs(5);

fn start() -> Option<Cluster> {
    start_with_lease("2000ms")
}

fn start_with_lease(lease: &str) -> Option<Cluster> {
    start_with(lease, "")
}

/// `groups`: names of groups that are spread over cells, in the settings of the second node alone.
fn start_with(lease: &str, groups: &str) -> Option<Cluster> {
    let settings = ["", groups].map(|groups| {
        vec![
            ("STAFETT_KAFKA_SPREAD_GROUPS", groups.to_owned()),
            ("STAFETT_CLUSTER_CELLS", CELLS.to_string()),
            ("STAFETT_CLUSTER_LEASE_MS", lease.to_owned()),
            ("STAFETT_CLUSTER_SECRET", "env:SECRET_OF_THE_CLUSTER".to_owned()),
            ("SECRET_OF_THE_CLUSTER", "a secret of all nodes".to_owned()),
        ]
    });
    external()
        .is_none()
        .then(|| Cluster::start_with(settings))
        .flatten()
}

/// Returns the owners of the cells, as a node shows them. A cell without one has the number 0.
fn owners(cluster: &Cluster, node: usize) -> Vec<u64> {
    let shown = shown(cluster, node);
    let cells = shown["cells"].as_array().cloned().unwrap_or_default();
    let owner = |cell: &Value| cell["owner"].as_u64().unwrap_or_default();
    cells.iter().map(owner).collect()
}

/// Returns true if both nodes have as many cells.
fn is_even(cluster: &Cluster) -> bool {
    let owners = owners(cluster, 0);
    let of = |node: u64| owners.iter().filter(|owner| **owner == node).count();
    (of(1), of(2)) == (2, 2)
}

/// Returns a cell that the second node owns, once there is one.
fn of_second(cluster: &Cluster) -> usize {
    let mut found = None;
    until("the second node has a cell", cluster, |cluster| {
        found = owners(cluster, 0).iter().position(|owner| *owner == 2);
        found.is_some()
    });
    found.unwrap()
}

/// Has a script fill or check the virtual hosts of all cells, through some nodes.
fn run(cluster: &Cluster, step: &str, nodes: &[usize]) {
    let Some(python) = peer::python_with_amqp() else {
        return;
    };
    let listed = |addresses: &[String; 2]| {
        let addresses: Vec<&str> = nodes.iter().map(|node| addresses[*node].as_str()).collect();
        addresses.join(",")
    };
    let script = root().join("tests/clients/python/amqp_cells.py");
    let arguments = [step.to_owned(), listed(&cluster.amqp), listed(&cluster.http)];
    let done =
        std::panic::catch_unwind(|| peer::run_text(peer::command(&python).arg(script).args(arguments)));
    assert!(done.is_ok(), "{step}: {}", cluster.logs());
}

#[test]
fn cells_are_spread_over_nodes_and_outlive_one_of_them() {
    let Some(mut cluster) = start() else { return };
    until("each node has two cells", &cluster, is_even);
    run(&cluster, "fill", &[0, 1]);
    let metrics = cluster.get(0, "/metrics?cell=3");
    assert!(metrics.contains("stafett_amqp_published_total 20"), "{metrics}");
    cluster.kill(1);
    until("the other node has all cells", &cluster, |cluster| {
        owners(cluster, 0) == [1; CELLS as usize]
    });
    run(&cluster, "check", &[0]);
}

#[test]
fn a_cell_moves_by_command_and_the_number_of_cells_is_fixed() {
    let Some(mut cluster) = start() else { return };
    until("each node has two cells", &cluster, is_even);
    let cell = of_second(&cluster);
    run(&cluster, "fill", &[0, 1]);
    let cell_text = cell.to_string();
    stafett(&[
        "cluster",
        "move",
        "1",
        "--cell",
        &cell_text,
        "--yes",
        "--http",
        &cluster.http[1],
    ]);
    until("it has moved", &cluster, |cluster| owners(cluster, 0)[cell] == 1);
    until("another one makes up for it", &cluster, is_even);
    run(&cluster, "check", &[0, 1]);

    // A node that would have another number of cells refuses to start.
    cluster.kill(1);
    cluster.set(1, "STAFETT_CLUSTER_CELLS", "3");
    cluster.launch(1);
    let ended = cluster.process(1).wait().unwrap();
    assert!(!ended.success());
    assert!(
        cluster.log(1).contains("cluster.cells says 3"),
        "{}",
        cluster.logs()
    );
}

/// A client without heartbeats at the virtual host of a cell, through the first node. It says when it is
/// there, and why its connection ends.
fn client(cluster: &Cluster, cell: usize) -> Option<(Child, Receiver<String>)> {
    let python = peer::python_with_amqp()?;
    let script = root().join("tests/clients/python/amqp_cells_lost.py");
    let mut client = peer::command(&python)
        .arg(script)
        .args([cluster.amqp[0].as_str(), HOSTS[cell]])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = lines_of(client.stdout.take().unwrap());
    assert_eq!(said.recv_timeout(LIMIT).unwrap(), "ready", "{}", cluster.logs());
    Some((client, said))
}

#[test]
fn clients_are_told_that_the_home_of_their_virtual_host_is_gone() {
    let Some(mut cluster) = start_with_lease("1000ms") else {
        return;
    };
    until("each node has two cells", &cluster, is_even);
    run(&cluster, "fill", &[0, 1]);
    for end in [Signal::STOP, Signal::KILL] {
        let cell = of_second(&cluster);
        let Some((mut client, said)) = client(&cluster, cell) else {
            return;
        };
        signal(&mut cluster, 1, end);
        let why = said.recv_timeout(LIMIT).unwrap_or_default();
        let expected = format!("320 CONNECTION_FORCED - vhost '{}' ", HOSTS[cell]);
        assert!(why.starts_with(&expected), "{end:?}: {why:?}: {}", cluster.logs());
        assert!(client.wait().unwrap().success());
        until("the first node has all cells", &cluster, |cluster| {
            owners(cluster, 0) == [1; CELLS as usize]
        });
        run(&cluster, "look", &[0]);
        if end == Signal::STOP {
            // What it sees when it goes on is old: it owns nothing, and gets its cells in turn.
            signal(&mut cluster, 1, Signal::CONT);
            until("each node has two cells again", &cluster, is_even);
        }
    }
    run(&cluster, "check", &[0]);
}

#[test]
fn an_owner_that_was_stopped_answers_nothing_from_the_state_that_it_had() {
    let Some(python) = peer::python() else { return };
    let lease = || vec![("STAFETT_CLUSTER_LEASE_MS", "1000ms".to_owned())];
    let cluster = external()
        .is_none()
        .then(|| Cluster::start_with([lease(), lease()]));
    let Some(mut cluster) = cluster.flatten() else {
        return;
    };
    let mut client = peer::command(&python)
        .arg(root().join("tests/clients/python/stopped_owner.py"))
        .args([&cluster.kafka[0], &cluster.amqp[0], &cluster.http[0]])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = lines_of(client.stdout.take().unwrap());
    assert_eq!(said.recv_timeout(LIMIT).unwrap(), "ready", "{}", cluster.logs());
    signal(&mut cluster, 0, Signal::STOP);
    cluster.await_health(1, "/health");
    // The state of the stopped owner is old now.
    stafett(&["queue", "delete", "q", "--yes", "--http", &cluster.http[1]]);
    client.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(said.recv_timeout(LIMIT).unwrap(), "sent", "{}", cluster.logs());
    signal(&mut cluster, 0, Signal::CONT);
    assert!(client.wait().unwrap().success(), "{}", cluster.logs());
}

#[test]
fn a_topic_of_all_cells_outlives_a_node_under_a_producer() {
    outlives_a_node("kafka_cells.py");
}

#[test]
fn transactions_over_all_cells_are_whole_when_a_node_dies() {
    outlives_a_node("kafka_cells_transactions.py");
}

#[test]
fn commits_to_groups_of_all_cells_are_whole_with_their_transactions_when_a_node_dies() {
    outlives_with("kafka_cells_transactions.py", "group-*");
}

#[test]
fn groups_of_all_cells_go_on_when_a_node_dies() {
    outlives_with("kafka_cells_groups.py", "spread-*");
}

#[test]
fn http_and_apps_reach_a_topic_of_all_cells_though_a_node_dies() {
    outlives_a_node("http_cells.py");
}

/// Kills a node once a script says that it is ready. The script judges.
fn outlives_a_node(script: &str) {
    outlives_with(script, "");
}

fn outlives_with(script: &str, groups: &str) {
    let Some(python) = peer::python() else { return };
    let Some(mut cluster) = start_with("2000ms", groups) else {
        return;
    };
    until("each node has two cells", &cluster, is_even);
    let script = root().join("tests/clients/python").join(script);
    let mut client = peer::command(&python)
        .arg(script)
        .args([cluster.kafka.join(","), cluster.http.join(",")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = lines_of(client.stdout.take().unwrap());
    assert_eq!(said.recv_timeout(LIMIT).unwrap(), "ready", "{}", cluster.logs());
    let mut go_on = client.stdin.take().unwrap();
    go_on.write_all(b"\n").unwrap();
    let before = cluster.count("cluster.balanced");
    cluster.kill(1);
    assert!(client.wait().unwrap().success(), "{}", cluster.logs());
    let given = cluster.count("cluster.balanced");
    assert_eq!(given, before, "no cell is given to a node that has ended");
}

#[test]
fn a_node_is_drained_and_has_no_cells() {
    let Some(mut cluster) = start() else { return };
    until("each node has two cells", &cluster, is_even);
    run(&cluster, "fill", &[0, 1]);
    let http = cluster.http[0].clone();
    let cells = stafett(&["cluster", "cells", "--http", &http, "--json"]);
    assert_eq!(cells.lines().count(), CELLS as usize, "{cells}");
    let drained = stafett(&["cluster", "drain", "1", "--yes", "--http", &http]);
    assert!(drained.contains("node 1 owns no cell"), "{drained}");
    cluster.kill(0);
    run(&cluster, "check", &[1]);
}

#[test]
fn transactions_are_whole_when_their_cell_moves() {
    const MOVES: usize = 4;
    let Some(python) = peer::python_with_amqp() else {
        return;
    };
    let Some(cluster) = start() else { return };
    until("each node has two cells", &cluster, is_even);
    run(&cluster, "fill", &[0, 1]);
    let cell = of_second(&cluster);
    let script = root().join("tests/clients/python/amqp_cells_moves.py");
    let mut client = peer::command(&python)
        .arg(script)
        .args([&*cluster.amqp.join(","), HOSTS[cell], &MOVES.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = lines_of(client.stdout.take().unwrap());
    assert_eq!(said.recv_timeout(LIMIT).unwrap(), "ready", "{}", cluster.logs());
    let (mut moves, begun) = (0, Instant::now());
    let verdict = loop {
        let owner = owners(&cluster, 0).get(cell).copied().unwrap_or_default();
        if moves < MOVES && owner != 0 {
            // It may have moved by itself meanwhile: then this is refused.
            let (to, cell) = ((3 - owner).to_string(), cell.to_string());
            let order = [
                "cluster",
                "move",
                &to,
                "--cell",
                &cell,
                "--yes",
                "--http",
                &cluster.http[0],
            ];
            let ordered = Command::new(binary()).args(order).output().unwrap();
            moves += usize::from(ordered.status.success());
        }
        match said.recv_timeout(ORDER_AGAIN) {
            Ok(line) if line == "lost" => {}
            Ok(line) => break line,
            Err(RecvTimeoutError::Timeout) if begun.elapsed() < LIMIT => {}
            Err(why) => panic!("{why}: {}", cluster.logs()),
        }
    };
    assert!(verdict.starts_with("done "), "{verdict:?}: {}", cluster.logs());
    assert!(client.wait().unwrap().success());
    println!("{verdict}");
}

#[test]
fn a_login_counts_in_all_cells_and_a_forged_one_in_none() {
    let Some(python) = peer::python3() else { return };
    let Some(cluster) = start() else { return };
    until("each node has two cells", &cluster, is_even);
    let script = root().join("tests/clients/python/cells_access.py");
    let addresses = [cluster.http[0].as_str(), cluster.http[1].as_str()];
    let done =
        std::panic::catch_unwind(|| peer::run_text(peer::command(&python).arg(script).args(addresses)));
    assert!(done.is_ok(), "{}", cluster.logs());
}

#[test]
fn a_cell_serves_kafka_clients_by_their_rights_alone() {
    let Some(python) = peer::python() else { return };
    let Some(cluster) = start() else { return };
    until("each node has two cells", &cluster, is_even);
    let script = root().join("tests/clients/python/kafka_cells_access.py");
    let addresses = [cluster.kafka.join(","), cluster.http.join(",")];
    let done =
        std::panic::catch_unwind(|| peer::run_text(peer::command(&python).arg(script).args(addresses)));
    assert!(done.is_ok(), "{}", cluster.logs());
}

#[test]
fn a_node_with_another_secret_reaches_none() {
    if external().is_some() {
        return;
    }
    let settings = |secret: &str| {
        vec![
            ("STAFETT_CLUSTER_SECRET", "env:SECRET_OF_THE_CLUSTER".to_owned()),
            ("SECRET_OF_THE_CLUSTER", secret.to_owned()),
        ]
    };
    let both = settings("a secret of all nodes");
    let Some(mut cluster) = Cluster::start_with([both.clone(), both]) else {
        return;
    };
    cluster.kill(1);
    cluster.set(1, "SECRET_OF_THE_CLUSTER", "a secret of its own only");
    cluster.launch(1);
    until("it is refused", &cluster, |cluster| {
        cluster.log(1).contains("or has another cluster.secret")
    });
    assert!(cluster.get(1, "/health/any").starts_with("HTTP/1.1 503"));
    assert!(cluster.get(0, "/health").starts_with("HTTP/1.1 200"));
    let logs = [0, 1].map(|node| cluster.log(node)).concat();
    assert!(!logs.contains("a secret of"), "it is in a log");
}
