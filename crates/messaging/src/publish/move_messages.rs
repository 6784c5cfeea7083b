//! Moving the waiting messages of a queue to another one, to an exchange, or to the exchanges that they had
//! been published to before they died: a task that continues even if its caller stops waiting.
//!
//! Messages move in batches: a batch is taken, and one append stores it in its targets and settles it in the
//! source. So a move of any length holds few messages. A message that cannot be stored returns to its place,
//! and the move ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytestring::ByteString;
use stafett_journal::Refusal;
use stafett_model::Message;
use stafett_store::{Changing, NotStored};

use crate::exchanges::Target;
use crate::exchanges::resolver::{ResolvedTargets, Resolver};
use crate::queues::{AtomicPublishError, Publication, Queue, Refused, Targets};
use stafett_delivery::{DeliveryId, GetWait, MessageState, OpenMove, PulledBatch};

/// Bound on the messages of a batch.
const TOGETHER_MAX: usize = 1024;
/// Bytes at which a batch ends; the last message may exceed them.
const TOGETHER_BYTES_MAX: usize = 1 << 20;
/// Bound on the wait for disk space.
const PATIENCE: Duration = Duration::from_secs(10);

/// Target of a move. Exchanges are those of the namespace of the queue that messages come from.
#[derive(Debug, Clone)]
pub enum MoveTarget {
    Queue(Arc<Queue>),
    /// An exchange, with the routing key; `None` keeps the keys of messages.
    Exchange {
        name: ByteString,
        routing_key: Option<ByteString>,
    },
    /// Exchange and routing key of the first death of each message.
    Origin,
}

impl From<&Arc<Queue>> for MoveTarget {
    fn from(queue: &Arc<Queue>) -> Self {
        Self::Queue(Arc::clone(queue))
    }
}

/// Result of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    pub messages: u64,
    /// Reason why the move ended early; `None` if all available messages moved.
    pub stopped: Option<Stopped>,
}

/// Reason why a move ended early. Messages that did not move are in their places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    #[error("the queue that they go to is as long as it may be")]
    Full,
    #[error("the queue that they go to is gone")]
    TargetGone,
    #[error("the queue that they come from is gone")]
    SourceGone,
    #[error("the next one is larger than its target takes")]
    TooLarge,
    #[error("the next one has no key, and its target is compacted by key")]
    WithoutKey,
    #[error("the next one would go to no queue and no topic but that which it comes from")]
    Unroutable,
    #[error("the next one is no dead letter, so it has no exchange to go back to")]
    NoOrigin,
    #[error("the disk is nearly full")]
    NoSpace,
    #[error("the next one cannot be read now")]
    Unreadable,
    #[error("the broker stops")]
    Stopping,
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

/// Moves up to `count` messages from the front of a queue. Continues even if the caller stops waiting.
pub(crate) fn move_messages(
    resolver: &Arc<Resolver>,
    from: &Arc<Queue>,
    to: MoveTarget,
    count: u64,
) -> Changing<Moved, NotStored> {
    Transfer::spawn(resolver, (from, to), None, count)
}

/// Moves chosen messages of a queue, those of them that wait. Continues even if the caller stops waiting.
pub(crate) fn move_chosen(
    resolver: &Arc<Resolver>,
    from: &Arc<Queue>,
    to: MoveTarget,
    chosen: Vec<DeliveryId>,
) -> Changing<Moved, NotStored> {
    let count = chosen.len() as u64;
    Transfer::spawn(resolver, (from, to), Some(chosen.into()), count)
}

struct Transfer {
    resolver: Arc<Resolver>,
    from: Arc<Queue>,
    to: MoveTarget,
    /// Messages that were not tried yet; `None` if they come from the front.
    chosen: Option<VecDeque<DeliveryId>>,
}

impl Transfer {
    fn spawn(
        resolver: &Arc<Resolver>,
        (from, to): (&Arc<Queue>, MoveTarget),
        chosen: Option<VecDeque<DeliveryId>>,
        count: u64,
    ) -> Changing<Moved, NotStored> {
        let transfer = Self {
            resolver: Arc::clone(resolver),
            from: Arc::clone(from),
            to,
            chosen,
        };
        let moving = async move { Ok(transfer.run(count).await) };
        Changing::of(resolver.queues.spawn(moving))
    }

