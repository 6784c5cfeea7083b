//! Positions of a target that holds none, in the task of the sink's app.

use std::fmt;

use async_trait::async_trait;
use stafett_model::Lock;
use tokio::sync::{mpsc, oneshot};

use crate::held::Holding;
use crate::pump::News;
use crate::target::{Ledger, Opened, Place, Start, TargetError};

/// A task of the app. Its runner stores the bounds.
pub(crate) struct TaskLedger {
    of: Holding,
    epoch: u64,
    news: mpsc::Sender<News>,
    /// Position, and the end of the batch that was begun there. `None` before the task's first commit.
    bounds: Lock<Option<(u64, u64)>>,
}

impl fmt::Debug for TaskLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskLedger({})", self.of.task)
    }
}

impl TaskLedger {
    pub(crate) fn new(of: Holding, epoch: u64, news: mpsc::Sender<News>, bounds: Option<(u64, u64)>) -> Self {
        Self {
            of,
            epoch,
            news,
            bounds: Lock::new(bounds),
        }
    }
}

#[async_trait]
impl Ledger for TaskLedger {
    async fn open(&self, _: &Place, start: Start) -> Result<Opened, TargetError> {
        let (next, end) = *self.bounds.lock().get_or_insert((start.next, start.next));
        Ok(Opened {
            next,
            epoch: self.epoch,
            begun: (end > next).then_some(end),
            topic: None,
        })
    }

    async fn begin(&self, place: &Place, from: u64, next: u64) -> Result<(), TargetError> {
        let (reply, answer) = oneshot::channel();
        let news = News::Begin {
            of: self.of.clone(),
            topic: place.topic.clone(),
            bounds: (from, next),
            reply,
        };
        let fenced = || TargetError::Fenced(place.clone());
        self.news.send(news).await.map_err(|_| fenced())?;
        let stored = answer.await.map_err(|_| fenced())??;
        *self.bounds.lock() = Some(stored);
        if stored == (from, next) {
            return Ok(());
        }
        // The answer to them was lost, and the batch of today is another one.
        let (from, next) = stored;
        let why = format!("a batch of {place} was begun before, from {from} to {next}");
        Err(TargetError::Retry(why))
    }

    fn end(&self, _: &Place, next: u64) {
        let mut bounds = self.bounds.lock();
        let end = bounds.map_or(0, |(_, end)| end);
        *bounds = Some((next, end.max(next)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_position_of_zero_is_one_and_none_is_the_begin() {
        let place = Place {
            topic: "t".to_owned(),
            partition: 0,
        };
        for (bounds, expected) in [(None, 70), (Some((0, 0)), 0), (Some((30, 30)), 30)] {
            let (news, _heard) = mpsc::channel(1);
            let of = Holding {
                task: "0".to_owned(),
                number: 1,
            };
            let ledger = TaskLedger::new(of, 1, news, bounds);
            let opened = ledger.open(&place, Start::at(70)).await.unwrap();
            assert_eq!(opened.next, expected, "{bounds:?}");
        }
    }
}
