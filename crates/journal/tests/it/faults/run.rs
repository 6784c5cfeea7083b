//! A run of the journal on a simulated disk, and its ledger.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use stafett_journal::disk::RewritePolicy;
use stafett_journal::simulated::SimulatedDisk;
use stafett_journal::{
    Append, BatchFrame, Change, DiskJournal, Frame, Journal, LogSpec, Metrics, OpenError, Outcome,
    OwnerEpoch, Refusal, Selection, Settings, StateChange, StateSpace, StateWait, Target,
};
use stafett_model::{BatchBuilder, Codec, Durability, LogId, Offset, ProducerId, Record};

use super::ledger::{Failure, HeldLog, Holding, Kind, Ledger};
use super::named::{self, Asked};

pub const SEGMENT_BYTES: u32 = 16 << 10;
/// Size above which a batch is written in chunks.
const CUT_BYTES: usize = 3900;

/// Returns settings for a disk whose machine was booted `boots` times.
pub fn settings(boots: u8) -> Settings {
    let time = AtomicI64::new(1_000_000);
    Settings {
        segment_bytes: SEGMENT_BYTES,
        tail_cache_bytes: 8 << 10,
        checkpoint_bytes: 1 << 40,
        disk_free_bytes_min: 0,
        rewrite: RewritePolicy {
            young: Duration::ZERO,
            merge_bytes: 20 << 10,
            dead_bytes_tolerated: 0,
            ..RewritePolicy::default()
        },
        rewrite_bytes_per_second: u64::MAX,
        boot: [boots; 16],
        clock: stafett_journal::disk::Clock::new(move || time.fetch_add(1, Ordering::Relaxed)),
        threads: false,
        ..Settings::default()
    }
}

pub fn open(disk: &SimulatedDisk, boots: u8) -> Result<DiskJournal, OpenError> {
    DiskJournal::open_on(disk.storage(), settings(boots), Metrics::new())
}

pub struct Run {
    pub disk: SimulatedDisk,
    pub journal: Arc<DiskJournal>,
    pub ledger: Ledger,
    boots: u8,
    values: u32,
}

/// Target of a batch: a log, and its records of the batch.
pub type Part = (LogId, Option<(u32, u32)>);

impl Run {
    /// Starts the first run on a disk.
    pub fn start(disk: &SimulatedDisk) -> Result<Self, OpenError> {
        let journal = Arc::new(open(disk, 1)?);
        let ledger = Ledger::starting_with(Holding::default(), Ledger::default());
        Ok(Self {
            disk: disk.clone(),
            journal,
            ledger,
            boots: 1,
            values: 0,
        })
    }

    /// Returns the ledger of a run that ended, with or without a failure.
    pub fn into_ledger(mut self) -> Ledger {
        self.ledger.poll();
        drop(self.journal);
        self.ledger.poll();
        assert_eq!(self.ledger.unresolved(), 0, "a ticket was never resolved");
        self.ledger
    }

    /// Continues after a failure: opens the journal and checks its contents.
    pub fn recover(disk: &SimulatedDisk, ledger: Ledger, failure: Failure, boots: u8) -> Self {
        let journal = match open(disk, boots) {
            Ok(journal) => Arc::new(journal),
            Err(error) => panic!("the journal cannot be opened again: {error}"),
        };
        assert!(!journal.report().is_damaged(), "{:?}", journal.report());
        let ledger = ledger.check(&*journal, failure);
        Self {
            disk: disk.clone(),
            journal,
            ledger,
            boots,
            values: 1_000_000 * u32::from(boots),
        }
    }

    /// Kills and restarts the program: the findings of recovery must not change.
    pub fn restart(self) -> Self {
        self.disk.kill();
        let (disk, boots, values) = (self.disk.clone(), self.boots, self.values);
        let ledger = self.into_ledger();
        Self {
            values: values + 100_000,
            ..Self::recover(&disk, ledger, Failure::Kill, boots)
        }
    }

    /// Checks the currently readable contents.
    pub fn check_live(&self) {
        let seen = Holding::logs_of(&*self.journal, self.ledger.logs(), self.ledger.now()).unwrap();
        self.ledger.check_live(&seen, self.is_over());
    }