    async fn run(mut self, count: u64) -> Moved {
        let mut messages = 0;
        while messages < count {
            let left = usize::try_from(count - messages).unwrap_or(usize::MAX);
            match self.step(left).await {
                Ok((0, None)) => break,
                Ok((moved, stopped)) => {
                    messages += moved as u64;
                    if stopped.is_some() {
                        return Moved { messages, stopped };
                    }
                }
                Err(why) => {
                    let stopped = Some(why);
                    return Moved { messages, stopped };
                }
            }
        }
        Moved {
            messages,
            stopped: None,
        }
    }

    /// Moves one batch. Returns its size, and the reason why the next message does not move.
    async fn step(&mut self, left: usize) -> Result<(usize, Option<Stopped>), Stopped> {
        let stop = self.resolver.queues.stopped();
        let space = self.resolver.queues.space();
        let patience = tokio::time::timeout(PATIENCE, space.enough());
        match stop.run_until_cancelled(patience).await {
            None => return Err(Stopped::Stopping),
            Some(Err(_)) => return Err(Stopped::NoSpace),
            Some(Ok(())) => {}
        }
        let count = TOGETHER_MAX.min(left);
        let mut taken = match &mut self.chosen {
            None => self.from.pull(count, TOGETHER_BYTES_MAX, GetWait::ToMove).await,
            Some(chosen) => take_chosen(&self.from, chosen, count).await,
        };
        if taken.deliveries().is_empty() {
            return match self.from.is_stalled() {
                _ if self.from.is_deleted() => Err(Stopped::SourceGone),
                true => Err(Stopped::Unreadable),
                false => Ok((0, None)),
            };
        }
        let mut stopped = None;
        loop {
            let (why, fit) = match self.store(&taken).await {
                Ok(()) => {
                    let (_, moved) = taken.into_parts();
                    let context = &self.resolver.queues.context;
                    self.from.count_moved_out(context, moved.len());
                    if let MoveTarget::Queue(to) = &self.to {
                        to.count_moved_in(context, moved.len());
                    }
                    return Ok((moved.len(), stopped));
                }
                Err(NotMoved::Misfit { at, why }) => (why, at),
                Err(NotMoved::All(why)) => return Err(why),
                Err(NotMoved::TooMany) if taken.deliveries().len() > 1 => {
                    let half = taken.deliveries().len() / 2;
                    if let Some(chosen) = &mut self.chosen {
                        let later = taken.ids().split_off(half);
                        later.into_iter().rev().for_each(|id| chosen.push_front(id));
                    }
                    taken.keep(half);
                    continue;
                }
                Err(NotMoved::TooMany) => return Err(Stopped::TooLarge),
            };
            if fit == 0 {
                return Err(why);
            }
            // The first `fit` messages fit: the others return to their places.
            taken.keep(fit);
            stopped = Some(why);
        }
    }

    /// Stores all messages in their targets and settles them, or does nothing.
    async fn store(&self, taken: &PulledBatch) -> Result<(), NotMoved> {
        let Resolver { queues, topics, .. } = &*self.resolver;
        let one_place = match &self.to {
            MoveTarget::Queue(to) => {
                let is_registered =
                    queues.is_registered(to) && to.over.is_none_or(|id| topics.with_id(id).is_some());
                if !is_registered {
                    return Err(NotMoved::All(Stopped::TargetGone));
                }
                let target = Target::Queue((&*to.name).into());
                Some(self.resolver.resolve(&to.namespace, &[target]))
            }
            MoveTarget::Exchange { .. } | MoveTarget::Origin => None,
        };
        let mut publication = Publication::whole();
        for (at, delivery) in taken.deliveries().iter().enumerate() {
            let mut message = delivery.message.to_message();
            let targets = match &one_place {
                Some(places) => targets(places, &message),
                None => self.routed(&mut message),
            };
            let targets = targets.map_err(|why| NotMoved::Misfit { at, why })?;
            let route = publication.route(targets);
            publication.push(message, route);
        }
        let open = OpenMove::begin(&self.from, taken.ids());
        let settled = std::slice::from_ref(&open);
        let ticket = queues.append_settling(Some(&self.from), publication, settled);
        let stored = ticket.together().await;
        open.end(&queues.context, stored.map_err(AtomicPublishError::not_stored));
        stored.map_err(|why| match why {
            AtomicPublishError::Misfit { at, why } => NotMoved::Misfit { at, why: reason(why) },
            AtomicPublishError::SourceGone => NotMoved::All(Stopped::SourceGone),
            AtomicPublishError::NotStored(NotStored::Refused(Refusal::DiskFull)) => {
                NotMoved::All(Stopped::NoSpace)
            }
            AtomicPublishError::NotStored(NotStored::Refused(Refusal::TooLarge { .. })) => NotMoved::TooMany,
            AtomicPublishError::NotStored(NotStored::Refused(Refusal::NoSuchLog(_))) => {
                NotMoved::All(Stopped::TargetGone)
            }
            AtomicPublishError::NotStored(why) => NotMoved::All(why.into()),
        })
    }
}

