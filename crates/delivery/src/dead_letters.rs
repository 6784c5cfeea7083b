//! Dead letters: messages that have died are stored at their targets, in the order in which they died.
//!
//! One task per dispatcher with dead letters takes as many as fit into an append, so more at a time if
//! appends are slow. They stay in flight until the append is stored. Letters refused by their targets are
//! dropped. If the journal refuses (the disk is full), they wait until it accepts appends, and a restart
//! finds them waiting for consumers. While many wait, no further messages expire or are dropped that would
//! have to be dead-lettered.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use stafett_journal::Refusal;
use stafett_model::{DeathReason, Offset, StoredMessage};
use stafett_queue::DeliveryId;
use stafett_store::NotStored;
use tokio::sync::oneshot;

use super::context::DeliveryContext;
use super::dispatcher::{DeliveryState, Dispatcher, DispatcherOwner};
use super::settle_on_append::OpenMove;

/// Bound on the dead letters of one append.
const TOGETHER_MAX: usize = 1024;
/// Bytes at which an append ends; the last letter may exceed them.
const TOGETHER_BYTES_MAX: usize = 1 << 20;
/// Number of waiting dead letters from which no more messages expire or are dropped for length.
const WAITING_MAX: usize = 4096;
/// Bytes of waiting dead letters in memory, with the same effect.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// Minimum pause after the journal refused.
const AGAIN: Duration = Duration::from_secs(1);

/// A dead letter in flight.
#[derive(Debug)]
struct PendingDeadLetter {
    id: DeliveryId,
    reason: DeathReason,
    /// The message, if it is in memory.
    message: Option<StoredMessage>,
}

/// Dead letters that are not stored at their targets yet.
#[derive(Debug, Default)]
pub(super) struct DeadLetterQueue {
    waiting: VecDeque<PendingDeadLetter>,
    /// Bytes of the messages in memory.
    bytes: usize,
    /// True if the task is running.
    runs: bool,
    /// True if the task waits until the journal accepts appends.
    waits_for_journal: bool,
    /// Number of letters that have died.
    died: u64,
    /// Number of letters that are stored.
    stored: u64,
    /// Waiters, each with the value of `stored` that it waits for.
    waiters: Vec<(u64, oneshot::Sender<()>)>,
}

/// Outcome of an attempt to store some letters.
enum DeadLetterOutcome {
    Done,
    /// The letters do not fit into one append.
    TooMany,
    NotNow,
    /// The dispatcher has ended, or the journal has stopped.
    Over,
}

impl DeadLetterQueue {
    /// Adds a message in flight.
    pub(super) fn add(&mut self, id: DeliveryId, reason: DeathReason, message: Option<StoredMessage>) {
        self.bytes += bytes_of(message.as_ref());
        self.died += 1;
        self.waiting.push_back(PendingDeadLetter { id, reason, message });
    }

    /// Returns true if letters are being stored and do not wait for the journal.
    fn is_busy(&self) -> bool {
        self.runs && !self.waits_for_journal && self.stored < self.died
    }

    /// Returns the number of letters that are not stored.
    pub(super) fn count(&self) -> usize {
        usize::try_from(self.died.saturating_sub(self.stored)).unwrap_or(usize::MAX)
    }

    /// Counts stored letters, and releases the waiters for this number.
    fn on_stored(&mut self, count: usize) {
        self.stored += count as u64;
        let stored = self.stored;
        // Dropping a sender wakes its receiver.
        self.waiters.retain(|(wanted, _)| *wanted > stored);
    }

    /// Ends the task: no letter is stored any more, and nothing waits for one.
    fn end(&mut self) {
        self.runs = false;
        self.dismiss();
    }

    /// Releases all waiters.
    pub(super) fn dismiss(&mut self) {
        self.waiters.clear();
    }

    /// Returns true if so much is waiting that no further messages may expire or be dropped for length.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX || self.bytes >= WAITING_BYTES_MAX
    }

    pub(super) fn waits_for_journal(&self) -> bool {
        self.waits_for_journal
    }

    fn take(&mut self, count: usize) -> VecDeque<PendingDeadLetter> {
        let left = self.waiting.split_off(count.min(self.waiting.len()));
        let taken = std::mem::replace(&mut self.waiting, left);
        let bytes: usize = taken.iter().map(|dead| bytes_of(dead.message.as_ref())).sum();
        self.bytes = self.bytes.saturating_sub(bytes);
        taken
    }

    /// Puts letters back at the front.
    fn put_back(&mut self, taken: VecDeque<PendingDeadLetter>) {
        for dead in taken.into_iter().rev() {
            self.bytes += bytes_of(dead.message.as_ref());
            self.waiting.push_front(dead);
        }
    }

    /// Drops the cached bodies: the letters wait until the journal accepts appends, and are read again then.
    fn forget_messages(&mut self) {
        self.bytes = 0;
        self.waiting.iter_mut().for_each(|dead| dead.message = None);
    }
}

