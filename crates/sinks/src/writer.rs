//! Batches of one partition into its target, again and again until they are stored.
//!
//! After every failure the target is opened anew: that fences an attempt that hangs, and tells from the
//! position whether the batch counts.

use std::sync::Arc;
use std::time::Duration;

use stafett_model::Lock;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::dead::DeadTopic;
use crate::flush::{FlushError, Flushed, flush};
use crate::gather::Batch;
use crate::pace::{Limiter, Waits};
use crate::status::{State, Status};
use crate::target::{Opened, Place, Start, Target, TargetError};

/// Wait before another attempt where something has to be mended first.
const STOPPED: Duration = Duration::from_mins(1);

/// The writing end of a partition.
pub(crate) struct Writer {
    pub(crate) place: Place,
    pub(crate) target: Box<dyn Target>,
    pub(crate) dead: DeadTopic,
    pub(crate) limiter: Arc<Lock<Limiter>>,
    pub(crate) status: Arc<Status>,
    pub(crate) now_ms: fn() -> u64,
    /// The place, as it was when the target was opened.
    pub(crate) start: Start,
    pub(crate) epoch: u64,
    pub(crate) waits: Waits,
}

/// End of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    /// The target is behind the batch.
    Whole,
    /// The target is elsewhere: reading goes on there.
    Elsewhere(Opened),
    /// Too much poison: the sink has to be paused.
    Poisoned,
    /// The position is that of another topic of the same name.
    MadeAgain,
}

impl Writer {
    /// Opens the target, however long that takes. An error is that the position is one of an earlier topic.
    pub(crate) async fn open(&mut self, start: Start) -> Result<Opened, TargetError> {
        self.start = start;
        self.dead.set_topic(start.topic);
        loop {
            match self.target.open(&self.place, start).await {
                Ok(opened) => {
                    self.epoch = opened.epoch;
                    return Ok(opened);
                }
                Err(why @ TargetError::MadeAgain(_)) => return Err(why),
                Err(why) => self.pause_after(&why).await,
            }
        }
    }

    /// Writes a batch, however long that takes.
    pub(crate) async fn store(&mut self, batch: &Batch) -> Stored {
        let (rows, bytes) = (batch.rows.len() as u64, batch.rows.bytes() as u64);
        let wait = self.limiter.lock().take(rows, bytes, (self.now_ms)());
        if wait > 0 {
            self.status.limited(wait);
            sleep(Duration::from_millis(wait)).await;
        }
        loop {
            let begun_ms = (self.now_ms)();
            let why = match flush(&mut *self.target, self.epoch, batch, &mut self.dead).await {
                Ok(flushed) => {
                    let took_ms = (self.now_ms)().saturating_sub(begun_ms);
                    return self.stored(batch, &flushed, took_ms);
                }
                Err(FlushError::Target(why)) => why,
                Err(FlushError::DeadLetters(why)) => TargetError::Retry(format!("dead letters: {why}")),
                Err(why @ FlushError::TooMuchPoison { .. }) => {
                    self.status.enter(State::Paused, &why.to_string());
                    warn!(place = %self.place, "sink paused: {why}");
                    return Stored::Poisoned;
                }
            };
            self.pause_after(&why).await;
            let Ok(opened) = self.open(self.start.with_next(batch.from)).await else {
                return Stored::MadeAgain;
            };
            if opened.next == batch.next {
                return self.stored(batch, &Flushed::default(), 0);
            }
            if opened.next != batch.from || opened.begun.is_some_and(|end| end != batch.next) {
                return Stored::Elsewhere(opened);
            }
        }
    }

    /// Notes that the target is behind a batch.
    fn stored(&mut self, batch: &Batch, flushed: &Flushed, took_ms: u64) -> Stored {
        self.dead.stored.forget_below(batch.next);
        self.status.flushed(batch, flushed, took_ms);
        self.succeeded();
        Stored::Whole
    }

    /// Notes that the target takes rows.
    pub(crate) fn succeeded(&mut self) {
        self.waits.reset();
        if self.status.goes_on(&self.place) {
            info!(place = %self.place, "the target takes rows again");
        }
    }

    pub(crate) async fn pause_after(&mut self, why: &TargetError) {
        let (state, wait) = match why {
            TargetError::Retry(_) | TargetError::Fenced(_) => {
                let wait = self.waits.next_ms(rand::random());
                (State::Retrying, Duration::from_millis(wait))
            }
            TargetError::Stop(_) | TargetError::Poison { .. } | TargetError::MadeAgain(_) => {
                (State::Stopped, STOPPED)
            }
        };
        self.status.failed(why);
        if self.status.trouble(&self.place, state, &why.to_string()) {
            warn!(place = %self.place, state = state.word(), "{why}");
        }
        sleep(wait).await;
    }
}
