//! Random operations in any order, against a naive model.

use std::cell::RefCell;
use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use smallvec::smallvec;
use stafett_journal::{
    Append, BatchFrame, Change, Frame, LogSpec, Outcome, OwnerEpoch, PlacedBatch, Precondition, Refusal,
    RequestId, Selection, StateWait, Target,
};
use stafett_model::{Durability, LogId, Offset};

use super::bench::Bench;
use super::state::{Loaded, change, load};
use crate::support::{Seen, append, batch, control, create, numbered, read, read_all, seen};

#[derive(Debug, Clone)]
enum Op {
    Create {
        level: Durability,
    },
    Append {
        log: usize,
        records: usize,
        bytes: usize,
        lowered: Option<Durability>,
    },
    FanOut {
        targets: Vec<(usize, Option<(u32, u32)>)>,
        records: usize,
    },
    Numbered {
        log: usize,
        producer: i64,
        epoch: i16,
        sequence: i32,
        records: usize,
    },
    Expect {
        log: usize,
        off_by: u64,
    },
    Asked {
        log: usize,
        id: Option<u8>,
        owner: Option<u64>,
    },
    Truncate {
        log: usize,
        percent: u64,
    },
    Delete {
        log: usize,
    },
    ChangeLevel {
        log: usize,
        level: Durability,
    },
    State {
        key: u8,
        change: u8,
    },
    Read {
        log: usize,
        percent: u64,
        bytes_max: usize,
    },
    Reopen,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let level = || {
        prop_oneof![
            Just(Durability::Memory),
            Just(Durability::Os),
            Just(Durability::Interval {
                records: 3,
                every: std::time::Duration::from_millis(3)
            }),
            Just(Durability::Sync),
        ]
    };
    let log = || 0..6_usize;
    // In small segments, bodies of more than 16 KiB are cut.
    let bytes = prop_oneof![12 => 0..4000_usize, 1 => 5000..9000_usize];
    let targets = prop::collection::vec((log(), prop::option::of((0..4_u32, 1..3_u32))), 1..5);
    let op = prop_oneof![
        2 => level().prop_map(|level| Op::Create { level }),
        12 => (log(), 1..5_usize, bytes, prop::option::of(level())).prop_map(
            |(log, records, bytes, lowered)| Op::Append { log, records, bytes, lowered }
        ),
        4 => (targets, 6..8_usize).prop_map(|(targets, records)| Op::FanOut { targets, records }),
        6 => (log(), 0..2_i64, 0..2_i16, 0..6_i32, 1..3_usize).prop_map(
            |(log, producer, epoch, sequence, records)| Op::Numbered { log, producer, epoch, sequence, records }
        ),
        1 => (log(), 0..2_u64).prop_map(|(log, off_by)| Op::Expect { log, off_by }),
        4 => (log(), prop::option::of(0..4_u8), prop::option::of(0..4_u64))
            .prop_map(|(log, id, owner)| Op::Asked { log, id, owner }),
        2 => (log(), 0..130_u64).prop_map(|(log, percent)| Op::Truncate { log, percent }),
        1 => log().prop_map(|log| Op::Delete { log }),
        1 => (log(), level()).prop_map(|(log, level)| Op::ChangeLevel { log, level }),
        4 => (0..3_u8, 0..3_u8).prop_map(|(key, change)| Op::State { key, change }),
        4 => (log(), 0..101_u64, 0..9000_usize)
            .prop_map(|(log, percent, bytes_max)| Op::Read { log, percent, bytes_max }),
        1 => Just(Op::Reopen),
    ];
    prop::collection::vec(op, 1..60)
}

#[derive(Debug, Default)]
struct NaiveLog {
    start: u64,
    records: Vec<Seen>,
    /// End offset of each batch.
    ends: Vec<u64>,
    /// Epoch and batches of each producer.
    producers: BTreeMap<i64, (i16, Vec<Sent>)>,
    owner: u64,
}

/// First sequence number of a batch, the one behind its last, and its offset.
type Sent = (i32, i32, u64);

