//! Dead letters: a message that leaves its queue for another one, in one append that stores the copy and settles the
//! source.

use std::sync::Arc;

use stafett_model::{DeathReason, Message, StoredMessage};
use stafett_queue::{DeadLetter, DeliveryId, deaths};

use super::publication::Publication;
use super::pump::Doomed;
use super::queue::Queue;
use super::registry::{Queues, Route};

impl Queue {
    /// Moves messages that nobody had.
    pub(super) fn bury_doomed(self: &Arc<Self>, hub: &Arc<Queues>, doomed: Doomed) {
        let Doomed { messages, changes } = doomed;
        let publication = hub.dead_letters(self, messages);
        self.store_moved(hub, publication, &changes);
    }

    /// Moves messages in flight.
    pub(super) fn bury(self: &Arc<Self>, dead: Vec<(DeliveryId, DeathReason)>) {
        let Some(hub) = self.hub.upgrade() else { return };
        let queue = Arc::clone(self);
        hub.clone().tasks.spawn(async move {
            let ids: Vec<DeliveryId> = dead.iter().map(|(id, _)| *id).collect();
            let publish = |moved: Vec<(usize, StoredMessage)>| {
                let messages: Vec<_> = moved
                    .into_iter()
                    .filter_map(|(index, message)| Some((message, dead.get(index)?.1)))
                    .collect();
                for (_, reason) in &messages {
                    hub.metrics.on_death(*reason);
                }
                hub.dead_letters(&queue, messages)
            };
            queue.move_taken(&hub, &ids, publish).await;
            queue.pump();
        });
    }
}

impl Queues {
    /// What is published of messages that left a queue as dead letters.
    fn dead_letters(&self, queue: &Queue, messages: Vec<(StoredMessage, DeathReason)>) -> Publication {
        let mut publication = Publication::atomic();
        if let Some(router) = self.router.get() {
            for (stored, reason) in messages {
                self.add_dead_letter(&mut publication, &**router, queue, stored.to_message(), reason);
            }
        }
        publication
    }

    /// Messages that a queue refused go where its dead letters go.
    pub(super) fn dead_letter_refused(self: &Arc<Self>, refused: Vec<(Arc<Queue>, Message)>) {
        let Some(router) = self.router.get() else { return };
        let mut publication = Publication::default();
        for (queue, message) in refused {
            self.add_dead_letter(&mut publication, &**router, &queue, message, DeathReason::Length);
        }
        if !publication.is_empty() {
            drop(self.append(publication));
        }
    }

    /// Publishes a message to where the dead letters of a queue go, unless that is nowhere or a circle.
    fn add_dead_letter(
        &self,
        publication: &mut Publication,
        router: &dyn Route,
        queue: &Queue,
        mut message: Message,
        reason: DeathReason,
    ) {
        let Some(DeadLetter {
            exchange,
            routing_key,
        }) = &queue.settings.dead_letter
        else {
            return;
        };
        // A key of the queue's own replaces all that a message came with, for good.
        let loses_keys = routing_key.is_some();
        deaths::note(&mut message, &queue.name, reason, loses_keys, self.clock.now_ms());
        let by_more_keys = !deaths::keys_are_lost(&message);
        message.exchange = exchange.clone();
        if let Some(key) = routing_key {
            message.routing_key = key.clone();
        }
        let mut targets = router.targets(
            &queue.namespace,
            &message.exchange,
            &message.routing_key,
            &message,
            by_more_keys,
        );
        targets
            .queues
            .retain(|queue| !deaths::is_circle(&message, &queue.name));
        targets.logs.retain(|log| !self.comes_back(&message, *log));
        if !targets.is_empty() {
            let route = publication.route(targets);
            publication.push(message, route);
            self.metrics.dead_lettered.inc();
        }
    }
}
