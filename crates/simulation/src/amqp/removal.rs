//! Queues that are purged, or deleted and declared again, with messages ready and in flight.

use std::collections::BTreeSet;

use stafett_amqp_wire::methods::queue;

use super::copies::CopyId;
use super::{OVER, Patience, QUEUES, queue_definition};
use crate::server::Server;
use crate::steps::Message;
use crate::world::{Broken, Finding, World};

/// Maximum milliseconds to wait for pending answers. A client without answers by then has paused.
const QUIET_MS: u32 = 600;
/// The queue whose messages expire.
const BRIEF: u8 = 3;

/// A purge or deletion of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removal {
    pub queue: u8,
    pub how: Removing,
    /// Client that publishes right before, and its number of messages.
    pub last: (u8, u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removing {
    Purge,
    /// Followed by a new declaration.
    Delete,
}

impl World {
    pub async fn remove(&mut self, server: &mut Server, removal: Removal) -> Result<(), Broken> {
        let Removal { queue, how, last } = removal;
        // Its topic would bring the messages back to the next queue.
        let how = if queue == OVER { Removing::Purge } else { how };
        let Some(name) = QUEUES.get(usize::from(queue)).copied() else {
            return Ok(());
        };
        if !self.is_quiet(server).await? {
            return Ok(());
        }
        // Ready messages of a queue without consumers are certain to be purged.
        let is_consumed = self.amqp.clients.iter().any(|client| client.consumes(queue));
        let waiting = if how == Removing::Purge && !is_consumed && queue != BRIEF {
            self.waiting_in(server, queue).await?
        } else {
            BTreeSet::new()
        };
        let message = Message {
            count: last.1,
            bytes: 100,
            priority: 0,
            is_persistent: true,
            patience: Patience::default(),
        };
        self.publish(server, last.0, queue, message)?;
        let held = self.held_elsewhere(queue, how);
        let copies = &mut self.amqp.copies;
        let certain = copies.endanger(queue, &held);
        if how == Removing::Purge {
            let purge = queue::Purge {
                queue: name.into(),
                ..queue::Purge::default()
            };
            self.tell(server, vec![purge.into()]).await?;
            return self.check_purged(server, queue, &waiting).await;
        }
        copies.begin_deletion(queue, &held);
        let delete = queue::Delete {
            queue: name.into(),
            ..queue::Delete::default()
        };
        let again = queue_definition(queue);
        let methods = std::iter::once(delete.into()).chain(again).collect();
        let told = self.tell(server, methods).await;
        if told.is_err() {
            // Messages of other queues that clients held may expire after a start, while this target of dead
            // letters does not exist.
            drop(self.amqp.copies.endanger(queue, &BTreeSet::new()));
        }
        told?;
        self.amqp.copies.end_deletion(&certain);
        Ok(())
    }

    /// Waits until no client waits for an answer. Returns false if one still does.
    async fn is_quiet(&mut self, server: &mut Server) -> Result<bool, Broken> {
        for _ in 0..QUIET_MS {
            self.tick(server).await?;
            if self.may_refuse {
                return Ok(false);
            }
            if !self.amqp.clients.iter().any(super::client::Client::is_waiting) {
                self.rest(server, 5).await?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn waiting_in(&mut self, server: &mut Server, queue: u8) -> Result<BTreeSet<CopyId>, Broken> {
        let numbers = self.look_at_queue(server, queue).await?;
        let copies = &self.amqp.copies;
        Ok(numbers
            .into_iter()
            .filter_map(|number| copies.in_queue(number, queue))
            .collect())
    }

    /// Returns the copies that survive: a purge spares messages in flight, a deletion those of other queues.
    fn held_elsewhere(&self, queue: u8, how: Removing) -> BTreeSet<CopyId> {
        let copies = &self.amqp.copies;
        let held = self.amqp.clients.iter().flat_map(|client| client.held(copies));
        held.filter(|(_, from)| *from != queue || how == Removing::Purge)
            .map(|(id, _)| id)
            .collect()
    }

    /// Checks that the messages that were ready before a purge are gone.
    async fn check_purged(
        &mut self,
        server: &mut Server,
        queue: u8,
        waited: &BTreeSet<CopyId>,
    ) -> Result<(), Broken> {
        let left = self.waiting_in(server, queue).await?;
        if let Some(id) = waited.intersection(&left).next() {
            return Err(Finding(format!("{id:?} is there after a purge of queue {queue}")).into());
        }
        let now_ms = self.now_ms();
        for id in waited {
            self.amqp.copies.settle(*id, now_ms, false);
        }
        Ok(())
    }
}
