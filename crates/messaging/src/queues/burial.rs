//! Burial: dead letters are routed to their targets, in the order in which they died.
//!
//! One task per queue with dead letters takes as many as fit into an append, so more at a time if appends are
//! slow. They stay in flight until the append is stored. Letters refused by their targets are dropped. If the
//! journal refuses (the disk is full), they wait until it accepts appends, and a restart finds them in the
//! queue. While many wait, the queue does not expire or drop further messages that would have to be
//! dead-lettered.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use stafett_journal::Refusal;
use stafett_model::{DeathReason, Offset, StoredMessage};
use stafett_queue::DeliveryId;
use stafett_store::NotStored;
use tokio::sync::oneshot;

use super::context::DeliveryContext;
use super::publication::NotTogether;
use super::queue::{Inner, Queue};

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
struct Dead {
    id: DeliveryId,
    reason: DeathReason,
    /// The message, if it is in memory.
    message: Option<StoredMessage>,
}

/// Dead letters of a queue that are not buried yet.
#[derive(Debug, Default)]
pub(super) struct Dying {
    waiting: VecDeque<Dead>,
    /// Bytes of the messages in memory.
    bytes: usize,
    /// True if the task is running.
    runs: bool,
    /// True if the task waits until the journal accepts appends.
    is_held_up: bool,
    /// Number of letters that have died.
    died: u64,
    /// Number of letters that are buried.
    buried: u64,
    /// Waiters, each with the value of `buried` that it waits for.
    mourners: Vec<(u64, oneshot::Sender<()>)>,
}

/// Outcome of an attempt to bury some letters.
enum Burial {
    Done,
    /// The letters do not fit into one append.
    TooMany,
    NotNow,
    /// The queue is deleted, or the journal has stopped.
    Over,
}

impl Dying {
    /// Adds a message in flight.
    pub(super) fn add(&mut self, id: DeliveryId, reason: DeathReason, message: Option<StoredMessage>) {
        self.bytes += bytes_of(message.as_ref());
        self.died += 1;
        self.waiting.push_back(Dead { id, reason, message });
    }

    /// Returns true if letters are being buried and do not wait for the journal.
    fn is_busy(&self) -> bool {
        self.runs && !self.is_held_up && self.buried < self.died
    }

    /// Returns the number of letters that are not buried.
    pub(super) fn count(&self) -> usize {
        usize::try_from(self.died.saturating_sub(self.buried)).unwrap_or(usize::MAX)
    }

    /// Counts buried letters, and releases the waiters for this number.
    fn on_buried(&mut self, count: usize) {
        self.buried += count as u64;
        let buried = self.buried;
        // Dropping a sender wakes its receiver.
        self.mourners.retain(|(wanted, _)| *wanted > buried);
    }

    /// Releases all waiters.
    pub(super) fn dismiss(&mut self) {
        self.mourners.clear();
    }