    pub fn is_over(&self) -> bool {
        self.journal.failure().is_some()
    }

    pub fn pump(&mut self) {
        self.journal.pump();
        self.ledger.poll();
    }

    /// Returns `count` unique values of about `bytes` bytes.
    fn values(&mut self, count: usize, bytes: usize) -> Vec<Rc<str>> {
        let mut value = || {
            self.values += 1;
            format!("{:07} {}", self.values, "v".repeat(bytes)).into()
        };
        (0..count).map(|_| value()).collect()
    }

    pub fn create(&mut self, level: Durability) -> LogId {
        let first = self.journal.allocate(1);
        let spec = LogSpec {
            durability: level,
            ..LogSpec::default()
        };
        self.control(
            Frame::CreateLogs {
                first,
                count: 1,
                spec,
            },
            move |now| {
                now.logs.insert(first, HeldLog::new(level));
            },
        );
        first
    }

    pub fn change_level(&mut self, log: LogId, level: Durability) {
        let spec = LogSpec {
            durability: level,
            ..LogSpec::default()
        };
        self.control(
            Frame::ChangeLogs {
                first: log,
                count: 1,
                spec,
            },
            move |now| {
                now.logs.get_mut(&log).unwrap().level = level;
            },
        );
    }

    pub fn delete(&mut self, log: LogId) {
        self.control(Frame::DeleteLogs { first: log, count: 1 }, move |now| {
            drop(now.logs.remove(&log));
        });
    }

    pub fn truncate(&mut self, log: LogId, before: u64) {
        self.control(
            Frame::Truncate {
                log,
                before: Offset(before),
            },
            move |now| {
                now.logs.get_mut(&log).unwrap().truncate(before);
            },
        );
    }

    /// Takes a log over.
    pub fn claim(&mut self, log: LogId, owner: u64) {
        let frame = Frame::Claim {
            log,
            owner: OwnerEpoch(owner),
        };
        let kind = Kind {
            level: Durability::Sync,
            logs: BTreeSet::from([log]),
            ..Kind::default()
        };
        let ticket = self
            .journal
            .append(vec![Append::state([frame], StateWait::Synced)]);
        self.ledger.note(ticket, kind, move |now| {
            let held = now.logs.get_mut(&log).unwrap();
            held.owner = held.owner.max(owner);
            Vec::new()
        });
    }

    /// Appends as an owner that a later one has replaced, which has to be refused.
    pub fn stale(&mut self, log: LogId) {
        let owner = self.ledger.now().logs.get(&log).map_or(0, |held| held.owner);
        if owner == 0 || self.is_over() {
            return;
        }
        let values = self.values(1, 30);
        let stale = Append {
            owner: Some(OwnerEpoch(owner - 1)),
            ..Append::batch(log, batch(&values, None))
        };
        let outcomes = self.journal.append(vec![stale]).wait();
        let wanted = Outcome::Refused(Refusal::StaleOwner {
            log,
            given: OwnerEpoch(owner - 1),
            current: OwnerEpoch(owner),
        });
        assert_eq!(outcomes.as_slice(), [wanted]);
    }

    fn control(&mut self, frame: Frame, effect: impl Fn(&mut Holding) + 'static) {
        let logs = match &frame {
            Frame::CreateLogs { first: log, .. }
            | Frame::ChangeLogs { first: log, .. }
            | Frame::DeleteLogs { first: log, .. }
            | Frame::Truncate { log, .. }
            | Frame::Claim { log, .. } => BTreeSet::from([*log]),
            Frame::Batch(_) | Frame::State(_) => BTreeSet::new(),
        };
        let ticket = self
            .journal
            .append(vec![Append::state([frame], StateWait::Synced)]);
        let kind = Kind {
            level: Durability::Sync,
            logs,
            has_state: true,
            ..Kind::default()
        };
        self.ledger.note(ticket, kind, move |now| {
            effect(now);
            Vec::new()
        });
    }

    pub fn append(&mut self, log: LogId, records: usize, bytes: usize) {
        self.fan_out(&[(log, None)], records, bytes);
    }

