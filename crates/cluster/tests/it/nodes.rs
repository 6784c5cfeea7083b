//! The table of nodes, over PostgreSQL.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use stafett_cluster::{
    AddressError, Database, DatabaseError, Directory, Key, NodeFacts, Postgres, PostgresDirectory, Registry,
    View,
};

use crate::on_postgres::server;
use crate::server::Server;

const PATIENCE: Duration = Duration::from_secs(5);
/// Guard against a hanging test.
const LIMIT: Duration = Duration::from_mins(1);

fn directory(server: &Server) -> Arc<PostgresDirectory> {
    Arc::new(PostgresDirectory::new(&server.url(), None, 0, PATIENCE).unwrap())
}

fn facts(incarnation: u8, address: &str) -> NodeFacts {
    NodeFacts {
        name: String::new(),
        incarnation: [incarnation; 16],
        key: Key::random(),
        version: "1".to_owned(),
        addresses: vec![("one".to_owned(), address.to_owned())],
    }
}

/// Joins, and returns the number.
fn join(directory: &PostgresDirectory, facts: &NodeFacts) -> u32 {
    directory.join(&mut facts.clone(), None).unwrap().unwrap()
}

#[test]
fn nodes_have_numbers_that_they_keep() {
    let Some(server) = server() else { return };
    let directory = directory(&server);
    let (one, two) = (facts(1, "10.0.0.1:1"), facts(2, "10.0.0.2:1"));
    assert_eq!(join(&directory, &one), 1);
    assert_eq!(join(&directory, &two), 2);
    assert_eq!(join(&directory, &facts(3, "10.0.0.1:1")), 1, "it came back");
    assert_eq!(join(&directory, &facts(4, "10.0.0.3:1")), 3);
    let roll = directory.roll(2, two.incarnation).unwrap();
    assert!(roll.is_registered);
    let incarnations: Vec<_> = roll
        .entries
        .iter()
        .map(|entry| (entry.number, entry.facts.incarnation[0]))
        .collect();
    assert_eq!(incarnations, [(1, 3), (2, 2), (3, 4)]);
    assert_eq!(roll.entries[1].facts.key, two.key);
    assert_eq!(roll.entries[1].facts.addresses, two.addresses);
    assert_eq!(roll.entries[1].facts.name, "10.0.0.2:1");
    let other = directory.roll(1, one.incarnation).unwrap();
    assert!(!other.is_registered, "another one has the name");
    let beats = directory.roll(2, two.incarnation).unwrap();
    assert!(beats.entries[1].beat > roll.entries[1].beat);
    directory.leave(2, two.incarnation).unwrap();
    let left = directory.roll(3, [4; 16]).unwrap();
    assert_eq!(left.entries.len(), 2);
    assert_eq!(join(&directory, &facts(5, "10.0.0.2:1")), 2, "it came back later");
}

#[test]
fn names_of_groups_that_nodes_bring_stay() {
    let Some(server) = server() else { return };
    let spread = |node: u8, names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let directory = PostgresDirectory::new(&server.url(), None, 2, PATIENCE).unwrap();
        let directory = directory.with_spread_groups(names);
        let node = facts(node, &format!("10.0.0.{node}:1"));
        let number = join(&directory, &node);
        directory.roll(number, node.incarnation).unwrap().spread_groups
    };
    assert!(spread(1, &[]).is_empty());
    assert_eq!(spread(2, &["web-*", "a b"]), ["a b", "web-*"]);
    assert_eq!(spread(3, &["orders", "web-*"]), ["a b", "orders", "web-*"]);
    assert_eq!(spread(1, &[]), ["a b", "orders", "web-*"]);
}

#[test]
fn a_name_is_not_taken_back_from_a_node_that_beats() {
    let Some(server) = server() else { return };
    let directory = directory(&server);
    let (one, two) = (facts(1, "10.0.0.1:1"), facts(2, "10.0.0.1:1"));
    join(&directory, &one);
    assert_eq!(join(&directory, &two), 1, "the later one has the place");
    let back = |silence| directory.join(&mut one.clone(), Some(silence)).unwrap();
    assert_eq!(back(LIMIT), None);
    assert!(directory.roll(1, two.incarnation).unwrap().is_registered);
    assert_eq!(back(Duration::ZERO), Some(1), "its beat stands still");
    assert!(directory.roll(1, one.incarnation).unwrap().is_registered);
    directory.leave(1, one.incarnation).unwrap();
    let mut three = facts(3, "10.0.0.1:1");
    assert_eq!(directory.join(&mut three, Some(LIMIT)).unwrap(), Some(1));
}

