//! Transactions whose topics vanish, that are left open, that are large, and of two producers at a time.

use std::time::{Duration, Instant};

use bytes::Bytes;
use stafett_kafka_wire::messages::DescribeTransactionsRequest;
use stafett_model::{BatchBuilder, Codec, ProducerId};

use super::asker::{Asker, text};
use super::produce::{builder, produce, resealed};
use super::transactions::{Sender, init};
use super::{Case, case};

/// Time within which a transaction that is left open is aborted. Kafka looks every 10 s.
const ABORTED_WITHIN: Duration = Duration::from_mins(4);
/// Place of the base sequence in a batch.
const SEQUENCE_AT: usize = 53;
const MILLION: i32 = 1_000_000;
const BATCH_RECORDS: i32 = 20_000;

pub(super) fn cases() -> Vec<Case> {
    let mut all = vanished();
    all.extend(left_open());
    all.extend(large());
    all.extend(two());
    all
}

fn vanished() -> Vec<Case> {
    vec![
        case("EndTxn: its only topic was deleted", |a| {
            let s = Sender::begin(a, "odd.open.gone");
            s.work(a, "odd.open.gone");
            a.delete_topic("odd.open.gone");
            await_gone(a, &s, "odd.open.gone");
            [s.end(a, 3, true), s.end(a, 3, true), s.end(a, 3, false)].join("; ")
        }),
        case("EndTxn: its only topic was deleted, by the second version", |a| {
            let s = Sender::begin(a, "odd.open.gone2");
            a.topic("odd.open.gone2", 1);
            assert_eq!(s.send(a, 12, "odd.open.gone2", 0), "0");
            a.delete_topic("odd.open.gone2");
            await_gone(a, &s, "odd.open.gone2");
            s.end(a, 5, true)
        }),
        case("EndTxn: one of its topics was deleted", |a| {
            let s = Sender::begin(a, "odd.open.one");
            s.work(a, "odd.open.one");
            a.topic("odd.open.stays", 1);
            assert_eq!(s.add(a, 3, &[("odd.open.stays", 0)]), "0");
            assert_eq!(s.send(a, 9, "odd.open.stays", 0), "0");
            a.delete_topic("odd.open.one");
            await_gone(a, &s, "odd.open.one");
            let ended = s.end(a, 3, true);
            let next = s.add(a, 3, &[("odd.open.stays", 0)]);
            [ended, next, s.send(a, 9, "odd.open.stays", 2), s.end(a, 3, false)].join("; ")
        }),
        case("EndTxn: its topic was deleted and made again", |a| {
            let s = Sender::begin(a, "odd.open.again");
            s.work(a, "odd.open.again");
            a.delete_topic("odd.open.again");
            await_gone(a, &s, "odd.open.again");
            a.topic("odd.open.again", 1);
            s.end(a, 3, true)
        }),
        case("AddPartitionsToTxn: a topic that was deleted meanwhile", |a| {
            let s = Sender::begin(a, "odd.open.readd");
            s.work(a, "odd.open.readd");
            a.delete_topic("odd.open.readd");
            await_gone(a, &s, "odd.open.readd");
            [s.add(a, 3, &[("odd.open.readd", 0)]), s.end(a, 3, false)].join("; ")
        }),
    ]
}

/// Waits until a topic that is deleted is refused.
fn await_gone(a: &mut Asker, s: &Sender, topic: &str) {
    let since = Instant::now();
    while s.send(a, 9, topic, 2) != "3" {
        assert!(since.elapsed() < ABORTED_WITHIN, "{topic} does not go");
    }
}

/// Opens a transaction that may take half a second, and waits until it is aborted.
fn aborted(a: &mut Asker, id: &'static str) -> Sender {
    Sender::begin(a, id);
    let s = loop {
        let begun = a.ask_coordinator(4, &init(id, 500, -1, -1)).unwrap();
        if begun.error_code == 0 {
            break Sender {
                id,
                producer: begun.producer_id,
                epoch: begun.producer_epoch,
            };
        }
    };
    s.work(a, id);
    let question = DescribeTransactionsRequest {
        transactional_ids: vec![text(id)],
    };
    let since = Instant::now();
    loop {
        let told = a.ask_coordinator(0, &question).unwrap();
        if &*told.transaction_states[0].transaction_state == "CompleteAbort" {
            return s;
        }
        assert!(since.elapsed() < ABORTED_WITHIN, "{id} stays open");
    }
}