    /// Returns true if so much is waiting that no further messages may expire or be dropped for length.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX || self.bytes >= WAITING_BYTES_MAX
    }

    pub(super) fn is_held_up(&self) -> bool {
        self.is_held_up
    }

    fn take(&mut self, count: usize) -> VecDeque<Dead> {
        let left = self.waiting.split_off(count.min(self.waiting.len()));
        let taken = std::mem::replace(&mut self.waiting, left);
        let bytes: usize = taken.iter().map(|dead| bytes_of(dead.message.as_ref())).sum();
        self.bytes = self.bytes.saturating_sub(bytes);
        taken
    }

    /// Puts letters back at the front.
    fn put_back(&mut self, taken: VecDeque<Dead>) {
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

impl Inner {
    /// Starts the task, unless it is running or there is nothing to bury.
    pub(super) fn begin_burying(&mut self, queue: &Arc<Queue>, context: &Arc<DeliveryContext>) {
        if !self.dying.runs && !self.dying.waiting.is_empty() {
            self.dying.runs = true;
            context.tasks.spawn(run(Arc::clone(queue)));
        }
    }
}

/// Buries letters until there are none.
async fn run(queue: Arc<Queue>) {
    let mut count = TOGETHER_MAX;
    loop {
        let Some(context) = queue.context.upgrade() else {
            return;
        };
        let mut taken = {
            let mut inner = queue.lock();
            let taken = inner.dying.take(count);
            inner.dying.runs = !taken.is_empty();
            taken
        };
        if taken.is_empty() {
            return;
        }
        let before = taken.len();
        let burial = queue.bury(&context, &mut taken).await;
        {
            let dying = &mut queue.lock().dying;
            dying.on_buried(before - taken.len());
            dying.put_back(taken);
        }
        match burial {
            Burial::Done => {
                count = TOGETHER_MAX;
                if !context.stop.is_cancelled() {
                    queue.pump();
                }
            }
            Burial::TooMany => count = (count / 2).max(1),
            Burial::NotNow => {
                if !held_up(&queue, context).await {
                    return;
                }
            }
            Burial::Over => {
                queue.lock().dying.dismiss();
                return;
            }
        }
    }
}

/// Waits until the journal may accept appends again. False if the broker stops first.
async fn held_up(queue: &Queue, context: Arc<DeliveryContext>) -> bool {
    let (space, stop) = (context.journal.space(), context.stop.clone());
    // A waiting task must not keep the queues alive.
    drop(context);
    {
        let mut inner = queue.lock();
        inner.dying.is_held_up = true;
        inner.dying.forget_messages();
        inner.dying.dismiss();
        // A request for a message behind these would wait with them.
        inner.getters.clear();
    }
    let again = async {
        tokio::time::sleep(AGAIN).await;
        space.enough().await;
    };
    let goes_on = stop.run_until_cancelled(again).await.is_some();
    queue.lock().dying.is_held_up = false;
    goes_on
}

impl Queue {
    /// Returns true if dead letters of the queue are being buried.
    pub fn is_burying(&self) -> bool {
        self.lock().dying.is_busy()
    }

    /// Waits until the messages that have died so far are buried, or have to wait for space.
    pub async fn buried(&self) {
        let buried = {
            let dying = &mut self.lock().dying;
            if !dying.is_busy() {
                return;
            }
            let (sender, receiver) = oneshot::channel();
            dying.mourners.push((dying.died, sender));
            receiver
        };
        // The sender is only dropped.
        let _ = buried.await;
    }

    /// Buries messages in flight.
    pub(super) fn bury_all(
        self: &Arc<Self>,
        context: &Arc<DeliveryContext>,
        dead: Vec<(DeliveryId, DeathReason)>,
    ) {
        let mut inner = self.lock();
        for (id, reason) in dead {
            context.metrics.on_death(reason);
            inner.dying.add(id, reason, None);
        }
        inner.begin_burying(self, context);
    }

    /// Buries letters in one append; those that were not buried stay in `taken`.
    async fn bury(self: &Arc<Self>, context: &Arc<DeliveryContext>, taken: &mut VecDeque<Dead>) -> Burial {
        if self.is_deleted() {
            return Burial::Over;
        }
        let Some(queues) = self.queues.upgrade() else {
            return Burial::Over;
        };
        let Some((some, messages)) = self.read_dead(context, taken).await else {
            return Burial::NotNow;
        };
        let ids: Vec<DeliveryId> = some.iter().map(|dead| dead.id).collect();
        let publication = queues.dead_letters(self, messages.into_iter());
        let letters = publication.len() as u64;
        let refusal = match self.store_moved(&queues, publication, &ids).await {
            Ok(_) => {
                context.metrics.dead_lettered.inc_by(letters);
                return Burial::Done;
            }
            Err(NotTogether::NotStored(NotStored::Refused(refusal))) if refusal != Refusal::Closed => refusal,
            Err(NotTogether::NotStored(_) | NotTogether::SourceGone | NotTogether::Misfit { .. }) => {
                return Burial::Over;
            }
        };
        let is_too_large = matches!(refusal, Refusal::TooLarge { .. });
        if is_too_large && some.len() == 1 {
            // It never fits: a dead letter is larger than the original message.
            tracing::error!("queue {}: a dead letter is lost: {refusal}", self.name);
            context.metrics.lost.inc();
            let nothing = queues.dead_letters(self, std::iter::empty());
            return match self.store_moved(&queues, nothing, &ids).await {
                Ok(_) => Burial::Done,
                Err(_) => Burial::Over,
            };
        }
        put_first(taken, some);
        if is_too_large {
            return Burial::TooMany;
        }
        tracing::warn!("queue {}: dead letters wait: {refusal}", self.name);
        Burial::NotNow
    }

    /// Takes out and reads as many letters as go into one append. `None` if one cannot be read now.
    async fn read_dead(
        &self,
        context: &DeliveryContext,
        taken: &mut VecDeque<Dead>,
    ) -> Option<(VecDeque<Dead>, Vec<(StoredMessage, DeathReason)>)> {
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
            // A message that was reported dead twice is buried once.
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
fn put_first(others: &mut VecDeque<Dead>, mut first: VecDeque<Dead>) {
    first.append(others);
    *others = first;
}
