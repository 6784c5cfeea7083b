//! The same over PostgreSQL: the conformance suite, and owners that follow each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use stafett_cluster::{
    Body, Database, DatabaseError, FolderObjects, Link, Objects, Postgres, Row, SharedStorage, agreement,
};
use stafett_journal::{Append, DiskJournal, Metrics, Outcome};
use stafett_model::Durability;

use crate::conformance::bench::{Bench, small_segments, usual};
use crate::former_owners::removed_files_are_no_zeros;
use crate::node::{claim, open, open_with, storage_with, with_objects};
use crate::server::Server;
use crate::support::{append, batch, create, put, read_all};

const PATIENCE: Duration = Duration::from_secs(5);

/// Starts PostgreSQL for one test; `None` if it is not installed.
pub fn server() -> Option<Server> {
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
fn the_conformance_suite_passes_with_objects() {
    let Some(server) = server() else { return };
    for (name, case) in CASES {
        let (url, cell, settings) = (server.url(), new_cell(), small_segments());
        eprintln!("{name}, with objects");
        let folder = tempfile::tempdir().unwrap();
        let mut bench = Bench::reopening(settings.segment_bytes, move || {
            let database = Postgres::new(&url, cell, PATIENCE).unwrap();
            database.prepare().unwrap();
            let database: Arc<dyn Database> = Arc::new(database);
            let objects = FolderObjects::new(folder.path().to_owned());
            objects.prepare().unwrap();
            open_with(&database, &settings, with_objects(Arc::new(objects), 2 << 10))
        });
        case(&mut bench);
    }
}

#[test]
fn database_and_objects_agree_and_garbage_is_told() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let objects: Arc<dyn Objects> = Arc::new(FolderObjects::new(folder.path().to_owned()));
    objects.prepare().unwrap();
    let database = node(&server, 0);
    let mut quiet = with_objects(Arc::clone(&objects), 0);
    quiet.garbage_after = Duration::from_hours(1);
    let storage = storage_with(&database, claim(&database), quiet).unwrap();
    let storage = Arc::new(storage);
    let opened = Arc::<SharedStorage>::clone(&storage);
    let journal = DiskJournal::open_on(opened, small_segments(), Metrics::new()).unwrap();
    let log = create(&journal, Durability::Sync);
    for number in 0..40 {
        put(&journal, log, batch(&[&format!("{number:05}").repeat(2000)]));
    }
    let before = agreement(&*database, &*objects).unwrap();
    assert_eq!(
        (before.missing, before.garbage, before.unknown),
        (0, 0, 0),
        "{before:?}"
    );
    let sealed = storage.seal().unwrap();
    assert!(sealed > 3, "{sealed}");
    let after = agreement(&*database, &*objects).unwrap();
    assert!(after.garbage > 20, "{after:?}");
    assert_eq!((after.missing, after.unknown), (0, 0), "{after:?}");
    // It is too young.
    assert_eq!(storage.delete_garbage().unwrap(), 0);
    objects.put("0000000000000000-ff/0000000000", b"x").unwrap();
    assert_eq!(agreement(&*database, &*objects).unwrap().unknown, 1);
    assert_eq!(storage.sweep().unwrap(), 0, "it is too young");
    let kept = database.references("").unwrap();
    let needed = kept.iter().find(|it| !it.is_garbage).unwrap();
    objects.delete(&needed.object).unwrap();
    let lost = agreement(&*database, &*objects).unwrap();
    assert_eq!(
        (lost.missing, &lost.missing_names),
        (1, &vec![needed.object.clone()])
    );
}

#[test]
fn what_a_successor_removed_cannot_be_read() {
    let Some(server) = server() else { return };
    removed_files_are_no_zeros(&|| node(&server, 0));
}

#[test]
fn a_lock_of_the_cell_does_not_hold_up_beats() {
    let Some(server) = server() else { return };
    let (owner, publishing) = (node(&server, 0), node(&server, 0));
    assert!(owner.claim(0, [1; 16]).unwrap());
    let admin = Admin::new(&server);
    admin.run("BEGIN");
    admin.run("UPDATE stafett.cell SET published = published + 1");
    assert!(owner.beat(1).unwrap());
    assert!(!owner.beat(0).unwrap());
    assert_eq!(publishing.owner().unwrap().beat, 1);
    admin.run("COMMIT");
}

/// A session beside those of nodes.
struct Admin {
    runtime: tokio::runtime::Runtime,
    client: tokio_postgres::Client,
}

impl Admin {
    fn new(server: &Server) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let client = runtime.block_on(server.connect());
        Self { runtime, client }
    }

    fn run(&self, text: &str) {
        self.runtime.block_on(self.client.batch_execute(text)).unwrap();
    }

    /// Returns the number of rows.
    fn count(&self, text: &str) -> u64 {
        self.runtime.block_on(self.client.execute(text, &[])).unwrap()
    }

    /// Runs `call` until it waits for a standby, and ends its backend then.
    fn end_while_it_waits<R: Send>(&self, call: impl FnOnce() -> R + Send) -> R {
        const END: &str =
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        std::thread::scope(|scope| {
            let called = scope.spawn(call);
            while self.count(END) == 0 {
                assert!(!called.is_finished(), "it does not wait");
                std::thread::yield_now();
            }
            called.join().unwrap()
        })
    }
}

#[test]
fn a_row_that_no_standby_has_does_not_count() {
    let Some(server) = server() else { return };
    let owner = node(&server, 0);
    assert!(owner.claim(0, [1; 16]).unwrap());
    let newest = owner.newest().unwrap();
    let link = Link {
        seq: newest.seq + 1,
        nonce: [9; 16],
    };
    let row = Row {
        epoch: 1,
        link,
        previous: newest.nonce,
        name: Some("arrival-0000000001.seg"),
        at: 0,
        body: Body::Inline(b"x"),
    };
    let admin = Admin::new(&server);
    admin.run("ALTER SYSTEM SET synchronous_standby_names = 'absent'");
    admin.run("SELECT pg_reload_conf()");
    // The setting takes a moment: until then commits do not wait.
    admin.end_while_it_waits(|| while owner.nonce_at(0).is_ok() {});
    let committed = admin.end_while_it_waits(|| owner.commit(&row));
    assert!(
        matches!(committed, Err(DatabaseError::Unreachable(_))),
        "{committed:?}"
    );
    while admin.count("SELECT 1 FROM stafett.range WHERE seq = 1") == 0 {}
    let again = admin.end_while_it_waits(|| owner.commit(&row).map(|_| owner.nonce_at(link.seq)));
    assert!(
        matches!(again, Ok(Err(DatabaseError::Unreachable(_)))),
        "{again:?}"
    );
    admin.run("ALTER SYSTEM RESET synchronous_standby_names");
    admin.run("SELECT pg_reload_conf()");
    assert!(!owner.commit(&row).unwrap(), "it is there");
    assert_eq!(owner.nonce_at(link.seq).unwrap(), Some(link.nonce));
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
