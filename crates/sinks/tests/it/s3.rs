//! Buckets: the suite on an S3-compatible server (moto), and a server between that answers wrongly, late, in
//! parts or not at all.

use std::fs;
use std::net::SocketAddr;

use async_trait::async_trait;
use serde_json::Value;
use stafett_sinks::definition::{Definition, TargetSpec};
use stafett_sinks::target::files::Files;
use stafett_sinks::target::{Place, Start, Steps, Target, TargetError};
use tempfile::NamedTempFile;

use crate::between::{Between, Fault, answered};
use crate::moto::Server;
use crate::suite::{self, Letters, Store, life, log, place};

const COLUMNS: &str = "[sink.s.columns]\nn = { type = \"bigint\" }\ntext = { type = \"text\" }\n";

/// A bucket, as a sink writes it through a server between.
struct BucketStore {
    _server: Server,
    store: SocketAddr,
    between: Between,
    definition: Definition,
    _login: NamedTempFile,
}

impl BucketStore {
    async fn new(fields: &str) -> Option<Self> {
        let server = Server::start()?;
        let store = server.address;
        let between = Between::start(store).await;
        let login = NamedTempFile::new().unwrap();
        fs::write(login.path(), "key:secret").unwrap();
        let text = format!(
            "[sink.s]\nfrom = \"events\"\nto = \"files\"\npath = \"s3://bucket/some/prefix\"\n\
             endpoint = \"http://{}\"\nlogin = \"file:{}\"\n{fields}\n{COLUMNS}",
            between.address,
            login.path().display()
        );
        let definition = Definition::parse(&text).unwrap().remove(0);
        let made = Self {
            _server: server,
            store,
            between,
            definition,
            _login: login,
        };
        let answer = made.ask("PUT", "").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        Some(made)
    }

    /// Asks the store itself, which looks at no signatures.
    async fn ask(&self, method: &str, path: &str) -> String {
        self.send(method, path, "").await
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> String {
        let length = body.len();
        let head = format!(
            "{method} /bucket{path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {length}\r\nauthorization: AWS4-HMAC-SHA256 \
             Credential=key/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=none\r\n",
            self.store
        );
        String::from_utf8(answered(self.store, &head, body.as_bytes(), false).await).unwrap()
    }

    async fn object(&self, path: &str) -> Option<String> {
        let answer = self.ask("GET", &format!("/some/prefix/{path}")).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
    }
}

#[async_trait]
impl Store for BucketStore {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn target(&self, steps: Steps) -> Box<dyn Target> {
        let TargetSpec::Files(spec) = &self.definition.target else {
            panic!("a target of files");
        };
        Box::new(Files::new("s", spec, &self.definition.columns, || 0, steps))
    }

    async fn rows(&self, place: &Place) -> Vec<u64> {
        let mut numbers = Vec::new();
        for number in 1..=1_000 {
            let Some(manifest) = self.object(&format!("manifest/{place}/{number:08}.json")).await else {
                break;
            };
            let manifest: Value = serde_json::from_str(&manifest).unwrap();
            for file in manifest["files"].as_array().unwrap() {
                let text = self.object(file["path"].as_str().unwrap()).await.unwrap();
                assert_eq!(file["bytes"], text.len());
                let rows = text
                    .lines()
                    .map(|line| serde_json::from_str::<Value>(line).unwrap());
                numbers.extend(rows.map(|row| row["n"].as_u64().unwrap()));
            }
        }
        numbers
    }

