//! Work of a session that takes longer than a turn: changes of subscriptions, and messages to store.

use std::sync::Arc;

use serde_json::Value;
use stafett_live_topics::{
    ChangeError, ClientName, HeldSubscription, Live, Message, NameList, Outbox, Outcome, Payload,
    PendingAppends, Published, StartFrom, SubscriptionChange, Ticket, TopicHash,
};

use super::FORESEEN;
use crate::command::{Content, Publish};
use crate::fault::Fault;

/// Changes and messages that must be stored.
#[derive(Debug, Default)]
pub struct Work {
    pub(super) messages: PendingAppends,
    pub(super) changes: Vec<SubscriptionChange>,
    pub(super) from: Option<(ClientName, NameList, StartFrom, Arc<Outbox>)>,
}

/// Outcome of [`Work`].
#[derive(Debug)]
pub struct Done {
    pub(super) messages: Result<(), Fault>,
    pub(super) changes: Vec<Result<usize, ChangeError>>,
    /// Topics that are held back until the subscription is answered.
    pub(super) held: Option<HeldSubscription>,
}

impl Work {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty() && !self.changes_anything()
    }

    pub(super) fn changes_anything(&self) -> bool {
        !self.changes.is_empty() || self.from.is_some()
    }

    /// Starts the work. The messages are appended before this returns.
    pub fn begin(self, live: Arc<Live>) -> impl Future<Output = Done> + Send {
        let stored = live.store(self.messages);
        async move {
            let messages = match stored {
                Some(stored) => all_stored(stored).await,
                None => Ok(()),
            };
            let (changes, held) = match self.from {
                Some((client, topics, from, outbox)) => {
                    let (result, held) = live.subscribe_from(client, topics, from, &outbox).await;
                    (vec![result], held)
                }
                None if self.changes.is_empty() => (Vec::new(), None),
                None => (live.change(self.changes).await, None),
            };
            Done {
                messages,
                changes,
                held,
            }
        }
    }
}

/// Resolves to success if everything is stored, and to a refusal only if nothing is.
async fn all_stored(ticket: Ticket) -> Result<(), Fault> {
    let outcomes = ticket.await;
    let is_committed = |outcome: &Outcome| matches!(outcome, Outcome::Committed(_));
    let is_refused = |outcome: &Outcome| matches!(outcome, Outcome::Refused(_));
    if outcomes.iter().all(is_committed) {
        Ok(())
    } else if outcomes.iter().all(is_refused) {
        Err(Fault::NotStored)
    } else {
        Err(Fault::OutcomeUnknown)
    }
}

/// Counts of published messages, by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    receivers: usize,
    duplicates: usize,
    pub(super) stored: usize,
}

impl Counts {
    /// Returns the fields of the answer.
    pub fn fields(self) -> Vec<(&'static str, Value)> {
        let mut fields = vec![
            ("receivers", self.receivers.into()),
            ("duplicates", self.duplicates.into()),
        ];
        if self.stored > 0 {
            fields.push(("stored", self.stored.into()));
        }
        fields
    }
}

/// Publishes messages and counts the outcomes; messages whose topics have a log are staged.
pub(super) fn publish(live: &Live, messages: &[Publish<'_>], staged: &mut PendingAppends) -> Counts {
    let mut counts = Counts::default();
    let mut foreseen = Vec::new();
    for some in messages.chunks(FORESEEN) {
        let hash = |message: &Publish<'_>| message.foreseen.unwrap_or_else(|| live.prefetch(&message.topic));
        foreseen.clear();
        foreseen.extend(some.iter().map(hash));
        if let [_, _, ..] = *foreseen {
            for hash in &foreseen {
                live.prefetch_entry(*hash);
            }
        }
        for (message, hash) in some.iter().zip(&foreseen) {
            publish_one(live, message, *hash, staged, &mut counts);
        }
    }
    counts
}

fn publish_one(
    live: &Live,
    message: &Publish<'_>,
    hash: TopicHash,
    staged: &mut PendingAppends,
    counts: &mut Counts,
) {
    let payload = match &message.payload {
        Content::Json(json) => Payload::Json(json),
        Content::Bytes(bytes) => Payload::Bytes(bytes),
    };
    let message = Message {
        topic: &message.topic,
        payload,
        timestamp: message.timestamp,
        id: message.message_id.as_deref(),
        offset: None,
    };
    match live.publish_prefetched(hash, message, staged) {
        Published::To(count) => counts.receivers += count,
        Published::Duplicate => counts.duplicates += 1,
        Published::Staged => counts.stored += 1,
    }
}

/// Publishes messages; those for a log are stored when the future resolves.
pub async fn publish_and_store(live: &Live, messages: &[Publish<'_>]) -> Result<Counts, Fault> {
    let mut staged = PendingAppends::default();
    let counts = publish(live, messages, &mut staged);
    if let Some(ticket) = live.store(staged) {
        all_stored(ticket).await?;
    }
    Ok(counts)
}