impl Transfer {
    /// Names the exchange and the routing key that a message goes to, and routes it there. It does not come
    /// back to the queue that it leaves.
    fn routed(&self, message: &mut Message) -> Result<Targets, Stopped> {
        let exchanges = &self.resolver.exchanges;
        let mut has_own_keys = true;
        match &self.to {
            MoveTarget::Queue(_) => {}
            MoveTarget::Exchange { name, routing_key } => {
                message.exchange = name.clone();
                if let Some(key) = routing_key {
                    message.routing_key = key.clone();
                    has_own_keys = false;
                }
            }
            MoveTarget::Origin => {
                let first = message.deaths.iter().find(|death| death.is_first);
                let first = first.ok_or(Stopped::NoOrigin)?;
                has_own_keys = !first.keys_were_lost;
                message.exchange = first.exchange.clone();
                message.routing_key = first.routing_key.clone();
            }
        }
        let more_keys = if has_own_keys {
            exchanges.facts().more_keys(message)
        } else {
            Vec::new()
        };
        let space = exchanges.space(&self.from.namespace);
        let routing = space.ok_or(Stopped::Unroutable)?;
        let place = (&routing.name, &routing.router(), &*message.exchange);
        let places = self.resolver.places_again(place, &more_keys, message);
        let mut places = places.ok_or(Stopped::Unroutable)?;
        places.queues.retain(|queue| !Arc::ptr_eq(queue, &self.from));
        places.topics.retain(|topic| Some(topic.id) != self.from.over);
        if places.is_empty() {
            return Err(Stopped::Unroutable);
        }
        targets(&places, message)
    }
}

/// Returns the targets of a message; the reason if it does not fit into one of them.
fn targets(places: &ResolvedTargets, message: &Message) -> Result<Targets, Stopped> {
    if message.bytes() > places.message_bytes_max {
        return Err(Stopped::TooLarge);
    }
    if places.refuses_key_of(message) {
        return Err(Stopped::WithoutKey);
    }
    Ok(places.targets(message))
}

/// Takes the first of chosen messages that wait.
async fn take_chosen(from: &Arc<Queue>, chosen: &mut VecDeque<DeliveryId>, count: usize) -> PulledBatch {
    let mut taken = PulledBatch::despite_pause(from);
    let mut bytes = 0;
    while taken.deliveries().len() < count
        && bytes < TOGETHER_BYTES_MAX
        && let Some(id) = chosen.pop_front()
    {
        if let Some((message, status)) = from.find(id).await
            && status.state == MessageState::Ready
        {
            bytes += message.bytes();
            // One that another takes meanwhile does not move.
            from.take_chosen(id, message, &mut taken);
        }
    }
    taken
}

/// Reason why a batch did not move.
enum NotMoved {
    /// The message at index `at` does not fit, but all before it do.
    Misfit {
        at: usize,
        why: Stopped,
    },
    All(Stopped),
    /// The messages do not fit into one append, as segments are small.
    TooMany,
}

fn reason(why: Refused) -> Stopped {
    match why {
        Refused::QueueFull => Stopped::Full,
        Refused::TooLarge => Stopped::TooLarge,
        Refused::Gone => Stopped::TargetGone,
        Refused::Journal(refusal) => Stopped::NotStored(NotStored::Refused(refusal)),
    }
}
