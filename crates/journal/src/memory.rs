//! A journal in memory: for tests of the layers above, and if nothing has to survive the process.
//!
//! It implements the contract with the simplest structures. Every level is reached at once: tickets are
//! settled and batches visible before `append` returns. One lock over everything makes appends atomic.
//! [`MemoryJournal::reopen`] simulates a restart with its contents; a failure loses them.

mod log;
pub(crate) mod state;

use std::collections::BTreeMap;

use smallvec::SmallVec;
use stafett_model::{BatchHeader, Epoch, Lock, LockGuard, LogId};

use self::log::MemoryLog;
use self::state::{KeyedState, visit_space};
use crate::contract::{
    Append, BatchFrame, Bounds, Frame, Journal, OpenTransaction, Outcome, OwnerEpoch, PlacedBatch,
    Precondition, ProducerStatus, ReadError, ReadRequest, Refusal, RequestId, StateItem, StateSpace,
    StateUnreadable, Target, TimeQuery,
};
use crate::disk::producers::{SequenceCheck, SequencedBatch};
use crate::disk_space::DiskSpace;
use crate::request_ids::Requests;
use crate::ticket::{ReadTicket, Ticket, TimeTicket};
use crate::watch::Watch;

/// A journal in memory.
#[derive(Debug)]
pub struct MemoryJournal {
    epoch: Epoch,
    /// State as of opening.
    opened: KeyedState,
    content: Lock<Content>,
}

#[derive(Debug, Default)]
struct Content {
    next_log: u64,
    logs: BTreeMap<LogId, MemoryLog>,
    state: KeyedState,
    requests: Requests<()>,
    closed: bool,
}

impl MemoryJournal {
    /// Creates an empty journal.
    pub fn new() -> Self {
        let content = Content {
            next_log: 1,
            ..Content::default()
        };
        Self {
            epoch: Epoch(1),
            opened: KeyedState::default(),
            content: Lock::new(content),
        }
    }

    /// Closes this journal and opens another one with its contents, as a restart of the program would.
    #[must_use]
    pub fn reopen(&self) -> Self {
        let mut content = self.lock();
        let taken = std::mem::replace(
            &mut *content,
            Content {
                closed: true,
                ..Content::default()
            },
        );
        drop(content);
        let logs = taken
            .logs
            .into_iter()
            .map(|(id, log)| (id, log.without_watchers()))
            .collect();
        Self {
            epoch: Epoch(self.epoch.0 + 1),
            opened: taken.state.clone(),
            content: Lock::new(Content {
                logs,
                closed: false,
                ..taken
            }),
        }
    }

    fn lock(&self) -> LockGuard<'_, Content> {
        self.content.lock()
    }
}

impl Default for MemoryJournal {
    fn default() -> Self {
        Self::new()
    }
}

impl Journal for MemoryJournal {
    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn allocate(&self, count: u32) -> LogId {
        let mut content = self.lock();
        let first = LogId(content.next_log);
        content.next_log += u64::from(count);
        first
    }

    fn append(&self, appends: Vec<Append>) -> Ticket {
        let (ticket, settlers) = Ticket::new(appends.len());
        let mut content = self.lock();
        for (append, settler) in appends.into_iter().zip(settlers) {
            settler.settle(match content.append(append, self.epoch) {
                Ok(placed) => Outcome::Committed(placed),
                Err(refusal) => Outcome::Refused(refusal),
            });
        }
        ticket
    }

    fn knows(&self, request: RequestId) -> bool {
        self.lock().requests.contains(request)
    }

    fn bounds(&self, log: LogId) -> Option<Bounds> {
        Some(self.lock().logs.get(&log)?.bounds())
    }

    fn filled(&self) -> Vec<(LogId, Bounds)> {
        let state = self.lock();
        let bounds = state.logs.iter().map(|(id, log)| (*id, log.bounds()));
        bounds.filter(|(_, bounds)| bounds.has_any()).collect()
    }

    fn owner(&self, log: LogId) -> Option<OwnerEpoch> {
        Some(self.lock().logs.get(&log)?.owner)
    }

    fn producers(&self, log: LogId) -> Option<Vec<ProducerStatus>> {
        Some(self.lock().logs.get(&log)?.producers.seen())
    }

