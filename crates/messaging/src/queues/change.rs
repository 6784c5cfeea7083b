//! Changes of queues while they are there: of their settings, and pauses. They are stored with the
//! definition, and in force for waiting messages at once.

use std::sync::Arc;

use stafett_journal::{Append, Change, Frame, Ticket};
use stafett_queue::{QueueSettings, Setting};
use stafett_store::{NotStored, StageOutcome, only_outcome};

use super::definition::Definition;
use super::queue::Queue;
use super::registry::{Queues, definition_frame};
use stafett_delivery::DeliveryState;

/// Error of changing a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    #[error("the queue is gone")]
    Gone,
    #[error("{what} of a queue over a topic cannot change: its messages are the topic's")]
    Immutable { what: &'static str },
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

impl Queues {
    /// Changes settings: `change` returns the new ones for those in force. They are in force when this is
    /// first polled, and stored when it resolves.
    pub async fn change_settings(
        &self,
        queue: &Arc<Queue>,
        change: impl FnOnce(&QueueSettings) -> Vec<Setting>,
    ) -> Result<(), ChangeError> {
        let ticket = {
            let mut inner = queue.lock();
            if queue.is_deleted() {
                return Err(ChangeError::Gone);
            }
            let new = change(&inner.settings);
            if queue.over.is_some()
                && let Some(what) = new.iter().find_map(of_own_messages)
            {
                return Err(ChangeError::Immutable { what });
            }
            let mut definition = queue.definition(&inner);
            definition.changed.set(new, &queue.declared);
            let changed = definition.changed.clone();
            let settings = queue
                .policies
                .lock()
                .in_force(&queue.declared, &changed, queue.over.is_none());
            let levels = self.level_change(queue, &inner, &settings);
            let ticket = self.stage_definition(queue, &definition, levels)?;
            *queue.changed.lock() = changed;
            queue.set_settings(&self.context, &mut inner, settings);
            ticket
        };
        queue.dispatch_now();
        stored(ticket).await
    }

    /// Pauses the hand-out, or resumes it. That is in force when this is first polled, and stored when it
    /// resolves.
    pub async fn pause(&self, queue: &Arc<Queue>, is_paused: bool) -> Result<(), ChangeError> {
        let ticket = {
            let mut inner = queue.lock();
            if queue.is_deleted() {
                return Err(ChangeError::Gone);
            }
            let mut definition = queue.definition(&inner);
            definition.is_paused = is_paused;
            let ticket = self.stage_definition(queue, &definition, Vec::new())?;
            queue.set_paused(&self.context, &mut inner, is_paused);
            ticket
        };
        queue.dispatch_now();
        stored(ticket).await
    }

    /// Stages a definition, under the lock of its queue: the journal has definitions in the order of the
    /// changes, and none behind the deletion.
    fn stage_definition(
        &self,
        queue: &Queue,
        definition: &Definition,
        mut frames: Vec<Frame>,
    ) -> Result<Option<Ticket>, NotStored> {
        frames.push(definition_frame(
            queue.id,
            Change::Put(definition.encode().into()),
        ));
        let append = Append::state(frames, queue.state_wait());
        match StageOutcome::of_append(&*self.journal, append) {
            StageOutcome::Stored => Ok(None),
            StageOutcome::Waits(ticket) => Ok(Some(ticket)),
            StageOutcome::Refused(why) => Err(NotStored::Refused(why)),
        }
    }

    /// Returns the frames that give the logs another durability, if it changes.
    fn level_change(&self, queue: &Queue, inner: &DeliveryState, new: &QueueSettings) -> Vec<Frame> {
        let spec = self.log_spec(queue.durable, new.durability);
        if queue.over.is_some() || spec == self.log_spec(queue.durable, inner.settings.durability) {
            return Vec::new();
        }
        // Naming a log that is lost to damage would refuse the append.
        let logs = inner.logs.iter().map(|lane| lane.log);
        let logs = logs.filter(|log| self.journal.bounds(*log).is_some());
        let change = |first| Frame::ChangeLogs {
            first,
            count: 1,
            spec,
        };
        logs.map(change).collect()
    }
}

async fn stored(ticket: Option<Ticket>) -> Result<(), ChangeError> {
    match ticket {
        Some(ticket) => Ok(only_outcome(ticket.await.pop().as_ref())?),
        None => Ok(()),
    }
}

/// Returns the name of a setting that a queue over a topic does not have.
fn of_own_messages(setting: &Setting) -> Option<&'static str> {
    match setting {
        Setting::LengthMax(_) => Some("length_max"),
        Setting::BytesMax(_) => Some("bytes_max"),
        Setting::Overflow(_) => Some("overflow"),
        Setting::Durability(_) => Some("durability"),
        Setting::Retain(_) => Some("retain"),
        Setting::TtlMs(_) | Setting::ExpiresMs(_) | Setting::DeadLetter(_) | Setting::DeliveryLimit(_) => {
            None
        }
    }
}
