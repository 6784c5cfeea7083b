//! The program is killed, the power is lost or the disk fails at every change of the disk during compaction.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use stafett_journal::Journal;
use stafett_journal::simulated::{Effect, Fault, SimulatedDisk};
use stafett_model::{Codec, LogId};

use super::bench::{BEGIN_MS, Bench, Model, batch, eager, pair, tombstone, try_open};
use super::model::Random;
use crate::support::{listed, more, numbered, read_all};

const MAP_BYTES: usize = 24 * 30;

struct Prepared {
    disk: SimulatedDisk,
    log: LogId,
    model: Model,
    plain: (LogId, Vec<String>),
}

/// Fills some segments with a compacted log and another one, and stops.
fn prepare() -> Prepared {
    let bench = Bench::new(MAP_BYTES);
    let (log, other) = (bench.compacted(eager()), bench.create(<_>::default()));
    let (mut model, mut values, mut random) = (Model::default(), Vec::new(), Random(3));
    for round in 0..60 {
        let records: Vec<_> = (0..4)
            .map(|_| match random.below(16) {
                0 => tombstone("gone"),
                key => pair(&format!("{key}"), &"v".repeat(100)),
            })
            .collect();
        let codec = if round % 3 == 0 { Codec::Lz4 } else { Codec::None };
        let base = bench.put(log, batch(codec, &records, BEGIN_MS, None)).base;
        model.append(base, &records, BEGIN_MS);
        let value = format!("{round} {}", "p".repeat(150));
        bench.put(other, numbered(&[&value], 5, 0, round));
        values.push(value);
    }
    bench.journal.close();
    Prepared {
        disk: bench.disk,
        log,
        model,
        plain: (other, values),
    }
}

impl Prepared {
    /// Opens, compacts and closes; the disk may stop anywhere.
    fn compact(disk: &SimulatedDisk) {
        let now = Arc::new(AtomicI64::new(BEGIN_MS));
        if let Ok(journal) = try_open(disk, &now, MAP_BYTES, 1) {
            journal.checkpoint();
            journal.rewrite();
            journal.close();
        }
    }

    fn check(&self, disk: SimulatedDisk, boots: u8) {
        let now = Arc::new(AtomicI64::new(BEGIN_MS));
        let bench = Bench::booted(disk, now, MAP_BYTES, boots);
        assert!(
            !bench.journal.report().is_damaged(),
            "{:?}",
            bench.journal.report()
        );
        let mut model = self.model.clone();
        model.check(&bench.read(self.log), bench.now_ms());
        bench.journal.checkpoint();
        bench.journal.rewrite();
        let bench = bench.settle();
        model.check_settled(&bench.read(self.log), bench.now_ms());
        let read = read_all(&*bench.journal, self.plain.0, 3000).unwrap();
        assert_eq!(read, listed(self.plain.1.iter().map(String::as_str)));
    }
}

fn stop_everywhere(effect: impl Fn(u64) -> Effect, boots: u8, step: u64) {
    let prepared = prepare();
    let first = prepared.disk.changes() + 1;
    let whole = prepared.disk.fork();
    Prepared::compact(&whole);
    let last = whole.changes();
    assert!(
        last > first + 100,
        "compaction changes the disk {} times",
        last - first
    );
    for change in (first..=last).step_by(usize::try_from(step).unwrap()) {
        let disk = prepared.disk.fork();
        let effect = effect(change);
        disk.set_fault(Some(Fault { change, effect }));
        Prepared::compact(&disk);
        disk.set_fault(None);
        disk.kill();
        prepared.check(disk, boots);
    }
}

#[test]
fn a_kill_anywhere_in_a_pass_loses_nothing() {
    stop_everywhere(|seed| Effect::Kill { seed }, 1, more(3, 1));
}

#[test]
fn a_loss_of_power_anywhere_in_a_pass_loses_nothing() {
    stop_everywhere(|_| Effect::PowerLoss, 2, more(3, 1));
}

#[test]
fn a_failing_change_anywhere_in_a_pass_loses_nothing() {
    stop_everywhere(|_| Effect::Error, 1, more(3, 1));
}

#[test]
fn a_full_disk_anywhere_in_a_pass_loses_nothing() {
    stop_everywhere(|_| Effect::Full, 1, more(3, 1));
}
