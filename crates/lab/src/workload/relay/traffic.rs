//! Messages of a client with two ends: taken in, passed on, asked, answered and given up.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::SmallRng;

use super::{Exchanger, State};
use crate::experiment::{Does, Think};
use crate::workload::derived_numbers::present;
use crate::workload::filter::SeenMessages;
use crate::workload::message::{Message, Received};
use crate::workload::{priority, size};

/// Returns the message as it came, to its sender's destination, which stands in place of an answer's.
fn filtered(message: &Received) -> Message {
    Message {
        stream: message.stream,
        reply: 0,
        sequence: message.sequence,
        intended: message.intended,
        topic: message.reply.saturating_sub(1),
        size: message.size,
        priority: 0,
    }
}

/// Draws how long a requester thinks, in nanoseconds.
fn thought(think: Think, random: &mut SmallRng) -> u64 {
    let time = match think {
        Think::Fixed(time) => time.0,
        Think::Exponential(mean) => mean.0.mul_f64(-(1.0 - random.random::<f64>()).ln()),
    };
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Exchanger {
    pub(super) fn take(&self, received: &[Received], state: &mut State, outgoing: &mut Vec<Message>) {
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
                    self.pass_on(state, outgoing);
                    let late = self.recorder.now().saturating_sub(message.intended) > self.patience();
                    if late && elsewhere == 0 {
                        self.recorder.count(|counts| counts.timed_out += 1);
                        self.recorder.waited_in_vain(moment, 0);
                        continue;
                    }
                }
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
                Does::Request | Does::Produce | Does::Consume | Does::Assemble | Does::Peek | Does::Idle => {
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
    pub(super) fn pass_on(&self, state: &mut State, outgoing: &mut Vec<Message>) {
        let now = self.recorder.now();
        if self.pace.is_some() {
            state.held.push_back(now);
        } else {
            outgoing.push(self.passed_on(now, &mut state.random));
        }
    }

    /// Sends on messages that were there at the moments that have come.
    pub(super) fn send_on(&mut self, state: &mut State, outgoing: &mut Vec<Message>) {
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
        let now_s = Duration::from_nanos(self.recorder.now()).as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number of clients"
        )]
        let clients = present(&self.outbound.role, now_s) as u32;
        // Any of those that are there but this one.
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
            priority: priority::draw(self.outbound.role.priority.as_ref(), random),
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
            priority: priority::draw(self.outbound.role.priority.as_ref(), random),
        }
    }

    /// In nanoseconds.
    pub(super) fn patience(&self) -> u64 {
        u64::try_from(self.inbound.role.patience.0.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Gives up questions whose answers take too long.
    pub(super) fn lose_patience(&self, state: &mut State) {
        let (now, patience) = (self.recorder.now(), self.patience());
        self.give_up(state, |intended| now.saturating_sub(intended) > patience);
    }

    /// Gives up questions by their intended moments. They count with the patience at least.
    pub(super) fn give_up(&self, state: &mut State, is_over: impl Fn(u64) -> bool) {
        let given_up = state.waiting.extract_if(.., |_, intended| is_over(*intended));
        let moments: Vec<(u64, u64)> = given_up.map(|(_, intended)| (intended, 1)).collect();
        if !moments.is_empty() {
            let count = moments.len() as u64;
            self.recorder.count(|counts| counts.timed_out += count);
            self.recorder.waited_in_vain(&moments, self.patience());
        }
    }

    /// Gives up late questions, and asks those that are due.
    pub(super) fn ask(&mut self, state: &mut State, outgoing: &mut Vec<Message>) {
        self.lose_patience(state);
        let now = self.recorder.now();
        let mut moments = Vec::new();
        if let Some(pace) = &mut self.pace {
            pace.due(now, usize::MAX, &mut moments);
        } else if let Some(think) = self.inbound.role.think {
            // The thought of the next question begins with the answer, or when there was none in time.
            if state.waiting.is_empty() && state.is_asked {
                state.is_asked = false;
                state.thinks_until = now + thought(think, &mut state.random);
            }
            if state.waiting.is_empty() && state.thinks_until <= now {
                state.is_asked = true;
                moments.push(if state.thinks_until == 0 {
                    now
                } else {
                    state.thinks_until
                });
            }
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
                priority: priority::draw(self.outbound.role.priority.as_ref(), &mut state.random),
            });
        }
    }
}
