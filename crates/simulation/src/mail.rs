//! A client of the HTTP API's messages, at the level of the core verbs behind it: it sends under keys, again
//! if an answer is missing, receives under leases or at once, also chosen messages, settles, and leaves.

mod parcels;
mod steps;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use stafett_delivery::Settle;
use stafett_journal::RequestId;
use stafett_messaging::queues::{Queue, ReceiveError, Received};
use stafett_messaging::{Send, SendError};
use stafett_model::{Message, Namespace, StoredMessage};
use stafett_store::NotStored;

use self::parcels::{Parcels, Received as Parcel, Settled};
use crate::random::Random;
use crate::server::Server;
use crate::world::{Death, Finding};

const QUEUE: &str = "mail";
/// Kinds of messages, of which a receive request may want one.
const CLASSES: u8 = 3;
const CLASS: &str = "class";
const PRIORITY_MAX: u8 = 3;
/// Longest lease, and longest wait for a message, in milliseconds.
const LEASE_MS: u64 = 2_000;
const WAIT_MS: u64 = 300;
/// Milliseconds after which the broker has noticed that a lease is over.
const NOTICED_MS: u64 = 1_000;
/// Maximum number of leases that are settled together.
const SETTLED_MAX: usize = 20;

/// Step of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailStep {
    /// Sends messages in one request, under a new key.
    Send { count: u8, bytes: u16 },
    /// Sends one of the last requests again, as `back` counts.
    Again { back: u8 },
    /// Receives messages.
    Receive {
        count: u8,
        /// `None` for all.
        class: Option<u8>,
        oldest: bool,
        wait_ms: u64,
        how: Taking,
    },
    /// Settles the oldest leases.
    Settle { count: u8, what: Settle, stored: bool },
    /// Extends all leases.
    Extend,
    /// Leaves before the answers to its requests come.
    Leave,
    /// Once all leases are over, compares the queue with its knowledge.
    Look,
}

/// Settlement of messages that are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taking {
    Soon,
    Stored,
    Lease { ms: u64 },
}

impl MailStep {
    pub fn draw(random: &mut Random) -> Self {
        let mut small = |bound: u8| u8::try_from(random.below(bound.into())).unwrap_or(0);
        let (kind, count, class) = (small(32), 1 + small(5), small(2 * CLASSES));
        match kind {
            0..=9 => Self::Send {
                count,
                bytes: random.pick(&[10, 100, 2_000, 20_000]),
            },
            10..=13 => Self::Again { back: small(4) },
            14..=22 => Self::Receive {
                count,
                class: (class < CLASSES).then_some(class),
                oldest: small(3) == 0,
                wait_ms: random.pick(&[0, 0, 20, WAIT_MS]),
                how: random.pick(&[
                    Taking::Soon,
                    Taking::Stored,
                    Taking::Lease { ms: 50 },
                    Taking::Lease { ms: LEASE_MS },
                    Taking::Lease { ms: LEASE_MS },
                ]),
            },
            23..=27 => Self::Settle {
                count: 1 + small(8),
                stored: small(3) > 0,
                what: random.pick(&[Settle::Complete, Settle::Complete, Settle::Requeue]),
            },
            28 => Self::Extend,
            29 | 30 => Self::Leave,
            _ => Self::Look,
        }
    }
}

/// The client and its knowledge.
#[derive(Default)]
pub struct Mail {
    parcels: Parcels,
    /// Requests without an answer.
    pending: Vec<(Asked, Work)>,
    queue: Option<Arc<Queue>>,
}

type Work = Pin<Box<dyn Future<Output = Answer> + std::marker::Send>>;

/// A request.
#[derive(Debug, Clone)]
enum Asked {
    Send(usize),
    Receive {
        class: Option<u8>,
        count: u8,
        how: Taking,
        at_ms: i64,
    },
    Settle {
        /// Messages, and the times until which their leases cannot be over.
        held: Vec<(usize, i64)>,
        what: Settle,
        stored: bool,
        at_ms: i64,
    },
}

enum Answer {
    Sent(Result<bool, SendError>),
    Received(Result<Received, ReceiveError>),
    Settled(Result<Vec<bool>, NotStored>),
}

impl Clone for Mail {
    /// Clones its knowledge: its requests stay with the original.
    fn clone(&self) -> Self {
        self.as_left()
    }
}

impl std::fmt::Debug for Mail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mail")
            .field("parcels", &self.parcels)
            .field("pending", &self.pending.len())
            .finish_non_exhaustive()
    }
}

impl Mail {
    /// Returns its knowledge, with all requests on their way unanswered.
    #[must_use]
    pub fn as_left(&self) -> Self {
        let mut parcels = self.parcels.clone();
        for (asked, _) in &self.pending {
            leave(&mut parcels, asked);
        }
        Self {
            parcels,
            ..Self::default()
        }
    }

    /// Handles the end of the program.
    pub fn on_end(&mut self, death: Option<Death>, may_refuse: bool, now_ms: i64) {
        *self = self.as_left();
        self.parcels.on_end(death, may_refuse, now_ms);
    }

    /// Processes answers. On a full disk, marks may be missing.
    pub fn turn(&mut self, may_refuse: bool, is_full: bool, now_ms: i64) -> Result<Vec<String>, Finding> {
        let mut notes = Vec::new();
        let mut context = Context::from_waker(Waker::noop());
        let mut left = Vec::new();
        for (asked, mut work) in std::mem::take(&mut self.pending) {
            match work.as_mut().poll(&mut context) {
                Poll::Pending => left.push((asked, work)),
                Poll::Ready(answer) => {
                    let said = self.hear(&asked, answer, (may_refuse, is_full), now_ms);
                    notes.push(said.map_err(|what| Finding(format!("over HTTP: {what}, of {asked:?}")))?);
                }
            }
        }
        self.pending = left;
        if !may_refuse {
            self.parcels.settle_down(now_ms);
        }
        Ok(notes)
    }

