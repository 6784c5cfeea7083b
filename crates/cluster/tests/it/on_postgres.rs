//! The same over PostgreSQL: the conformance suite, and owners that follow each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use stafett_cluster::{Database, Postgres};
use stafett_journal::{Append, Outcome};
use stafett_model::Durability;

use crate::conformance::bench::{Bench, small_segments, usual};
use crate::node::open;
use crate::server::Server;
use crate::support::{append, batch, create, put, read_all};

const PATIENCE: Duration = Duration::from_secs(5);

/// Starts PostgreSQL for one test; `None` if it is not installed.
fn server() -> Option<Server> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(Server::start())
}

/// Returns a cell of its own for each call.
fn new_cell() -> i32 {
    static NEXT: AtomicI32 = AtomicI32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn node(server: &Server, cell: i32) -> Arc<dyn Database> {
    let database = Postgres::new(&server.url(), cell, PATIENCE).unwrap();
    database.prepare().unwrap();
    Arc::new(database)
}

type Case = (&'static str, fn(&mut Bench));

macro_rules! list {
    ($($module:ident: $($name:ident),* $(,)?;)*) => {
        &[$($((stringify!($name), crate::conformance::$module::$name as fn(&mut Bench)),)*)*]
    };
}

static CASES: &[Case] = each_case!(list!);

#[test]
fn the_conformance_suite_passes() {
    let Some(server) = server() else { return };
    for (name, case) in CASES {
        for settings in [usual(), small_segments()] {
            let cell = new_cell();
            eprintln!("{name}, segments of {} bytes", settings.segment_bytes);
            let url = server.url();
            let mut bench = Bench::reopening(settings.segment_bytes, move || {
                let database = Postgres::new(&url, cell, PATIENCE).unwrap();
                database.prepare().unwrap();
                let database: Arc<dyn Database> = Arc::new(database);
                open(&database, &settings)
            });
            case(&mut bench);
        }
    }
}

#[test]
fn a_former_owner_is_fenced() {
    let Some(server) = server() else { return };
    let cell = new_cell();
    let former = open(&node(&server, cell), &usual());
    let log = create(&former, Durability::Sync);
    put(&former, log, batch(&["a"]));
    let owner = open(&node(&server, cell), &usual());
    let late = append(&former, Append::batch(log, batch(&["late"])));
    assert_eq!(late, Outcome::Unknown);
    put(&owner, log, batch(&["b"]));
    drop(former);
    drop(owner);
    let third = open(&node(&server, cell), &usual());
    let expected = vec![(0, "a".to_owned()), (1, "b".to_owned())];
    assert_eq!(read_all(&third, log, 1000).unwrap(), expected);
}

#[test]
fn ended_connections_lose_and_double_nothing() {
    let Some(server) = server() else { return };
    let cell = new_cell();
    let journal = open(&node(&server, cell), &usual());
    let log = create(&journal, Durability::Sync);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let killer = runtime.block_on(server.connect());
    let mut expected = Vec::new();
    for number in 0..50 {
        let text = number.to_string();
        if number % 5 == 0 {
            let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                       WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
            runtime.block_on(killer.query(end, &[])).unwrap();
        }
        put(&journal, log, batch(&[&text]));
        expected.push((number, text));
    }
    drop(journal);
    let next = open(&node(&server, cell), &usual());
    assert_eq!(read_all(&next, log, 1000).unwrap(), expected);
    // A thread of a runtime may read as well.
    let reading = async { tokio::task::spawn_blocking(move || read_all(&next, log, 1000)).await };
    assert_eq!(runtime.block_on(reading).unwrap().unwrap(), expected);
}
