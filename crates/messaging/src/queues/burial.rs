//! Burying: the dead letters of a queue go where they go, in the order in which they died.
//!
//! One task per queue that has some takes as many as fit into an append, so more at a time the slower appends
//! are. They stay in flight until that is stored. What their targets refuse is dropped; but where the journal
//! refuses (the disk is full), nothing is: they wait until it takes them, and a restart finds them in the
//! queue. While many wait the queue hands out nothing that would have to die first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use stafett_journal::Refusal;
use stafett_model::{DeathReason, StoredMessage};
use stafett_queue::DeliveryId;
use stafett_store::NotStored;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::cursor::Cursor;
use super::moving::Found;
use super::publication::NotTogether;
use super::queue::{Inner, Queue};
use super::registry::Queues;

/// Dead letters of one append, and bytes of them; the last may go beyond.
const TOGETHER_MAX: usize = 1024;
const TOGETHER_BYTES_MAX: usize = 1 << 20;
/// Dead letters that wait, and bytes of them in memory, at which no more messages die by themselves.
const WAITING_MAX: usize = 4096;
const WAITING_BYTES_MAX: usize = 4 << 20;
/// How long the task waits, at least, after the journal refused.
const AGAIN: Duration = Duration::from_secs(1);

/// A message in flight that is to be buried.
#[derive(Debug)]
struct Dead {
    id: DeliveryId,
    reason: DeathReason,
    /// If it was read already.
    message: Option<StoredMessage>,
}

/// The dead letters of a queue that are still in it.
#[derive(Debug, Default)]
pub(super) struct Dying {
    waiting: VecDeque<Dead>,
    /// Bytes of those messages that are in memory.
    bytes: usize,
    /// There is a task.
    runs: bool,
    /// It waits until the journal takes something.
    is_held_up: bool,
    /// How many have died, and how many of them are buried.
    died: u64,
    buried: u64,
    /// Those who wait until as many are buried.
    mourners: Vec<(u64, oneshot::Sender<()>)>,
}

/// What became of some of them.
enum Burial {
    Done,
    /// Some do not fit into one append.
    TooMany,
    NotNow,
    /// The queue is gone, or the journal has stopped.
    Over,
}

impl Dying {
    /// Adds a message in flight.
    pub(super) fn add(&mut self, id: DeliveryId, reason: DeathReason, message: Option<StoredMessage>) {
        self.bytes += bytes_of(message.as_ref());
        self.died += 1;
        self.waiting.push_back(Dead { id, reason, message });
    }

    /// Whether some are on their way that need not wait for the journal.
    fn is_busy(&self) -> bool {
        self.runs && !self.is_held_up && self.buried < self.died
    }

    /// Messages that have died and are not buried.
    pub(super) fn count(&self) -> usize {
        usize::try_from(self.died.saturating_sub(self.buried)).unwrap_or(usize::MAX)
    }

    /// Lets those go on that waited for no more than is buried by now.
    fn on_buried(&mut self, count: usize) {
        self.buried += count as u64;
        let buried = self.buried;
        // Dropping a sender wakes its receiver.
        self.mourners.retain(|(wanted, _)| *wanted > buried);
    }

    /// Lets all go on that wait.
    pub(super) fn dismiss(&mut self) {
        self.mourners.clear();
    }

    /// Whether so many wait that nothing more may die by itself.
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

    /// Puts some back to the front.
    fn put_back(&mut self, taken: VecDeque<Dead>) {
        for dead in taken.into_iter().rev() {
            self.bytes += bytes_of(dead.message.as_ref());
            self.waiting.push_front(dead);
        }
    }

    /// Who has to wait for long keeps nothing in memory.
    fn forget_messages(&mut self) {
        self.bytes = 0;
        self.waiting.iter_mut().for_each(|dead| dead.message = None);
    }
}

fn bytes_of(message: Option<&StoredMessage>) -> usize {
    message.map_or(0, StoredMessage::bytes)
}

impl Inner {
    /// Sees to it that what has died is buried.
    pub(super) fn begin_burying(&mut self, queue: &Arc<Queue>, hub: &Arc<Queues>) {
        if !self.dying.runs && !self.dying.waiting.is_empty() {
            self.dying.runs = true;
            hub.tasks.spawn(run(Arc::clone(queue)));
        }
    }
}