    fn refuses(&self) -> bool {
        false
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_passes_the_suite() {
    if let Some(store) = BucketStore::new("").await {
        // Outcomes that are not known have a test of their own below.
        suite::nothing_is_lost_or_doubled_by_kills(&store).await;
        suite::all_but_kills(&store).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_doubled_whatever_a_store_answers() {
    let Some(store) = BucketStore::new("").await else {
        return;
    };
    let (definition, mut log) = (&store.definition, log());
    // Two flushes: each request of a life fails once in each way.
    log.truncate(10);
    let mut letters = Letters::default();
    store.between.fail(0, Fault::Before);
    let target = &mut *store.target(Steps::default());
    life(definition, target, &place(0), &log, &mut letters)
        .await
        .unwrap();
    let requests = store.between.count();
    assert!(requests > 10, "{requests}");
    let expected: Vec<u64> = log.iter().map(|record| record.offset.0).collect();
    for (kind, fault) in (1..).zip([Fault::Before, Fault::After, Fault::Silent, Fault::Cut]) {
        for n in 1..=requests {
            let place = place(kind * 1000 + u32::try_from(n).unwrap());
            store.between.fail(n, fault);
            let target = &mut *store.target(Steps::default());
            let mut tries = 0;
            while let Err(why) = life(definition, target, &place, &log, &mut letters).await {
                tries += 1;
                assert!(tries < 3, "{fault:?} at request {n}: {why}");
            }
            assert_eq!(store.rows(&place).await, expected, "{fault:?} at request {n}");
            let position = target.open(&place, Start::at(0)).await.unwrap();
            assert_eq!(Some(position.next), expected.last().map(|last| last + 1));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_heeds_no_conditions_and_a_bucket_that_is_missing_stop_the_sink() {
    let Some(mut store) = BucketStore::new("").await else {
        return;
    };
    store.between.plan.lock().forgets_conditions = true;
    let refused = store
        .target(Steps::default())
        .open(&place(0), Start::at(0))
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, TargetError::Stop(why) if why.contains("If-None-Match is not heeded")),
        "{refused:?}"
    );
    store.between.plan.lock().forgets_conditions = false;
    store
        .target(Steps::default())
        .open(&place(0), Start::at(0))
        .await
        .unwrap();
    assert_eq!(
        store.target(Steps::default()).prepare(false).await.unwrap(),
        [""; 0]
    );
    let text = store.definition.target.clone();
    let TargetSpec::Files(mut spec) = text else {
        panic!("a target of files");
    };
    spec.bucket.as_mut().unwrap().bucket = "missing".to_owned();
    store.definition.target = TargetSpec::Files(spec);
    let missing = store.target(Steps::default()).prepare(false).await.unwrap();
    assert_eq!(missing, ["the bucket missing"]);
    let refused = store
        .target(Steps::default())
        .open(&place(0), Start::at(0))
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, TargetError::Stop(why) if why.contains("missing") || why.contains("NoSuchBucket")),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_file_goes_over_in_parts() {
    let Some(store) = BucketStore::new("").await else {
        return;
    };
    let text = "x".repeat(17 << 20);
    let log: Vec<_> = (0..2)
        .map(|offset| suite::record(offset, &format!("{{\"n\":{offset},\"text\":\"{text}\"}}")))
        .collect();
    let mut letters = Letters::default();
    let target = &mut *store.target(Steps::default());
    life(&store.definition, target, &place(0), &log, &mut letters)
        .await
        .unwrap();
    assert_eq!(store.rows(&place(0)).await, [0, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_sent_twice_do_not_stop_the_sink() {
    let Some(store) = BucketStore::new("").await else {
        return;
    };
    let text = "x".repeat(17 << 20);
    let log = [suite::record(0, &format!("{{\"n\":0,\"text\":\"{text}\"}}"))];
    let mut letters = Letters::default();
    store.between.fail(0, Fault::Twice);
    let target = &mut *store.target(Steps::default());
    life(&store.definition, target, &place(0), &log, &mut letters)
        .await
        .unwrap();
    for n in 1..=store.between.count() {
        store.between.fail(n, Fault::Twice);
        let place = place(u32::try_from(n).unwrap());
        let target = &mut *store.target(Steps::default());
        let lived = life(&store.definition, target, &place, &log, &mut letters).await;
        assert!(lived.is_ok(), "request {n}: {lived:?}");
        assert_eq!(store.rows(&place).await, [0], "request {n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_with_as_many_manifests_as_a_bucket_keeps_in_order_stops_the_sink() {
    let Some(store) = BucketStore::new("").await else {
        return;
    };
    let mut letters = Letters::default();
    let (first, second) = ([suite::record(0, "{\"n\":0}")], [suite::record(1, "{\"n\":1}")]);
    let target = &mut *store.target(Steps::default());
    life(&store.definition, target, &place(0), &first, &mut letters)
        .await
        .unwrap();
    let manifest = store.object("manifest/events/0/00000001.json").await.unwrap();
    for number in [99_999_998, 99_999_999] {
        let manifest = manifest.replace("\"number\":1,", &format!("\"number\":{number},"));
        let path = format!("/some/prefix/manifest/events/0/{number}.json");
        let put = store.send("PUT", &path, &manifest).await;
        assert!(put.starts_with("HTTP/1.1 200"), "{put}");
        let lived = life(&store.definition, target, &place(0), &second, &mut letters).await;
        let refused = lived.map_err(|why| why.to_string());
        if number == 99_999_998 {
            // The last one that there can be.
            refused.unwrap();
            let last = store.object("manifest/events/0/99999999.json").await;
            assert!(last.is_some());
        } else {
            let why = refused.unwrap_err();
            assert!(why.contains("99999999 manifests of events/0"), "{why}");
        }
    }
}
