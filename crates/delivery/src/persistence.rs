//! Storing settlements: collected over all dispatchers for some milliseconds, and never waited for.
//!
//! Each dispatcher's changes are deltas of its state. Once the deltas are larger than twice the snapshot, a
//! new snapshot replaces them. Messages before a lane's head are freed in its log. If the journal refuses
//! (the disk is full), the changes return to their dispatcher and are retried at growing intervals, as are
//! deletions of dispatchers; there are some last retries before a stop.

use std::collections::BTreeSet;
use std::slice;
use std::sync::{Arc, Weak};
use std::time::Duration;

use smallvec::SmallVec;
use stafett_journal::{Change, Frame, Refusal};
use stafett_model::{Lock, LockGuard, Offset};
use stafett_queue::{Changes, QueueState};
use stafett_store::{DeltaPolicy, StageOutcome};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::context::DeliveryContext;
use super::dispatcher::{DeliveryState, Dispatcher};
use super::lanes::{LaneLog, LogOwnership};

/// Time for which settlements are collected.
const GATHER: Duration = Duration::from_millis(5);
/// Bytes of deltas that are always allowed before a snapshot is stored.
const DELTA_BYTES_MIN: usize = 4096;
/// Number of messages that are freed at once while others wait behind them.
const FREED_AT_ONCE: u64 = 4096;
/// Bound on the changes of one delta, so that it fits into the smallest segment.
const DELTA_CHANGES_MAX: usize = 1024;
/// Number of frames at which an append ends; the last piece may exceed it.
const FRAMES_MAX: usize = 500;
/// Approximate bytes of deltas at which an append ends; the last piece may exceed them.
const APPEND_BYTES_MAX: usize = 16 << 10;
/// Shortest and first interval between retries; it doubles up to `AGAIN_MAX`.
const AGAIN_MIN: Duration = Duration::from_millis(50);
const AGAIN_MAX: Duration = Duration::from_secs(1);
/// Number of attempts before a stop.
const LAST_TRIES: u32 = 5;

/// Dispatchers with something to store.
#[derive(Debug, Default)]
pub struct Dirty {
    dispatchers: Lock<Vec<Arc<Dispatcher>>>,
    refused: Lock<Vec<RefusedDeletion>>,
    wake: Arc<Notify>,
    /// Held while changes are staged: after a flush, all earlier changes are staged.
    turn: Lock<()>,
}

/// Deletion of a dispatcher that was refused.
#[derive(Debug)]
struct RefusedDeletion {
    /// The dispatcher's.
    id: u64,
    /// One append.
    frames: Vec<Frame>,
}

impl Dirty {
    fn push(&self, dispatcher: Arc<Dispatcher>) {
        let first = {
            let mut dispatchers = self.dispatchers.lock();
            dispatchers.push(dispatcher);
            dispatchers.len() == 1
        };
        if first {
            self.wake.notify_one();
        }
    }

    /// Locks out the staging of changes.
    pub(super) fn lock_turn(&self) -> LockGuard<'_, ()> {
        self.turn.lock()
    }

    /// Adds a refused deletion of a dispatcher, to be retried.
    pub fn push_refused(&self, id: u64, frames: Vec<Frame>) {
        self.refused().push(RefusedDeletion { id, frames });
        self.wake.notify_one();
    }

    fn refused(&self) -> LockGuard<'_, Vec<RefusedDeletion>> {
        self.refused.lock()
    }

    fn take(&self) -> Vec<Arc<Dispatcher>> {
        std::mem::take(&mut *self.dispatchers.lock())
    }
}

/// Changes of a dispatcher's delivery state that are not stored yet, and sizes of the stored ones.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that do not exclude each other"
)]
pub(super) struct Persistence {
    pub(super) changes: Changes,
    /// True if the dispatcher is in the list of those with something to store.
    is_listed: bool,
    pub(super) sizes: DeltaPolicy<DELTA_BYTES_MIN, 2>,
    /// Number of stored snapshots.
    snapshots: u64,
    /// Number of appends in progress that settle messages: no snapshot may be stored until they are decided.
    pub(super) open_moves: usize,
    /// True if there may be transient messages, which end with this run.
    pub(super) holds_transient: bool,
    /// True if that is staged, ahead of every transient message from now on.
    pub(super) is_transient_noted: bool,
    /// True if transient messages were published in this run.
    pub(super) has_new_transient: bool,
}

/// Unit of storing: changes of one dispatcher.
#[derive(Debug)]
struct Piece {
    dispatcher: Arc<Dispatcher>,
    changes: Changes,
    /// Delta, and the truncations that it permits.
    frames: SmallVec<[Frame; 2]>,
    bytes: usize,
    /// Previous freed offsets of its lanes.
    freed: SmallVec<[(u32, u64); 1]>,
    /// Number of snapshots stored before it.
    snapshots: u64,
}

