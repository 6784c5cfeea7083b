//! A journal that takes appends and decides nothing until a test says so.
//!
//! What it has taken reaches the journal in memory behind it when it is decided, in whatever order that is.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard};

use stafett_model::{Epoch, Lock, LogId};

use crate::contract::{
    Append, Bounds, Frame, Journal, Outcome, OwnerEpoch, ProducerSeen, ReadRequest, Refusal, StateItem,
    StateSpace, StateUnreadable, TimeQuery,
};
use crate::memory::MemoryJournal;
use crate::space::Space;
use crate::ticket::{ReadTicket, Settler, Ticket, TimeTicket};
use crate::watch::Watch;

/// See the module. It decides at once until [`UndecidedJournal::hold`].
#[derive(Debug, Default)]
pub struct UndecidedJournal {
    behind: Arc<MemoryJournal>,
    taken: Lock<Taken>,
    space: Space,
}

#[derive(Debug, Default)]
struct Taken {
    holds: bool,
    /// Of what is held, only appends with batches are.
    holds_batches_only: bool,
    disk: Disk,
    undecided: VecDeque<(Append, Settler)>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Disk {
    #[default]
    HasSpace,
    Full,
    /// What was kept back is used up as well.
    UsedUp,
}

impl UndecidedJournal {
    pub fn over(behind: Arc<MemoryJournal>) -> Self {
        Self {
            behind,
            taken: Lock::default(),
            space: Space::default(),
        }
    }

    /// Says that space is short, or that there is enough again; appends are not refused for that.
    pub fn set_space_short(&self, is_short: bool) {
        self.space.set_short(is_short);
    }

    /// From now on appends wait to be decided.
    pub fn hold(&self) {
        let mut taken = self.lock();
        (taken.holds, taken.holds_batches_only) = (true, false);
    }

    /// From now on appends with batches wait to be decided, and no others.
    pub fn hold_batches(&self) {
        let mut taken = self.lock();
        (taken.holds, taken.holds_batches_only) = (true, true);
    }

    /// From now on appends are decided at once again.
    pub fn let_go(&self) {
        let mut taken = self.lock();
        (taken.holds, taken.holds_batches_only) = (false, false);
    }

    /// As a disk that is full: batches and new logs are refused when they are appended, and nothing else is.
    /// Or no longer.
    pub fn set_full(&self, is_full: bool) {
        self.set_disk(if is_full { Disk::Full } else { Disk::HasSpace });
    }

    /// As a disk on which what was kept back is used up as well: everything is refused when it is appended.
    /// Or no longer.
    pub fn set_used_up(&self, is_used_up: bool) {
        self.set_disk(if is_used_up { Disk::UsedUp } else { Disk::HasSpace });
    }

    fn set_disk(&self, disk: Disk) {
        self.lock().disk = disk;
        self.set_space_short(disk != Disk::HasSpace);
    }

    /// Appends that wait.
    pub fn undecided(&self) -> usize {
        self.lock().undecided.len()
    }

    /// Commits the append that has waited longest but for `behind` others. False if there is none.
    pub fn commit(&self, behind: usize) -> bool {
        let Some((append, settler)) = self.lock().undecided.remove(behind) else {
            return false;
        };
        let outcome = self.behind.append(vec![append]).wait().pop();
        settler.settle(outcome.unwrap_or(Outcome::Unknown));
        true
    }

    /// Refuses the append that has waited longest but for `behind` others. False if there is none.
    pub fn refuse(&self, behind: usize) -> bool {
        let Some((_, settler)) = self.lock().undecided.remove(behind) else {
            return false;
        };
        settler.settle(Outcome::Refused(Refusal::DiskFull));
        true
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock()
    }
}

fn has_batches(append: &Append) -> bool {
    let mut frames = append.frames.iter();
    frames.any(|frame| matches!(frame, Frame::Batch(_)))
}

impl Journal for UndecidedJournal {
    fn epoch(&self) -> Epoch {
        self.behind.epoch()
    }

    fn allocate(&self, count: u32) -> LogId {
        self.behind.allocate(count)
    }

    fn append(&self, appends: Vec<Append>) -> Ticket {
        let mut taken = self.lock();
        if !taken.holds && taken.disk == Disk::HasSpace {
            return self.behind.append(appends);
        }
        let (ticket, settlers) = Ticket::new(appends.len());
        for (append, settler) in appends.into_iter().zip(settlers) {
            let takes_space = |frame: &Frame| matches!(frame, Frame::Batch(_) | Frame::CreateLogs { .. });
            let is_refused = match taken.disk {
                Disk::HasSpace => false,
                Disk::Full => append.frames.iter().any(takes_space),
                Disk::UsedUp => true,
            };
            if is_refused {
                settler.settle(Outcome::Refused(Refusal::DiskFull));
            } else if taken.holds && (!taken.holds_batches_only || has_batches(&append)) {
                taken.undecided.push_back((append, settler));
            } else {
                let outcome = self.behind.append(vec![append]).wait().pop();
                settler.settle(outcome.unwrap_or(Outcome::Unknown));
            }
        }
        ticket
    }

    fn bounds(&self, log: LogId) -> Option<Bounds> {
        self.behind.bounds(log)
    }

    fn owner(&self, log: LogId) -> Option<OwnerEpoch> {
        self.behind.owner(log)
    }

    fn producers(&self, log: LogId) -> Option<Vec<ProducerSeen>> {
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

    fn space(&self) -> Space {
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