    pub fn fan_out(&mut self, parts: &[Part], records: usize, bytes: usize) {
        let values = self.values(records, bytes);
        let body = batch(&values, None);
        self.store(vec![(body, values, parts.to_vec())], Vec::new());
    }

    /// Appends at a level below the log's.
    pub fn lowered(&mut self, log: LogId, level: Durability, bytes: usize) {
        let values = self.values(1, bytes);
        let body = batch(&values, None);
        let asked = Asked::default().at(level);
        self.store_as(asked, vec![(body, values, vec![(log, None)])], Vec::new());
    }

    /// Appends a batch to each of several logs, atomically, under an id or from an owner.
    pub fn asked(&mut self, asked: Asked, logs: &[LogId], bytes: usize, state: Vec<StateChange>) {
        let mut batches = Vec::new();
        for log in logs {
            let values = self.values(1, bytes);
            batches.push((batch(&values, None), values, vec![(*log, None)]));
        }
        self.store_as(asked, batches, state);
    }

    /// Sends different contents under a known id: nothing is stored, and the places of the first append are
    /// returned.
    pub fn again(&mut self, id: u8) {
        let now = self.ledger.now();
        let known = now.state.get(&named::key(id)).and_then(|kept| kept.0.clone());
        let (Some(places), Some(log)) = (known, now.logs.keys().next().copied()) else {
            return;
        };
        let values = self.values(1, 20);
        let ticket = self.journal.append(vec![Append {
            request: Asked::named(id).request(),
            ..Append::batch(log, batch(&values, None))
        }]);
        // Its guarantee is that of the first append.
        let kind = Kind {
            level: Durability::Memory,
            again: Some((id, places)),
            ..Kind::default()
        };
        self.ledger.note(ticket, kind, |_| Vec::new());
    }

    /// Appends a batch of an idempotent producer.
    pub fn numbered(&mut self, log: LogId, sequence: i32, bytes: usize) {
        let values = self.values(1, bytes);
        let body = batch(&values, Some(sequence));
        self.store(vec![(body, values, vec![(log, None)])], Vec::new());
    }

    /// Appends several batches and changes of state, atomically.
    pub fn together(&mut self, logs: &[LogId], bytes: usize, state: Vec<StateChange>) {
        let mut batches = Vec::new();
        for log in logs {
            let values = self.values(2, bytes);
            batches.push((batch(&values, None), values, vec![(*log, None)]));
        }
        self.store(batches, state);
    }

    fn store(&mut self, batches: Vec<(Bytes, Vec<Rc<str>>, Vec<Part>)>, state: Vec<StateChange>) {
        self.store_as(Asked::default(), batches, state);
    }

    fn store_as(
        &mut self,
        asked: Asked,
        batches: Vec<(Bytes, Vec<Rc<str>>, Vec<Part>)>,
        state: Vec<StateChange>,
    ) {
        let mut frames: SmallVec<[Frame; 1]> = state.iter().cloned().map(Frame::State).collect();
        let mut level = Durability::Memory;
        for (body, _, parts) in &batches {
            let targets = parts.iter().map(|(log, range)| {
                let held = self
                    .ledger
                    .now()
                    .logs
                    .get(log)
                    .map_or(Durability::Memory, |log| log.level);
                level = stricter(level, held);
                let records =
                    range.map_or(Selection::All, |(first, count)| Selection::Range { first, count });
                Target { log: *log, records }
            });
            frames.push(Frame::Batch(BatchFrame {
                targets: targets.collect(),
                body: body.clone(),
            }));
        }
        let ticket = self.journal.append(vec![Append {
            frames,
            level: asked.level,
            request: asked.request(),
            owner: asked.epoch(),
            ..Append::default()
        }]);
        let targets = batches.iter().flat_map(|(_, _, parts)| parts);
        let kind = Kind {
            level: asked.level.map_or(level, |lowered| level.or_lower(lowered)),
            logs: targets.map(|(log, _)| *log).collect(),
            has_state: !state.is_empty(),
            // Smaller ones fit into a group of segments of this size.
            is_cut: batches.iter().map(|(body, _, _)| body.len()).sum::<usize>() > CUT_BYTES,
            id: asked.id,
            again: None,
        };
        self.ledger.note(ticket, kind, move |now| {
            let (mut places, mut bases) = (Vec::new(), Vec::new());
            for (_, values, parts) in &batches {
                for (log, range) in parts {
                    let held = now.logs.get_mut(log).unwrap();
                    held.owner = held.owner.max(asked.owner.unwrap_or(0));
                    bases.push((*log, held.next));
                    let values = match range {
                        None => &values[..],
                        Some((first, count)) => &values[*first as usize..(first + count) as usize],
                    };
                    places.extend(held.push(values).into_iter().map(|(at, value)| (*log, at, value)));
                }
            }
            state.iter().for_each(|change| apply(now, change));
            if let Some(id) = asked.id {
                now.state
                    .insert(named::key(id), (Some(named::places(bases)), Vec::new()));
            }
            places
        });
    }