#[derive(Debug, Default)]
struct Naive {
    logs: Vec<(LogId, NaiveLog)>,
    state: Loaded,
    /// Place of the batch of each id.
    ids: BTreeMap<u8, (LogId, u64)>,
    /// Counter that makes values unique.
    count: usize,
}

impl NaiveLog {
    fn end(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn push(&mut self, values: &[String]) -> u64 {
        let base = self.end();
        self.records.extend((base..).zip(values.iter().cloned()));
        self.ends.push(base + values.len() as u64);
        base
    }

    fn readable(&self) -> Vec<Seen> {
        self.records
            .iter()
            .filter(|(at, _)| *at >= self.start)
            .cloned()
            .collect()
    }

    /// Judges a batch of a producer: `Ok` with the earlier offset if it is a duplicate.
    fn judge(&self, producer: i64, epoch: i16, first: i32, end: i32) -> Result<Option<u64>, ()> {
        match self.producers.get(&producer) {
            None => Ok(None),
            Some((known, _)) if epoch < *known => Err(()),
            Some((known, _)) if epoch > *known => {
                if first == 0 {
                    Ok(None)
                } else {
                    Err(())
                }
            }
            Some((_, sent)) => {
                let again = sent
                    .iter()
                    .rev()
                    .take(5)
                    .find(|batch| (batch.0, batch.1) == (first, end));
                match again {
                    Some((_, _, base)) => Ok(Some(*base)),
                    None if sent.last().is_some_and(|last| last.1 == first) => Ok(None),
                    None => Err(()),
                }
            }
        }
    }
}

impl Naive {
    fn values(&mut self, records: usize, bytes: usize) -> Vec<String> {
        (0..records)
            .map(|_| {
                self.count += 1;
                format!("{} {}", self.count, "v".repeat(bytes))
            })
            .collect()
    }

    fn pick(&self, log: usize) -> Option<usize> {
        (!self.logs.is_empty()).then(|| log % self.logs.len())
    }

    fn run(&mut self, op: Op, bench: &mut Bench, space: u16) {
        match op {
            Op::Create { level } => {
                if self.logs.len() < 6 {
                    self.logs
                        .push((create(bench.journal(), level), NaiveLog::default()));
                }
            }
            Op::Append {
                log,
                records,
                bytes,
                lowered,
            } => {
                let Some(log) = self.pick(log) else { return };
                let values = self.values(records, bytes);
                let (id, naive) = &mut self.logs[log];
                let batch = Append {
                    level: lowered,
                    ..Append::batch(*id, batch_of(&values))
                };
                let outcome = append(bench.journal(), batch);
                expect_placed(&outcome, &[(*id, naive.push(&values), false)]);
            }
            Op::FanOut { targets, records } => self.fan_out(&targets, records, bench),
            Op::Numbered {
                log,
                producer,
                epoch,
                sequence,
                records,
            } => {
                self.numbered(log, (producer, epoch, sequence), records, bench);
            }
            Op::Expect { log, off_by } => self.expect(log, off_by, bench),
            Op::Asked { log, id, owner } => self.asked(log, id, owner, bench, space),
            Op::Truncate { .. } | Op::Delete { .. } | Op::ChangeLevel { .. } => self.control(&op, bench),
            Op::State { key, change } => self.state(key, change, bench, space),
            Op::Read {
                log,
                percent,
                bytes_max,
            } => self.read(log, percent, bytes_max, bench),
            Op::Reopen => {
                bench.reopen();
                self.check(bench, space);
            }
        }
    }

    fn expect(&mut self, log: usize, off_by: u64, bench: &Bench) {
        let Some(log) = self.pick(log) else { return };
        let values = self.values(1, 0);
        let (id, naive) = &mut self.logs[log];
        let require = smallvec![Precondition::NextOffset {
            log: *id,
            offset: Offset(naive.end() + off_by)
        }];
        let outcome = append(
            bench.journal(),
            Append {
                require,
                ..Append::batch(*id, batch_of(&values))
            },
        );
        if off_by == 0 {
            expect_placed(&outcome, &[(*id, naive.push(&values), false)]);
        } else {
            assert!(
                matches!(outcome, Outcome::Refused(Refusal::NotAtOffset { .. })),
                "{outcome:?}"
            );
        }
    }

