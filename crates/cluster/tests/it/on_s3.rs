//! Objects in a bucket of an S3-compatible server (moto), through a server between that answers wrongly or
//! not at all.

use std::sync::Arc;

use stafett_cluster::fake::{FakeDatabase, FakeNode};
use stafett_cluster::{Database, Location, Login, Objects, SharedStorage, agreement, open_objects};
use stafett_journal::{DiskJournal, Metrics};
use stafett_model::Durability;
use tokio::runtime::{Builder, Runtime};

use crate::between::{Between, Fault, Plan, answered};
use crate::conformance::bench::small_segments;
use crate::moto::Server;
use crate::node::{claim, storage_with, with_objects};
use crate::support::{batch, create, put, read_all};

const APPENDS: u64 = 8;

struct Stores {
    runtime: Runtime,
    _server: Server,
    between: Between,
    login: tempfile::NamedTempFile,
}

impl Stores {
    fn start() -> Option<Self> {
        let server = Server::start()?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let between = runtime.block_on(Between::start(server.address));
        let login = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(login.path(), "key:secret").unwrap();
        let head = format!(
            "PUT /bucket HTTP/1.1\r\nhost: {}\r\ncontent-length: 0\r\nauthorization: AWS4-HMAC-SHA256 \
             Credential=key/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=none\r\n",
            server.address
        );
        let answer = runtime.block_on(answered(server.address, &head, &[], false));
        assert!(answer.starts_with(b"HTTP/1.1 200"));
        Some(Self {
            runtime,
            _server: server,
            between,
            login,
        })
    }

    fn objects(&self, prefix: &str) -> Arc<dyn Objects> {
        let address = self.between.address;
        let location = format!("s3://bucket/{prefix}?endpoint=http://{address}");
        let login = Login::parse(&format!("file:{}", self.login.path().display()));
        let location = Location::parse(&location).unwrap().with_login(Some(login));
        open_objects(location, 0).unwrap()
    }
}

/// Writes, seals, collects, takes over and reads, all of it with objects under a prefix.
fn life(stores: &Stores, prefix: &str) {
    let database = FakeDatabase::default();
    let objects = stores.objects(prefix);
    let open = || {
        let shared: Arc<dyn Database> = database.node();
        let storage = storage_with(&shared, claim(&shared), with_objects(Arc::clone(&objects), 0)).unwrap();
        let storage = Arc::new(storage);
        let opened = Arc::<SharedStorage>::clone(&storage);
        let journal = DiskJournal::open_on(opened, small_segments(), Metrics::new()).unwrap();
        (storage, journal)
    };
    let (storage, journal) = open();
    let log = create(&journal, Durability::Sync);
    let mut expected = Vec::new();
    for number in 0..APPENDS {
        let text = format!("{number:05}").repeat(4000);
        put(&journal, log, batch(&[&text]));
        expected.push((number, text));
    }
    storage.seal().unwrap();
    // Its deletions may fail: the objects are garbage then.
    let _ = storage.delete_garbage();
    assert_eq!(read_all(&journal, log, 1 << 20).unwrap(), expected, "{prefix}");
    drop(journal);
    drop(storage);
    let (storage, journal) = open();
    assert_eq!(read_all(&journal, log, 1 << 20).unwrap(), expected, "{prefix}");
    let _ = storage.sweep();
    *stores.between.plan.lock() = Plan::default();
    storage.sweep().unwrap();
    let node: Arc<FakeNode> = database.node();
    let agreed = agreement(&*node, &*objects).unwrap();
    assert_eq!((agreed.missing, agreed.unknown), (0, 0), "{prefix}: {agreed:?}");
}

#[test]
fn no_fault_at_any_request_loses_or_doubles() {
    let Some(stores) = Stores::start() else { return };
    life(&stores, "none");
    *stores.between.plan.lock() = Plan::default();
    life(&stores, "count");
    let faults = [
        Fault::Before,
        Fault::After,
        Fault::Silent,
        Fault::Cut,
        Fault::Twice,
    ];
    let faults = faults.repeat(17);
    // The requests of a life are not always as many. Each meets two kinds of faults.
    for (request, faults) in (1..=40).zip(faults.chunks(2)) {
        for fault in faults {
            stores.between.fail(request, *fault);
            life(&stores, &format!("{fault:?}/{request}"));
        }
    }
    drop(stores.runtime);
}

#[test]
fn a_bucket_that_is_not_there_is_said_to_be_missing() {
    let Some(stores) = Stores::start() else { return };
    assert!(stores.objects("x").prepare().is_ok());
    let address = stores.between.address;
    let login = Login::parse(&format!("file:{}", stores.login.path().display()));
    let location = Location::parse(&format!("s3://other/x?endpoint=http://{address}")).unwrap();
    let other = open_objects(location.with_login(Some(login)), 0).unwrap();
    let error = other.prepare().unwrap_err().to_string();
    assert!(error.contains("no bucket other"), "{error}");
}