/// A dispatcher of which changes were refused.
#[derive(Debug)]
struct Refused {
    dispatcher: Arc<Dispatcher>,
    /// Bytes of the changes.
    bytes: usize,
}

impl Persistence {
    /// Drops all changes: a snapshot that includes them is being stored.
    pub(super) fn on_replaced(&mut self, bytes: usize) {
        self.changes.clear();
        self.sizes.on_snapshot(bytes);
        self.snapshots += 1;
    }
}

impl DeliveryContext {
    /// Registers a dispatcher if it has something to store.
    pub fn mark_dirty(&self, dispatcher: &Arc<Dispatcher>, inner: &mut DeliveryState) {
        let Persistence {
            changes, is_listed, ..
        } = &inner.persistence;
        if !is_listed && !dispatcher.is_ended() && (!changes.is_empty() || inner.can_free(dispatcher)) {
            inner.persistence.is_listed = true;
            self.dirty.push(Arc::clone(dispatcher));
        }
    }

    /// Stores the changes of all dispatchers. Returns the ids of those of which something was refused: it has
    /// to be retried.
    pub fn flush(&self) -> BTreeSet<u64> {
        let _turn = self.dirty.lock_turn();
        // No log may be deleted between its check and its truncation.
        let _no_removal = self.lock_out_removals();
        let mut unstored = self.store_refused();
        let dirty = self.dirty.take();
        for dispatcher in &dirty {
            dispatcher.lock().persistence.is_listed = false;
        }
        let mut refused = self.store_changes(&dirty);
        if refused.len() > 1 {
            // Changes that need more space than there is hold up no others.
            refused.sort_by_key(|one| one.bytes);
            let fits = |one: &Refused| self.store_changes(slice::from_ref(&one.dispatcher)).is_empty();
            let stored = refused.iter().take_while(|one| fits(one)).count();
            refused.drain(..stored);
        }
        if !refused.is_empty() {
            let count = refused.len();
            tracing::warn!("the disk is full: changes of {count} delivery states wait to be stored");
        }
        unstored.extend(refused.iter().map(|one| one.dispatcher.id));
        unstored
    }

    /// Stores the changes of dispatchers. Returns those that were refused.
    fn store_changes(&self, dispatchers: &[Arc<Dispatcher>]) -> Vec<Refused> {
        let mut pieces = Vec::new();
        for dispatcher in dispatchers {
            let mut inner = dispatcher.lock();
            if !dispatcher.is_ended() {
                inner.store(self, dispatcher, &mut pieces);
            }
        }
        self.store(pieces)
    }

    /// Stores refused deletions. Returns the ids of the dispatchers of which one is refused again.
    fn store_refused(&self) -> BTreeSet<u64> {
        let mut refused = std::mem::take(&mut *self.dirty.refused());
        refused.retain(
            |deletion| match StageOutcome::of(&*self.journal, deletion.frames.iter().cloned()) {
                StageOutcome::Stored | StageOutcome::Waits(_) | StageOutcome::Refused(Refusal::Closed) => {
                    false
                }
                StageOutcome::Refused(why @ Refusal::TooLarge { .. }) => {
                    tracing::error!("a deletion cannot be stored: {why}");
                    false
                }
                StageOutcome::Refused(_) => true,
            },
        );
        let ids = refused.iter().map(|deletion| deletion.id).collect();
        self.dirty.refused().append(&mut refused);
        ids
    }

    /// Stores the state of every dispatcher, with exact marks: before a stop.
    pub async fn flush_all(&self, all: &[Arc<Dispatcher>]) {
        for _ in 1..LAST_TRIES {
            // Marks are exact only after everything else is stored.
            if self.flush().is_empty() && self.flush_exactly(all) {
                return;
            }
            tokio::time::sleep(AGAIN_MIN).await;
        }
        if !(self.flush().is_empty() && self.flush_exactly(all)) {
            tracing::error!(
                "the disk is full: some of what consumers settled last is not stored, and comes again"
            );
        }
    }

    fn flush_exactly(&self, all: &[Arc<Dispatcher>]) -> bool {
        let mut pieces = Vec::new();
        for dispatcher in all {
            let mut inner = dispatcher.lock();
            if dispatcher.is_ended() || !dispatcher.is_stored {
                continue;
            }
            let lanes: Vec<u32> = inner.logs.iter().map(|lane| lane.lane).collect();
            let (state, changes) = inner.parts();
            for number in lanes {
                let lane = state.lane_mut(number);
                if lane.has_mark() {
                    changes.exact_mark(number, lane.mark_exactly());
                }
            }
            inner.store(self, dispatcher, &mut pieces);
        }
        self.store(pieces).is_empty()
    }

