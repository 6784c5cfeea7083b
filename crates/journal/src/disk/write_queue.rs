//! The writer's queue: appends that are staged and not yet written, in the order of the journal.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use stafett_model::{Lock, LockGuard, Offset, WakeUp};

use super::control::Control;
use super::frame::Head;
use super::group::GROUP_HEAD_BYTES;
use super::log::Log;
use super::overtake::Room;
use crate::contract::PlacedBatch;
use crate::ticket::TicketSettler;

/// Condition for acknowledging an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wait {
    Nothing,
    Written,
    Synced,
}

/// An append with assigned offsets.
#[derive(Debug)]
pub(crate) struct StagedAppend {
    pub(crate) frames: SmallVec<[StagedFrame; 1]>,
    /// `None` if the append has already been acknowledged or has no waiting caller.
    pub(crate) settler: Option<TicketSettler>,
    pub(crate) placed: SmallVec<[PlacedBatch; 1]>,
    pub(crate) wait: Wait,
    /// Deadline for its sync, in ms after writing, if it does not wait for one.
    pub(crate) sync_within_ms: u32,
    /// Records in it for logs at `interval`, and the number of records after which a sync is due.
    pub(crate) interval: Option<(u32, u32)>,
    /// Bytes of all its frames in a segment.
    pub(crate) bytes: usize,
    /// Chunks of its bodies that are not yet written: they precede its frames, in earlier groups.
    pub(crate) ahead: VecDeque<StagedFrame>,
    /// Bytes of the chunks in a segment.
    pub(crate) ahead_bytes: usize,
    /// True if the segment being written is sealed behind it.
    pub(crate) seals: bool,
    /// Charge against the pool's space.
    pub(crate) charge: i64,
    /// Bytes of the buffers that its bodies keep alive.
    pub(crate) pinned_bytes: usize,
}

/// A frame to be written.
#[derive(Debug)]
pub(crate) struct StagedFrame {
    pub(crate) head: Head,
    pub(crate) body: Bytes,
    /// Log of each entry, and the condition for reading the batch there.
    pub(crate) logs: SmallVec<[(Arc<Log>, Wait); 1]>,
    /// Decoded control, for applying it once it is written.
    pub(crate) control: Option<Box<Control>>,
    /// Log whose offsets below the given one are reserved once this is synced.
    pub(crate) reserves: Option<(Arc<Log>, Offset)>,
}

impl StagedFrame {
    /// Returns its bytes in a write group of its own.
    pub(crate) fn group_bytes(&self) -> usize {
        self.head.frame_bytes() + GROUP_HEAD_BYTES
    }
}

impl StagedAppend {
    /// Takes the next chunk, as an entry without waiting caller.
    pub(super) fn next_chunk(&mut self) -> Option<Self> {
        let frame = self.ahead.pop_front()?;
        let bytes = frame.group_bytes();
        self.ahead_bytes -= bytes;
        Some(Self {
            frames: SmallVec::from_buf([frame]),
            settler: None,
            placed: SmallVec::new(),
            wait: Wait::Written,
            sync_within_ms: u32::MAX,
            interval: None,
            bytes,
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            seals: false,
            charge: 0,
            pinned_bytes: 0,
        })
    }
}

#[derive(Debug, Default)]
pub(crate) struct WriteQueue {
    state: Lock<WriteQueueState>,
    wake: WakeUp,
}

#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are independent conditions, not a state machine"
)]
pub(super) struct WriteQueueState {
    pub(super) staged: VecDeque<StagedAppend>,
    pub(super) bytes: usize,
    /// Number of staged appends with chunks left to write.
    pub(super) cut: usize,
    /// True if some chunks of the first of them are written.
    pub(super) is_open: bool,
    /// Number of staged appends that do not wait for a sync.
    pub(super) impatient: usize,
    /// Bytes from which staged appends are written even during a sync; set by the writer's last look.
    group_bytes: usize,
    sync_running: bool,
    /// True if a sync is running and appends have waited for syncs recently.
    pub(super) sync_has_recent_waiter: bool,
    /// Bytes of chunks given to the writer since the sync began.
    pub(super) chunks_since: usize,
    asleep: bool,
    closed: bool,
    failed: bool,
}

