//! Clients that send because they received: relays, and the two sides of a request.
//!
//! - A *relay* has a topic of its own and sends what comes there on to a random other client, as a message of its own.
//!   So many messages as the role's window says (1) start at each client and go round for ever.
//! - A *requester* sends, and counts the time until the answer is there; one that takes longer than its patience is
//!   counted as such, and the next request goes out.
//! - A *filter* sends on what none of its role has seen before, as it came.
//! - A *responder* sends back who asked, which question it was and when it was meant to be asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::filter::Seen;
use super::message::{Message, Received};
use super::pace::Pace;
use super::recorder::{Recorder, Reports};
use super::seating::Seating;
use super::size;
use crate::drivers::{Driver, DriverError, Receiver, Seat, Sender};
use crate::experiment::Does;
use crate::measure::timer::Timer;

const RECONNECT_AFTER: Duration = Duration::from_millis(100);
/// How often a requester looks for questions that were not answered in time.
const LOOK: Duration = Duration::from_millis(20);
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// A client with two ends.
pub(super) struct Exchanger {
    pub(super) driver: Arc<dyn Driver>,
    /// Where it receives.
    pub(super) inbound: Seat,
    /// Where it sends.
    pub(super) outbound: Seat,
    pub(super) recorder: Arc<Recorder>,
    pub(super) pace: Option<Pace>,
    pub(super) stream: u32,
    pub(super) sequence: Arc<AtomicU64>,
    pub(super) seating: Arc<Seating>,
    /// Of those that filter: what all of them have seen.
    pub(super) seen: Option<Seen>,
    pub(super) timer: Timer,
    pub(super) seed: u64,
    pub(super) stop: CancellationToken,
}

/// Both ends, open.
struct Ends {
    sender: Box<dyn Sender>,
    receiver: Box<dyn Receiver>,
    reports: Reports,
    /// Questions without an answer: when they were meant to be asked, by their number.
    waiting: BTreeMap<u64, u64>,
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
                    ended
                }
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                self.recorder.trouble(&error.to_string());
            }
            let _ = self
                .stop
                .run_until_cancelled(tokio::time::sleep(RECONNECT_AFTER))
                .await;
        }
    }

    async fn open(&self) -> Result<Ends, DriverError> {
        let receiver = self.driver.receiver(&self.inbound).await?;
        let reports = Reports::new(&self.recorder);
        let sender = self.driver.sender(&self.outbound, reports.clone()).await?;
        Ok(Ends {
            sender,
            receiver,
            reports,
            waiting: BTreeMap::new(),
            random: SmallRng::seed_from_u64(self.seed ^ u64::from(self.stream)),
        })
    }

    async fn exchange(&mut self, ends: &mut Ends) -> Result<(), DriverError> {
        let mut received = Vec::new();
        let mut outgoing = Vec::new();
        if self.inbound.role.does == Does::Relay {
            for _ in 0..self.inbound.role.window.unwrap_or(1) {
                outgoing.push(self.passed_on(&mut ends.random));
            }
        }
        loop {
            if self.inbound.role.does == Does::Request {
                self.ask(ends, &mut outgoing);
            }
            if !outgoing.is_empty() {
                ends.reports.sent(&outgoing);
                ends.sender.send(&outgoing).await?;
                ends.sender.flush().await?;
                outgoing.clear();
            }
            let wake = self.wake();
            received.clear();
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {
                    // What has no answer by then has none.
                    let _ = timeout(LAST_ANSWERS, ends.sender.finish()).await;
                    return Ok(());
                }
                came = ends.receiver.receive(&mut received) => came?,
                happened = ends.sender.tick() => happened?,
                () = self.timer.until(wake) => {}
            }
            self.take(&received, ends, &mut outgoing);
        }
    }

    /// When to look again, whatever happens before.
    fn wake(&self) -> Instant {
        let look = Instant::now() + LOOK;
        let next = self.pace.as_ref().map(Pace::next);
        let next = next.map(|next| self.recorder.started() + Duration::from_nanos(next));
        next.map_or(look, |next| next.min(look))
    }

    fn take(&self, received: &[Received], ends: &mut Ends, outgoing: &mut Vec<Message>) {
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
                Does::Relay => {
                    self.recorder.received(moment, elsewhere, bytes, 0);
                    outgoing.push(self.passed_on(&mut ends.random));
                }
                Does::Filter => {
                    let now = self.recorder.now();
                    let is_new = |seen: &Seen| seen.is_new(message.stream, message.sequence, now);
                    if self.seen.as_ref().is_none_or(is_new) {
                        self.recorder.received(moment, elsewhere, bytes, 0);
                        outgoing.push(filtered(message));
                    } else {
                        self.recorder.received(&[], 0, bytes, 1);
                    }
                }
                Does::Respond => {
                    self.recorder.received(moment, elsewhere, bytes, 0);
                    outgoing.push(self.answer(message, &mut ends.random));
                }
                Does::Request | Does::Produce | Does::Consume | Does::Idle => {
                    let is_ours = message.stream == self.stream;
                    if is_ours && ends.waiting.remove(&message.sequence).is_some() {
                        self.recorder.received(moment, elsewhere, bytes, 0);
                    }
                }
            }
        }
    }

    fn passed_on(&self, random: &mut SmallRng) -> Message {
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
            intended: self.recorder.now(),
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

    /// Gives up what took too long, and asks what is due.
    fn ask(&mut self, ends: &mut Ends, outgoing: &mut Vec<Message>) {
        let now = self.recorder.now();
        let patience = u64::try_from(self.outbound.role.patience.0.as_nanos()).unwrap_or(u64::MAX);
        let before = ends.waiting.len();
        ends.waiting
            .retain(|_, intended| now.saturating_sub(*intended) <= patience);
        let given_up = before - ends.waiting.len();
        if given_up > 0 {
            self.recorder.count(|counts| counts.timed_out += given_up as u64);
        }
        let mut moments = Vec::new();
        if let Some(pace) = &mut self.pace {
            pace.due(now, usize::MAX, &mut moments);
        } else {
            let window = usize::try_from(self.outbound.role.window.unwrap_or(1)).unwrap_or(1);
            moments.resize(window.saturating_sub(ends.waiting.len()), now);
        }
        for intended in moments {
            let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
            ends.waiting.insert(sequence, intended);
            let topics = u32::try_from(self.outbound.destinations.names.len()).unwrap_or(1);
            outgoing.push(Message {
                stream: self.stream,
                reply: self.outbound.client + 1,
                sequence,
                intended,
                topic: ends.random.random_range(0..topics.max(1)),
                size: size::draw(&self.outbound.role.size, &mut ends.random),
            });
        }
    }
}

/// The message as it came, to where its sender wants it: what it says of an answer's way is that of its own.
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