    pub fn state(&mut self, change: StateChange, wait: StateWait) {
        let ticket = self
            .journal
            .append(vec![Append::state([Frame::State(change.clone())], wait)]);
        let level = match wait {
            StateWait::Synced => Durability::Sync,
            StateWait::Written => Durability::Os,
        };
        let kind = Kind {
            level,
            has_state: true,
            ..Kind::default()
        };
        self.ledger.note(ticket, kind, move |now| {
            apply(now, &change);
            Vec::new()
        });
    }

    /// Appends to every log, which has to work, and checks the contents again.
    pub fn go_on(mut self) -> Self {
        let logs: Vec<_> = self.ledger.now().logs.keys().copied().collect();
        for log in &logs {
            self.append(*log, 2, 50);
        }
        self.state(put(3, "after", "recovery"), StateWait::Synced);
        // A known id returns the old places; an unknown one is stored now.
        let mut ids = self.ledger.ids().clone();
        if logs.is_empty() {
            ids.clear();
        }
        for id in &ids {
            if self.ledger.now().state.contains_key(&named::key(*id)) {
                self.again(*id);
            } else {
                self.asked(Asked::named(*id), &logs[..1], 40, Vec::new());
            }
        }
        logs.iter().for_each(|log| self.stale(*log));
        self.pump();
        assert_eq!(
            self.ledger.acknowledged(),
            logs.len() + 1 + ids.len(),
            "{:?}",
            self.journal.failure()
        );
        let run = self.restart();
        run.journal.close();
        let (disk, boots) = (run.disk.clone(), run.boots);
        let ledger = run.into_ledger();
        Self::recover(&disk, ledger, Failure::None, boots)
    }
}

pub fn put(space: u16, key: &str, value: &str) -> StateChange {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    StateChange {
        space: StateSpace(space),
        key: bytes(key),
        change: Change::Put(bytes(value)),
    }
}

pub fn delta(space: u16, key: &str, value: &str) -> StateChange {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    StateChange {
        space: StateSpace(space),
        key: bytes(key),
        change: Change::Delta(bytes(value)),
    }
}

pub fn remove(space: u16, key: &str) -> StateChange {
    let key = Bytes::copy_from_slice(key.as_bytes());
    StateChange {
        space: StateSpace(space),
        key,
        change: Change::Delete,
    }
}

fn apply(now: &mut Holding, change: &StateChange) {
    let text = |bytes: &Bytes| Rc::from(std::str::from_utf8(bytes).unwrap());
    let key = (change.space.0, String::from_utf8(change.key.to_vec()).unwrap());
    match &change.change {
        Change::Put(value) => drop(now.state.insert(key, (Some(text(value)), Vec::new()))),
        Change::Delta(delta) => now.state.entry(key).or_default().1.push(text(delta)),
        Change::Delete => drop(now.state.remove(&key)),
    }
}

/// A batch, of an idempotent producer if it has a sequence number.
pub(super) fn batch(values: &[Rc<str>], sequence: Option<i32>) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None);
    if let Some(sequence) = sequence {
        builder = builder.producer(ProducerId(77), 0, sequence);
    }
    for value in values {
        let record = Record {
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
            timestamp: 5,
        };
        builder.push(&record).unwrap();
    }
    builder.finish().unwrap()
}

fn stricter(one: Durability, other: Durability) -> Durability {
    if one.or_lower(other) == one { other } else { one }
}
