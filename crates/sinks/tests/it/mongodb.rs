//! MongoDB: the suite on a server of its protocol (mongo-java-server), read by MongoDB's own client, and a
//! server between that breaks.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use stafett_model::{Lock, StoredRecord};
use stafett_sinks::broker::Servers;
use stafett_sinks::definition::Definition;
use stafett_sinks::target::{Place, Promise, Start, Steps, Surroundings, Target, TargetError, target_of};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

use crate::eyes::Eyes;
use crate::peer::{Peer, checkout};
use crate::suite::halves;
use crate::suite::{self, Letters, Store, life, log, place, record};

const COLUMNS: &str = "[sink.s.columns]\nn = { type = \"bigint\" }\ntext = { type = \"text\" }\n";

/// Returns the documents of a collection that match, as MongoDB's own client has them.
fn find(eyes: &mut Eyes, collection: &str, filter: &Value) -> Vec<Value> {
    let found = eyes.ask(&json!(["find", collection, {"filter": filter, "batchSize": 10_000}]));
    found["cursor"]["firstBatch"].as_array().unwrap().clone()
}

struct Documents {
    definition: Definition,
    eyes: Lock<Eyes>,
    refuses: bool,
    /// Ends behind its client.
    peer: Peer,
}

fn definition(address: SocketAddr, fields: &str) -> Definition {
    let text = format!(
        "[sink.s]\nfrom = \"events\"\nto = \"mongodb\"\nurl = \"mongodb://{address}/d\"\ncollection = \"c\"\n\
         timeout = \"5s\"\n{fields}"
    );
    Definition::parse(&text).unwrap().remove(0)
}

fn target(definition: &Definition, steps: Steps) -> Box<dyn Target> {
    let surroundings = Surroundings {
        steps,
        wall: || 0,
        servers: Servers::default(),
        webhook_allow: Vec::new(),
        ledger: None,
    };
    target_of(definition, &surroundings)
}

impl Documents {
    /// Returns `None`, and says so, where the server or its client cannot be had.
    fn start(fields: &str) -> Option<Self> {
        let peer = Peer::start(
            Command::new(checkout("tools/peers/mongodb")).arg("run"),
            "mongo-java-server",
        )?;
        let eyes = Eyes::open(
            "mongodb_eyes.py",
            &[&format!("mongodb://{}", peer.address), "d"],
            "pymongo",
        )?;
        Some(Self {
            definition: definition(peer.address, fields),
            eyes: Lock::new(eyes),
            refuses: false,
            peer,
        })
    }

    fn find(&self, filter: &Value) -> Vec<Value> {
        find(&mut self.eyes.lock(), "c", filter)
    }

    /// Writes a record, and returns the document.
    async fn written(&self, at: u32, value: &str) -> Result<Value, Vec<u64>> {
        let place = place(at);
        let mut letters = Letters::default();
        let mut target = self.target(Steps::default());
        let log = [record(0, value)];
        life(&self.definition, &mut *target, &place, &log, &mut letters)
            .await
            .unwrap();
        let mut found = self.find(&json!({"_id": format!("{place}@0")}));
        found.pop().ok_or(letters.0)
    }
}

/// Returns generation and offset of a document.
fn place_of(document: &Value) -> (u64, u64) {
    let (_, place) = document["_id"].as_str().unwrap().split_once('@').unwrap();
    let (offset, generation) = place.split_once('#').unwrap_or((place, "0"));
    (generation.parse().unwrap(), offset.parse().unwrap())
}

#[async_trait]
impl Store for Documents {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn target(&self, steps: Steps) -> Box<dyn Target> {
        target(&self.definition, steps)
    }

    async fn rows(&self, place: &Place) -> Vec<u64> {
        let mut found = self.find(&json!({"_id": {"$regex": format!("^{place}@")}}));
        found.sort_by_key(place_of);
        let places: BTreeSet<_> = found.iter().map(place_of).collect();
        assert_eq!(places.len(), found.len(), "a document for each record");
        found
            .iter()
            .map(|document| document["n"].as_u64().unwrap())
            .collect()
    }

    fn refuses(&self) -> bool {
        self.refuses
    }
}

#[tokio::test]
async fn documents_pass_the_suite() {
    let Some(store) = Documents::start(COLUMNS) else {
        return;
    };
    assert_eq!(store.target(Steps::default()).promise(), Promise::ExactlyOnce);
    assert_eq!(store.definition.flush.records, 500);
    suite::all(&store).await;
}