/// Buries until nothing is left to be buried.
async fn run(queue: Arc<Queue>) {
    let mut count = TOGETHER_MAX;
    loop {
        let Some(hub) = queue.hub.upgrade() else { return };
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
        let burial = queue.bury(&hub, &mut taken).await;
        {
            let dying = &mut queue.lock().dying;
            dying.on_buried(before - taken.len());
            dying.put_back(taken);
        }
        match burial {
            Burial::Done => {
                count = TOGETHER_MAX;
                if !hub.stopped().is_cancelled() {
                    queue.pump();
                }
            }
            Burial::TooMany => count = (count / 2).max(1),
            Burial::NotNow => {
                if !held_up(&queue, hub).await {
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

/// Waits until it may be worth trying again. False if the broker stops before.
async fn held_up(queue: &Queue, hub: Arc<Queues>) -> bool {
    let (space, stop): (_, CancellationToken) = (hub.journal.space(), hub.stopped());
    // Nobody is kept by who waits.
    drop(hub);
    {
        let mut inner = queue.lock();
        inner.dying.is_held_up = true;
        inner.dying.forget_messages();
        inner.dying.dismiss();
        // Who asks for a message that is behind these would wait with them.
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
    /// Whether dead letters of the queue are on their way.
    pub fn is_burying(&self) -> bool {
        self.lock().dying.is_busy()
    }

    /// Resolves when the messages that have died so far are where dead letters go, or when they have to wait
    /// for space.
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
        // The sender is dropped, and sends nothing.
        let _ = buried.await;
    }

    /// Buries messages in flight.
    pub(super) fn bury_all(self: &Arc<Self>, hub: &Arc<Queues>, dead: Vec<(DeliveryId, DeathReason)>) {
        let mut inner = self.lock();
        for (id, reason) in dead {
            hub.metrics.on_death(reason);
            inner.dying.add(id, reason, None);
        }
        inner.begin_burying(self, hub);
    }

    /// Buries some, in one append; what is left of them was not.
    async fn bury(self: &Arc<Self>, hub: &Arc<Queues>, taken: &mut VecDeque<Dead>) -> Burial {
        if self.is_deleted() {
            return Burial::Over;
        }
        let Some((some, messages)) = self.read_dead(hub, taken).await else {
            return Burial::NotNow;
        };
        let ids: Vec<DeliveryId> = some.iter().map(|dead| dead.id).collect();
        let publication = hub.dead_letters(self, messages.into_iter());
        let letters = publication.len() as u64;
        let refusal = match self.store_moved(hub, publication, &ids).await {
            Ok(_) => {
                hub.metrics.dead_lettered.inc_by(letters);
                return Burial::Done;
            }
            Err(NotTogether::NotStored(NotStored::Refused(refusal))) if refusal != Refusal::Closed => refusal,
            Err(NotTogether::NotStored(_) | NotTogether::SourceGone | NotTogether::Misfit { .. }) => {
                return Burial::Over;
            }
        };
        let is_too_large = matches!(refusal, Refusal::TooLarge { .. });
        if is_too_large && some.len() == 1 {
            // It never will fit, with what a dead letter has more than it had before.
            tracing::error!("queue {}: a dead letter is lost: {refusal}", self.name);
            hub.metrics.lost.inc();
            let nothing = hub.dead_letters(self, std::iter::empty());
            return match self.store_moved(hub, nothing, &ids).await {
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

    /// Reads as many as go together, and takes them out. `None` if one cannot be read now.
    async fn read_dead(
        &self,
        hub: &Queues,
        taken: &mut VecDeque<Dead>,
    ) -> Option<(VecDeque<Dead>, Vec<(StoredMessage, DeathReason)>)> {
        let mut found: Vec<Option<StoredMessage>> = Vec::with_capacity(taken.len());
        found.resize_with(taken.len(), || None);
        let mut order: Vec<usize> = (0..taken.len()).collect();
        order.sort_by_key(|index| taken.get(*index).map(|dead| dead.id));
        let mut cursor = Cursor::new(Arc::clone(&hub.kept));
        let (mut lane, mut bytes, mut last) = (None, 0, None);
        let mut read = vec![false; taken.len()];
        for index in order {
            let Some(dead) = taken.get_mut(index) else {
                continue;
            };
            if bytes >= TOGETHER_BYTES_MAX {
                break;
            }
            if lane.replace(dead.id.lane) != Some(dead.id.lane) {
                cursor.clear();
            }
            // A message that is said to be dead twice is buried once.
            let is_new = last.replace(dead.id) != Some(dead.id);
            let message = match dead.message.take() {
                Some(message) => Some(message),
                None if !is_new || self.lock().state.taken(dead.id).is_none() => None,
                None => match self.find(hub, &mut cursor, dead.id).await {
                    Found::Message(message) => Some(message),
                    Found::Gone => {
                        hub.metrics.lost.inc();
                        None
                    }
                    Found::NotNow => return None,
                },
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

/// Puts those back that were taken out of the others.
fn put_first(others: &mut VecDeque<Dead>, mut first: VecDeque<Dead>) {
    first.append(others);
    *others = first;
}