    fn open_transactions(&self) -> Vec<OpenTransaction> {
        let content = self.lock();
        let logs = content.logs.iter();
        logs.flat_map(|(id, log)| log.producers.open_transactions(*id))
            .collect()
    }

    fn read(&self, request: ReadRequest) -> ReadTicket {
        let content = self.lock();
        let (mut bytes_left, mut whole) = (request.bytes_max, request.first_batch_whole);
        let read = request.logs.into_iter().map(|from| {
            let log = content
                .logs
                .get(&from.log)
                .ok_or(ReadError::NoSuchLog(from.log))?;
            let run = log.read(from, bytes_left, whole)?;
            bytes_left = bytes_left.saturating_sub(run.bytes);
            whole &= run.bytes == 0;
            Ok(run)
        });
        ReadTicket::Ready(read.collect())
    }

    fn find_time(&self, log: LogId, query: TimeQuery) -> TimeTicket {
        let content = self.lock();
        TimeTicket::Ready(match content.logs.get(&log) {
            Some(log) => log.find_time(query),
            None => Err(ReadError::NoSuchLog(log)),
        })
    }

    fn watch_log(&self, watch: &Watch, log: LogId, token: u32) -> bool {
        let mut content = self.lock();
        let Some(log) = content.logs.get_mut(&log) else {
            return false;
        };
        log.watchers.add(watch.watcher(token));
        true
    }

    fn space(&self) -> DiskSpace {
        DiskSpace::default()
    }

    fn load_state(
        &self,
        space: StateSpace,
        visit: &mut dyn FnMut(StateItem<'_>),
    ) -> Result<(), StateUnreadable> {
        visit_space(&self.opened, space, visit);
        Ok(())
    }

    fn failure(&self) -> Option<String> {
        None
    }

    fn close(&self) {
        self.lock().closed = true;
    }
}

impl Content {
    /// Checks the whole append first, then applies it.
    fn append(&mut self, append: Append, epoch: Epoch) -> Result<SmallVec<[PlacedBatch; 1]>, Refusal> {
        if self.closed {
            return Err(Refusal::Closed);
        }
        if let Some((placed, ())) = append.request.and_then(|id| self.requests.find(id)) {
            return Ok(placed);
        }
        self.check_owner(append.owner, &append.frames)?;
        for required in append.require {
            self.check_required(required)?;
        }
        let duplicates: Vec<Option<PlacedBatch>> = append
            .frames
            .iter()
            .map(|frame| self.check(frame))
            .collect::<Result<_, _>>()?;
        let mut placed = SmallVec::new();
        for (frame, duplicate) in append.frames.into_iter().zip(duplicates) {
            match (frame, duplicate) {
                (_, Some(duplicate)) => placed.push(duplicate),
                (Frame::Batch(batch), None) => {
                    if let Some(owner) = append.owner {
                        for target in &batch.targets {
                            self.own(target.log, owner);
                        }
                    }
                    self.store(&batch, epoch, &mut placed);
                }
                (control, None) => self.control(control),
            }
        }
        if let Some(id) = append.request {
            drop(self.requests.note(id, placed.clone(), ()));
        }
        Ok(placed)
    }

