//! A client that receives, and does its role's work.

use std::sync::Arc;
use std::time::Duration;

use stafett_model::Lock;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::client_placement::Seating;
use super::ledger::{Entry, Ledger};
use super::message::Received;
use super::poll;
use super::recorder::Recorder;
use crate::drivers::{Driver, DriverError, Receiver, Seat, moment};
use crate::experiment::{Does, Work};
use crate::measure::timer::Timer;

const RECONNECT_AFTER: Duration = Duration::from_millis(100);
const LEAVES_WITHIN: Duration = Duration::from_mins(1);

/// A client that receives.
pub(super) struct Consumer {
    pub(super) driver: Arc<dyn Driver>,
    pub(super) seat: Seat,
    pub(super) recorder: Arc<Recorder>,
    /// Ledger of its audience: its own with fan-out, else the role's.
    pub(super) ledger: Arc<Lock<Ledger>>,
    pub(super) seating: Arc<Seating>,
    pub(super) timer: Timer,
    pub(super) stop: CancellationToken,
}

impl Consumer {
    /// Receives until it is told to stop, or `first` and those after it are cut off; connects again when it
    /// must.
    pub(super) async fn run(mut self, mut first: Option<Box<dyn Receiver>>) {
        let mut kill = self.next_kill(Duration::ZERO);
        while !self.stop.is_cancelled() {
            let receiver = match first.take() {
                Some(receiver) => Ok(receiver),
                None => self.driver.receiver(&self.seat).await,
            };
            let receiver = match receiver {
                Ok(receiver) => receiver,
                Err(error) => {
                    self.recorder.trouble(&error.to_string());
                    self.pause(RECONNECT_AFTER).await;
                    continue;
                }
            };
            let mut receiver = poll::at_intervals(receiver, &self.seat, &self.recorder);
            self.recorder.client_came();
            let ended = self.receive_until(receiver.as_mut(), kill).await;
            self.recorder.client_went();
            if self.seat.role.leave && matches!(ended, Ok(End::Stopped)) {
                self.leave(receiver.as_mut()).await;
            }
            // Unsettled messages come again.
            drop(receiver);
            let away = match ended {
                Ok(End::Stopped) => return,
                Ok(End::Killed) => {
                    let away = self
                        .seat
                        .role
                        .kill
                        .as_ref()
                        .map_or(RECONNECT_AFTER, |kill| kill.away.0);
                    kill = self.next_kill(Instant::now().saturating_duration_since(self.recorder.started()));
                    away
                }
                Err(error) => {
                    self.recorder.trouble(&error.to_string());
                    RECONNECT_AFTER
                }
            };
            self.pause(away).await;
            self.recorder.count(|counts| counts.reconnects += 1);
        }
    }

    async fn leave(&self, receiver: &mut dyn Receiver) {
        let since = self.recorder.now();
        match timeout(LEAVES_WITHIN, receiver.leave()).await {
            Ok(Ok(())) => self.recorder.left(since),
            Ok(Err(error)) => self.recorder.trouble(&error.to_string()),
            Err(_) => self.recorder.trouble("unsubscribing took too long"),
        }
    }

    /// Clients are cut off in turn: when it is this one's after `now`.
    fn next_kill(&self, now: Duration) -> Option<Instant> {
        let kill = self.seat.role.kill.as_ref()?;
        let clients = self.seat.clients.max(1);
        let mut turn = self.seat.client;
        loop {
            let at = kill.after.0.saturating_add(kill.every.0.saturating_mul(turn));
            if at > now || kill.every.0.is_zero() {
                return Some(self.recorder.started() + at);
            }
            turn += clients;
        }
    }

    async fn pause(&self, time: Duration) {
        let _ = self.stop.run_until_cancelled(tokio::time::sleep(time)).await;
    }

    async fn receive_until(
        &mut self,
        receiver: &mut dyn Receiver,
        kill: Option<Instant>,
    ) -> Result<End, DriverError> {
        let mut messages = Vec::new();
        let commit_every = self.seat.role.commit.map(|every| every.0);
        let mut committed = Instant::now();
        loop {
            messages.clear();
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(End::Stopped),
                () = moment(kill) => return Ok(End::Killed),
                came = receiver.receive(&mut messages) => came?,
            }
            if !messages.is_empty() {
                self.enter(&messages);
                self.work(messages.len()).await;
            }
            if commit_every.is_some_and(|every| committed.elapsed() >= every) {
                receiver.settle().await?;
                committed = Instant::now();
            }
        }
    }

    fn enter(&self, received: &[Received]) {
        if self.seat.role.does == Does::Peek {
            // The same message is seen again and again.
            return self
                .recorder
                .count(|counts| counts.received += received.len() as u64);
        }
        let (mut bytes, mut again, mut elsewhere) = (0, 0, 0);
        let mut moments: Vec<(u64, u64)> = Vec::new();
        {
            let mut ledger = self.ledger.lock();
            ledger.enter_all(received, |message, entry| {
                match entry {
                    // Two clocks are not compared.
                    Entry::New if !self.seating.has_stream(message.stream) => elsewhere += 1,
                    Entry::New => match moments.last_mut() {
                        Some((intended, count)) if *intended == message.intended => *count += 1,
                        _ => moments.push((message.intended, 1)),
                    },
                    Entry::Again => again += 1,
                    Entry::Foreign => return,
                }
                bytes += u64::from(message.size);
            });
        }
        self.recorder.received(&moments, elsewhere, bytes, again);
    }

    async fn work(&mut self, messages: usize) {
        let Some(Work { each, message, bulk }) = &self.seat.role.work else {
            return;
        };
        let messages = u32::try_from(messages).unwrap_or(u32::MAX);
        let time = each.0.saturating_mul(messages.div_ceil(*bulk)) + message.0.saturating_mul(messages);
        self.timer.until(Instant::now() + time).await;
    }
}

enum End {
    Stopped,
    Killed,
}
