//! Receivers that ask: at intervals, or one request behind the other.
//!
//! A poll lasts from the moment at which it was due to its answer, so a stall of the system is seen by those
//! that it held up. Moments that went by meanwhile are left out: nothing asks twice at once.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep_until};

use super::message::Received;
use super::recorder::Recorder;
use crate::drivers::{DriverError, Receiver, Seat};
use crate::experiment::Does;

/// A receiver that asks, and whose answers are timed.
struct Poll {
    inner: Box<dyn Receiver>,
    recorder: Arc<Recorder>,
    every: Duration,
    due: Instant,
}

/// Lets a receiver ask at intervals, if its role does so.
pub(super) fn at_intervals(
    inner: Box<dyn Receiver>,
    seat: &Seat,
    recorder: &Arc<Recorder>,
) -> Box<dyn Receiver> {
    let role = &seat.role;
    if role.poll.is_none() && role.does != Does::Peek {
        return inner;
    }
    let every = role.poll.map_or(Duration::ZERO, |every| every.0);
    // Clients take turns rather than all ask at the same moment.
    let turn = every.mul_f64(f64::from(seat.client) / f64::from(seat.clients.max(1)));
    Box::new(Poll {
        inner,
        recorder: Arc::clone(recorder),
        every,
        due: Instant::now() + turn,
    })
}

#[async_trait]
impl Receiver for Poll {
    async fn receive(&mut self, into: &mut Vec<Received>) -> Result<(), DriverError> {
        sleep_until(self.due).await;
        self.inner.receive(into).await?;
        self.recorder.polled(self.due);
        self.due = (self.due + self.every).max(Instant::now());
        Ok(())
    }

    async fn settle(&mut self) -> Result<(), DriverError> {
        self.inner.settle().await
    }

    async fn leave(&mut self) -> Result<(), DriverError> {
        self.inner.leave().await
    }
}
