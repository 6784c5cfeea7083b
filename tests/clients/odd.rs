//! Requests that no client should send, and Apache Kafka's answers to them.
//!
//! Each case is a name and a few requests, written with the wire crate or byte by byte. Its answer is a line:
//! the error codes of each response, sorted, `none` for a response without any, `closed` for a connection
//! that was ended. The answers of Kafka 4.3.1 are kept in `odd/answers.tsv`, so that no Kafka is needed to
//! compare with it; where Stafett differs on purpose, its own answer and the reason stand beside.
//!
//! `STAFETT_BIN=tools/peers/kafka` runs the same cases against Kafka itself and compares with the same table,
//! and `STAFETT_TEST_WRITE_ANSWERS=1` with it records Kafka's answers (`make suites` does the former).
//!
//! Cases of an API that the broker does not list in `ApiVersions` are skipped.

#![expect(clippy::too_many_lines, reason = "tables of cases, one after the other")]

mod admin;
mod asker;
mod frames;
mod groups;
mod groups_new;
mod offsets;
mod open_transactions;
mod pending;
mod produce;
mod read;
mod refused;
mod settings;
mod share_acknowledgements;
mod shares;
mod transactions;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use crate::broker::{Broker, is_stafett, root};
use asker::Asker;

const TABLE: &str = "tests/clients/odd/answers.tsv";
const HEADER: &str = "case\tKafka 4.3.1\tStafett, if it differs\twhy";

/// Name of a case, `API: ODDITY`, and its requests.
type Case = (String, Box<dyn Fn(&mut Asker) -> String>);

/// A case that needs nothing but its requests.
fn case(name: &str, run: impl Fn(&mut Asker) -> String + 'static) -> Case {
    (name.to_owned(), Box::new(run))
}

pub(crate) struct Kept {
    /// Answer of the peer.
    kafka: String,
    own: Option<(String, String)>,
}

impl Kept {
    pub(crate) fn expected(&self) -> &str {
        match &self.own {
            Some((answer, _)) if is_stafett() => answer,
            _ => &self.kafka,
        }
    }
}

fn cases() -> Vec<Case> {
    let mut all = frames::cases();
    all.extend(produce::cases());
    all.extend(read::cases());
    all.extend(admin::cases());
    all.extend(settings::cases());
    all.extend(groups::cases());
    all.extend(offsets::cases());
    all.extend(groups_new::cases());
    all.extend(transactions::cases());
    all.extend(pending::cases());
    all.extend(open_transactions::cases());
    all.extend(shares::cases());
    all.extend(share_acknowledgements::cases());
    all
}

/// Reads a table of answers.
pub(crate) fn kept(path: &str) -> BTreeMap<String, Kept> {
    let text = fs::read_to_string(root().join(path)).unwrap_or_default();
    text.lines()
        .skip(1)
        .map(|line| {
            let columns: Vec<&str> = line.split('\t').collect();
            let [name, kafka, own, why] = columns[..] else {
                panic!("four columns are needed: {line}")
            };
            let own = (!own.is_empty()).then(|| (own.to_owned(), why.to_owned()));
            (
                name.to_owned(),
                Kept {
                    kafka: kafka.to_owned(),
                    own,
                },
            )
        })
        .collect()
}

fn write(path: &str, table: &BTreeMap<String, Kept>) {
    let mut text = format!("{HEADER}\n");
    for (name, kept) in table {
        let (own, why) = kept.own.clone().unwrap_or_default();
        writeln!(text, "{name}\t{}\t{own}\t{why}", kept.kafka).unwrap();
    }
    fs::write(root().join(path), text).unwrap();
}

#[test]
fn odd_requests_are_answered_as_kafka_answers_them() {
    let broker = Broker::start_at("os");
    let served = Asker::connect(broker.kafka()).served();
    if served.contains("JoinGroup") {
        Asker::connect(broker.kafka()).await_coordinator();
    }
    let recording = std::env::var_os("STAFETT_TEST_WRITE_ANSWERS").is_some() && !is_stafett();
    let mut table = kept(TABLE);
    let mut wrong = String::new();
    let mut passed_over = 0;
    for (name, run) in cases() {
        let api = name.split(':').next().unwrap();
        if !served.contains(api) && api != "any" {
            passed_over += 1;
            continue;
        }
        println!("{name}");
        let answer = run(&mut Asker::connect(broker.kafka()));
        if recording {
            let own = table.remove(&name).and_then(|kept| kept.own);
            table.insert(name, Kept { kafka: answer, own });
            continue;
        }
        let expected = table.get(&name).map_or("not in the table", Kept::expected);
        if answer != expected {
            writeln!(wrong, "{name}: expected {expected}, got {answer}").unwrap();
        }
    }
    if recording {
        let names: Vec<String> = cases().into_iter().map(|(name, _)| name).collect();
        table.retain(|name, _| names.contains(name));
        write(TABLE, &table);
    }
    if passed_over > 0 {
        println!("{passed_over} cases of APIs that are not served were passed over");
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_difference_to_kafka_has_a_reason() {
    for (name, kept) in kept(TABLE)
        .into_iter()
        .chain(kept("tests/clients/odd/refused.tsv"))
        .chain(kept("tests/clients/odd/refused_amqp.tsv"))
    {
        if let Some((own, why)) = kept.own {
            assert!(!why.is_empty() && own != kept.kafka, "{name}");
        }
    }
}