    /// Stores pieces, many per append; refused ones return to their dispatchers. Returns these.
    fn store(&self, pieces: Vec<Piece>) -> Vec<Refused> {
        let mut refused: Vec<Piece> = Vec::new();
        let (mut together, mut frames, mut bytes) = (Vec::new(), 0, 0);
        for piece in pieces {
            frames += piece.frames.len();
            bytes += piece.bytes;
            together.push(piece);
            if frames >= FRAMES_MAX || bytes >= APPEND_BYTES_MAX {
                self.store_together(std::mem::take(&mut together), &mut refused);
                (frames, bytes) = (0, 0);
            }
        }
        self.store_together(together, &mut refused);
        let mut dispatchers: Vec<Refused> = Vec::new();
        // In reverse, so that the earliest changes end up first.
        for piece in refused.into_iter().rev() {
            match dispatchers.last_mut() {
                Some(last) if last.dispatcher.id == piece.dispatcher.id => last.bytes += piece.bytes,
                _ => dispatchers.push(Refused {
                    dispatcher: Arc::clone(&piece.dispatcher),
                    bytes: piece.bytes,
                }),
            }
            piece.give_back(self);
        }
        dispatchers
    }

    /// Stores pieces in one append, or adds them to `refused`.
    fn store_together(&self, mut pieces: Vec<Piece>, refused: &mut Vec<Piece>) {
        // Later pieces of a dispatcher wait for its refused one.
        let last = refused.last().map(|piece| piece.dispatcher.id);
        let behind = pieces
            .iter()
            .take_while(|piece| Some(piece.dispatcher.id) == last);
        let behind = behind.count();
        refused.extend(pieces.drain(..behind));
        if pieces.is_empty() {
            return;
        }
        let frames = pieces.iter_mut().flat_map(|piece| piece.frames.drain(..));
        match StageOutcome::of_settlements(&*self.journal, frames) {
            // After the journal has stopped, nothing more can be stored.
            StageOutcome::Stored | StageOutcome::Waits(_) | StageOutcome::Refused(Refusal::Closed) => {}
            StageOutcome::Refused(_) => refused.append(&mut pieces),
        }
    }
}

impl Piece {
    fn give_back(self, context: &DeliveryContext) {
        let mut inner = self.dispatcher.lock();
        for (lane, freed) in self.freed {
            if let Some(log) = inner.logs.iter_mut().find(|log| log.lane == lane) {
                log.freed = freed;
            }
        }
        if inner.persistence.snapshots == self.snapshots {
            // Otherwise the snapshot stored meanwhile includes them.
            inner.persistence.changes.put_before(self.changes);
            inner.persistence.sizes.on_delta_refused(self.bytes);
        }
        context.mark_dirty(&self.dispatcher, &mut inner);
    }
}

impl DeliveryState {
    fn store(&mut self, context: &DeliveryContext, dispatcher: &Arc<Dispatcher>, pieces: &mut Vec<Piece>) {
        if dispatcher.is_stored {
            self.store_whole_if_due(context, dispatcher);
        } else {
            self.persistence.changes.clear();
        }
        loop {
            let persistence = &mut self.persistence;
            let changes = persistence.changes.take(DELTA_CHANGES_MAX);
            let mut piece = Piece {
                dispatcher: Arc::clone(dispatcher),
                changes,
                frames: SmallVec::new(),
                bytes: 0,
                freed: SmallVec::new(),
                snapshots: persistence.snapshots,
            };
            if !piece.changes.is_empty() {
                let delta = piece.changes.encode();
                piece.bytes = delta.len();
                persistence.sizes.on_delta(delta.len());
                piece
                    .frames
                    .push(context.state_frame(dispatcher, Change::Delta(delta.into())));
            }
            let is_last = persistence.changes.is_empty();
            if is_last {
                self.free(dispatcher, &mut piece);
            }
            if !piece.frames.is_empty() {
                pieces.push(piece);
            }
            if is_last {
                return;
            }
        }
    }

    /// Adds truncations of the logs up to the heads.
    fn free(&mut self, dispatcher: &Dispatcher, piece: &mut Piece) {
        if dispatcher.ownership == LogOwnership::Topic {
            return;
        }
        for lane in &mut self.logs {
            if let Some(before) = lane.freeable(&self.state, self.settings.retain) {
                piece.freed.push((lane.lane, lane.freed));
                lane.freed = before;
                piece.frames.push(Frame::Truncate {
                    log: lane.log,
                    before: Offset(before),
                });
            }
        }
    }

