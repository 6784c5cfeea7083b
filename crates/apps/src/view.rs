//! An app's tasks as they are shown: positions, lag, and obstacles.

use std::sync::Arc;

use crate::app::{App, Claim, ClaimView, Session};
use crate::delivery::Gap;
use crate::entry::Position;
use crate::error::AppError;
use crate::failure::Failure;
use crate::metrics::Standing;
use crate::slot::{Known, Slot};
use crate::task::TaskId;

impl App {
    /// Returns the position of a task, which is read if it has to be.
    pub async fn position(&self, task: TaskId) -> Result<Position, AppError> {
        let slot = self.readable(task).await?;
        slot.with_state(|state| Ok(state.position.clone()))
    }

    /// Returns position and totals of a task, as far as they are known.
    pub fn known(&self, task: TaskId) -> Option<Known> {
        self.slot(task)?.known()
    }

    /// Returns lag and state of all tasks, as far as they are known.
    pub(crate) fn standing(&self) -> Standing {
        let slots: Vec<Arc<Slot>> = self.slots.read().values().cloned().collect();
        let topics = self.topics().unwrap_or_default();
        let (now_ms, rules) = (self.wall_ms(), self.stored().definition.time);
        let grace_ms = if rules.of_records { rules.grace_ms } else { 0 };
        let mut standing = Standing::default();
        for slot in slots {
            let Some(known) = slot.known() else { continue };
            let inputs = topics.iter().zip(&known.position.next);
            let lag: u64 = inputs
                .map(|(topic, next)| {
                    let log = topic.log(slot.task.partition);
                    let bounds = log.and_then(|log| self.parts.catalog.bounds(log));
                    bounds.map_or(0, |bounds| bounds.stable.0.saturating_sub(*next))
                })
                .sum();
            standing.lag += lag;
            let time = known.position.time;
            if lag > 0 && time > i64::MIN {
                let behind = now_ms.saturating_sub(time.saturating_add_unsigned(grace_ms));
                standing.lag_ms = standing.lag_ms.max(behind);
            }
            let totals = known.totals.unwrap_or_default();
            standing.bytes += totals.bytes;
            standing.entries += totals.entries as u64;
            standing.timers += totals.timers as u64;
        }
        standing
    }

    /// Takes care that the positions of all tasks are known, without reading their state.
    pub async fn know_positions(&self) {
        let slots: Vec<Arc<Slot>> = self.slots.read().values().cloned().collect();
        let topics = self.topics().unwrap_or_default();
        for slot in slots {
            if let Err(why) = slot.know(&self.parts.catalog, &topics).await {
                tracing::debug!(app = &*self.name, task = %slot.task, "the position is not known: {why}");
                // The whole log may tell more than its end.
                drop(self.readable(slot.task).await);
            }
        }
    }

    /// Returns the gap at which a task rests.
    pub fn gap(&self, task: TaskId) -> Option<Gap> {
        self.slot(task)?.delivery.lock().gap
    }

    /// Returns a record that fails, if there is one, and its input.
    pub fn failure(&self, task: TaskId) -> Option<(usize, Failure)> {
        let slot = self.slot(task)?;
        let state = slot.state.lock();
        let (input, failure) = state.as_ref()?.failures().first_key_value()?;
        Some((usize::from(*input), failure.clone()))
    }

    /// Returns position and state of a claim. `None` if the worker does not have it any more.
    pub fn claim_view(&self, session: Session<'_>, claim: Claim) -> Option<ClaimView> {
        let slot = self.claimed(session, claim).ok()?;
        let view = slot.with_state(|state| {
            Ok(ClaimView {
                position: state.position.clone(),
                done: state
                    .done()
                    .iter()
                    .map(|(key, behind)| (key.clone(), behind.clone()))
                    .collect(),
                totals: state.totals(),
            })
        });
        view.ok()
    }
}