/// Result of taking from the queue.
#[derive(Debug)]
pub(crate) enum TakeOutcome {
    /// Appends were taken; the segment has to keep `promised` bytes free behind them.
    Some { promised: usize },
    /// The writer slept: there may be appends now, or other threads may have written them
    /// ([`super::inline_write`]).
    Woken,
    /// The queue is empty and closed.
    Closed,
}

impl WriteQueue {
    /// Adds an append at the end. Called under the locks of its logs, so that their order is the queue's.
    /// False if the journal accepts no more; the append is dropped, which leaves its outcome unknown.
    pub(crate) fn push(&self, staged: StagedAppend) -> bool {
        let mut state = self.lock();
        if state.closed || state.failed {
            return false;
        }
        state.bytes += staged.bytes + staged.ahead_bytes;
        if !staged.ahead.is_empty() {
            state.cut += 1;
        }
        if staged.wait != Wait::Synced {
            state.impatient += 1;
        }
        state.staged.push_back(staged);
        true
    }

    /// Wakes the writer if it sleeps, unless it should sleep until the end of a sync.
    pub(crate) fn wake(&self) {
        let state = self.lock();
        if state.asleep && !state.goes_on_gathering() {
            drop(state);
            self.wake.notify_all();
        }
    }

    /// Moves the appends of one group, at least one, into `out`, or sleeps until there is a reason to look
    /// again. While a sync runs, appends that wait for one gather.
    pub(crate) fn take(&self, room: Room, out: &mut Vec<StagedAppend>) -> TakeOutcome {
        let mut state = self.lock();
        state.group_bytes = room.group;
        if !state.staged.is_empty() && !state.goes_on_gathering() {
            let promised = state.take(room, out);
            if !out.is_empty() {
                return TakeOutcome::Some { promised };
            }
        }
        if state.closed && state.staged.is_empty() {
            return TakeOutcome::Closed;
        }
        state.asleep = true;
        state = self.wake.wait(state);
        state.asleep = false;
        TakeOutcome::Woken
    }

    /// Moves all staged appends into `out` if the writer sleeps, they do not wait for a running sync, and
    /// they have at most `bytes_max` bytes. False if they are left to the writer.
    pub(super) fn take_asleep(&self, bytes_max: usize, out: &mut Vec<StagedAppend>) -> bool {
        let mut state = self.lock();
        let wait = !state.asleep || state.closed || state.gathers();
        if wait || state.bytes > bytes_max || state.cut > 0 || state.staged.iter().any(|append| append.seals)
        {
            return false;
        }
        out.extend(state.staged.drain(..));
        state.bytes = 0;
        state.impatient = 0;
        true
    }

    /// Takes like [`WriteQueue::take`], without sleeping; returns the bytes that the segment has to keep free
    /// behind them.
    pub(crate) fn take_now(&self, room: Room, out: &mut Vec<StagedAppend>) -> usize {
        self.lock().take(room, out)
    }

    /// Records the start or end of a sync, and whether other appends wait for it too.
    pub(crate) fn set_sync_running(&self, running: bool, has_recent_waiter: bool) {
        let mut state = self.lock();
        state.sync_running = running;
        state.sync_has_recent_waiter = running && has_recent_waiter;
        state.chunks_since = 0;
        if !running && state.asleep && !state.staged.is_empty() {
            drop(state);
            self.wake.notify_all();
        }
    }

    /// Stops accepting appends; staged ones are still written.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_all();
    }

    /// Stops accepting appends and drops the staged ones, whose outcome stays unknown.
    pub(crate) fn fail(&self) {
        let dropped = {
            let mut state = self.lock();
            state.failed = true;
            state.closed = true;
            state.bytes = 0;
            (state.cut, state.is_open) = (0, false);
            state.impatient = 0;
            std::mem::take(&mut state.staged)
        };
        self.wake.notify_all();
        drop(dropped);
    }

    /// Returns the bytes that are staged and not yet written.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn lock(&self) -> LockGuard<'_, WriteQueueState> {
        self.state.lock()
    }
}

