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
use crate::flush::{FlushError, flush};
use crate::gather::Batch;
use crate::pace::{Limiter, Waits};
use crate::status::{State, Status};
use crate::target::{Opened, Place, Target, TargetError};

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
}

impl Writer {
    /// Opens the target, however long that takes.
    pub(crate) async fn open(&mut self, begin: u64) -> Opened {
        loop {
            match self.target.open(&self.place, begin).await {
                Ok(opened) => {
                    self.epoch = opened.epoch;
                    return opened;
                }
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
                    self.status.flushed(batch, &flushed, took_ms);
                    self.succeeded();
                    return Stored::Whole;
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
            let opened = self.open(batch.from).await;
            if opened.next == batch.next {
                self.status.flushed(batch, &crate::flush::Flushed::default(), 0);
                self.succeeded();
                return Stored::Whole;
            }
            if opened.next != batch.from {
                return Stored::Elsewhere(opened);
            }
        }
    }

    fn succeeded(&mut self) {
        self.waits.reset();
        if self.status.enter(State::Running, "") {
            info!(place = %self.place, "the target takes rows again");
        }
    }

    async fn pause_after(&mut self, why: &TargetError) {
        let (state, wait) = match why {
            TargetError::Retry(_) | TargetError::Fenced(_) => {
                let wait = self.waits.next_ms(rand::random());
                (State::Retrying, Duration::from_millis(wait))
            }
            TargetError::Stop(_) | TargetError::Poison { .. } => (State::Stopped, STOPPED),
        };
        self.status.failed(why);
        if self.status.enter(state, &why.to_string()) {
            warn!(place = %self.place, state = state.word(), "{why}");
        }
        sleep(wait).await;
    }
}