    /// Appends under an id, from an owner, or both.
    fn asked(&mut self, log: usize, id: Option<u8>, owner: Option<u64>, bench: &Bench, space: u16) {
        let Some(log) = self.pick(log) else { return };
        let values = self.values(1, 30);
        let (log, naive) = &mut self.logs[log];
        // Ids are remembered permanently, so each case has its own.
        let [one, two] = space.to_le_bytes();
        let request = id.map(|id| {
            let mut bytes = [id; 16];
            bytes[..2].copy_from_slice(&[one, two]);
            RequestId(bytes)
        });
        let outcome = append(
            bench.journal(),
            Append {
                request,
                owner: owner.map(OwnerEpoch),
                ..Append::batch(*log, batch_of(&values))
            },
        );
        if let Some((known, base)) = id.and_then(|id| self.ids.get(&id)) {
            return expect_placed(&outcome, &[(*known, *base, true)]);
        }
        let current = naive.owner;
        if let Some(given) = owner.filter(|given| *given < current) {
            let stale = Refusal::StaleOwner {
                log: *log,
                given: OwnerEpoch(given),
                current: OwnerEpoch(current),
            };
            assert_eq!(outcome, Outcome::Refused(stale));
            return;
        }
        naive.owner = owner.unwrap_or(current);
        let base = naive.push(&values);
        expect_placed(&outcome, &[(*log, base, false)]);
        self.ids.extend(id.map(|id| (id, (*log, base))));
    }

    fn control(&mut self, op: &Op, bench: &Bench) {
        let (Op::Truncate { log, .. } | Op::Delete { log } | Op::ChangeLevel { log, .. }) = *op else {
            return;
        };
        let Some(log) = self.pick(log) else { return };
        let (id, naive) = &mut self.logs[log];
        let id = *id;
        let frame = if let Op::Truncate { percent, .. } = *op {
            let before = naive.end() * percent / 100;
            naive.start = naive.start.max(before.min(naive.end()));
            Frame::Truncate {
                log: id,
                before: Offset(before),
            }
        } else if let Op::ChangeLevel { level, .. } = *op {
            let spec = LogSpec {
                durability: level,
                ..LogSpec::default()
            };
            Frame::ChangeLogs {
                first: id,
                count: 1,
                spec,
            }
        } else {
            self.logs.remove(log);
            Frame::DeleteLogs { first: id, count: 1 }
        };
        control(bench.journal(), [frame]);
    }

    fn fan_out(&mut self, targets: &[(usize, Option<(u32, u32)>)], records: usize, bench: &Bench) {
        if self.logs.is_empty() {
            return;
        }
        let values = self.values(records, 10);
        let mut expected = Vec::new();
        let mut wanted = Vec::new();
        for (log, range) in targets {
            let index = log % self.logs.len();
            let (id, naive) = &mut self.logs[index];
            let (records, part) = match range {
                None => (Selection::All, values.as_slice()),
                Some((first, count)) => {
                    let (from, to) = (*first as usize, (first + count) as usize);
                    (
                        Selection::Range {
                            first: *first,
                            count: *count,
                        },
                        &values[from..to],
                    )
                }
            };
            expected.push((*id, naive.push(part), false));
            wanted.push(Target { log: *id, records });
        }
        let frame = Frame::Batch(BatchFrame {
            body: batch_of(&values),
            targets: wanted.into(),
        });
        let outcome = append(
            bench.journal(),
            Append {
                frames: smallvec![frame],
                ..Append::default()
            },
        );
        expect_placed(&outcome, &expected);
    }

    fn numbered(&mut self, log: usize, numbers: (i64, i16, i32), records: usize, bench: &Bench) {
        let Some(log) = self.pick(log) else { return };
        let (producer, epoch, first) = numbers;
        let values = self.values(records, 20);
        let (id, naive) = &mut self.logs[log];
        let end = first + i32::try_from(records).unwrap();
        let values_ref: Vec<&str> = values.iter().map(String::as_str).collect();
        let body = numbered(&values_ref, producer, epoch, first);
        let outcome = append(bench.journal(), Append::batch(*id, body));
        match naive.judge(producer, epoch, first, end) {
            Ok(Some(base)) => expect_placed(&outcome, &[(*id, base, true)]),
            Ok(None) => {
                let base = naive.push(&values);
                expect_placed(&outcome, &[(*id, base, false)]);
                let known = naive.producers.entry(producer).or_default();
                if known.0 != epoch {
                    *known = (epoch, Vec::new());
                }
                known.1.push((first, end, base));
            }
            Err(()) => {
                let refused = matches!(
                    outcome,
                    Outcome::Refused(Refusal::OutOfSequence { .. } | Refusal::StaleProducer { .. })
                );
                assert!(refused, "{outcome:?}");
            }
        }
    }

