//! Clients that send because they received: relays, and the two sides of a request.
//!
//! - A *relay* has a topic of its own and sends messages on to a random other client, as messages of its own.
//!   A message that took longer than its patience counts as timed out, and goes on.
//!   The role's window (1) of messages start at each client and go round for ever. With
//!   a rate it looks at its moments whether there is one to be sent on: the rate is a bound.
//! - A *requester* sends, and counts the time until the answer is there; one that takes longer than its
//!   patience, or never comes, counts as timed out, and as having taken its patience at least. The next
//!   request goes out.
//! - A *filter* sends on messages that are new to its role, as they came.
//! - A *responder* sends back the asking stream, the question's number and its intended moment.

mod traffic;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::client_placement::Seating;
use super::filter::SeenMessages;
use super::message::Message;
use super::pace::Pace;
use super::patience::{Waited, before_the_end};
use super::poll;
use super::recorder::{Recorder, Reports};
use crate::drivers::{Driver, DriverError, Receiver, Seat, Sender};
use crate::experiment::Does;
use crate::measure::timer::Timer;

const RECONNECT_AFTER: Duration = Duration::from_millis(100);
/// Time between two looks for questions that were not answered in time.
const LOOK: Duration = Duration::from_millis(20);
/// Time that messages under way may take in the end; answers have their requester's patience, but not more
/// than the second bound.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
const PATIENCE_MAX: Duration = Duration::from_secs(30);

/// A client with two ends.
pub(super) struct Exchanger {
    pub(super) driver: Arc<dyn Driver>,
    /// Seat at which it receives.
    pub(super) inbound: Seat,
    /// Seat at which it sends.
    pub(super) outbound: Seat,
    pub(super) recorder: Arc<Recorder>,
    pub(super) pace: Option<Pace>,
    pub(super) stream: u32,
    pub(super) sequence: Arc<AtomicU64>,
    pub(super) seating: Arc<Seating>,
    /// Of filters: the messages that all of them have seen.
    pub(super) seen: Option<SeenMessages>,
    pub(super) timer: Timer,
    pub(super) seed: u64,
    pub(super) stop: CancellationToken,
}

/// Both ends, open.
struct Ends {
    sender: Box<dyn Sender>,
    receiver: Box<dyn Receiver>,
    reports: Reports,
    /// Until when the driver kept this client waiting.
    free: u64,
    state: State,
}

/// State of the traffic in both directions.
struct State {
    /// Questions without an answer: when they were meant to be asked, by their number.
    waiting: BTreeMap<u64, u64>,
    /// Of a relay with a rate: arrival times of messages that it has not sent on yet.
    held: VecDeque<u64>,
    /// Of a relay: messages in place of others that were refused.
    begun_anew: u64,
    /// Of a requester that thinks: when it asks its next question.
    thinks_until: u64,
    /// It has asked a question since it thought last.
    is_asked: bool,
    random: SmallRng,
}

impl Exchanger {
    pub(super) async fn run(mut self) {
        let mut is_first = true;
        while !self.stop.is_cancelled() {
            if !is_first {
                self.recorder.count(|counts| counts.reconnects += 1);
            }
            is_first = false;
            let ended = match self.open().await {
                Ok(mut ends) => {
                    self.recorder.client_came();
                    let ended = self.exchange(&mut ends).await;
                    self.recorder.client_went();
                    // Their answers have no receiver any more.
                    self.give_up(&mut ends.state, |_| true);
                    ended
                }
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                self.recorder.trouble(&error.to_string());
            }
            let _ = self.stop.run_until_cancelled(sleep(RECONNECT_AFTER)).await;
        }
        self.account_for_the_rest();
    }

    /// Questions that were due in the time that counts and never asked.
    fn account_for_the_rest(&mut self) {
        let until = self.recorder.counts_until().min(self.recorder.now());
        let patience = self.patience();
        let Some(pace) = self
            .pace
            .as_mut()
            .filter(|_| self.inbound.role.does == Does::Request)
        else {
            return;
        };
        let mut moments = Vec::new();
        pace.pass_over(until, |moment, count| moments.push((moment, count)));
        self.recorder.waited_in_vain(&moments, patience);
    }