    /// Stores a snapshot if the deltas stored since the last one are larger than twice its size. If refused,
    /// the changes are kept and stored as deltas.
    pub(super) fn store_whole_if_due(&mut self, context: &DeliveryContext, dispatcher: &Dispatcher) {
        // Messages being moved would be settled in the journal but not in the snapshot.
        let persistence = &mut self.persistence;
        if !persistence.sizes.is_due() || persistence.open_moves > 0 || !dispatcher.is_stored {
            return;
        }
        let whole = self.state.encode(persistence.holds_transient);
        let bytes = whole.len();
        // The snapshot replaces all deltas staged before: under the lock, none can come between that it
        // lacks.
        let put = context.state_frame(dispatcher, Change::Put(whole.into()));
        match StageOutcome::of_settlements(&*context.journal, [put]) {
            StageOutcome::Stored | StageOutcome::Waits(_) => {
                persistence.sizes.on_snapshot(bytes);
                persistence.snapshots += 1;
                persistence.changes.clear();
            }
            // Retried when the next snapshot would be due.
            StageOutcome::Refused(Refusal::TooLarge { .. }) => persistence.sizes.on_snapshot(bytes),
            StageOutcome::Refused(_) => {}
        }
    }

    /// Stores, ahead of the first one, that the dispatcher may have transient messages, which end with this
    /// run. If refused, it is stored with the next changes, or ahead of the next such message if that is
    /// earlier: that one may be stored.
    pub(super) fn note_transient(&mut self, context: &DeliveryContext, dispatcher: &Arc<Dispatcher>) {
        self.persistence.holds_transient = true;
        let mut changes = Changes::default();
        changes.holds_transient();
        let staged = self.stage(context, dispatcher, &changes);
        self.persistence.is_transient_noted = !matches!(staged, StageOutcome::Refused(_));
        if !self.persistence.is_transient_noted {
            self.persistence.changes.holds_transient();
            context.mark_dirty(dispatcher, self);
        }
    }

    /// Stages changes ahead of everything that is stored later. If refused, they are stored with the next
    /// changes.
    pub(super) fn store_at_once(
        &mut self,
        context: &DeliveryContext,
        dispatcher: &Arc<Dispatcher>,
        changes: Changes,
    ) -> StageOutcome {
        self.persistence.changes.drop_outdated(&changes);
        let staged = self.stage(context, dispatcher, &changes);
        if let StageOutcome::Refused(_) = staged {
            self.persistence.changes.put_before(changes);
            context.mark_dirty(dispatcher, self);
        }
        staged
    }

    fn stage(
        &mut self,
        context: &DeliveryContext,
        dispatcher: &Dispatcher,
        changes: &Changes,
    ) -> StageOutcome {
        let delta = changes.encode();
        let bytes = delta.len();
        let change = Change::Delta(delta.into());
        let staged = StageOutcome::of(&*context.journal, [context.state_frame(dispatcher, change)]);
        if !matches!(staged, StageOutcome::Refused(_)) {
            self.persistence.sizes.on_delta(bytes);
        }
        staged
    }

    /// Returns true if a log can be freed up to its head.
    fn can_free(&self, dispatcher: &Dispatcher) -> bool {
        let freeable = |lane: &LaneLog| lane.freeable(&self.state, self.settings.retain);
        dispatcher.ownership == LogOwnership::Own && self.logs.iter().any(|lane| freeable(lane).is_some())
    }
}

impl LaneLog {
    /// Returns the offset up to which the log can be freed now: the head, without `retain` messages.
    fn freeable(&self, state: &QueueState, retain: u64) -> Option<u64> {
        let lane = state.lane(self.lane)?;
        let before = lane.head().saturating_sub(retain);
        let is_due = lane.head() == lane.end() || before.saturating_sub(self.freed) >= FREED_AT_ONCE;
        (before > self.freed && is_due).then_some(before)
    }
}

/// Runs until the dispatchers are dropped or stopped.
pub(super) async fn run(context: Weak<DeliveryContext>, stop: CancellationToken) {
    let Some(wake) = context.upgrade().map(|context| Arc::clone(&context.dirty.wake)) else {
        return;
    };
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = wake.notified() => {}
        }
        tokio::time::sleep(GATHER).await;
        let mut pause = AGAIN_MIN;
        while !context.upgrade().is_none_or(|context| context.flush().is_empty()) {
            if stop
                .run_until_cancelled(tokio::time::sleep(pause))
                .await
                .is_none()
            {
                return;
            }
            pause = (2 * pause).min(AGAIN_MAX);
        }
    }
}