    fn state(&mut self, key: u8, kind: u8, bench: &Bench, space: u16) {
        self.count += 1;
        let (name, value) = ("k".repeat(1 + usize::from(key)), self.count.to_string());
        let bytes = Bytes::from(value.clone());
        let change_of = match kind {
            0 => {
                self.state.insert(name.clone(), (Some(value), Vec::new()));
                Change::Put(bytes)
            }
            1 => {
                self.state.entry(name.clone()).or_default().1.push(value);
                Change::Delta(bytes)
            }
            _ => {
                self.state.remove(&name);
                Change::Delete
            }
        };
        let outcome = append(
            bench.journal(),
            Append::state([change(space, &name, change_of)], StateWait::Written),
        );
        assert_eq!(outcome, Outcome::Committed(smallvec![]));
    }

    /// Checks that a read from any offset returns a part of the contents, from the batch with the offset on.
    fn read(&mut self, log: usize, percent: u64, bytes_max: usize, bench: &Bench) {
        let Some(log) = self.pick(log) else { return };
        let (id, naive) = &self.logs[log];
        bench.wait_until_visible(*id, naive.end());
        let from = naive.start + (naive.end() - naive.start) * percent / 100;
        let run = read(bench.journal(), *id, from, bytes_max).unwrap();
        let got: Vec<Seen> = seen(&run).into_iter().filter(|(at, _)| *at >= from).collect();
        let expected: Vec<Seen> = naive
            .records
            .iter()
            .filter(|(at, _)| *at >= from && *at < run.next.0)
            .cloned()
            .collect();
        assert_eq!(got, expected);
        assert!(run.next.0 == from && from == naive.end() || naive.ends.contains(&run.next.0));
    }

    /// Compares everything right after a start: state is only visible as of the start.
    fn check(&self, bench: &Bench, space: u16) {
        for (id, naive) in &self.logs {
            bench.wait_until_visible(*id, naive.end());
            let bounds = bench.journal().bounds(*id).unwrap();
            assert_eq!((bounds.start.0, bounds.end.0), (naive.start, naive.end()));
            assert_eq!(bench.journal().owner(*id), Some(OwnerEpoch(naive.owner)));
            assert_eq!(read_all(bench.journal(), *id, 5000).unwrap(), naive.readable());
        }
        assert_eq!(load(bench.journal(), space), self.state);
    }
}

fn batch_of(values: &[String]) -> Bytes {
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    batch(&values)
}

fn expect_placed(outcome: &Outcome, expected: &[(LogId, u64, bool)]) {
    let Outcome::Committed(placed) = outcome else {
        panic!("{outcome:?}")
    };
    let place = |placed: &PlacedBatch| (placed.log, placed.base.0, placed.duplicate);
    assert_eq!(placed.iter().map(place).collect::<Vec<_>>(), expected);
}

pub fn anything_in_any_order_is_what_a_naive_model_says(bench: &mut Bench) {
    let cases = crate::support::more(24, 2000);
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 300,
        ..Config::default()
    };
    let bench = RefCell::new((bench, 0_u16));
    TestRunner::new(config)
        .run(&ops(), |ops| {
            let (bench, space) = &mut *bench.borrow_mut();
            *space = space.wrapping_add(1);
            let mut naive = Naive::default();
            for op in ops {
                naive.run(op, bench, *space);
            }
            bench.reopen();
            naive.check(bench, *space);
            for (id, _) in naive.logs {
                control(bench.journal(), [Frame::DeleteLogs { first: id, count: 1 }]);
            }
            Ok(())
        })
        .unwrap();
}
