//! Random appends, passes, restarts, truncations and steps of time, against the model.

use std::collections::BTreeMap;

use stafett_journal::{Append, Frame, LogSpec, StateWait};
use stafett_model::{Codec, LogId, Offset};

use super::bench::{Bench, KeyValue, Model, batch, eager, pair, tombstone};
use crate::support;

/// A generator that is the same on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, count: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count
    }
}

const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

struct Script {
    bench: Bench,
    random: Random,
    compacted: BTreeMap<LogId, Model>,
    /// A log that is not compacted, and its values.
    plain: (LogId, Vec<String>),
    /// Next sequence number of the producer of each log.
    sequences: BTreeMap<LogId, i32>,
    keys: u64,
}

impl Script {
    fn new(seed: u64, map_bytes: usize) -> Self {
        let bench = Bench::new(map_bytes);
        let compacted = [(); 3].map(|()| (bench.compacted(eager()), Model::default()));
        let plain = (bench.create(LogSpec::default()), Vec::new());
        Self {
            bench,
            random: Random(seed),
            compacted: compacted.into_iter().collect(),
            plain,
            sequences: BTreeMap::new(),
            keys: 5 + seed % 60,
        }
    }

    fn records(&mut self) -> Vec<KeyValue> {
        let count = 1 + self.random.below(8);
        let mut record = || {
            let key = format!("key {}", self.random.below(self.keys));
            match self.random.below(5) {
                0 => tombstone(&key),
                _ => pair(&key, &"v".repeat(self.random.below(300).try_into().unwrap())),
            }
        };
        (0..count).map(|_| record()).collect()
    }

    fn log(&mut self) -> LogId {
        let index = self.random.below(3).try_into().unwrap();
        *self.compacted.keys().nth(index).unwrap()
    }

    fn append(&mut self) {
        let (log, records) = (self.log(), self.records());
        let codec = CODECS[usize::try_from(self.random.below(5)).unwrap()];
        let now = self.bench.now_ms();
        let base = match self.random.below(4) {
            0 => {
                let sequence = self.sequences.entry(log).or_default();
                let body = batch(codec, &records, now, Some((7, *sequence)));
                *sequence += i32::try_from(records.len()).unwrap();
                let base = self.bench.put(log, body.clone()).base;
                assert!(self.bench.put(log, body).duplicate, "sent again, it is known");
                base
            }
            1 if records.len() > 1 => {
                let other = *self.compacted.keys().find(|id| **id != log).unwrap();
                let body = batch(codec, &records, now, None);
                let count = records.len().try_into().unwrap();
                let (base, part) = self.bench.put_shared(log, other, body, count);
                self.compacted
                    .get_mut(&other)
                    .unwrap()
                    .append(part, &records[1..], now + 1);
                base
            }
            _ => self.bench.put(log, batch(codec, &records, now, None)).base,
        };
        self.compacted.get_mut(&log).unwrap().append(base, &records, now);
    }

    fn append_plain(&mut self) {
        let value = format!("{} {}", self.plain.1.len(), "p".repeat(200));
        self.bench.put(self.plain.0, support::batch(&[&value]));
        self.plain.1.push(value);
    }

    fn truncate(&mut self) {
        let log = self.log();
        let bounds = stafett_journal::Journal::bounds(&*self.bench.journal, log).unwrap();
        let before = Offset(bounds.start.0 + self.random.below(bounds.end.0 - bounds.start.0 + 1) / 4);
        self.bench.store(Append::state(
            [Frame::Truncate { log, before }],
            StateWait::Synced,
        ));
        self.compacted.get_mut(&log).unwrap().truncate(before.0);
    }

    fn check(&self) {
        for (log, model) in &self.compacted {
            model.check(&self.bench.read(*log), self.bench.now_ms());
        }
        let read = support::read_all(&*self.bench.journal, self.plain.0, 3000).unwrap();
        assert_eq!(read, support::listed(self.plain.1.iter().map(String::as_str)));
    }

    fn settle(mut self) -> Self {
        self.bench = self.bench.settle();
        for (log, model) in &mut self.compacted {
            model.check_settled(&self.bench.read(*log), self.bench.now_ms());
        }
        self
    }

    fn run(mut self, steps: usize) {
        for _ in 0..steps {
            match self.random.below(40) {
                0..=23 => self.append(),
                24..=29 => self.append_plain(),
                30..=31 => self.bench.advance(3000),
                32 => self.truncate(),
                33..=34 => self.bench.journal.checkpoint(),
                35..=36 => drop(self.bench.journal.rewrite()),
                37 => {
                    let is_killed = self.random.below(2) == 0;
                    self.bench = self.bench.restart(is_killed);
                }
                38 => self = self.settle(),
                _ => self.check(),
            }
        }
        self = self.settle();
        self.check();
    }
}

#[test]
fn the_newest_record_of_each_key_stays_and_nothing_else() {
    for seed in 0..support::more(12, 2000) {
        Script::new(seed, 1 << 20).run(250);
    }
}

/// The offset map holds a few keys, so every log takes several passes.
#[test]
fn a_small_offset_map_takes_more_passes_to_the_same_end() {
    for seed in 100..support::more(108, 1000) {
        Script::new(seed, 24 * (4 + usize::try_from(seed).unwrap() % 30)).run(250);
    }
}