#[tokio::test]
async fn documents_that_an_index_refuses_go_to_the_dead_letters() {
    let Some(mut store) = Documents::start(&format!("place = true\n{COLUMNS}")) else {
        return;
    };
    store.refuses = true;
    let index = json!(["createIndexes", "c", {"indexes": [
        {"key": {"n": 1, "_partition": 1}, "name": "once", "unique": true}]}]);
    store.eyes.lock().ask(&index);
    // Documents in the way of the numbers that the cases have the store refuse.
    let taken: Vec<_> = (3000..3300)
        .flat_map(|partition| (1000..1014).map(move |n| (partition, n)))
        .map(|(partition, n)| json!({"_id": format!("{partition}-{n}"), "n": n, "_partition": partition}))
        .collect();
    let seeded = json!(["insert", "c", {"documents": &taken}]);
    assert_eq!(store.eyes.lock().ask(&seeded)["n"], taken.len());
    suite::poison_is_found_wherever_it_is(&store).await;
    halves::poison_of_both_kinds_is_kept(&store).await;
    halves::kills_within_a_bisection_change_nothing(&store).await;
}

#[tokio::test]
async fn values_have_the_types_of_their_columns() {
    let columns = r#"
[sink.s.columns]
a = { type = "text" }
b = { type = "boolean" }
c = { type = "bigint" }
d = { type = "double" }
e = { type = "numeric(34,2)" }
f = { type = "timestamptz" }
g = { type = "timestamp" }
h = { type = "date" }
i = { type = "uuid" }
j = { type = "bytea" }
k = { type = "jsonb" }
l = { type = "text" }
rest = { type = "jsonb", rest = true }
"#;
    let Some(store) = Documents::start(columns) else {
        return;
    };
    let value = r#"{"a":"é\"$","b":true,"c":-9223372036854775808,"d":0.5,"e":-12345678901234567890.25,
        "f":"1969-12-31T23:59:59.999Z","g":"2026-11-22T10:20:00.123456","h":"1969-12-31",
        "i":"67e55044-10b1-426f-9247-bb680e5fe0c8","j":"AAE=","k":{"z":[1,2.5,"x",null],"a":{"$b.c":4294967296}},
        "l":null,"other":[true]}"#;
    let document = store.written(0, value).await.unwrap();
    assert_eq!(
        document,
        json!({
            "_id": "events/0@0", "a": "é\"$", "b": true, "c": -9_223_372_036_854_775_808_i64, "d": 0.5,
            "e": {"$numberDecimal": "-12345678901234567890.25"}, "f": {"$date": {"$numberLong": "-1"}},
            "g": "2026-11-22T10:20:00.123456", "h": "1969-12-31",
            "i": {"$binary": {"base64": "Z+VQRBCxQm+SR7toDl/gyA==", "subType": "04"}}, "j": {"$binary": {"base64": "AAE=", "subType": "00"}},
            "k": {"z": [1, 2.5, "x", null], "a": {"$b.c": 4_294_967_296_i64}}, "l": null, "rest": {"other": [true]}
        })
    );
    // A time that a date does not hold whole, and a name that no document has.
    for (at, value) in [
        (1, r#"{"f":"2026-11-22T10:20:00.123456Z"}"#),
        (2, r#"{"k":{"\u0000":1}}"#),
    ] {
        assert_eq!(store.written(at, value).await, Err(vec![0]), "{value}");
    }
}

#[tokio::test]
async fn records_go_over_as_documents_as_they_came() {
    let Some(store) = Documents::start("") else {
        return;
    };
    let document = store.written(0, r#"{"z":1,"a":{"b":[{}]}}"#).await.unwrap();
    assert_eq!(document, json!({"_id": "events/0@0", "z": 1, "a": {"b": [{}]}}));
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(120), "]".repeat(120));
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(16 << 20));
    for (at, value) in [(1, "{\"_id\":7}"), (2, &*deep), (3, &*large)] {
        assert_eq!(store.written(at, value).await, Err(vec![0]));
    }
}

#[tokio::test]
async fn a_replay_replaces_documents() {
    let Some(store) = Documents::start(COLUMNS) else {
        return;
    };
    let (place, mut letters) = (place(0), Letters::default());
    let mut target = store.target(Steps::default());
    life(&store.definition, &mut *target, &place, &log(), &mut letters)
        .await
        .unwrap();
    target.set_position(&place, Start::at(17)).await.unwrap();
    let changed: Vec<StoredRecord> = log()
        .iter()
        .map(|found| {
            let offset = found.offset.0;
            record(offset, &format!("{{\"n\":{offset},\"text\":\"again\"}}"))
        })
        .collect();
    life(&store.definition, &mut *target, &place, &changed, &mut letters)
        .await
        .unwrap();
    let offsets: Vec<_> = log().iter().map(|found| found.offset.0).collect();
    assert_eq!(store.rows(&place).await, offsets);
    let again = store.find(&json!({"text": "again"})).len();
    assert_eq!(again, offsets.iter().filter(|offset| **offset >= 17).count());
}

/// Fault of the server between, at one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The connection ends, and nothing is done.
    Before,
    /// The command is done, and the connection ends without an answer.
    Silent,
    /// The command is done, and the answer ends in its middle.
    Cut,
    /// The command is done, and the answer is one to something else.
    Nonsense,
}

#[derive(Debug, Default)]
struct Plan {
    count: u64,
    fault: Option<(u64, Fault)>,
}

