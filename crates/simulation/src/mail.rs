//! A client of the HTTP API's messages, at the level of the core verbs behind it: it sends under keys, again
//! if an answer is missing, receives under leases or at once, also chosen messages, settles, and leaves.

mod parcels;
mod steps;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use stafett_delivery::{LeaseId, SearchBounds, SearchOrder, Settle};
use stafett_journal::RequestId;
use stafett_messaging::queues::{
    Acknowledge, Declare, Narrow, Queue, QueueSettings, Receive, ReceiveError, Received, SettleLeases,
    StoredAt,
};
use stafett_messaging::{Send, SendError, SentTogether};
use stafett_model::{Message, Namespace, StoredMessage};
use stafett_store::NotStored;

use self::parcels::{Parcels, Received as Parcel, Settled};
pub use self::steps::{MailStep, Taking};
use crate::server::{Server, pumped};
use crate::world::{Broken, Death, Finding, World};

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
    Send {
        request: usize,
        /// It was stored before it was sent.
        was_stored: bool,
    },
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
    Sent(Result<SentTogether, SendError>),
    Received(Result<Received, ReceiveError>),
    Settled(Result<Vec<bool>, NotStored>),
}

impl Clone for Mail {
    /// Clones the knowledge of the client: its requests stay with the original.
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
    /// Returns the knowledge of the client, with all requests on their way unanswered.
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