fn left_open() -> Vec<Case> {
    vec![
        case("EndTxn: a transaction that took too long", |a| {
            let s = aborted(a, "odd.open.late");
            [true, false].map(|committed| s.end(a, 3, committed)).join("; ")
        }),
        case(
            "EndTxn: a transaction that took too long, by the second version",
            |a| {
                let s = aborted(a, "odd.open.late2");
                [true, false].map(|committed| s.end(a, 5, committed)).join("; ")
            },
        ),
        case("Produce: a batch of a transaction that took too long", |a| {
            let s = aborted(a, "odd.open.latesend");
            [9, 12]
                .map(|version| s.send(a, version, "odd.open.latesend", 2))
                .join("; ")
        }),
        case("AddPartitionsToTxn: a transaction that took too long", |a| {
            let s = aborted(a, "odd.open.lateadd");
            s.add(a, 3, &[("odd.open.lateadd", 0)])
        }),
        case("TxnOffsetCommit: a transaction that took too long", |a| {
            let s = aborted(a, "odd.open.lateoff");
            [s.add_group(a, 3, s.id), s.commit(a, 3, s.id, -1)].join("; ")
        }),
        case("InitProducerId: a transaction that took too long", |a| {
            let s = aborted(a, "odd.open.lateinit");
            [(s.producer, s.epoch), (-1, -1)]
                .map(|(producer, epoch)| {
                    let begun = a
                        .ask_coordinator(4, &init(s.id, 60_000, producer, epoch))
                        .unwrap();
                    format!("{} epoch {}", begun.error_code, begun.producer_epoch - s.epoch)
                })
                .join("; ")
        }),
    ]
}

/// A batch of a transaction, with as many records as a request may have.
fn part(s: &Sender) -> Bytes {
    let empty = BatchBuilder::new(Codec::None)
        .producer(ProducerId(s.producer), s.epoch, 0)
        .transactional();
    builder(empty, BATCH_RECORDS.unsigned_abs() as usize)
        .finish()
        .unwrap()
}

fn large() -> Vec<Case> {
    vec![case("EndTxn: a million records", |a| {
        let s = Sender::begin(a, "odd.open.million");
        a.topic("odd.open.million", 1);
        assert_eq!(s.add(a, 3, &[("odd.open.million", 0)]), "0");
        let first = part(&s);
        for sequence in (0..MILLION).step_by(BATCH_RECORDS.unsigned_abs() as usize) {
            let records = resealed(&first, SEQUENCE_AT, &sequence.to_be_bytes());
            let mut request = produce("odd.open.million", 0, Some(records));
            request.transactional_id = Some(text(s.id));
            assert_eq!(a.codes(9, &request), "0", "{sequence}");
        }
        [s.end(a, 3, true), s.end(a, 3, false)].join("; ")
    })]
}

fn two() -> Vec<Case> {
    vec![
        case(
            "EndTxn: two producers that take a transactional id from each other",
            |a| {
                let topic = "odd.open.two";
                let first = Sender::begin(a, topic);
                first.work(a, topic);
                let second = Sender::begin(a, topic);
                let told = [
                    first.end(a, 3, true),
                    second.add(a, 3, &[(topic, 0)]),
                    first.send(a, 9, topic, 2),
                    second.send(a, 9, topic, 0),
                    first.end(a, 3, false),
                    first.add_group(a, 3, topic),
                    second.end(a, 3, true),
                ];
                told.join("; ")
            },
        ),
        case("EndTxn: two producers with the same id and epoch", |a| {
            let topic = "odd.open.same";
            let s = Sender::begin(a, topic);
            s.work(a, topic);
            let mut twin = a.another();
            let told = [
                s.send(&mut twin, 9, topic, 0),
                s.send(&mut twin, 9, topic, 2),
                s.send(a, 9, topic, 2),
                s.end(&mut twin, 3, true),
                s.end(a, 3, false),
            ];
            told.join("; ")
        }),
        case("EndTxn: an abort, then a commit", |a| {
            let s = Sender::begin(a, "odd.open.turn");
            s.work(a, "odd.open.turn");
            [false, true].map(|committed| s.end(a, 3, committed)).join("; ")
        }),
        case(
            "EndTxn: an old epoch and an id of another producer's, by the second version",
            |a| {
                let s = Sender::begin(a, "odd.open.foreign");
                let other = Sender::begin(a, "odd.open.foreign.other");
                s.work(a, "odd.open.foreign");
                let told = [
                    s.with(other.producer, other.epoch).end(a, 5, true),
                    s.with(s.producer, s.epoch + 1).end(a, 5, true),
                    s.with(s.producer, -1).end(a, 5, true),
                ];
                told.join("; ")
            },
        ),
    ]
}
