//! Webhooks: the suite with a receiver that keeps positions, batches that stay the same without one, and
//! answers of all kinds.

#![expect(clippy::similar_names, reason = "a receiver has received batches")]

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use stafett_model::Lock;
use stafett_sinks::broker::Servers;
use stafett_sinks::definition::Definition;
use stafett_sinks::target::{
    Ledger, Part, Place, Promise, Start, Steps, Surroundings, Target, TargetError, target_of,
};
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use crate::memory::MemoryLedger;
use crate::suite::halves;
use crate::suite::{self, Letters, Store, life, log, place, record};

/// A batch that came.
#[derive(Debug, Clone)]
struct Arrived {
    headers: HeaderMap,
    body: Bytes,
}

#[derive(Debug, Default)]
struct Table {
    rows: Vec<u64>,
    next: u64,
    epoch: u64,
    topic_id: Value,
}

/// Contents of a receiver.
#[derive(Debug, Default)]
struct Received {
    tables: BTreeMap<(String, u64), Table>,
    batches: Vec<Arrived>,
    /// Statuses of the next answers, before batches are looked at.
    answers: Vec<(u16, Option<&'static str>)>,
    /// Ids of batches that were taken, at a receiver that goes by them instead of by positions.
    ids: Option<BTreeSet<String>>,
    /// Bytes of nothing in each answer.
    padding: usize,
}

/// A receiver on a port of its own; it ends with the runtime of its test.
struct Receiver {
    address: SocketAddr,
    received: Arc<Lock<Received>>,
    tasks: TaskTracker,
}

impl Receiver {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = Self {
            address: listener.local_addr().unwrap(),
            received: Arc::default(),
            tasks: TaskTracker::new(),
        };
        let (received, tasks) = (Arc::clone(&receiver.received), receiver.tasks.clone());
        receiver.tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let received = Arc::clone(&received);
                let service = service_fn(move |request| {
                    let received = Arc::clone(&received);
                    async move { Ok::<_, Infallible>(answer(&received, request).await) }
                });
                tasks.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        receiver
    }

    fn definition(&self, fields: &str) -> Definition {
        let text = format!(
            "[sink.s]\nfrom = \"events\"\nto = \"webhook\"\nurl = \"http://{}/in\"\n{fields}",
            self.address
        );
        Definition::parse(&text).unwrap().remove(0)
    }
}

fn reply(status: u16, value: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(value.to_string())));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

async fn answer(received: &Lock<Received>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let mut received = received.lock();
    if parts.uri.path() == "/positions" {
        return positions(&mut received, &parts.method, &body);
    }
    if let Some((status, after)) = received.answers.pop() {
        let mut response = reply(status, &json!("as told"));
        if let Some(after) = after {
            response
                .headers_mut()
                .insert("retry-after", after.parse().unwrap());
        }
        return response;
    }
    let header = |name: &str| parts.headers[name].to_str().unwrap().to_owned();
    let number = |name: &str| header(name).parse::<u64>().unwrap();
    let key = (header("stafett-topic"), number("stafett-partition"));
    let id = header("webhook-id");
    let bounds = ["stafett-epoch", "stafett-first", "stafett-next"].map(&number);
    received.batches.push(Arrived {
        headers: parts.headers,
        body: body.clone(),
    });
    let rows: Vec<Value> = serde_json::from_slice(&body).unwrap_or_default();
    let number_of = |row: &Value| row["n"].as_u64().or_else(|| row["data"]["n"].as_u64()).unwrap();
    let numbers: Vec<u64> = rows.iter().map(number_of).collect();
    if numbers.iter().any(|n| *n >= 1000) {
        return reply(422, &json!("unlucky"));
    }
    if let Some(ids) = &mut received.ids {
        if ids.insert(id) {
            received.tables.entry(key).or_default().rows.extend(numbers);
        }
        return reply(200, &json!({}));
    }
    let [epoch, first, next] = bounds;
    let table = received.tables.entry(key).or_default();
    if epoch != table.epoch || first != table.next {
        return reply(409, &json!("another writer"));
    }
    table.rows.extend(numbers);
    table.next = next;
    let padding = "x".repeat(received.padding);
    reply(200, &json!({ "padding": padding }))
}

/// Answers about positions.
fn positions(received: &mut Received, method: &Method, body: &Bytes) -> Response<Full<Bytes>> {
    if *method == Method::GET {
        let tables = received.tables.iter().map(
            |((topic, partition), table)| json!({"topic": topic, "partition": partition, "next": table.next}),
        );
        return reply(200, &json!({"positions": tables.collect::<Vec<_>>()}));
    }
    let wanted: Value = serde_json::from_slice(body).unwrap();
    let key = (
        wanted["topic"].as_str().unwrap().to_owned(),
        wanted["partition"].as_u64().unwrap(),
    );
    let is_new = !received.tables.contains_key(&key);
    let table = received.tables.entry(key).or_default();
    if is_new {
        table.next = wanted["begin"].as_u64().unwrap_or(0);
    }
    if wanted["epoch"].as_u64().is_some_and(|epoch| epoch != table.epoch) {
        return reply(409, &json!({}));
    }
    if table.topic_id.is_null() || wanted["set"].is_u64() {
        table.topic_id = wanted["topic_id"].clone();
    }
    table.next = wanted["set"].as_u64().unwrap_or(table.next);
    table.epoch += 1;
    reply(
        200,
        &json!({"next": table.next, "epoch": table.epoch, "topic_id": table.topic_id}),
    )
}

