//! The cluster as this node reports it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stafett_admin::cluster::{Cluster, ClusterCell, ClusterDatabase, ClusterNode};
use stafett_cluster::{DatabaseFacts, Node, View};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::member::Member;

/// Milliseconds without a beat that are worth a remark, as parts of the lease.
const LATE_LEASES: u64 = 1;

/// Time for the database to describe itself.
const FACTS_MAX: Duration = Duration::from_secs(2);

impl Member {
    /// Describes the cluster for operators.
    pub(crate) async fn report(&self) -> Cluster {
        let directory = Arc::clone(&self.shared.directory);
        let asked = spawn_blocking(move || directory.facts().ok());
        let facts = timeout(FACTS_MAX, asked)
            .await
            .ok()
            .and_then(Result::ok)
            .flatten();
        let lease_ms = u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX);
        let reaches = self.reaches_owner.load(Ordering::Acquire);
        Cluster {
            commits: self.metrics.commits(),
            ..report(&self.view(), lease_ms, facts, reaches)
        }
    }
}

/// Returns the state of a node, in one word.
fn state(node: &Node, view: &View) -> &'static str {
    match node {
        _ if view.owner == Some(node.facts.incarnation) => "owner",
        _ if node.is_alive => "standby",
        _ => "silent",
    }
}

/// Describes a cluster, apart from its commits.
fn report(view: &View, lease_ms: u64, facts: Option<DatabaseFacts>, reaches_owner: bool) -> Cluster {
    let nodes = view.nodes.iter().map(|node| ClusterNode {
        number: node.number,
        name: node.facts.name.clone(),
        version: node.facts.version.clone(),
        state: state(node, view),
        silent_ms: node.silent_ms,
        addresses: node.facts.addresses.iter().cloned().collect(),
    });
    let owner = view.owner().map(|node| node.number);
    let database = facts.map(|facts| ClusterDatabase {
        version: facts.version,
        stored_bytes: facts.tables.iter().map(|(_, bytes)| bytes).sum(),
        tables: facts.tables.into_iter().collect(),
        is_crash_safe: facts.is_crash_safe,
        synchronous_standbys: facts.synchronous_standbys,
    });
    let mut cluster = Cluster {
        this: view.own,
        owner,
        epoch: view.epoch,
        lease_ms,
        nodes: nodes.collect(),
        cells: cells(view),
        spread_groups: view.spread_groups.clone(),
        database,
        commits: None,
        problems: Vec::new(),
    };
    cluster.problems = problems(&cluster, reaches_owner);
    cluster
}

/// Returns all cells, if there are several.
fn cells(view: &View) -> Vec<ClusterCell> {
    let count = u32::try_from(view.cells.len()).unwrap_or(u32::MAX);
    let cell = |cell: u32| {
        let view = view.of_cell(cell);
        ClusterCell {
            cell,
            owner: view.owner().map(|node| node.number),
            epoch: view.epoch,
        }
    };
    (0..count).filter(|_| count > 1).map(cell).collect()
}

/// Returns faults, in words.
fn problems(cluster: &Cluster, reaches_owner: bool) -> Vec<String> {
    let mut problems = Vec::new();
    if cluster.owner.is_none() {
        problems.push("no node owns the cell: clients wait".to_owned());
    } else if cluster.owner != Some(cluster.this) && !reaches_owner {
        let why =
            "this node does not reach the owner at its address for other nodes, and relays no clients to it";
        problems.push(why.to_owned());
    }
    for cell in cluster
        .cells
        .iter()
        .filter(|it| it.cell > 0 && it.owner.is_none())
    {
        let cell = cell.cell;
        problems.push(format!(
            "no node owns cell {cell}: clients of its virtual hosts wait"
        ));
    }
    for node in &cluster.nodes {
        let ClusterNode {
            number,
            name,
            silent_ms,
            ..
        } = node;
        if node.state == "silent" {
            problems.push(format!("node {number} ({name}) is silent for {silent_ms} ms"));
        } else if *silent_ms > LATE_LEASES * cluster.lease_ms {
            problems.push(format!("node {number} ({name}) beats late: {silent_ms} ms ago"));
        }
        if !node.addresses.contains_key("peer") {
            problems.push(format!(
                "node {number} ({name}) has no address for other nodes: set cluster.listen"
            ));
        }
    }
    let living = || cluster.nodes.iter().filter(|node| node.state != "silent");
    if living().count() < 2 {
        problems.push("no other node lives: none would take over".to_owned());
    }
    let versions: BTreeSet<&str> = living().map(|node| node.version.as_str()).collect();
    if versions.len() > 1 {
        let versions: Vec<&str> = versions.into_iter().collect();
        problems.push(format!(
            "nodes are of different versions: {}",
            versions.join(", ")
        ));
    }
    match &cluster.database {
        None => problems.push("the database does not answer this node".to_owned()),
        Some(database) if !database.is_crash_safe => {
            let why = "PostgreSQL has fsync or full_page_writes off: a crash of its machine loses data";
            problems.push(why.to_owned());
        }
        Some(_) => {}
    }
    problems
}

