//! Several cells over two nodes: both serve, virtual hosts are found through either, and the cells of a node that
//! is killed go on at the other one.

use serde_json::Value;

use crate::broker::{external, root};
use crate::cluster::Cluster;
use crate::cluster_nodes::{shown, stafett, until};
use crate::peer;

const CELLS: u32 = 4;

fn start() -> Option<Cluster> {
    let settings = [0, 1].map(|_| {
        vec![
            ("STAFETT_CLUSTER_CELLS", CELLS.to_string()),
            ("STAFETT_CLUSTER_LEASE_MS", "1000ms".to_owned()),
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
    let cell = owners(&cluster, 0).iter().position(|owner| *owner == 2).unwrap();
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
