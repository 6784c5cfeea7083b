//! A client that sends, at its own pace.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::choose::Chooser;
use super::in_flight_limit::Ahead;
use super::message::Message;
use super::pace::Pace;
use super::patience::{Waited, before_the_end};
use super::recorder::{Recorder, Reports};
use super::{priority, size};
use crate::drivers::{Driver, DriverError, Seat, Sender};
use crate::measure::timer::Timer;

/// Messages that are made at once.
const CHUNK: usize = 256;
/// Time that the last answers may take.
const LAST_ANSWERS: Duration = Duration::from_secs(30);
const RECONNECT_AFTER: Duration = Duration::from_millis(100);

/// Time between two looks whether receivers have caught up.
const LOOK: Duration = Duration::from_millis(1);

/// A client that sends.
pub(super) struct Producer {
    pub(super) driver: Arc<dyn Driver>,
    pub(super) seat: Seat,
    pub(super) recorder: Arc<Recorder>,
    /// Recorders of the receivers of messages that are not sent in the end, and how often each would have got
    /// one.
    pub(super) listeners: Vec<(Arc<Recorder>, u64)>,
    pub(super) ahead: Option<Ahead>,
    /// `None` for a closed loop.
    pub(super) pace: Option<Pace>,
    pub(super) chooser: Chooser,
    pub(super) stream: u32,
    /// Messages that the role as a whole still has to send.
    pub(super) budget: Arc<AtomicU64>,
    /// Messages that this client has made.
    pub(super) made: u64,
    /// Messages that the stream has had: those of the client that is furthest.
    pub(super) sequence: Arc<AtomicU64>,
    pub(super) timer: Timer,
    pub(super) seed: u64,
    pub(super) stop: CancellationToken,
}

impl Producer {
    /// Sends until it is told to stop or everything is sent; connects again when it must.
    pub(super) async fn run(mut self) {
        self.send_until_the_end().await;
        self.account_for_the_rest();
    }

    async fn send_until_the_end(&mut self) {
        let mut random = SmallRng::seed_from_u64(self.seed ^ u64::from(self.stream));
        let mut is_first = true;
        while !self.stop.is_cancelled() {
            if !is_first {
                self.recorder.count(|counts| counts.reconnects += 1);
            }
            let reports = Reports::new(&self.recorder);
            let mut sender = match self.driver.sender(&self.seat, reports.clone()).await {
                Ok(sender) => sender,
                Err(error) => {
                    self.recorder.trouble(&error.to_string());
                    is_first = false;
                    self.pause().await;
                    continue;
                }
            };
            is_first = false;
            self.recorder.client_came();
            let sent = self.send_all(sender.as_mut(), &reports, &mut random).await;
            let ended = match sent {
                Ok(()) => timeout(LAST_ANSWERS, sender.finish()).await.unwrap_or_else(|_| {
                    Err(DriverError::Failed("the last messages were not answered".into()))
                }),
                Err(error) => Err(error),
            };
            self.recorder.client_went();
            match ended {
                Ok(()) => return,
                Err(error) => self.recorder.trouble(&error.to_string()),
            }
            drop(sender);
            self.pause().await;
        }
    }

    /// Accounts for messages that were due in the time that counts and never sent: their receivers wait
    /// still.
    fn account_for_the_rest(&mut self) {
        let until = self.recorder.counts_until().min(self.recorder.now());
        let Some(pace) = &mut self.pace else { return };
        let budget = &self.budget;
        let mut moments = Vec::new();
        pace.pass_over(until, |moment, count| {
            let count = grant(budget, usize::try_from(count).unwrap_or(usize::MAX)) as u64;
            if count > 0 {
                moments.push((moment, count));
            }
        });
        if moments.is_empty() {
            return;
        }
        self.recorder.waited_in_vain(&moments, 0);
        for (listener, each) in &self.listeners {
            let of_each = moments.iter().map(|(moment, count)| (*moment, count * each));
            listener.waited_in_vain(&of_each.collect::<Vec<_>>(), 0);
        }
    }