#[cfg(test)]
mod tests {
    use stafett_cluster::{Key, NodeFacts, Owner};

    use super::*;

    fn node(number: u32, is_alive: bool) -> Node {
        Node {
            number,
            facts: NodeFacts {
                name: format!("10.0.0.{number}:9092"),
                incarnation: [u8::try_from(number).unwrap(); 16],
                key: Key::random(),
                version: "1.0.0".to_owned(),
                addresses: vec![("peer".to_owned(), format!("10.0.0.{number}:9097"))],
            },
            is_alive,
            silent_ms: 100,
        }
    }

    fn view() -> View {
        View {
            own: 1,
            nodes: vec![node(1, true), node(2, true)],
            cells: vec![owner(7, Some(2))],
            ..View::default()
        }
        .of_cell(0)
    }

    fn owner(epoch: u64, node: Option<u8>) -> Owner {
        Owner {
            epoch,
            node: node.map(|node| [node; 16]),
            beat: 0,
        }
    }

    #[test]
    fn several_cells_are_listed_with_their_owners() {
        assert!(report(&view(), 2500, Some(facts()), true).cells.is_empty());
        let mut view = view();
        view.cells.extend([owner(3, Some(1)), owner(4, None)]);
        let cluster = report(&view, 2500, Some(facts()), true);
        let owners: Vec<_> = cluster
            .cells
            .iter()
            .map(|it| (it.cell, it.owner, it.epoch))
            .collect();
        assert_eq!(owners, [(0, Some(2), 7), (1, Some(1), 3), (2, None, 4)]);
        assert_eq!(
            cluster.problems,
            ["no node owns cell 2: clients of its virtual hosts wait"]
        );
    }

    fn facts() -> DatabaseFacts {
        DatabaseFacts {
            version: "15".to_owned(),
            tables: vec![("block".to_owned(), 1), ("range".to_owned(), 2)],
            is_crash_safe: true,
            synchronous_standbys: String::new(),
        }
    }

    #[test]
    fn a_cluster_as_it_should_be_has_no_problems() {
        let cluster = report(&view(), 2500, Some(facts()), true);
        assert_eq!(cluster.problems, Vec::<String>::new());
        assert_eq!((cluster.owner, cluster.this, cluster.epoch), (Some(2), 1, 7));
        assert_eq!(cluster.database.unwrap().stored_bytes, 3);
        let states: Vec<_> = cluster.nodes.iter().map(|node| node.state).collect();
        assert_eq!(states, ["standby", "owner"]);
    }

    #[test]
    fn each_problem_is_named() {
        let problems = |view: &View, facts, reaches| report(view, 2500, facts, reaches).problems;
        let has = |problems: &[String], words: &str| {
            assert!(
                problems.iter().any(|it| it.contains(words)),
                "{words}: {problems:?}"
            );
        };
        has(&problems(&view(), None, true), "database does not answer");
        has(
            &problems(&view(), Some(facts()), false),
            "does not reach the owner",
        );
        let mut other = view();
        other.owner = None;
        has(&problems(&other, Some(facts()), false), "no node owns the cell");
        let mut other = view();
        other.nodes[0] = node(1, false);
        let found = problems(&other, Some(facts()), true);
        has(&found, "node 1 (10.0.0.1:9092) is silent");
        has(&found, "none would take over");
        let mut other = view();
        other.nodes[1].facts.version = "1.1.0".to_owned();
        other.nodes[1].facts.addresses.clear();
        other.nodes[1].silent_ms = 2600;
        let found = problems(&other, Some(facts()), true);
        has(&found, "different versions: 1.0.0, 1.1.0");
        has(&found, "cluster.listen");
        has(&found, "beats late");
        let unsafe_facts = DatabaseFacts {
            is_crash_safe: false,
            ..facts()
        };
        has(&problems(&view(), Some(unsafe_facts), true), "fsync");
    }
}