    /// Refuses the append if a log that it changes has had a later owner.
    fn check_owner(&self, given: Option<OwnerEpoch>, frames: &[Frame]) -> Result<(), Refusal> {
        let check = |log: LogId, given: OwnerEpoch| {
            let current = self.log(log)?.owner;
            if given < current {
                return Err(Refusal::StaleOwner { log, given, current });
            }
            Ok(())
        };
        for frame in frames {
            match (frame, given) {
                (Frame::Claim { log, owner }, _) => check(*log, *owner)?,
                (Frame::Batch(batch), Some(given)) => {
                    batch
                        .targets
                        .iter()
                        .try_for_each(|target| check(target.log, given))?;
                }
                (Frame::Truncate { log, .. }, Some(given)) => check(*log, given)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn check_required(&self, required: Precondition) -> Result<(), Refusal> {
        let known = self.log(required.log())?;
        match required {
            Precondition::NextOffset { log, offset } if known.next != offset => Err(Refusal::NotAtOffset {
                log,
                next: known.next,
                expected: offset,
            }),
            Precondition::HasBatchesOf { log, producer, first }
                if !known.producers.has_batches_of(producer) =>
            {
                SequenceCheck::unknown(first).verdict(log, producer).map(|_| ())
            }
            Precondition::NextOffset { .. } | Precondition::HasBatchesOf { .. } => Ok(()),
        }
    }

    fn own(&mut self, log: LogId, owner: OwnerEpoch) {
        if let Some(log) = self.logs.get_mut(&log) {
            log.owner = log.owner.max(owner);
        }
    }

    fn log(&self, id: LogId) -> Result<&MemoryLog, Refusal> {
        self.logs.get(&id).ok_or(Refusal::NoSuchLog(id))
    }

    /// Checks that a frame can be stored; returns the place of a duplicate batch.
    fn check(&self, frame: &Frame) -> Result<Option<PlacedBatch>, Refusal> {
        match frame {
            Frame::Batch(batch) => return self.check_batch(batch),
            Frame::ChangeLogs { first, count, .. } | Frame::DeleteLogs { first, count } => {
                for id in ids(*first, *count) {
                    self.log(id)?;
                }
            }
            Frame::Truncate { log, .. } | Frame::Claim { log, .. } => drop(self.log(*log)?),
            Frame::State(_) | Frame::CreateLogs { .. } => {}
        }
        Ok(None)
    }

    fn check_batch(&self, batch: &BatchFrame) -> Result<Option<PlacedBatch>, Refusal> {
        let header = header_of(batch);
        for Target { log, records } in &batch.targets {
            let span = log::span_of(&header, *records);
            if self.log(*log)?.next.checked_add(span.into()).is_none() {
                return Err(Refusal::OffsetsExhausted(*log));
            }
        }
        if header.is_control() {
            return self.check_control(&header, &batch.targets).map(|()| None);
        }
        let ([target], Some(numbered)) = (batch.targets.as_slice(), SequencedBatch::of(&header)) else {
            return Ok(None);
        };
        let (log, producer) = (target.log, numbered.producer);
        let verdict = self.log(log)?.producers.judge(numbered).verdict(log, producer)?;
        Ok(verdict.map(|base| PlacedBatch {
            log,
            base,
            duplicate: true,
        }))
    }

    fn check_control(&self, header: &BatchHeader, targets: &[Target]) -> Result<(), Refusal> {
        let (Some(producer), given) = (header.producer(), header.producer_epoch) else {
            return Ok(());
        };
        for Target { log, .. } in targets {
            if let Some(current) = self.log(*log)?.producers.later_epoch(producer, given) {
                return Err(Refusal::StaleProducer {
                    log: *log,
                    producer,
                    given,
                    current,
                });
            }
        }
        Ok(())
    }

    fn store(&mut self, batch: &BatchFrame, epoch: Epoch, placed: &mut SmallVec<[PlacedBatch; 1]>) {
        let header = header_of(batch);
        for target in &batch.targets {
            let Some(log) = self.logs.get_mut(&target.log) else {
                continue;
            };
            let base = log.push(&batch.body, &header, target.records, epoch);
            log.note_producer(&header, &batch.body, batch.targets.len() > 1, base);
            placed.push(PlacedBatch {
                log: target.log,
                base,
                duplicate: false,
            });
        }
    }

    fn control(&mut self, frame: Frame) {
        match frame {
            Frame::State(change) => self.state.apply(change),
            Frame::CreateLogs { first, count, spec } => {
                for id in ids(first, count) {
                    self.logs.entry(id).or_insert_with(|| MemoryLog::new(id, spec));
                }
            }
            Frame::ChangeLogs { first, count, spec } => {
                for (_, log) in self.logs.range_mut(first..LogId(first.0 + u64::from(count))) {
                    log.spec = spec;
                }
            }
            Frame::DeleteLogs { first, count } => {
                for id in ids(first, count) {
                    self.logs.remove(&id);
                }
            }
            Frame::Truncate { log, before } => {
                if let Some(log) = self.logs.get_mut(&log) {
                    log.truncate(before);
                }
            }
            Frame::Claim { log, owner } => self.own(log, owner),
            Frame::Batch(_) => unreachable!("batches are stored as such"),
        }
    }
}

fn header_of(batch: &BatchFrame) -> BatchHeader {
    BatchHeader::parse(&batch.body).expect("the caller has verified the batch")
}

fn ids(first: LogId, count: u32) -> impl Iterator<Item = LogId> {
    (first.0..first.0 + u64::from(count)).map(LogId)
}
