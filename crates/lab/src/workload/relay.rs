//! Clients that send because they received: relays, and the two sides of a request.
//!
//! - A *relay* has a topic of its own and sends messages on to a random other client, as messages of its own.
//!   The role's window (1) of messages start at each client and go round for ever. With
//!   a rate it looks at its moments whether there is one to be sent on: the rate is a bound.
//! - A *requester* sends, and counts the time until the answer is there; one that takes longer than its
//!   patience, or never comes, counts as timed out, and as having taken its patience at least. The next
//!   request goes out.
//! - A *filter* sends on messages that are new to its role, as they came.
//! - A *responder* sends back the asking stream, the question's number and its intended moment.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::client_placement::Seating;
use super::filter::SeenMessages;
use super::message::{Message, Received};
use super::pace::Pace;
use super::patience::{Waited, before_the_end};
use super::recorder::{Recorder, Reports};
use super::size;
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
                Does::Relay => self.send_on(&mut ends.state, &mut outgoing),
                Does::Respond
                | Does::Filter
                | Does::Produce
                | Does::Consume
                | Does::Assemble
                | Does::Idle => {}
            }
            if !outgoing.is_empty() {
                self.send(ends, &outgoing).await?;
                outgoing.clear();
            }
            let wake = self.wake();
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
                totals.sent > totals.received + totals.failed
            }
            Does::Respond | Does::Filter | Does::Produce | Does::Consume | Does::Assemble | Does::Idle => {
                false
            }
        }
    }

    /// Returns the time of the next look.
    fn wake(&self) -> Instant {
        let look = Instant::now() + LOOK;
        let next = self.pace.as_ref().map(Pace::next);
        let next = next.map(|next| self.recorder.started() + Duration::from_nanos(next));
        next.map_or(look, |next| next.min(look))
    }

    fn take(&self, received: &[Received], state: &mut State, outgoing: &mut Vec<Message>) {
        for message in received {
            let moment = [(message.intended, 1)];
            // Two clocks are not compared; a question comes back to the one that its moment is of.
            let (moment, elsewhere) = if self.seating.has_stream(message.stream) {
                (&moment[..], 0)
            } else {
                (&[][..], 1)
            };
            let bytes = u64::from(message.size);
            match self.inbound.role.does {
                Does::Relay => self.pass_on(state, outgoing),
                Does::Filter => {
                    let now = self.recorder.now();
                    let is_new = |seen: &SeenMessages| seen.is_new(message.stream, message.sequence, now);
                    if !self.seen.as_ref().is_none_or(is_new) {
                        self.recorder.received(&[], 0, bytes, 1);
                        continue;
                    }
                    outgoing.push(filtered(message));
                }
                Does::Respond => outgoing.push(self.answer(message, &mut state.random)),
                Does::Request | Does::Produce | Does::Consume | Does::Assemble | Does::Idle => {
                    let is_ours = message.stream == self.stream;
                    if !is_ours || state.waiting.remove(&message.sequence).is_none() {
                        continue;
                    }
                }
            }
            self.recorder.received(moment, elsewhere, bytes, 0);
        }
    }

    /// A relay has a message to send on: at once, or at one of its moments.
    fn pass_on(&self, state: &mut State, outgoing: &mut Vec<Message>) {
        let now = self.recorder.now();
        if self.pace.is_some() {
            state.held.push_back(now);
        } else {
            outgoing.push(self.passed_on(now, &mut state.random));
        }
    }

    /// Sends on messages that were there at the moments that have come.
    fn send_on(&mut self, state: &mut State, outgoing: &mut Vec<Message>) {
        let Some(pace) = &mut self.pace else { return };
        let mut moments = Vec::new();
        pace.due(self.recorder.now(), usize::MAX, &mut moments);
        for moment in moments {
            let there = state.held.pop_front_if(|came| *came <= moment);
            if there.is_some() {
                outgoing.push(self.passed_on(moment, &mut state.random));
            }
        }
    }

    fn passed_on(&self, intended: u64, random: &mut SmallRng) -> Message {
        let clients = self.outbound.clients;
        // Any but this one.
        let step = if clients > 1 {
            random.random_range(1..clients)
        } else {
            0
        };
        Message {
            stream: self.stream,
            reply: 0,
            sequence: self.sequence.fetch_add(1, Ordering::Relaxed),
            intended,
            topic: (self.outbound.client + step) % clients.max(1),
            size: size::draw(&self.outbound.role.size, random),
        }
    }

    fn answer(&self, question: &Received, random: &mut SmallRng) -> Message {
        let topics = u32::try_from(self.outbound.destinations.names.len()).unwrap_or(u32::MAX);
        Message {
            stream: question.stream,
            reply: 0,
            sequence: question.sequence,
            intended: question.intended,
            topic: question.reply.saturating_sub(1) % topics.max(1),
            size: size::draw(&self.outbound.role.size, random),
        }
    }

    /// In nanoseconds.
    fn patience(&self) -> u64 {
        u64::try_from(self.inbound.role.patience.0.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Gives up questions whose answers take too long.
    fn lose_patience(&self, state: &mut State) {
        let (now, patience) = (self.recorder.now(), self.patience());
        self.give_up(state, |intended| now.saturating_sub(intended) > patience);
    }

    /// Gives up questions by their intended moments. They count with the patience at least.
    fn give_up(&self, state: &mut State, is_over: impl Fn(u64) -> bool) {
        let given_up = state.waiting.extract_if(.., |_, intended| is_over(*intended));
        let moments: Vec<(u64, u64)> = given_up.map(|(_, intended)| (intended, 1)).collect();
        if !moments.is_empty() {
            let count = moments.len() as u64;
            self.recorder.count(|counts| counts.timed_out += count);
            self.recorder.waited_in_vain(&moments, self.patience());
        }
    }

    /// Gives up late questions, and asks those that are due.
    fn ask(&mut self, state: &mut State, outgoing: &mut Vec<Message>) {
        self.lose_patience(state);
        let now = self.recorder.now();
        let mut moments = Vec::new();
        if let Some(pace) = &mut self.pace {
            pace.due(now, usize::MAX, &mut moments);
        } else {
            let window = usize::try_from(self.outbound.role.window.unwrap_or(1)).unwrap_or(1);
            moments.resize(window.saturating_sub(state.waiting.len()), now);
        }
        for intended in moments {
            let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
            state.waiting.insert(sequence, intended);
            let topics = u32::try_from(self.outbound.destinations.names.len()).unwrap_or(1);
            outgoing.push(Message {
                stream: self.stream,
                reply: self.outbound.client + 1,
                sequence,
                intended,
                topic: state.random.random_range(0..topics.max(1)),
                size: size::draw(&self.outbound.role.size, &mut state.random),
            });
        }
    }
}

/// Returns the message as it came, to its sender's destination, which stands in place of an answer's.
fn filtered(message: &Received) -> Message {
    Message {
        stream: message.stream,
        reply: 0,
        sequence: message.sequence,
        intended: message.intended,
        topic: message.reply.saturating_sub(1),
        size: message.size,
    }
}
