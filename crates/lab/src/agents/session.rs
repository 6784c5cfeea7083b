//! One controller at an agent: its orders, and the reports of its loads, which run one after the other.

mod work;

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::work::{Work, next_of, work};
use super::protocol::{
    Described, FromAgent, OfLoad, Preparation, ProtocolError, Question, Reader, ToAgent, fill, send_within,
};
use crate::drivers::Drivers;
use crate::experiment::check;
use crate::workload::filter;

/// A controller that says nothing for so long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Seconds of a load that is run alone and may wait to be told.
const SECONDS_WAITING: usize = 64;
/// Time that a load may take to end after its controller went away.
const END_WITHIN: Duration = Duration::from_mins(2);

/// An agent floods its controller for no longer.
const FLOOD_MAX: Duration = Duration::from_secs(2);
const FILL_BYTES: usize = 256 << 10;

/// Means of running loads.
#[derive(Clone)]
pub(super) struct Means {
    pub(super) drivers: Drivers,
    /// Content may be read wherever this program may read.
    pub(super) reads_anywhere: bool,
    /// The kernel's timers, rather than simulated time.
    pub(super) precise: bool,
}

/// One controller.
pub(super) struct Session<R, W> {
    reader: Reader<R>,
    writer: W,
    means: Means,
    work: Option<Work>,
    /// Begins when the load that was abandoned has ended.
    next: Option<Box<Preparation>>,
    tasks: TaskTracker,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Session<R, W> {
    pub(super) fn new(reader: Reader<R>, writer: W, means: Means) -> Self {
        Self {
            reader,
            writer,
            means,
            work: None,
            next: None,
            tasks: TaskTracker::new(),
        }
    }

    /// Until the controller goes or `stop`; returns why. Nothing of its loads runs any more then.
    pub(super) async fn run(mut self, stop: CancellationToken) -> String {
        let why = tokio::select! {
            () = stop.cancelled() => "the agent ends".to_owned(),
            error = self.obey() => error.to_string(),
        };
        if let Some(work) = self.work.take() {
            work.abandon.cancel();
        }
        self.tasks.close();
        let _ = timeout(END_WITHIN, self.tasks.wait()).await;
        why
    }

    async fn obey(&mut self) -> ProtocolError {
        loop {
            let heard = self.reader.heard();
            let done = tokio::select! {
                // Data that is there already is read before a controller counts as silent.
                biased;
                order = self.reader.next::<ToAgent>() => match order {
                    Ok(order) => self.on_order(order).await,
                    Err(error) => Err(error),
                },
                said = next_of(&mut self.work) => self.on_load(said).await,
                () = sleep_until(heard + SILENCE_MAX) => {
                    Err(ProtocolError::Malformed("nothing, for half a minute".to_owned()))
                }
            };
            if let Err(error) = done {
                return error;
            }
        }
    }

    /// Sends bytes for a while, and reads those of the controller meanwhile. Returns how many it sent.
    async fn flood(&mut self, time: Duration) -> Result<u64, ProtocolError> {
        let (until, bytes) = (Instant::now() + time, vec![0; FILL_BYTES]);
        let (reader, writer) = (&mut self.reader, &mut self.writer);
        let writing = async {
            let mut sent = 0;
            while Instant::now() < until {
                fill(writer, &bytes).await?;
                sent += bytes.len() as u64;
            }
            Ok(sent)
        };
        let reading = async {
            match reader.absorb().await {
                // The next order waits.
                Ok(()) => std::future::pending().await,
                Err(error) => error,
            }
        };
        tokio::select! {
            sent = writing => sent,
            error = reading => Err(error),
        }
    }

    async fn on_order(&mut self, order: ToAgent) -> Result<(), ProtocolError> {
        match order {
            ToAgent::Ping(number) => self.tell(&FromAgent::Pong(number)).await?,
            ToAgent::Flood(millis) => {
                let bytes = self.flood(Duration::from_millis(millis).min(FLOOD_MAX)).await?;
                self.tell(&FromAgent::Flooded(bytes)).await?;
            }
            ToAgent::Describe(question) => {
                let described = FromAgent::Driver(self.describe(&question));
                self.tell(&described).await?;
            }
            ToAgent::Prepare(preparation) => {
                if let Some(old) = &self.work {
                    old.abandon.cancel();
                    self.next = Some(preparation);
                } else {
                    self.prepare(*preparation).await?;
                }
            }
            ToAgent::Begin => self.with_work(|work| work.ties.signals.begin.cancel()),
            ToAgent::End => self.with_work(|work| work.ties.signals.end.cancel()),
            ToAgent::Stop => self.with_work(|work| work.ties.signals.stop.cancel()),
            ToAgent::Over(role) => self.with_work(|work| {
                if let Some(over) = work.ties.signals.over.get(&role) {
                    over.cancel();
                }
            }),
            ToAgent::Rate { role, rate } => {
                if !check::is_rate(rate) {
                    return Err(ProtocolError::Malformed(format!("a rate of {rate} for `{role}`")));
                }
                self.with_work(|work| {
                    if let Some(shared) = work.ties.signals.rates.get(&role) {
                        shared.set(rate);
                    }
                });
            }
            ToAgent::Allow { load, made } => self.with_work(|work| {
                for (role, made) in made.into_iter().filter(|_| work.number == load) {
                    if let Some(allowed) = work.ties.signals.allowed.get(&role) {
                        allowed.store(made, Ordering::Relaxed);
                    }
                }
            }),
            ToAgent::Abandon => {
                self.next = None;
                self.with_work(|work| work.abandon.cancel());
            }
        }
        Ok(())
    }

    /// A controller that takes nothing is gone as one that says nothing is.
    async fn tell(&mut self, said: &FromAgent) -> Result<(), ProtocolError> {
        Ok(send_within(SILENCE_MAX, &mut self.writer, said).await?)
    }

    fn describe(&self, question: &Question) -> Described {
        let plan = filter::before(&question.plan, &question.system);
        match (self.means.drivers)(&question.system, "", &plan) {
            Ok(driver) => Described {
                name: driver.name().to_owned(),
                version: driver.version(),
                lacks: driver.lacks(&plan),
            },
            Err(reason) => Described {
                lacks: Some(reason),
                ..Described::default()
            },
        }
    }

    fn with_work(&self, change: impl FnOnce(&Work)) {
        if let Some(work) = &self.work {
            change(work);
        }
    }

    async fn prepare(&mut self, preparation: Preparation) -> Result<(), ProtocolError> {
        let load = preparation.load;
        match work(preparation, &self.means) {
            Ok((work, load, done)) => {
                self.work = Some(work);
                self.tasks.spawn(async move {
                    // Fails if the controller is gone.
                    let _ = done.send(load.run().await);
                });
            }
            Err(error) => {
                let said = OfLoad::Failed(error);
                self.tell(&FromAgent::Load { load, said }).await?;
            }
        }
        Ok(())
    }

    async fn on_load(&mut self, said: OfLoad) -> Result<(), ProtocolError> {
        let Some(work) = &self.work else { return Ok(()) };
        let load = work.number;
        let is_last = matches!(said, OfLoad::Done(_) | OfLoad::Failed { .. });
        self.tell(&FromAgent::Load { load, said }).await?;
        if is_last {
            self.work = None;
            if let Some(next) = self.next.take() {
                self.prepare(*next).await?;
            }
        }
        Ok(())
    }
}
