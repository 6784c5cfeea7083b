//! ClickHouse: its own engine (chdb) behind its HTTP interface, with kills, answers that are lost, and poison.

use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use stafett_model::Lock;
use stafett_sinks::broker::Servers;
use stafett_sinks::definition::Definition;
use stafett_sinks::target::{
    Ledger, Place, Promise, Start, Steps, Surroundings, Target, TargetError, target_of,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::memory::MemoryLedger;
use crate::peer::{Peer, checkout, python};
use crate::suite::halves;
use crate::suite::{self, Letters, Store, life, log, place, record};

const COLUMNS: &str =
    "[sink.s.columns]\nn = { type = \"bigint\", null = false }\ntext = { type = \"text\" }\n";

struct Tables {
    definition: Definition,
    peer: Peer,
    ledger: Lock<Arc<MemoryLedger>>,
    refuses: bool,
}

fn start() -> Option<Peer> {
    let front = checkout("tests/clients/python/clickhouse_front.py");
    Peer::start(Command::new(python()).arg(front), "chdb")
}

impl Tables {
    /// Returns `None`, and says so, where the engine cannot be had.
    fn start(fields: &str) -> Option<Self> {
        let peer = start()?;
        let text = format!(
            "[sink.s]\nfrom = \"events\"\nto = \"clickhouse\"\nurl = \"http://{}/\"\ntable = \"t\"\nplace = true\n{fields}",
            peer.address
        );
        Some(Self {
            definition: Definition::parse(&text).unwrap().remove(0),
            peer,
            ledger: Lock::default(),
            refuses: false,
        })
    }

    /// Sends a request with a statement, or another path, and returns the body of the answer.
    async fn ask(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.peer.address).await.unwrap();
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        body.to_owned()
    }

    async fn query(&self, statement: &str) -> Vec<Value> {
        let encoded = percent_encoding::utf8_percent_encode(statement, percent_encoding::NON_ALPHANUMERIC);
        let answer = self.ask(&format!("/?query={encoded}")).await;
        answer
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

#[async_trait]
impl Store for Tables {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn target(&self, steps: Steps) -> Box<dyn Target> {
        let surroundings = Surroundings {
            steps,
            wall: || 0,
            servers: Servers::default(),
            webhook_allow: Vec::new(),
            ledger: Some(Arc::clone(&self.ledger.lock()) as Arc<dyn Ledger>),
        };
        target_of(&self.definition, &surroundings)
    }

    async fn rows(&self, place: &Place) -> Vec<u64> {
        let Place { topic, partition } = place;
        let statement = format!(
            "SELECT toUInt32(n) AS n FROM t WHERE _topic = '{topic}' AND _partition = {partition} ORDER BY _offset, n"
        );
        let rows = self.query(&statement).await;
        rows.iter().map(|row| row["n"].as_u64().unwrap()).collect()
    }

    async fn position(&self, place: &Place) -> Option<u64> {
        let ledger = Arc::clone(&self.ledger.lock());
        ledger.0.lock().get(place).map(|(next, _)| *next)
    }

    fn refuses(&self) -> bool {
        self.refuses
    }
}

#[tokio::test]
async fn an_insert_that_comes_again_counts_once() {
    let Some(store) = Tables::start(&format!("create = true\n{COLUMNS}")) else {
        return;
    };
    assert_eq!(
        store.target(Steps::default()).promise(),
        Promise::ExactlyOnceWithin
    );
    suite::nothing_is_lost_or_doubled_by_kills(&store).await;
    suite::unknown_outcomes_are_looked_up(&store).await;
    suite::a_batch_counts_once(&store).await;
    suite::records_without_rows_are_passed(&store).await;
    for (at, fault) in (1..).zip(["before", "after", "silent"]) {
        for number in 0..3_u32 {
            let place = place(5000 + at * 10 + number);
            let mut letters = Letters::default();
            let kept = usize::try_from(number).unwrap() * 7;
            let first: Vec<_> = log().into_iter().take(kept).collect();
            let mut target = store.target(Steps::default());
            life(&store.definition, &mut *target, &place, &first, &mut letters)
                .await
                .unwrap();
            store.ask(&format!("/fail?next={fault}")).await;
            let failed = life(&store.definition, &mut *target, &place, &log(), &mut letters).await;
            assert!(failed.is_err(), "{fault}");
            life(&store.definition, &mut *target, &place, &log(), &mut letters)
                .await
                .unwrap();
            let expected: Vec<u64> = log().iter().map(|record| record.offset.0).collect();
            assert_eq!(store.rows(&place).await, expected, "{fault}");
        }
    }
}

#[tokio::test]
async fn rows_that_the_table_refuses_go_to_the_dead_letters() {
    let Some(mut store) = Tables::start(COLUMNS) else {
        return;
    };
    store.refuses = true;
    store
        .query(
            "CREATE TABLE t (_topic String, _partition Int64, _offset Int64, n Int64, text Nullable(String), \
             CONSTRAINT small CHECK n < 1000) ENGINE = MergeTree ORDER BY tuple() \
             SETTINGS non_replicated_deduplication_window = 1000",
        )
        .await;
    suite::poison_is_found_wherever_it_is(&store).await;
    halves::poison_of_both_kinds_is_kept(&store).await;
    halves::kills_within_a_bisection_change_nothing(&store).await;
}

#[tokio::test]
async fn records_of_another_topic_at_the_same_offsets_are_rows_too() {
    let Some(store) = Tables::start(&format!("create = true\n{COLUMNS}")) else {
        return;
    };
    let expected: Vec<u64> = (0..3).flat_map(|n| [n, n]).collect();
    let three: Vec<_> = log().into_iter().take(3).collect();
    for topic in [1, 2] {
        *store.ledger.lock() = Arc::default();
        let mut target = store.target(Steps::default());
        let start = Start {
            topic: Some(Uuid::from_u128(topic)),
            ..Start::at(0)
        };
        let opened = target.open(&place(0), start).await.unwrap();
        let mut rows = stafett_sinks::rows::Rows::new(store.definition.columns.len());
        let mut converter = stafett_sinks::convert::Converter::new(
            store.definition.columns.clone(),
            Vec::new(),
            stafett_sinks::convert::OnUnknown::Rest,
        );
        for record in &three {
            converter.convert(&place(0), record, &mut rows).unwrap();
        }
        let part = stafett_sinks::target::Part {
            place: &place(0),
            epoch: opened.epoch,
            from: 0,
            next: 3,
            batch: (0, 3),
            rows: rows.all(),
            records: 3,
        };
        target.write(&part).await.unwrap();
    }
    assert_eq!(store.rows(&place(0)).await, expected);
}

#[tokio::test]
async fn values_have_the_types_of_their_columns() {
    let columns = r#"
create = true
[sink.s.columns]
a = { type = "text" }
b = { type = "boolean" }
c = { type = "bigint" }
d = { type = "double" }
e = { type = "numeric(40,2)" }
f = { type = "timestamptz" }
g = { type = "timestamp" }
h = { type = "date" }
i = { type = "uuid" }
j = { type = "bytea" }
k = { type = "text" }
"l`l" = { type = "text" }
rest = { type = "jsonb", rest = true }
"#;
    let Some(store) = Tables::start(columns) else {
        return;
    };
    let value = r#"{"a":"é\"'\\`","b":true,"c":-9223372036854775808,"d":0.5,"e":-12345678901234567890.25,
        "f":"1969-12-31T23:59:59.999999Z","g":"2026-11-22T10:20:00.123456","h":"1969-12-31",
        "i":"67e55044-10b1-426f-9247-bb680e5fe0c8","j":"AAE=","k":null,"l`l":"x","other":{"a":[true]}}"#;
    let mut target = store.target(Steps::default());
    let mut letters = Letters::default();
    life(
        &store.definition,
        &mut *target,
        &place(0),
        &[record(0, value)],
        &mut letters,
    )
    .await
    .unwrap();
    assert!(letters.0.is_empty());
    let rows = store
        .query(
            "SELECT a, b, toString(c) AS c, d, toString(e) AS e, toString(f) AS f, toString(g) AS g, \
             toString(h) AS h, i, j, k, `l\\`l` AS l, rest FROM t",
        )
        .await;
    assert_eq!(
        rows,
        [json!({
            "a": "é\"'\\`", "b": true, "c": "-9223372036854775808", "d": 0.5, "e": "-12345678901234567890.25",
            "f": "1969-12-31 23:59:59.999999", "g": "2026-11-22 10:20:00.123456", "h": "1969-12-31",
            "i": "67e55044-10b1-426f-9247-bb680e5fe0c8", "j": "AAE=", "k": null, "l": "x",
            "rest": "{\"other\":{\"a\":[true]}}"
        })]
    );
}

#[tokio::test]
async fn a_table_without_a_window_stops_the_sink() {
    let Some(store) = Tables::start(COLUMNS) else {
        return;
    };
    let mut target = store.target(Steps::default());
    let refused = target.open(&place(0), Start::at(0)).await.unwrap_err();
    let text = refused.to_string();
    assert!(
        matches!(refused, TargetError::Stop(_)) && text.contains("CREATE TABLE IF NOT EXISTS"),
        "{text}"
    );
    let columns = "_topic String, _partition Int64, _offset Int64, n Int64, text Nullable(String)";
    store
        .query(&format!(
            "CREATE TABLE t ({columns}) ENGINE = MergeTree ORDER BY tuple()"
        ))
        .await;
    let refused = target.open(&place(0), Start::at(0)).await.unwrap_err();
    let text = refused.to_string();
    assert!(
        matches!(refused, TargetError::Stop(_)) && text.contains("MODIFY SETTING"),
        "{text}"
    );
    store
        .query("ALTER TABLE t MODIFY SETTING non_replicated_deduplication_window = 100")
        .await;
    target.open(&place(0), Start::at(0)).await.unwrap();
}