fn bytes_of(message: Option<&StoredMessage>) -> usize {
    message.map_or(0, StoredMessage::bytes)
}

impl DeliveryState {
    /// Starts the task, unless it is running or there are no dead letters.
    pub(super) fn start_dead_letter_task(
        &mut self,
        dispatcher: &Arc<Dispatcher>,
        context: &Arc<DeliveryContext>,
    ) {
        if !self.dead_letters.runs && !self.dead_letters.waiting.is_empty() {
            self.dead_letters.runs = true;
            context.tasks.spawn(run(Arc::clone(dispatcher)));
        }
    }
}

/// Stores dead letters until there are none.
async fn run(dispatcher: Arc<Dispatcher>) {
    let mut count = TOGETHER_MAX;
    loop {
        let Some(context) = dispatcher.context.upgrade() else {
            return dispatcher.lock().dead_letters.end();
        };
        let mut taken = {
            let mut inner = dispatcher.lock();
            let taken = inner.dead_letters.take(count);
            inner.dead_letters.runs = !taken.is_empty();
            taken
        };
        if taken.is_empty() {
            return;
        }
        let before = taken.len();
        let outcome = dispatcher.dead_letter_batch(&context, &mut taken).await;
        {
            let dead_letters = &mut dispatcher.lock().dead_letters;
            dead_letters.on_stored(before - taken.len());
            dead_letters.put_back(taken);
        }
        match outcome {
            DeadLetterOutcome::Done => {
                count = TOGETHER_MAX;
                if !context.stop.is_cancelled() {
                    dispatcher.dispatch();
                }
            }
            DeadLetterOutcome::TooMany => count = (before / 2).max(1),
            DeadLetterOutcome::NotNow => {
                if !wait_for_journal(&dispatcher, context).await {
                    return dispatcher.lock().dead_letters.end();
                }
            }
            DeadLetterOutcome::Over => return dispatcher.lock().dead_letters.end(),
        }
    }
}

/// Waits until the journal may accept appends again. False if the broker stops first.
async fn wait_for_journal(dispatcher: &Dispatcher, context: Arc<DeliveryContext>) -> bool {
    let (space, stop) = (context.journal.space(), context.stop.clone());
    // A waiting task must not keep the journal open.
    drop(context);
    {
        let mut inner = dispatcher.lock();
        inner.dead_letters.waits_for_journal = true;
        inner.dead_letters.forget_messages();
        inner.dead_letters.dismiss();
        // A request for a message behind these would wait with them.
        inner.getters.clear();
    }
    let again = async {
        tokio::time::sleep(AGAIN).await;
        space.enough().await;
    };
    let goes_on = stop.run_until_cancelled(again).await.is_some();
    dispatcher.lock().dead_letters.waits_for_journal = false;
    goes_on
}

impl Dispatcher {
    /// Returns true if dead letters are being stored.
    pub fn is_dead_lettering(&self) -> bool {
        self.lock().dead_letters.is_busy()
    }

    /// Waits until the messages that have died so far are stored as dead letters, or have to wait for space.
    pub async fn dead_letters_stored(&self) {
        let stored = {
            let dead_letters = &mut self.lock().dead_letters;
            if !dead_letters.is_busy() {
                return;
            }
            let (sender, receiver) = oneshot::channel();
            dead_letters.waiters.push((dead_letters.died, sender));
            receiver
        };
        // The sender is only dropped.
        let _ = stored.await;
    }

    /// Dead-letters messages in flight.
    pub(super) fn queue_dead_letters(
        self: &Arc<Self>,
        context: &Arc<DeliveryContext>,
        dead: Vec<(DeliveryId, DeathReason)>,
    ) {
        let mut inner = self.lock();
        for (id, reason) in dead {
            context.metrics.on_death(reason);
            inner.dead_letters.add(id, reason, None);
        }
        inner.start_dead_letter_task(self, context);
    }

    /// Ends a message in flight that was returned too often: it is dead-lettered, or dropped.
    pub(super) fn end_message(self: &Arc<Self>, context: &Arc<DeliveryContext>, id: DeliveryId) {
        let reason = DeathReason::DeliveryLimit;
        let is_dropped = {
            let mut inner = self.lock();
            let is_dropped = inner.settings.dead_letter.is_none();
            if is_dropped {
                let (state, changes) = inner.parts();
                state.complete(id, changes);
                context.mark_dirty(self, &mut inner);
            }
            is_dropped
        };
        if is_dropped {
            context.metrics.on_death(reason);
        } else {
            self.queue_dead_letters(context, vec![(id, reason)]);
        }
    }