impl WriteQueueState {
    /// Returns true if all staged appends wait for the running sync.
    fn gathers(&self) -> bool {
        self.sync_running && self.impatient == 0 && self.cut == 0
    }

    /// Returns true if they wait and do not fill a group yet.
    fn goes_on_gathering(&self) -> bool {
        self.gathers() && self.bytes < self.group_bytes && !self.closed
    }

    pub(super) fn take(&mut self, room: Room, out: &mut Vec<StagedAppend>) -> usize {
        if self.cut > 0 {
            return self.take_around(room, out);
        }
        let mut bytes = 0;
        while let Some(next) = self.staged.front() {
            if bytes > 0 && bytes + next.bytes > room.group {
                break;
            }
            let Some(next) = self.staged.pop_front() else {
                break;
            };
            bytes += next.bytes;
            let seals = next.seals;
            self.hand_out(next, out);
            if seals {
                break;
            }
        }
        0
    }

    /// Gives an append to the writer.
    pub(super) fn hand_out(&mut self, append: StagedAppend, out: &mut Vec<StagedAppend>) {
        self.bytes -= append.bytes;
        if append.wait != Wait::Synced {
            self.impatient -= 1;
        }
        out.push(append);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn staged(wait: Wait, bytes: usize) -> StagedAppend {
        StagedAppend {
            frames: SmallVec::new(),
            settler: None,
            placed: SmallVec::new(),
            wait,
            sync_within_ms: u32::MAX,
            interval: None,
            bytes,
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            seals: false,
            charge: 0,
            pinned_bytes: 0,
        }
    }

    /// Builds a queue with these appends whose writer sleeps.
    fn asleep(all: impl IntoIterator<Item = StagedAppend>) -> WriteQueue {
        let queue = WriteQueue::default();
        for one in all {
            assert!(queue.push(one));
        }
        queue.lock().asleep = true;
        queue
    }

    fn taken(queue: &WriteQueue) -> Option<usize> {
        let mut out = Vec::new();
        queue.take_asleep(100, &mut out).then_some(out.len())
    }

    #[test]
    fn a_little_is_taken_from_a_sleeping_writer_all_of_it() {
        let queue = asleep([staged(Wait::Written, 40), staged(Wait::Synced, 60)]);
        assert_eq!(taken(&queue), Some(2));
        assert_eq!((queue.bytes(), queue.lock().impatient), (0, 0));
        assert_eq!(taken(&queue), Some(0));
    }

    #[test]
    fn what_waits_for_a_sync_gathers_until_it_is_a_groups_worth() {
        let queue = asleep([staged(Wait::Synced, 60)]);
        queue.lock().group_bytes = 100;
        let gathers = || queue.lock().goes_on_gathering();
        assert!(!gathers(), "no sync runs");
        queue.set_sync_running(true, false);
        assert!(gathers());
        assert!(queue.push(staged(Wait::Synced, 40)));
        assert!(!gathers(), "it is enough");
        queue.lock().group_bytes = 1000;
        queue.close();
        assert!(!gathers(), "nothing more comes");
    }

    #[test]
    fn what_the_writer_is_at_or_will_gather_is_left_to_it() {
        let queue = asleep([staged(Wait::Written, 101)]);
        assert_eq!(taken(&queue), None, "too much");
        let queue = asleep([staged(Wait::Written, 1)]);
        queue.lock().asleep = false;
        assert_eq!(taken(&queue), None, "the writer is at it");
        let queue = asleep([staged(Wait::Synced, 1)]);
        queue.set_sync_running(true, false);
        assert_eq!(taken(&queue), None, "it waits for the sync to end");
        assert!(queue.push(staged(Wait::Written, 1)));
        assert_eq!(taken(&queue), Some(2), "somebody waits for no sync");
        let queue = asleep([staged(Wait::Written, 1)]);
        queue.close();
        assert_eq!(taken(&queue), None, "closed");
    }
}