    /// Processes an answer. Returns a description.
    fn hear(
        &mut self,
        asked: &Asked,
        answer: Answer,
        (may_refuse, is_full): (bool, bool),
        now_ms: i64,
    ) -> Result<String, String> {
        let refused = |why: String| {
            if may_refuse {
                Ok(format!("the mail hears {why}"))
            } else {
                Err(format!("it is refused: {why}"))
            }
        };
        match (asked, answer) {
            (Asked::Send(request), Answer::Sent(Ok(repeated))) => {
                self.parcels.on_sent(*request, repeated)?;
                Ok(format!("the mail has request {request}, repeated: {repeated}"))
            }
            (Asked::Send(request), Answer::Sent(Err(why))) => {
                if why == SendError::NotStored(NotStored::Unknown) {
                    self.parcels.on_unknown(*request);
                }
                refused(why.to_string())
            }
            (Asked::Receive { how, at_ms, .. }, Answer::Received(Ok(received))) => {
                let mut numbers = Vec::new();
                for (delivery, lease) in received.messages {
                    let number = number_of(&delivery.message).ok_or("a foreign message came")?;
                    numbers.push(number);
                    self.parcels.on_received(Parcel {
                        number,
                        redelivered: delivery.redelivered,
                        lease,
                        how: *how,
                        asked_ms: *at_ms,
                        now_ms,
                        is_marked: !is_full,
                    })?;
                }
                Ok(format!("the mail receives {numbers:?}"))
            }
            (Asked::Receive { .. }, Answer::Received(Err(why))) => {
                if why == ReceiveError::NotStored(NotStored::Unknown) {
                    leave(&mut self.parcels, asked);
                }
                refused(why.to_string())
            }
            (
                Asked::Settle {
                    held,
                    what,
                    stored,
                    at_ms,
                },
                Answer::Settled(Ok(known)),
            ) => {
                self.on_settled(held, &known, (*what, *stored), *at_ms, now_ms)?;
                Ok(format!("the mail has settled {held:?}: {known:?}"))
            }
            (Asked::Settle { .. }, Answer::Settled(Err(why))) => {
                if why == NotStored::Unknown {
                    leave(&mut self.parcels, asked);
                }
                refused(why.to_string())
            }
            _ => Err("an answer to something else".to_owned()),
        }
    }

    /// Processes the settlement of messages; `known` says which leases were known.
    fn on_settled(
        &mut self,
        held: &[(usize, i64)],
        known: &[bool],
        (what, stored): (Settle, bool),
        at_ms: i64,
        now_ms: i64,
    ) -> Result<(), String> {
        for ((number, until_ms), is_known) in held.iter().zip(known) {
            if !is_known && at_ms < *until_ms {
                return Err(format!("the lease of message {number} ended before its time"));
            }
            let settled = match (what, stored) {
                (Settle::Complete, true) => Settled::Yes,
                (Settle::Complete, false) => Settled::Soon(now_ms),
                (Settle::Requeue | Settle::Discard, _) => Settled::No,
            };
            if *is_known {
                self.parcels.on_settled(*number, settled);
            }
        }
        Ok(())
    }

    /// Makes a request with the parcels of an index, again or for the first time.
    fn send(&mut self, server: &Server, request: usize) {
        let sends = self.parcels.of_request(request).map(|(number, bytes)| {
            let class = [b'0' + class_of(number)];
            let mut value = format!("{number}:").into_bytes();
            value.resize(value.len() + bytes, b'.');
            Send {
                message: Message {
                    value: value.into(),
                    priority: u8::try_from(number % 5).unwrap_or(0).min(PRIORITY_MAX),
                    headers: [(CLASS.into(), Some(Bytes::copy_from_slice(&class)))]
                        .into_iter()
                        .collect(),
                    persistent: true,
                    ..Message::default()
                },
                queues: vec![QUEUE.into()],
            }
        });
        let key = RequestId((request as u128 + 1).to_le_bytes());
        let sending = server
            .broker
            .messaging()
            .send(&Namespace::default(), sends.collect(), Some(key));
        self.parcels.on_sending(request);
        let work = Box::pin(async { Answer::Sent(sending.await) });
        self.pending.push((Asked::Send(request), work));
    }
}

/// Records that the answer to a request will never come.
fn leave(parcels: &mut Parcels, asked: &Asked) {
    match asked {
        Asked::Send(request) => parcels.on_unknown(*request),
        Asked::Receive {
            class, count, how, ..
        } => {
            if !matches!(how, Taking::Lease { .. }) {
                parcels.doubt(*class, *count);
            }
        }
        Asked::Settle { held, what, .. } => {
            if *what == Settle::Complete {
                held.iter()
                    .for_each(|(number, _)| parcels.on_settling_unknown(*number));
            }
        }
    }
}

fn class_of(number: usize) -> u8 {
    u8::try_from(number % usize::from(CLASSES)).unwrap_or(0)
}

fn number_of(message: &StoredMessage) -> Option<usize> {
    let text = std::str::from_utf8(message.value()).ok()?;
    text.split_once(':')?.0.parse().ok()
}