    async fn open(&self) -> Result<Ends, DriverError> {
        let receiver = self.driver.receiver(&self.inbound).await?;
        let receiver = poll::at_intervals(receiver, &self.inbound, &self.recorder);
        let reports = Reports::new(&self.recorder);
        let sender = self.driver.sender(&self.outbound, reports.clone()).await?;
        Ok(Ends {
            sender,
            receiver,
            reports,
            free: 0,
            state: State {
                waiting: BTreeMap::new(),
                held: VecDeque::new(),
                begun_anew: 0,
                thinks_until: 0,
                is_asked: false,
                random: SmallRng::seed_from_u64(self.seed ^ u64::from(self.stream)),
            },
        })
    }

    async fn exchange(&mut self, ends: &mut Ends) -> Result<(), DriverError> {
        let mut received = Vec::new();
        let mut outgoing = Vec::new();
        if self.inbound.role.does == Does::Relay {
            for _ in 0..self.inbound.role.window.unwrap_or(1) {
                self.pass_on(&mut ends.state, &mut outgoing);
            }
        }
        loop {
            match self.inbound.role.does {
                Does::Request => self.ask(&mut ends.state, &mut outgoing),
                Does::Relay => {
                    // A message that was refused would be missing for ever in the round.
                    while ends.state.begun_anew < ends.reports.refused() {
                        ends.state.begun_anew += 1;
                        self.pass_on(&mut ends.state, &mut outgoing);
                    }
                    self.send_on(&mut ends.state, &mut outgoing);
                }
                Does::Respond
                | Does::Filter
                | Does::Produce
                | Does::Consume
                | Does::Assemble
                | Does::Peek
                | Does::Idle => {}
            }
            if !outgoing.is_empty() {
                self.send(ends, &outgoing).await?;
                outgoing.clear();
            }
            let wake = self.wake(&ends.state);
            received.clear();
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return self.end(ends).await,
                came = ends.receiver.receive(&mut received) => came?,
                happened = ends.sender.tick() => happened?,
                () = self.timer.until(wake) => {}
            }
            self.take(&received, &mut ends.state, &mut outgoing);
        }
    }

    async fn send(&self, ends: &mut Ends, messages: &[Message]) -> Result<(), DriverError> {
        ends.reports.sent_once_free(messages, ends.free);
        let sending = Box::pin(async {
            ends.sender.send(messages).await?;
            ends.sender.flush().await
        });
        let sending = before_the_end(&self.stop, LAST_ANSWERS, Waited::new(sending));
        let (sent, has_waited) = sending.await?;
        if has_waited {
            ends.free = self.recorder.now();
        }
        sent
    }

    /// Sends nothing new. Messages under way still come, for a while.
    async fn end(&mut self, ends: &mut Ends) -> Result<(), DriverError> {
        let Ends {
            sender,
            receiver,
            state,
            ..
        } = ends;
        let patience = self.inbound.role.patience.0.min(PATIENCE_MAX);
        let until = Instant::now() + patience.max(LAST_ANSWERS);
        let (mut received, mut outgoing) = (Vec::new(), Vec::new());
        let mut finishing = sender.finish();
        let mut is_finished = false;
        while !is_finished || self.is_under_way(state) {
            received.clear();
            tokio::select! {
                biased;
                done = &mut finishing, if !is_finished => {
                    done?;
                    is_finished = true;
                }
                came = receiver.receive(&mut received) => came?,
                () = sleep(LOOK) => {}
                // A question without an answer by then gets none.
                () = sleep_until(until) => return Ok(()),
            }
            self.take(&received, state, &mut outgoing);
            // It is not sent on.
            outgoing.clear();
            self.lose_patience(state);
        }
        Ok(())
    }

    /// Returns true if something is under way that latency is taken of.
    fn is_under_way(&self, state: &State) -> bool {
        match self.inbound.role.does {
            Does::Request => !state.waiting.is_empty(),
            Does::Relay => {
                // Of all clients of the role here.
                let totals = self.recorder.totals();
                totals.sent > totals.received + totals.timed_out + totals.failed
            }
            Does::Respond
            | Does::Filter
            | Does::Produce
            | Does::Consume
            | Does::Assemble
            | Does::Peek
            | Does::Idle => false,
        }
    }

    /// Returns the time of the next look.
    fn wake(&self, state: &State) -> Instant {
        let look = Instant::now() + LOOK;
        let thinks = self.inbound.role.think.map(|_| state.thinks_until);
        let next = self.pace.as_ref().map(Pace::next);
        let next = next.or_else(|| thinks.filter(|until| *until > self.recorder.now()));
        let next = next.map(|next| self.recorder.started() + Duration::from_nanos(next));
        next.map_or(look, |next| next.min(look))
    }
}