    async fn pause(&self) {
        let _ = self.stop.run_until_cancelled(sleep(RECONNECT_AFTER)).await;
    }

    async fn send_all(
        &mut self,
        sender: &mut dyn Sender,
        reports: &Reports,
        random: &mut SmallRng,
    ) -> Result<(), DriverError> {
        let mut moments = Vec::with_capacity(CHUNK);
        let mut messages = Vec::with_capacity(2 * CHUNK);
        // Until when the driver kept this client waiting.
        let mut free = 0;
        while !self.stop.is_cancelled() {
            moments.clear();
            self.due(reports, &mut moments);
            let granted = grant(&self.budget, moments.len());
            if let Some(ahead) = &self.ahead {
                ahead.give_back(moments.len() - granted);
            }
            moments.truncate(granted);
            if moments.is_empty() {
                if self.budget.load(Ordering::Relaxed) == 0 {
                    return Ok(());
                }
                self.wait(sender).await?;
                continue;
            }
            messages.clear();
            for intended in &moments {
                self.make(*intended, random, &mut messages);
            }
            reports.sent_once_free(&messages, free);
            let sending = Waited::new(sender.send(&messages));
            let (sent, has_waited) = before_the_end(&self.stop, LAST_ANSWERS, sending).await?;
            sent?;
            if has_waited {
                free = self.recorder.now();
            }
            // Nothing more can come until something is answered.
            if self.window_left(reports) == 0 {
                sender.flush().await?;
            }
        }
        Ok(())
    }

    /// The moments of the messages that are due now.
    fn due(&mut self, reports: &Reports, moments: &mut Vec<u64>) {
        let now = self.recorder.now();
        if let Some(pace) = &mut self.pace {
            return pace.due(now, CHUNK, moments);
        }
        let wanted = self.window_left(reports).min(CHUNK);
        let ahead = self.ahead.as_ref();
        moments.resize(ahead.map_or(wanted, |ahead| ahead.take(wanted)), now);
    }

    fn window_left(&self, reports: &Reports) -> usize {
        match self.seat.role.window {
            None => usize::MAX,
            Some(window) => {
                usize::try_from(u64::from(window).saturating_sub(reports.outstanding())).unwrap_or(0)
            }
        }
    }

    /// Until a message is due, or something happened that lets another one be sent.
    async fn wait(&mut self, sender: &mut dyn Sender) -> Result<(), DriverError> {
        let next = self.pace.as_ref().map(Pace::next);
        let at = next.map(|next| self.recorder.started() + Duration::from_nanos(next));
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Ok(()),
            () = until(&mut self.timer, at) => Ok(()),
            () = sleep(LOOK), if self.ahead.is_some() => Ok(()),
            happened = sender.tick() => happened,
        }
    }

    fn make(&mut self, intended: u64, random: &mut SmallRng, messages: &mut Vec<Message>) {
        let sequence = self.made;
        self.made += 1;
        self.sequence.fetch_max(self.made, Ordering::Relaxed);
        let topic = self.chooser.draw(random);
        // Through a filter, the message itself says where it goes from there.
        let (reply, topic) = if self.seat.role.via.is_some() {
            (topic + 1, 0)
        } else {
            (0, topic)
        };
        let message = Message {
            stream: self.stream,
            reply,
            sequence,
            intended,
            topic,
            size: size::draw(&self.seat.role.size, random),
            priority: priority::draw(self.seat.role.priority.as_ref(), random),
        };
        messages.push(message);
        if self.seat.role.duplicates > 0.0 && random.random::<f64>() < self.seat.role.duplicates {
            messages.push(message);
        }
    }
}

async fn until(timer: &mut Timer, at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => timer.until(at).await,
        None => std::future::pending().await,
    }
}

/// Takes up to `wanted` out of a budget.
fn grant(budget: &AtomicU64, wanted: usize) -> usize {
    let wanted = wanted as u64;
    let take = |left: u64| (left != u64::MAX).then(|| left.saturating_sub(wanted));
    let before = budget
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
        .unwrap_or_else(|left| left);
    usize::try_from(before.min(wanted)).unwrap_or(0)
}
