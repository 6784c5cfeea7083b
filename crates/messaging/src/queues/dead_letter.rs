//! Dead letters of queues: their targets and their death history.

use std::sync::Arc;

use stafett_journal::{Frame, Refusal};
use stafett_model::{DeathReason, Message, StoredMessage};
use stafett_queue::{DeadLetter, QueueSettings, death_history};
use stafett_store::NotStored;

use super::publication::{AtomicPublishError, Publication, Targets};
use super::queue::Queue;
use super::registry::Queues;
use stafett_delivery::{DispatcherOwner, StoringLetters};

impl Queues {
    /// Returns the publication of messages that leave a queue as dead letters. Letters refused by their
    /// targets are dropped.
    fn dead_letters(&self, queue: &Queue, messages: Vec<(StoredMessage, DeathReason)>) -> Publication {
        let mut publication = Publication::together();
        let settings = queue.settings();
        for (stored, reason) in messages {
            if let Some((message, targets)) = self.dead_letter(queue, &settings, stored.to_message(), reason)
            {
                let route = publication.route(targets);
                publication.push(message, route);
            }
        }
        publication
    }

    /// Returns a message that a queue refused as its dead letter, with its targets; `None` if it has none.
    pub(super) fn dead_letter_of(&self, full: &Queue, message: Message) -> Option<(Message, Targets)> {
        let dead = self.dead_letter(full, &full.settings(), message, DeathReason::Length);
        self.context
            .metrics
            .dead_lettered
            .inc_by(u64::from(dead.is_some()));
        if dead.is_some() {
            full.count_dead_lettered(&self.context, 1);
        }
        dead
    }

    /// Dead-letters messages that a queue refused. Their publisher learns that they were refused.
    pub(super) fn dead_letter_refused(self: &Arc<Self>, refused: Vec<(Arc<Queue>, Message)>) {
        let mut publication = Publication::default();
        for (queue, message) in refused {
            if let Some((message, targets)) = self.dead_letter_of(&queue, message) {
                let route = publication.route(targets);
                publication.push(message, route);
            }
        }
        if !publication.is_empty() {
            drop(self.append(publication));
        }
    }

    /// Turns a message into a dead letter with its targets. `None` if it has none, or would only circle.
    fn dead_letter(
        &self,
        queue: &Queue,
        settings: &QueueSettings,
        mut message: Message,
        reason: DeathReason,
    ) -> Option<(Message, Targets)> {
        let DeadLetter {
            exchange,
            routing_key,
        } = settings.dead_letter.as_ref()?;
        // A key of the queue's own permanently replaces all keys of the message.
        let loses_keys = routing_key.is_some();
        death_history::record(
            &mut message,
            &queue.name,
            reason,
            loses_keys,
            self.context.clock.wall_ms(),
        );
        let by_more_keys = !death_history::keys_are_lost(&message);
        message.exchange = exchange.clone();
        if let Some(key) = routing_key {
            message.routing_key = key.clone();
        }
        let mut targets = self.router.targets(&queue.namespace, &message, by_more_keys);
        targets
            .queues
            .retain(|queue| !death_history::is_circle(&message, &queue.name));
        targets.logs.retain(|log| !self.would_loop(&message, *log));
        (!targets.is_empty()).then_some((message, targets))
    }
}

impl DispatcherOwner for Queue {
    fn describe(&self) -> String {
        format!("queue {}", self.name)
    }

    fn on_unused(self: Arc<Self>, had_consumers: bool) {
        if (self.auto_delete || !had_consumers)
            && let Some(queues) = self.queues.upgrade()
        {
            queues.delete_unused(&self, had_consumers);
        }
    }

    fn store_dead_letters(
        self: Arc<Self>,
        letters: Vec<(StoredMessage, DeathReason)>,
        settlement: Option<Frame>,
    ) -> StoringLetters {
        let Some(queues) = self.queues.upgrade() else {
            return Box::pin(std::future::ready(Err(NotStored::Refused(Refusal::Closed))));
        };
        let publication = queues.dead_letters(&self, letters);
        let count = publication.len() as u64;
        let ticket = queues.append_from(&self, publication, settlement);
        Box::pin(async move {
            let stored = ticket.together().await.map_err(AtomicPublishError::not_stored);
            if stored.is_ok() {
                queues.context.metrics.dead_lettered.inc_by(count);
                self.count_dead_lettered(&queues.context, count);
            }
            stored
        })
    }
}