/// A server between a sink and the store. It ends with the runtime of its test.
struct Between {
    address: SocketAddr,
    plan: Arc<Lock<Plan>>,
    tasks: TaskTracker,
}

/// Reads a message, its length first.
async fn message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 4];
    stream.read_exact(&mut bytes).await.ok()?;
    let length = u32::from_le_bytes(bytes[..].try_into().unwrap());
    bytes.resize(length as usize, 0);
    stream.read_exact(&mut bytes[4..]).await.ok()?;
    Some(bytes)
}

async fn between(mut client: TcpStream, store: SocketAddr, plan: Arc<Lock<Plan>>) -> Option<()> {
    let mut server = TcpStream::connect(store).await.ok()?;
    loop {
        let command = message(&mut client).await?;
        let fault = {
            let mut plan = plan.lock();
            plan.count += 1;
            let now = plan.count;
            plan.fault.filter(|(at, _)| *at == now).map(|(_, fault)| fault)
        };
        if fault == Some(Fault::Before) {
            return None;
        }
        server.write_all(&command).await.ok()?;
        let mut answer = message(&mut server).await?;
        match fault {
            Some(Fault::Silent) => return None,
            Some(Fault::Cut) => answer.truncate(answer.len() / 2),
            Some(Fault::Nonsense) => answer[8] ^= 1,
            Some(Fault::Before) | None => {}
        }
        client.write_all(&answer).await.ok()?;
        if fault == Some(Fault::Cut) {
            return None;
        }
    }
}

impl Between {
    async fn start(store: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let between_them = Self {
            address: listener.local_addr().unwrap(),
            plan: Arc::default(),
            tasks: TaskTracker::new(),
        };
        let (plan, tasks) = (Arc::clone(&between_them.plan), between_them.tasks.clone());
        between_them.tasks.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let plan = Arc::clone(&plan);
                tasks.spawn(async move { between(client, store, plan).await });
            }
        });
        between_them
    }
}

#[tokio::test]
async fn nothing_is_lost_or_doubled_whatever_command_fails() {
    let Some(store) = Documents::start(COLUMNS) else {
        return;
    };
    let between = Between::start(store.peer.address).await;
    let definition = definition(between.address, COLUMNS);
    let expected: Vec<u64> = log().iter().map(|record| record.offset.0).collect();
    let mut letters = Letters::default();
    let mut target = target(&definition, Steps::default());
    life(&definition, &mut *target, &place(0), &log(), &mut letters)
        .await
        .unwrap();
    let count = between.plan.lock().count;
    assert!(count > 15, "{count} commands");
    let mut at = 0;
    for fault in [Fault::Before, Fault::Silent, Fault::Cut, Fault::Nonsense] {
        for number in 1..=count {
            at += 1;
            *between.plan.lock() = Plan {
                count: 0,
                fault: Some((number, fault)),
            };
            let place = place(at);
            let mut target = crate::mongodb::target(&definition, Steps::default());
            let first = life(&definition, &mut *target, &place, &log(), &mut letters).await;
            assert!(
                matches!(
                    first,
                    Err(stafett_sinks::flush::FlushError::Target(TargetError::Retry(_)))
                ),
                "{fault:?} at {number}: {first:?}"
            );
            life(&definition, &mut *target, &place, &log(), &mut letters)
                .await
                .unwrap();
            assert_eq!(store.rows(&place).await, expected, "{fault:?} at {number}");
        }
    }
    assert!(letters.0.is_empty());
}

#[tokio::test]
async fn a_server_that_speaks_something_else_is_away() {
    for answer in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        &[0xff; 64],
        &[0; 64],
        b"",
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let definition = definition(listener.local_addr().unwrap(), COLUMNS);
        let tasks = TaskTracker::new();
        tasks.spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                message(&mut client).await;
                let _ = client.write_all(answer).await;
            }
        });
        let mut target = target(&definition, Steps::default());
        let refused = target.open(&place(0), Start::at(0)).await;
        assert!(matches!(refused, Err(TargetError::Retry(_))), "{refused:?}");
    }
}

#[test]
fn definitions_that_no_document_fits_are_refused() {
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    for (columns, why) in [
        ("_id = { type = \"text\" }", "the sink's own"),
        ("n = { type = \"numeric(35,0)\" }", "34 digits at most"),
    ] {
        let text = format!(
            "[sink.s]\nfrom = \"t\"\nto = \"mongodb\"\nurl = \"mongodb://{address}/d\"\ncollection = \"c\"\n\
             [sink.s.columns]\n{columns}\n"
        );
        let refused = Definition::parse(&text).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    let text =
        "[sink.s]\nfrom = \"t\"\nto = \"mongodb\"\nurl = \"mongodb://me:secret@h/d\"\ncollection = \"c\"\n";
    assert!(
        Definition::parse(text)
            .unwrap_err()
            .to_string()
            .contains("env:NAME")
    );
}
