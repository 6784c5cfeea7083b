//! Batches of one partition into its target, again and again until they are stored.
//!
//! After every failure the target is opened anew: that fences an attempt that hangs, and tells from the
//! position whether the batch counts.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use stafett_model::Lock;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::dead::{DeadTopic, Origin};
use crate::flush::{DeadLetters, FlushError, Flushed, flush};
use crate::gate::Gate;
use crate::gather::Batch;
use crate::pace::{Limiter, Waits};
use crate::status::{Limit, State, Status};
use crate::target::{Opened, Place, Start, Target, TargetError};
use crate::turns::{Turn, Turns};

/// Wait before another attempt where something has to be mended first.
pub(crate) const STOPPED: Duration = Duration::from_mins(1);
/// Time after which a flush no longer holds up those of other partitions.
const HANGS: Duration = Duration::from_secs(30);

/// The writing end of a partition.
pub(crate) struct Writer {
    pub(crate) place: Place,
    pub(crate) target: Box<dyn Target>,
    pub(crate) dead: DeadTopic,
    pub(crate) limiter: Arc<Lock<Limiter>>,
    pub(crate) turns: Arc<Turns>,
    pub(crate) gate: Gate,
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
            let opening = self.target.open(&self.place, start);
            match watched(&self.status, &self.place, opening, || {}).await {
                Ok(mut opened) => {
                    self.epoch = opened.epoch;
                    if let Origin::Queue(_) = self.dead.source {
                        // Its messages come again in another number: there is no end to wait for.
                        opened.begun = None;
                    }
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
            self.status.limited(Limit::Rate, wait);
            sleep(Duration::from_millis(wait)).await;
        }
        loop {
            let mut turn = self.turn().await;
            let begun_ms = (self.now_ms)();
            let flushing = flushed(&mut *self.target, self.epoch, batch, &mut self.dead);
            let ended = watched(&self.status, &self.place, flushing, || turn.hangs()).await;
            let now_ms = (self.now_ms)();
            let took_ms = now_ms.saturating_sub(begun_ms);
            // It ends here in any case: nothing is written in the waits below.
            match &ended {
                Ok(flushed) if flushed.tries <= 1 => turn.took(bytes, took_ms, now_ms),
                Err(FlushError::Target(TargetError::Retry(_))) => turn.failed(),
                // A batch with poison takes several attempts; other errors say nothing about the load.
                Ok(_) | Err(_) => drop(turn),
            }
            let why = match ended {
                Ok(flushed) => return self.stored(batch, &flushed, took_ms),
                Err(FlushError::Target(why)) => why,
                Err(FlushError::DeadLetters(why)) => TargetError::Retry(format!("dead letters: {why}")),
                Err(
                    ref why @ FlushError::TooMuchPoison {
                        count, offset, class, ..
                    },
                ) => {
                    self.status.enter(State::Paused, &why.to_string());
                    // The text of the reason may hold a part of a record, and is not for the log.
                    warn!(place = %self.place, count, offset, class, "sink paused: records are poison");
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
        self.status.parallel(self.turns.limit());
        self.succeeded();
        Stored::Whole
    }

    /// Waits until this partition may write.
    async fn turn(&mut self) -> Turn {
        let begun_ms = (self.now_ms)();
        let turn = self.gate.turn(&self.turns).await;
        let wait_ms = (self.now_ms)().saturating_sub(begun_ms);
        self.status.limited(Limit::Turn, wait_ms);
        turn
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
        self.status.parallel(self.turns.limit());
        if self.status.trouble(&self.place, state, &why.to_string()) {
            warn!(place = %self.place, state = state.word(), "{why}");
        }
        sleep(wait).await;
    }
}

/// Waits for a target. Silence for long is trouble, until the partition goes on.
async fn watched<T>(
    status: &Status,
    place: &Place,
    asked: impl Future<Output = T>,
    on_silence: impl FnOnce(),
) -> T {
    let mut asked = pin!(asked);
    if let Ok(answer) = timeout(HANGS, &mut asked).await {
        return answer;
    }
    on_silence();
    let why = format!("no answer of the target for {} s", HANGS.as_secs());
    if status.trouble(place, State::Retrying, &why) {
        warn!(%place, "{why}");
    }
    asked.await
}

/// Flushes a batch. A panic stops the sink like any fault that has to be mended, with the target opened anew.
async fn flushed(
    target: &mut dyn Target,
    epoch: u64,
    batch: &Batch,
    dead: &mut dyn DeadLetters,
) -> Result<Flushed, FlushError> {
    caught(flush(target, epoch, batch, dead))
        .await
        .unwrap_or_else(|| {
            let why = "the batch cannot be written: its flush panicked".to_owned();
            Err(TargetError::Stop(why).into())
        })
}

/// Runs to the end. `None` after a panic.
pub(crate) async fn caught<T>(running: impl Future<Output = T>) -> Option<T> {
    let mut running = pin!(running);
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context)));
        polled.map_or(Poll::Ready(None), |polled| polled.map(Some))
    })
    .await
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::gather::{Cause, Dropped, Poison};
    use crate::rows::Rows;

    struct Panicking;

    #[async_trait]
    impl DeadLetters for Panicking {
        async fn store(&mut self, _: &Place, _: &[Poison]) -> Result<(), FlushError> {
            panic!("as a fault of the code would");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_target_that_is_silent_for_long_is_trouble() {
        let place = Place {
            topic: "t".to_owned(),
            partition: 0,
        };
        let (status, mut silences) = (Status::default(), 0);
        let short = watched(&status, &place, sleep(HANGS / 2), || silences += 1);
        short.await;
        assert_eq!(status.state().0, State::Running);
        {
            let mut long = pin!(watched(&status, &place, sleep(HANGS * 4), || silences += 1));
            assert!(timeout(HANGS * 2, &mut long).await.is_err());
            let expected = (State::Retrying, "no answer of the target for 30 s".to_owned());
            assert_eq!(status.state(), expected);
            long.await;
        }
        assert_eq!(silences, 1);
    }

    #[tokio::test]
    async fn a_flush_that_panics_stops_the_sink() {
        let place = Place {
            topic: "t".to_owned(),
            partition: 0,
        };
        let reason = crate::convert::Reason {
            class: "json",
            text: String::new(),
        };
        let batch = Batch {
            place,
            from: 0,
            next: 1,
            rows: Rows::new(0),
            poison: vec![Poison { offset: 0, reason }],
            records: 1,
            dropped: Dropped::default(),
            newest_ms: None,
            is_whole: false,
            cause: Cause::Time,
        };
        let text = "[sink.a]\nfrom = \"t\"\nto = \"postgres\"\nurl = \"env:U\"\ntable = \"t\"\n[sink.a.columns]\na = { type = \"text\" }\n";
        let sink = crate::definition::Definition::parse(text).unwrap().remove(0);
        let crate::definition::TargetSpec::Postgres(spec) = &sink.target else {
            panic!("a target of PostgreSQL");
        };
        let steps = crate::target::Steps::default();
        let mut target = crate::target::postgres::Postgres::new("a", spec, &sink.columns, &sink.mode, steps);
        let ended = flushed(&mut target, 0, &batch, &mut Panicking).await;
        assert!(
            matches!(ended, Err(FlushError::Target(TargetError::Stop(_)))),
            "{ended:?}"
        );
    }
}