fn target(definition: &Definition, steps: Steps, ledger: Option<&Arc<MemoryLedger>>) -> Box<dyn Target> {
    let surroundings = Surroundings {
        steps,
        wall: || 1_795_342_800_000,
        servers: Servers::default(),
        webhook_allow: vec!["127.0.0.1".to_owned()],
        ledger: ledger.map(|ledger| Arc::<MemoryLedger>::clone(ledger) as Arc<dyn Ledger>),
    };
    target_of(definition, &surroundings)
}

struct Keeper {
    receiver: Receiver,
    definition: Definition,
    /// Positions, if the receiver keeps none.
    ledger: Option<Arc<MemoryLedger>>,
}

#[async_trait]
impl Store for Keeper {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn target(&self, steps: Steps) -> Box<dyn Target> {
        target(&self.definition, steps, self.ledger.as_ref())
    }

    async fn rows(&self, place: &Place) -> Vec<u64> {
        let received = self.receiver.received.lock();
        let key = (place.topic.clone(), u64::from(place.partition));
        received
            .tables
            .get(&key)
            .map(|table| table.rows.clone())
            .unwrap_or_default()
    }

    fn refuses(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_receiver_that_keeps_positions_passes_the_suite() {
    let receiver = Receiver::start().await;
    let address = receiver.address;
    let definition = receiver.definition(&format!("position_url = \"http://{address}/positions?v=1\""));
    let keeper = Keeper {
        receiver,
        definition,
        ledger: None,
    };
    assert_eq!(keeper.target(Steps::default()).promise(), Promise::ExactlyOnce);
    suite::all(&keeper).await;
}

#[tokio::test]
async fn without_positions_the_halves_of_a_batch_come_again_under_their_ids() {
    let receiver = Receiver::start().await;
    receiver.received.lock().ids = Some(BTreeSet::new());
    let definition = receiver.definition("");
    let keeper = Keeper {
        receiver,
        definition,
        ledger: Some(Arc::default()),
    };
    halves::kills_within_a_bisection_change_nothing(&keeper).await;
}

#[tokio::test]
async fn without_positions_a_batch_comes_again_as_it_was() {
    let receiver = Receiver::start().await;
    let definition = receiver.definition("");
    assert_eq!(
        target(&definition, Steps::default(), None).promise(),
        Promise::AtLeastOnce
    );
    let reached = Arc::new(AtomicU64::new(0));
    let expected: Vec<u64> = log().iter().map(|record| record.offset.0).collect();
    for n in 1.. {
        let ledger = Arc::new(MemoryLedger::default());
        {
            let mut received = receiver.received.lock();
            received.batches.clear();
            received.tables.clear();
            let key = ("events".to_owned(), n);
            received.tables.insert(
                key,
                Table {
                    epoch: 1,
                    ..Table::default()
                },
            );
        }
        let (count, place) = (Arc::clone(&reached), place(u32::try_from(n).unwrap()));
        count.store(0, Ordering::Relaxed);
        let steps = Steps::new(move |step| match count.fetch_add(1, Ordering::Relaxed) + 1 {
            reached if reached == n => Err(TargetError::Retry(format!("killed behind {step}"))),
            _ => Ok(()),
        });
        let mut letters = Letters::default();
        let mut killed = target(&definition, steps, Some(&ledger));
        let first = life(&definition, &mut *killed, &place, &log(), &mut letters).await;
        // A receiver without positions takes every batch.
        let mut again = target(&definition, Steps::default(), Some(&ledger));
        {
            let mut received = receiver.received.lock();
            let table = received.tables.values_mut().next().unwrap();
            table.next = ledger.0.lock().get(&place).map_or(0, |(next, _)| *next);
        }
        life(&definition, &mut *again, &place, &log(), &mut letters)
            .await
            .unwrap();
        let mut seen: BTreeMap<String, Bytes> = BTreeMap::new();
        let mut numbers = Vec::new();
        for batch in &receiver.received.lock().batches {
            let id = batch.headers["webhook-id"].to_str().unwrap().to_owned();
            if let Some(before) = seen.insert(id, batch.body.clone()) {
                assert_eq!(before, batch.body, "the same id has the same bytes");
                continue;
            }
            let rows: Vec<Value> = serde_json::from_slice(&batch.body).unwrap();
            numbers.extend(rows.iter().map(|row| row["n"].as_u64().unwrap()));
        }
        assert_eq!(numbers, expected, "{first:?}");
        if first.is_ok() {
            assert!(n > 12, "{n} steps");
            return;
        }
    }
}

/// Writes one record, and returns the outcome.
async fn write_one(receiver: &Receiver, definition: &Definition, at: u32) -> Result<(), TargetError> {
    let (ledger, place) = (Arc::new(MemoryLedger::default()), place(at));
    let key = ("events".to_owned(), u64::from(at));
    receiver.received.lock().tables.insert(
        key,
        Table {
            epoch: 1,
            ..Table::default()
        },
    );
    let mut target = target(definition, Steps::default(), Some(&ledger));
    let opened = target.open(&place, Start::at(0)).await.unwrap();
    let mut rows = stafett_sinks::rows::Rows::new(1);
    let mut converter = stafett_sinks::convert::Converter::new(
        definition.columns.clone(),
        Vec::new(),
        stafett_sinks::convert::OnUnknown::Rest,
    );
    converter
        .convert(&place, &record(0, "{\"n\":7}"), &mut rows)
        .unwrap();
    let part = Part {
        place: &place,
        epoch: opened.epoch,
        from: 0,
        next: 1,
        batch: (0, 1),
        rows: rows.all(),
        records: 1,
    };
    target.write(&part).await
}

#[tokio::test]
async fn answers_are_sorted_by_their_status() {
    let receiver = Receiver::start().await;
    let definition = receiver.definition("");
    for (status, class) in [
        (200, "taken"),
        (204, "taken"),
        (301, "stop"),
        (400, "poison"),
        (401, "stop"),
        (403, "stop"),
        (404, "stop"),
        (408, "retry"),
        (409, "stop"),
        (410, "stop"),
        (413, "poison"),
        (422, "poison"),
        (425, "retry"),
        (429, "retry"),
        (500, "retry"),
        (503, "retry"),
    ] {
        receiver.received.lock().answers.push((status, None));
        let found = match write_one(&receiver, &definition, u32::from(status)).await {
            Ok(()) => "taken",
            Err(TargetError::Retry(_)) => "retry",
            Err(TargetError::Poison { .. }) => "poison",
            Err(TargetError::Stop(_)) => "stop",
            Err(TargetError::Fenced(_)) => "fenced",
            Err(TargetError::MadeAgain(_)) => "made again",
        };
        assert_eq!(found, class, "{status}");
    }
}

#[tokio::test]
async fn an_answer_is_read_up_to_a_bound() {
    let receiver = Receiver::start().await;
    let address = receiver.address;
    receiver.received.lock().padding = 40 << 20;
    let definition = receiver.definition(&format!("position_url = \"http://{address}/positions\""));
    let keeper = Keeper {
        receiver,
        definition,
        ledger: None,
    };
    let mut letters = Letters::default();
    let mut target = keeper.target(Steps::default());
    life(&keeper.definition, &mut *target, &place(0), &log(), &mut letters)
        .await
        .unwrap();
    let expected: Vec<u64> = log().iter().map(|record| record.offset.0).collect();
    assert_eq!(keeper.rows(&place(0)).await, expected);
}

#[tokio::test]
async fn batches_are_signed_and_carry_headers_of_the_definition() {
    let receiver = Receiver::start().await;
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
    let fields = format!(
        "secret = \"file:{}\"\nformat = \"cloudevents\"\nheaders = {{ authorization = \"Bearer x\" }}",
        key.display()
    );
    let definition = receiver.definition(&fields);
    write_one(&receiver, &definition, 0).await.unwrap();
    let batch = receiver.received.lock().batches.remove(0);
    let header = |name: &str| batch.headers[name].to_str().unwrap().to_owned();
    assert_eq!(header("authorization"), "Bearer x");
    assert_eq!(header("content-type"), "application/cloudevents-batch+json");
    assert_eq!(header("webhook-timestamp"), "1795342800");
    assert!(header("webhook-signature").starts_with("v1,"));
    assert!(header("webhook-id").starts_with("msg_"));
    let events: Value = serde_json::from_slice(&batch.body).unwrap();
    assert_eq!(events[0]["id"], "events/0@0");
    assert_eq!(
        (&events[0]["specversion"], &events[0]["data"]),
        (&json!("1.0"), &json!({"n": 7}))
    );
}

#[tokio::test]
async fn receivers_in_private_networks_are_refused_unless_they_are_allowed() {
    let receiver = Receiver::start().await;
    let definition = receiver.definition("");
    let surroundings = Surroundings {
        steps: Steps::default(),
        wall: || 0,
        servers: Servers::default(),
        webhook_allow: vec!["10.0.0.1".to_owned()],
        ledger: Some(Arc::new(MemoryLedger::default())),
    };
    let mut target = target_of(&definition, &surroundings);
    let mut letters = Letters::default();
    let refused = life(&definition, &mut *target, &place(0), &log(), &mut letters)
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("webhook_allow"), "{refused}");
    assert!(receiver.received.lock().batches.is_empty());
}