    /// Ends all requests without their answers.
    pub fn leave(&mut self) {
        for (asked, work) in std::mem::take(&mut self.pending) {
            drop(work);
            leave(&mut self.parcels, &asked);
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
            (Asked::Send { request, was_stored }, Answer::Sent(Ok(sent))) => {
                let repeated = sent.is_repeated;
                let queue = self.queue.as_ref().ok_or("a message is sent to no queue")?;
                let place = |stored: &StoredAt| queue.message_at(stored);
                let places = sent.places.iter().map(place).collect();
                self.parcels.on_sent(*request, *was_stored, (places, repeated))?;
                Ok(format!("the mail has request {request}, repeated: {repeated}"))
            }
            (Asked::Send { request, .. }, Answer::Sent(Err(why))) => {
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
                    self.parcels.on_received(&Parcel {
                        number,
                        place: delivery.id,
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
            (Asked::Settle { .. }, Answer::Settled(Ok(known))) => self.hear_settled(asked, &known, now_ms),
            (Asked::Settle { .. }, Answer::Settled(Err(why))) => {
                if why == NotStored::Unknown {
                    leave(&mut self.parcels, asked);
                }
                refused(why.to_string())
            }
            _ => Err("an answer to something else".to_owned()),
        }
    }

    fn hear_settled(&mut self, asked: &Asked, known: &[bool], now_ms: i64) -> Result<String, String> {
        let Asked::Settle {
            held,
            what,
            stored,
            at_ms,
        } = asked
        else {
            return Err("an answer to something else".to_owned());
        };
        for ((number, until_ms), is_known) in held.iter().zip(known) {
            if !is_known && at_ms < until_ms {
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
        Ok(format!("the mail has settled {held:?}: {known:?}"))
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
        let was_stored = self.parcels.on_sending(request);
        let work = Box::pin(async { Answer::Sent(sending.await) });
        self.pending.push((Asked::Send { request, was_stored }, work));
    }
}

/// Records that the answer to a request will never come.
fn leave(parcels: &mut Parcels, asked: &Asked) {
    match asked {
        Asked::Send { request, .. } => parcels.on_unknown(*request),
        Asked::Receive {
            class, count, how, ..
        } => {
            if !matches!(how, Taking::Lease { .. }) {
                parcels.doubt(*class, *count);
            }
        }
        Asked::Settle { held, what, .. } => {
            if *what == Settle::Complete {
                for (number, _) in held {
                    parcels.on_settling_unknown(*number);
                }
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

impl World {
    pub async fn mail_step(&mut self, server: &mut Server, step: MailStep) -> Result<(), Broken> {
        let Some(queue) = self.mail.queue.clone() else {
            return Ok(());
        };
        let at_ms = self.now_ms();
        let mail = &mut self.mail;
        match step {
            MailStep::Send { count, bytes } => {
                let request = mail.parcels.add(count.into(), bytes.into());
                mail.send(server, request);
            }
            MailStep::Again { back } => {
                if let Some(request) = mail.parcels.last_request(back.into()) {
                    mail.send(server, request);
                }
            }
            MailStep::Receive {
                count,
                class,
                oldest,
                wait_ms,
                how,
            } => {
                let asked = Asked::Receive {
                    class,
                    count,
                    how,
                    at_ms,
                };
                let work = receive(queue, class, (count.into(), oldest, wait_ms), how);
                mail.pending.push((asked, Box::pin(work)));
            }
            MailStep::Settle { count, what, stored } => {
                let leases = mail.parcels.take_leases(usize::from(count).min(SETTLED_MAX));
                let held = leases.iter().map(|(number, _, until_ms)| (*number, *until_ms));
                let asked = Asked::Settle {
                    held: held.collect(),
                    what,
                    stored,
                    at_ms,
                };
                let leases = leases.into_iter().map(|(_, lease, _)| (lease, what)).collect();
                let request = SettleLeases { leases, stored };
                let work = async move { Answer::Settled(queue.settle_leases(request).await) };
                mail.pending.push((asked, Box::pin(work)));
            }
            MailStep::Extend => {
                let leases = mail.parcels.leases();
                let extensions: Vec<(LeaseId, u64)> =
                    leases.iter().map(|(_, lease)| (*lease, LEASE_MS)).collect();
                let known = queue.extend_leases(&extensions);
                for ((number, _), is_known) in leases.into_iter().zip(known) {
                    let said = mail.parcels.on_extended(number, is_known, at_ms, LEASE_MS);
                    said.map_err(|what| Finding(format!("over HTTP: {what}")))?;
                }
            }
            MailStep::Leave => mail.leave(),
            MailStep::Look => self.look_at_mail(server, &queue).await?,
        }
        Ok(())
    }

    /// Waits until all leases are over, and compares the queue with the knowledge of the client.
    async fn look_at_mail(&mut self, server: &mut Server, queue: &Arc<Queue>) -> Result<(), Broken> {
        if self.may_refuse {
            return Ok(());
        }
        self.rest(server, WAIT_MS + LEASE_MS + NOTICED_MS).await?;
        if self.may_refuse || !self.mail.pending.is_empty() {
            return Ok(());
        }
        let counts = queue.counts();
        if counts.in_flight > 0 {
            let what = format!("all leases are over, and there is still something in flight: {counts:?}");
            return Err(Finding(what).into());
        }
        self.mail.parcels.end_leases();
        self.compare_mail(server, queue).await
    }

    /// Declares the queue after a start, and compares it with the knowledge of the client.
    pub async fn check_mail(&mut self, server: &mut Server) -> Result<(), Broken> {
        let declare = Declare {
            durable: true,
            settings: QueueSettings {
                priority_max: PRIORITY_MAX,
                ..QueueSettings::default()
            },
            ..Declare::default()
        };
        let queues = server.broker.messaging().queues();
        let declaring = queues.declare(&Namespace::default(), QUEUE, declare);
        let Ok(queue) = self.wait_for(server, declaring).await? else {
            self.tick(server).await?;
            if self.may_refuse || self.has_failed() {
                return Ok(());
            }
            return Err(Finding("the queue for HTTP cannot be declared".to_owned()).into());
        };
        self.compare_mail(server, &queue).await?;
        self.mail.queue = Some(queue);
        Ok(())
    }

    async fn compare_mail(&mut self, server: &mut Server, queue: &Arc<Queue>) -> Result<(), Broken> {
        let mut found: BTreeMap<usize, u32> = BTreeMap::new();
        let look = queue.peek(|_, message| {
            if let Some(number) = number_of(message) {
                *found.entry(number).or_default() += 1;
            }
            ControlFlow::Continue(())
        });
        if let Err(failed) = pumped(&server.journal, look).await {
            self.tick(server).await?;
            return Err(Finding(failed.0).into());
        }
        self.tick(server).await?;
        let compared = self.mail.parcels.compare(&found);
        compared.map_err(|what| Finding(format!("over HTTP: {what}")).into())
    }
}

/// Receives messages of a class, or of all.
async fn receive(
    queue: Arc<Queue>,
    class: Option<u8>,
    (count, oldest, wait_ms): (usize, bool, u64),
    how: Taking,
) -> Answer {
    let wanted = class.map(|class| [b'0' + class]);
    let is_wanted = move |message: &StoredMessage| {
        message.header(CLASS.as_bytes()).flatten() == wanted.as_ref().map(<[u8; 1]>::as_slice)
    };
    let request = Receive {
        count,
        bytes_max: usize::MAX,
        order: if oldest {
            SearchOrder::Oldest
        } else {
            SearchOrder::Priority
        },
        wanted: class.is_some().then_some(&is_wanted as _),
        narrow: Narrow {
            priorities: None,
            header: wanted.as_ref().map(|class| (CLASS, class.as_slice())),
        },
        bounds: SearchBounds {
            messages: 100,
            bytes: usize::MAX,
        },
        after: Vec::new(),
        wait: Duration::from_millis(wait_ms),
        ack: match how {
            Taking::Soon => Acknowledge::Soon,
            Taking::Stored => Acknowledge::Stored,
            Taking::Lease { ms } => Acknowledge::Lease { ms },
        },
    };
    Answer::Received(queue.receive(request).await)
}
