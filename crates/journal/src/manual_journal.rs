//! A journal that leaves appends undecided until a test decides them.
//!
//! A decided append goes to the memory journal behind it; any order is possible.

use std::collections::VecDeque;
use std::sync::Arc;

use stafett_model::{Epoch, Lock, LockGuard, LogId};

use crate::contract::{
    Append, Bounds, Change, Frame, Journal, OpenTransaction, Outcome, OwnerEpoch, ProducerStatus,
    ReadRequest, Refusal, RequestId, StateItem, StateSpace, StateUnreadable, TimeQuery,
};
use crate::disk_space::DiskSpace;
use crate::memory::MemoryJournal;
use crate::ticket::{ReadTicket, Ticket, TicketSettler, TimeTicket};
use crate::watch::Watch;

/// A journal that can hold appends back. It decides at once until [`ManualJournal::hold`].
#[derive(Debug, Default)]
pub struct ManualJournal {
    behind: Arc<MemoryJournal>,
    taken: Lock<HeldAppends>,
    space: DiskSpace,
}

#[derive(Debug, Default)]
struct HeldAppends {
    holds: Held,
    disk: Disk,
    undecided: VecDeque<(Append, TicketSettler)>,
}

/// Appends that are held.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Held {
    #[default]
    None,
    All,
    Batches,
    /// Those that wait until state is stored.
    State,
}

impl Held {
    fn holds(self, append: &Append) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Batches => has_batches(append),
            Self::State => append.waits_for_state || !has_batches(append),
        }
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Disk {
    #[default]
    HasSpace,
    Full,
    /// The reserved space is used up too.
    UsedUp,
    /// Nothing is left but room for deletions.
    DeletionsOnly,
    /// Appends of state with up to this many bytes fit.
    BytesLeft(usize),
}

impl ManualJournal {
    pub fn over(behind: Arc<MemoryJournal>) -> Self {
        Self {
            behind,
            taken: Lock::default(),
            space: DiskSpace::default(),
        }
    }

    /// Signals that space is short, or no longer; appends are not refused for that.
    pub fn set_space_short(&self, is_short: bool) {
        self.space.set_short(is_short);
    }

    /// Holds all appends from now on.
    pub fn hold(&self) {
        self.lock().holds = Held::All;
    }

    /// Holds appends with batches from now on, and no others.
    pub fn hold_batches(&self) {
        self.lock().holds = Held::Batches;
    }

    /// Holds appends from now on that wait until state is stored: those without batches, and others that ask
    /// for it.
    pub fn hold_state(&self) {
        self.lock().holds = Held::State;
    }

    /// Decides appends at once again. Held ones stay undecided.
    pub fn release(&self) {
        self.lock().holds = Held::None;
    }

    /// Simulates a full disk, or ends that: batches and new logs are refused when appended, and nothing else
    /// is.
    pub fn set_full(&self, is_full: bool) {
        self.set_disk(if is_full { Disk::Full } else { Disk::HasSpace });
    }

    /// Simulates a disk without reserved space, or ends that: everything is refused when appended.
    pub fn set_used_up(&self, is_used_up: bool) {
        self.set_disk(if is_used_up { Disk::UsedUp } else { Disk::HasSpace });
    }

    /// Simulates a disk with room for some bytes only: everything but deletions is refused when appended.
    pub fn set_deletions_only(&self) {
        self.set_disk(Disk::DeletionsOnly);
    }

    /// Simulates a disk with room for small changes only: an append whose keys and values have more than
    /// `bytes` is refused, as batches and new logs are.
    pub fn set_bytes_left(&self, bytes: usize) {
        self.set_disk(Disk::BytesLeft(bytes));
    }

    fn set_disk(&self, disk: Disk) {
        self.lock().disk = disk;
        self.set_space_short(disk != Disk::HasSpace);
    }

    /// Returns the number of undecided appends.
    pub fn undecided(&self) -> usize {
        self.lock().undecided.len()
    }

    /// Commits the undecided append that has `behind` older ones. False if there is none.
    pub fn commit(&self, behind: usize) -> bool {
        let Some((append, settler)) = self.lock().undecided.remove(behind) else {
            return false;
        };
        let outcome = self.behind.append(vec![append]).wait().pop();
        settler.settle(outcome.unwrap_or(Outcome::Unknown));
        true
    }