    /// Stores letters in one append; those that were not stored remain in `taken`.
    async fn dead_letter_batch(
        self: &Arc<Self>,
        context: &Arc<DeliveryContext>,
        taken: &mut VecDeque<PendingDeadLetter>,
    ) -> DeadLetterOutcome {
        let Some(owner) = self.owner.upgrade().filter(|_| !self.is_ended()) else {
            return DeadLetterOutcome::Over;
        };
        let Some((some, letters)) = self.read_dead(context, taken).await else {
            return DeadLetterOutcome::NotNow;
        };
        let ids: Vec<DeliveryId> = some.iter().map(|dead| dead.id).collect();
        let store = async |letters| self.store_elsewhere(context, &owner, letters, ids.clone()).await;
        let refusal = match store(letters).await {
            Ok(()) => return DeadLetterOutcome::Done,
            Err(NotStored::Refused(refusal)) if refusal != Refusal::Closed => refusal,
            Err(NotStored::Refused(_) | NotStored::Unknown) => return DeadLetterOutcome::Over,
        };
        let is_too_large = matches!(refusal, Refusal::TooLarge { .. });
        if is_too_large && some.len() == 1 {
            // It never fits: a dead letter is larger than the original message.
            tracing::error!("{}: a dead letter is lost: {refusal}", owner.describe());
            context.metrics.lost.inc();
            return match store(Vec::new()).await {
                Ok(()) => DeadLetterOutcome::Done,
                Err(_) => DeadLetterOutcome::Over,
            };
        }
        put_first(taken, some);
        if is_too_large {
            return DeadLetterOutcome::TooMany;
        }
        tracing::warn!("{}: dead letters wait: {refusal}", owner.describe());
        DeadLetterOutcome::NotNow
    }

    /// Has the owner store letters, in the append that settles the messages `ids` here.
    async fn store_elsewhere(
        self: &Arc<Self>,
        context: &DeliveryContext,
        owner: &Arc<dyn DispatcherOwner>,
        letters: Vec<(StoredMessage, DeathReason)>,
        ids: Vec<DeliveryId>,
    ) -> Result<(), NotStored> {
        let open = OpenMove::begin(self, ids);
        let settlement = open.settlement(context);
        let stored = Arc::clone(owner).store_dead_letters(letters, settlement).await;
        open.end(context, stored);
        stored
    }

    /// Takes out and reads as many letters as go into one append. `None` if one cannot be read now.
    async fn read_dead(
        &self,
        context: &DeliveryContext,
        taken: &mut VecDeque<PendingDeadLetter>,
    ) -> Option<(VecDeque<PendingDeadLetter>, Vec<(StoredMessage, DeathReason)>)> {
        let mut found: Vec<Option<StoredMessage>> = Vec::with_capacity(taken.len());
        found.resize_with(taken.len(), || None);
        let mut order: Vec<usize> = (0..taken.len()).collect();
        order.sort_by_key(|index| taken.get(*index).map(|dead| dead.id));
        let (mut lane, mut tail, mut bytes, mut last) = (None, None, 0, None);
        let mut read = vec![false; taken.len()];
        for index in order {
            let Some(dead) = taken.get_mut(index) else {
                continue;
            };
            if bytes >= TOGETHER_BYTES_MAX {
                break;
            }
            if lane.replace(dead.id.lane) != Some(dead.id.lane) {
                tail = self.messages_of(context, dead.id.lane);
            }
            // A message that was reported dead twice is dead-lettered once.
            let is_new = last.replace(dead.id) != Some(dead.id);
            let message = match dead.message.take() {
                Some(message) => Some(message),
                None if !is_new || self.lock().state.taken(dead.id).is_none() => None,
                None => {
                    let found = match &mut tail {
                        Some(tail) => {
                            let offset = Offset(dead.id.offset);
                            tail.message_at(&*context.journal, offset).await.ok()?
                        }
                        None => None,
                    };
                    if found.is_none() {
                        context.metrics.lost.inc();
                    }
                    found
                }
            };
            bytes += bytes_of(message.as_ref());
            if let (Some(read), Some(slot)) = (read.get_mut(index), found.get_mut(index)) {
                (*read, *slot) = (true, message);
            }
        }
        let (mut some, mut left, mut messages) = (VecDeque::new(), VecDeque::new(), Vec::new());
        for ((dead, read), message) in taken.drain(..).zip(read).zip(found) {
            if !read {
                left.push_back(dead);
                continue;
            }
            messages.extend(message.map(|message| (message, dead.reason)));
            some.push_back(dead);
        }
        *taken = left;
        Some((some, messages))
    }
}

/// Puts letters back in front of the others.
fn put_first(others: &mut VecDeque<PendingDeadLetter>, mut first: VecDeque<PendingDeadLetter>) {
    first.append(others);
    *others = first;
}
