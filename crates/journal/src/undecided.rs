//! A journal that takes appends and decides nothing until a test says so.
//!
//! What it has taken reaches the journal in memory behind it when it is decided, in whatever order that is.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stafett_model::{Epoch, LogId};

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
    taken: Mutex<Taken>,
    space: Space,
}

#[derive(Debug, Default)]
struct Taken {
    holds: bool,
    is_full: bool,
    undecided: VecDeque<(Append, Settler)>,
}

impl UndecidedJournal {
    pub fn over(behind: Arc<MemoryJournal>) -> Self {
        Self {
            behind,
            taken: Mutex::default(),
            space: Space::default(),
        }
    }

    /// Says that space is short, or that there is enough again; appends are not refused for that.
    pub fn set_space_short(&self, is_short: bool) {
        self.space.set_short(is_short);
    }

    /// From now on appends wait to be decided.
    pub fn hold(&self) {
        self.lock().holds = true;
    }

    /// From now on appends are decided at once again.
    pub fn let_go(&self) {
        self.lock().holds = false;
    }

    /// As a disk that is full: batches and new logs are refused when they are appended, and nothing else is. Or no longer.
    pub fn set_full(&self, is_full: bool) {
        self.lock().is_full = is_full;
        self.set_space_short(is_full);
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
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        if !taken.holds && !taken.is_full {
            return self.behind.append(appends);
        }
        let (ticket, settlers) = Ticket::new(appends.len());
        for (append, settler) in appends.into_iter().zip(settlers) {
            let takes_space = |frame: &Frame| matches!(frame, Frame::Batch(_) | Frame::CreateLogs { .. });
            if taken.is_full && append.frames.iter().any(takes_space) {
                settler.settle(Outcome::Refused(Refusal::DiskFull));
            } else if taken.holds {
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