    /// Refuses the undecided append that has `behind` older ones. False if there is none.
    pub fn refuse(&self, behind: usize) -> bool {
        let Some((_, settler)) = self.lock().undecided.remove(behind) else {
            return false;
        };
        settler.settle(Outcome::Refused(Refusal::DiskFull));
        true
    }

    /// Loses the undecided append that has `behind` older ones: its outcome is unknown, as in a journal that
    /// has failed. False if there is none.
    pub fn lose(&self, behind: usize) -> bool {
        self.lock().undecided.remove(behind).is_some()
    }

    fn lock(&self) -> LockGuard<'_, HeldAppends> {
        self.taken.lock()
    }
}

fn has_batches(append: &Append) -> bool {
    let mut frames = append.frames.iter();
    frames.any(|frame| matches!(frame, Frame::Batch(_)))
}

/// Returns the bytes of a change of state.
fn state_bytes(frame: &Frame) -> usize {
    let Frame::State(state) = frame else { return 0 };
    let value = match &state.change {
        Change::Put(value) | Change::Delta(value) => value.len(),
        Change::Delete => 0,
    };
    state.key.len() + value
}

impl Journal for ManualJournal {
    fn epoch(&self) -> Epoch {
        self.behind.epoch()
    }

    fn allocate(&self, count: u32) -> LogId {
        self.behind.allocate(count)
    }

    fn append(&self, appends: Vec<Append>) -> Ticket {
        let mut taken = self.lock();
        if taken.holds == Held::None && taken.disk == Disk::HasSpace {
            return self.behind.append(appends);
        }
        let (ticket, settlers) = Ticket::new(appends.len());
        for (append, settler) in appends.into_iter().zip(settlers) {
            let takes_space = |frame: &Frame| matches!(frame, Frame::Batch(_) | Frame::CreateLogs { .. });
            let deletes = |frame: &Frame| matches!(frame, Frame::State(it) if it.change == Change::Delete);
            let is_refused = match taken.disk {
                Disk::DeletionsOnly => !append.frames.iter().all(deletes),
                Disk::HasSpace => false,
                Disk::Full => append.frames.iter().any(takes_space),
                Disk::UsedUp => true,
                Disk::BytesLeft(left) => {
                    let frames = append.frames.iter();
                    frames.clone().any(takes_space) || frames.map(state_bytes).sum::<usize>() > left
                }
            };
            if is_refused {
                settler.settle(Outcome::Refused(Refusal::DiskFull));
            } else if taken.holds.holds(&append) {
                taken.undecided.push_back((append, settler));
            } else {
                let outcome = self.behind.append(vec![append]).wait().pop();
                settler.settle(outcome.unwrap_or(Outcome::Unknown));
            }
        }
        ticket
    }

    fn knows(&self, request: RequestId) -> bool {
        self.behind.knows(request)
    }

    fn bounds(&self, log: LogId) -> Option<Bounds> {
        self.behind.bounds(log)
    }

    fn filled(&self) -> Vec<(LogId, Bounds)> {
        self.behind.filled()
    }

    fn owner(&self, log: LogId) -> Option<OwnerEpoch> {
        self.behind.owner(log)
    }

    fn open_transactions(&self) -> Vec<OpenTransaction> {
        self.behind.open_transactions()
    }

    fn producers(&self, log: LogId) -> Option<Vec<ProducerStatus>> {
        self.behind.producers(log)
    }

    fn read(&self, request: ReadRequest) -> ReadTicket {
        self.behind.read(request)
    }

    fn find_time(&self, log: LogId, query: TimeQuery) -> TimeTicket {
        self.behind.find_time(log, query)
    }

    fn watch_log(&self, watch: &Watch, log: LogId, token: u32) -> bool {
        self.behind.watch_log(watch, log, token)
    }

    fn space(&self) -> DiskSpace {
        self.space.clone()
    }

    fn load_state(
        &self,
        space: StateSpace,
        visit: &mut dyn FnMut(StateItem<'_>),
    ) -> Result<(), StateUnreadable> {
        self.behind.load_state(space, visit)
    }

    fn failure(&self) -> Option<String> {
        self.behind.failure()
    }

    fn close(&self) {
        self.behind.close();
    }
}