#[test]
fn nodes_that_join_at_once_have_different_numbers() {
    let Some(server) = server() else { return };
    let mut numbers: Vec<u32> = std::thread::scope(|scope| {
        let nodes: Vec<_> = (1..=6_u8)
            .map(|node| {
                let server = &server;
                scope.spawn(move || join(&directory(server), &facts(node, &format!("10.0.0.{node}:1"))))
            })
            .collect();
        nodes.into_iter().map(|node| node.join().unwrap()).collect()
    });
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn the_owner_is_seen_with_the_nodes() {
    let Some(server) = server() else { return };
    let database = Postgres::new(&server.url(), 0, PATIENCE).unwrap();
    database.prepare().unwrap();
    assert!(database.claim(0, [2; 16]).unwrap());
    let directory = directory(&server);
    let number = join(&directory, &facts(2, "10.0.0.2:1"));
    let (told, views) = mpsc::sync_channel(100);
    let registry = Registry::join(directory, facts(1, "10.0.0.1:1"), PATIENCE, move |view: View| {
        told.send(view).unwrap();
    })
    .unwrap();
    let begun = Instant::now();
    let view = views.recv_timeout(LIMIT).unwrap();
    assert_eq!(view.owner().map(|node| node.number), Some(number));
    assert_eq!(view.this().map(|node| node.facts.incarnation), Some([1; 16]));
    registry.look();
    views.recv_timeout(LIMIT).unwrap();
    assert!(begun.elapsed() < LIMIT);
    registry.leave();
    let roll = PostgresDirectory::new(&server.url(), None, 0, PATIENCE).unwrap();
    let roll = roll.roll(number, [2; 16]).unwrap();
    assert_eq!(roll.entries.len(), 1, "the other one has left");
}

#[test]
fn several_cells_have_an_owner_each_and_their_number_is_fixed() {
    let Some(server) = server() else { return };
    let directory = PostgresDirectory::new(&server.url(), None, 3, PATIENCE).unwrap();
    let number = join(&directory, &facts(1, "10.0.0.1:1"));
    let cell = |cell, cells| {
        let database = Postgres::new(&server.url(), cell, PATIENCE)
            .unwrap()
            .with_cells(cells);
        database.prepare().map(|_| database)
    };
    let (zero, two) = (cell(0, 3).unwrap(), cell(2, 0).unwrap());
    assert!(zero.claim(0, [1; 16]).unwrap());
    assert!(two.claim(0, [2; 16]).unwrap() && !two.claim(0, [1; 16]).unwrap());
    let owners = directory.roll(number, [1; 16]).unwrap().owners;
    let owners: Vec<_> = owners.iter().map(|owner| (owner.epoch, owner.node)).collect();
    assert_eq!(owners, [(1, Some([1; 16])), (0, None), (1, Some([2; 16]))]);
    assert!(two.newest().unwrap().seq == 0, "each has a fence of its own");
    let refused = cell(0, 4).unwrap_err().to_string();
    assert!(
        refused.contains("its number of cells is 3, and cluster.cells says 4"),
        "{refused}"
    );
}

/// Without it, a node that was listed before the cells were made took the cluster for one of a single cell.
#[test]
fn the_first_node_that_is_listed_sees_all_cells() {
    let Some(server) = server() else { return };
    let directory = PostgresDirectory::new(&server.url(), None, 0, PATIENCE).unwrap();
    let number = join(&directory, &facts(1, "10.0.0.1:1"));
    assert_eq!(directory.roll(number, [1; 16]).unwrap().owners.len(), 1);
    let other = PostgresDirectory::new(&server.url(), None, 4, PATIENCE).unwrap();
    join(&other, &facts(2, "10.0.0.2:1"));
    let prepared = |cells| {
        Postgres::new(&server.url(), 0, PATIENCE)
            .unwrap()
            .with_cells(cells)
            .prepare()
    };
    assert_eq!(prepared(0).unwrap(), 1);
    assert!(prepared(4).is_err(), "one cell is there");
}

#[test]
fn a_cluster_of_one_cell_keeps_one() {
    let Some(server) = server() else { return };
    let one = Postgres::new(&server.url(), 0, PATIENCE).unwrap();
    one.prepare().unwrap();
    let refused = one.with_cells(2).prepare().unwrap_err().to_string();
    assert!(refused.contains("its number of cells is 1"), "{refused}");
}

#[test]
fn the_database_says_how_safe_it_is() {
    let Some(server) = server() else { return };
    Postgres::new(&server.url(), 0, PATIENCE)
        .unwrap()
        .prepare()
        .unwrap();
    let facts = directory(&server).facts().unwrap();
    assert!(!facts.is_crash_safe, "the tests' server has fsync off");
    assert!(
        facts
            .tables
            .iter()
            .any(|(name, bytes)| name == "range" && *bytes > 0)
    );
    assert_eq!(facts.synchronous_standbys, "");
}

#[test]
fn a_line_that_was_hung_up_answers_at_once() {
    let Some(server) = server() else { return };
    let database = Postgres::new(&server.url(), 0, PATIENCE).unwrap();
    database.prepare().unwrap();
    assert!(database.claim(0, [1; 16]).unwrap());
    database.hang_up();
    assert!(matches!(database.newest(), Err(DatabaseError::Unreachable(_))));
    assert!(matches!(database.list(), Err(DatabaseError::Unreachable(_))));
    assert!(database.beat(1).unwrap(), "the lease can still be let go");
    database.release(1).unwrap();
}

#[test]
fn an_address_with_tls_is_checked_against_the_authority() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let settings = |data: &Path| {
        std::fs::write(data.join("server.crt"), &certificate).unwrap();
        std::fs::write(data.join("server.key"), &key).unwrap();
        let only_its_own = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(data.join("server.key"), only_its_own).unwrap();
        vec!["ssl=on".to_owned(), "listen_addresses=localhost".to_owned()]
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let Some(_server) = runtime.block_on(Server::start_with(port, &settings)) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, &certificate).unwrap();
    let url = |host: &str| format!("host={host} port={port} user=postgres dbname=postgres sslmode=require");
    let trusting = |host: &str, ca: Option<&Path>| {
        let database = Postgres::trusting(&url(host), ca, 0, PATIENCE)?;
        Ok::<_, AddressError>(database.prepare())
    };
    trusting("localhost", Some(&ca)).unwrap().unwrap();
    let named = trusting("127.0.0.1", Some(&ca)).unwrap();
    assert!(named.is_err(), "the certificate is not of this name");
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(&ca, other.cert.pem()).unwrap();
    assert!(
        trusting("localhost", Some(&ca)).unwrap().is_err(),
        "another authority"
    );
    std::fs::write(&ca, "nothing").unwrap();
    assert!(matches!(
        trusting("localhost", Some(&ca)),
        Err(AddressError::Tls(_))
    ));
}
