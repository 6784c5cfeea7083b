//! An app's tasks as they are shown: positions, lag, and obstacles.

use std::sync::Arc;

use stafett_topics::Topic;

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
        let look = |slot: &Slot| slot.with_state(|state| Ok(state.position.clone()));
        match look(&slot) {
            Err(AppError::Unreadable { .. }) => look(&*self.followed(&slot).await?),
            found => found,
        }
    }

    /// Returns position and totals of a task, as far as they are known.
    pub fn known(&self, task: TaskId) -> Option<Known> {
        self.slot(task)?.known()
    }

    /// Returns lag and state of all tasks, as far as they are known.
    pub(crate) fn standing(&self) -> Standing {
        let slots: Vec<Arc<Slot>> = self.slots.read().values().cloned().collect();
        let (now_ms, rules) = (self.wall_ms(), self.stored().definition.time);
        let grace_ms = if rules.of_records { rules.grace_ms } else { 0 };
        let mut standing = Standing::default();
        for slot in slots {
            let Some(known) = slot.known() else { continue };
            let (_, lag) = self.ends(slot.task, &known.position.next);
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

    /// Returns the ends of a task's inputs, `None` for one that is gone, and the records between its places
    /// and them. Of a topic that was made again all records wait.
    pub fn ends(&self, task: TaskId, next: &[u64]) -> (Vec<Option<u64>>, u64) {
        let stored = self.stored();
        let catalog = &self.parts.catalog;
        let names = stored.definition.topics.iter();
        let (mut ends, mut lag) = (Vec::new(), 0);
        for ((topic, name), next) in self.inputs().into_iter().zip(names).zip(next) {
            let bounds = |topic: &Arc<Topic>| catalog.bounds(topic.log(task.partition)?);
            let end = topic.as_ref().and_then(bounds).map(|bounds| bounds.stable.0);
            lag += match end {
                Some(end) => end.saturating_sub(*next),
                None => catalog
                    .topics()
                    .named(name)
                    .as_ref()
                    .and_then(bounds)
                    .map_or(0, |again| again.stable.0 - again.start.0),
            };
            ends.push(end);
        }
        (ends, lag)
    }

    /// Takes care that the positions of all tasks are known, without reading their state.
    pub async fn know_positions(&self) {
        let slots: Vec<Arc<Slot>> = self.slots.read().values().cloned().collect();
        let inputs = self.inputs();
        for topic in inputs.iter().flatten() {
            // Of a cell that has no owner, the ends are those that were known last.
            self.parts.catalog.reach(topic).await;
        }
        for slot in slots {
            if let Err(why) = slot.know(&self.parts.catalog, &inputs).await {
                tracing::debug!(app = &*self.name, task = %slot.task, "the position is not known: {why}");
                // The whole log may tell more than its end.
                drop(self.readable(slot.task).await);
            }
        }
    }

    /// Returns the reason why a task's log cannot be read, if that was tried in vain.
    pub fn unreadable(&self, task: TaskId) -> Option<String> {
        self.slot(task)?.unreadable()
    }

    /// Returns the gap at which a task rests.
    pub fn gap(&self, task: TaskId) -> Option<Gap> {
        self.slot(task)?.delivery.lock().gap
    }

    /// Returns a record that fails, if there is one, and its input; or a timer that does. Of several, one at
    /// which the task stops.
    pub fn failure(&self, task: TaskId) -> Option<(usize, Failure)> {
        let slot = self.slot(task)?;
        let state = slot.state.lock();
        let failures = state.as_ref()?.failures().iter();
        let failures = failures.filter(|(_, failure)| failure.attempts > 0);
        let (place, failure) = failures.min_by_key(|(_, failure)| !failure.is_last())?;
        Some((usize::from(place.input), failure.clone()))
    }

    /// Returns position and state of a claim. `None` if the worker does not have it any more.
    pub fn claim_view(&self, session: Session<'_>, claim: Claim) -> Option<ClaimView> {
        let slot = self.claimed(session, claim).ok()?;
        let view = slot.with_state(|state| {
            Ok(ClaimView {
                position: state.position.clone(),
                done: state
                    .done()
                    .keys()
                    .iter()
                    .map(|(key, behind)| (key.clone(), behind.clone()))
                    .collect(),
                totals: state.totals(),
            })
        });
        view.ok()
    }
}
