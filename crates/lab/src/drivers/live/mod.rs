//! Live topics over WebSocket (`docs/live.md`), with so little work per message that the broker is
//! measured.
//!
//! Subscriptions are stored; a receiver is there when the broker has said so of all of them. Publishing is
//! acknowledged when the broker has handed a message on (or stored it, where there is a log behind the
//! topic), not when subscribers have it.
//!
//! - `words`: messages of a connection
//! - `sender`, `receiver`: the two kinds of clients

mod receiver;
mod sender;
mod words;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use stafett_model::Lock;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::receiver::{LiveReceiver, answers};
use self::sender::LiveSender;
use self::words::{Order, write};
use super::websocket::Link;
use super::{Destinations, Driver, DriverError, Receiver, Seat, Sender};
use crate::experiment::{Codec, Delivery, LiveFormat, Plan, TopicKind};
use crate::workload::Reports;

/// Topics of one command.
const LIST: usize = 1000;
/// Commands that are sent ahead: their answers fit into the system's buffers for a socket.
const UNANSWERED_MAX: usize = 64;
/// Connections that are opened at once.
const OPENING_MAX: usize = 64;

/// The driver, for one system.
#[derive(Debug, Clone)]
pub struct Live {
    server: String,
    opening: Arc<Semaphore>,
    /// Connections so far.
    opened: Arc<AtomicU32>,
    known: Arc<SubscriberSet>,
    tasks: TaskTracker,
}

/// Subscribers, by the first of the topics that they were made for.
#[derive(Debug, Default)]
struct SubscriberSet(Lock<BTreeMap<String, Vec<String>>>);

impl SubscriberSet {
    /// Adds the subscriber. Returns true if it was there before.
    fn is_known(&self, seat: &Seat, client: &str) -> bool {
        let first = seat.destinations.names.first().cloned().unwrap_or_default();
        let mut known = self.0.lock();
        let clients = known.entry(first).or_default();
        // Only subscribers that come back are searched for.
        let is_known = (seat.role.kill.is_some() || seat.destinations.is_stored)
            && clients.iter().any(|known| known == client);
        if !is_known {
            clients.push(client.to_owned());
        }
        is_known
    }

    fn take(&self, destinations: &Destinations) -> Vec<String> {
        let mut known = self.0.lock();
        let first = destinations.names.first();
        first.and_then(|first| known.remove(first)).unwrap_or_default()
    }
}

impl Live {
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            opening: Arc::new(Semaphore::new(OPENING_MAX)),
            opened: Arc::default(),
            known: Arc::default(),
            tasks: TaskTracker::new(),
        }
    }

    async fn open(&self, format: LiveFormat) -> Result<Link, DriverError> {
        let _turn = self.opening.acquire().await;
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        Link::open(&self.server, number, spoken(format), format).await
    }

    /// Returns an error if the system does not answer.
    pub async fn ping(&self) -> Result<(), DriverError> {
        let mut link = self.open(LiveFormat::Json).await?;
        self.tell(&mut link, "ping", "lab", None).await
    }

    async fn tell(
        &self,
        link: &mut Link,
        command: &str,
        client: &str,
        all: Option<bool>,
    ) -> Result<(), DriverError> {
        put(link, command, client, all)?;
        link.flush().await?;
        answers(link, 1, &mut Vec::new()).await.map(|_| ())
    }

    /// Opens a listener without subscriptions, which answers pings.
    async fn idle(&self) -> Result<Idle, DriverError> {
        let mut link = self.open(LiveFormat::Json).await?;
        let client = format!("lab/idle/{}", self.opened.load(Ordering::Relaxed));
        self.tell(&mut link, "listen", &client, None).await?;
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        self.tasks.spawn(async move {
            let ended = async { while link.read(|_| ()).await.is_ok() {} };
            stopped.run_until_cancelled(ended).await;
        });
        Ok(Idle {
            _stop: stop.drop_guard(),
        })
    }
}

/// Takes all subscriptions of these subscribers back.
async fn unsubscribe(link: &mut Link, clients: &[String]) -> Result<(), DriverError> {
    for some in clients.chunks(UNANSWERED_MAX) {
        for client in some {
            put(link, "unsubscribe", client, Some(true))?;
        }
        link.flush().await?;
        let mut left = some.len();
        while left > 0 {
            left = left.saturating_sub(answers(link, 1, &mut Vec::new()).await?);
        }
    }
    Ok(())
}

/// The path of live topics, and the name under which the broker speaks a format there (`docs/live.md`).
fn spoken(format: LiveFormat) -> (&'static str, &'static str) {
    match format {
        LiveFormat::Json => ("/live", ""),
        LiveFormat::Msgpack => ("/live", "stafett.live.msgpack"),
    }
}

fn put(link: &mut Link, command: &str, client: &str, all: Option<bool>) -> Result<(), DriverError> {
    let command = Order {
        command,
        client_id: client,
        all,
        ..Order::default()
    };
    let mut message = Vec::new();
    write(&command, link.format, &mut message)?;
    link.put(&message);
    Ok(())
}

/// A connection that does nothing.
#[derive(Debug)]
struct Idle {
    _stop: DropGuard,
}

#[async_trait]
impl Driver for Live {
    fn name(&self) -> &'static str {
        "lean live"
    }

    fn lacks(&self, plan: &Plan) -> Option<String> {
        let is_mixed = plan.topics.values().any(|topics| topics.kind != TopicKind::Live);
        if is_mixed {
            return Some("live topics and others are not driven together".to_owned());
        }
        for role in plan.roles.values() {
            if let Some(lack) = role.lacks_choice("the protocol of live topics") {
                return Some(lack);
            }
            if role.delivery == Delivery::ExactlyOnce {
                return Some("live topics have no transactions".to_owned());
            }
            if let Some(lack) = role.lacks_acks("the protocol of live topics") {
                return Some(lack);
            }
            if role.compression != Codec::None {
                return Some("live topics are not compressed".to_owned());
            }
            if role.prefetch.is_some() || role.commit.is_some() {
                return Some("subscribers of live topics settle nothing".to_owned());
            }
        }
        None
    }

    async fn prepare(&self, _: &Destinations) -> Result<(), DriverError> {
        // A live topic exists while it has subscribers.
        Ok(())
    }

    async fn discard(&self, destinations: &Destinations) -> Result<(), DriverError> {
        let clients = self.known.take(destinations);
        unsubscribe(&mut self.open(LiveFormat::Json).await?, &clients).await
    }

    async fn sender(&self, seat: &Seat, reports: Reports) -> Result<Box<dyn Sender>, DriverError> {
        let link = self.open(seat.destinations.format).await?;
        Ok(Box::new(LiveSender::new(link, seat, reports)))
    }

    async fn receiver(&self, seat: &Seat) -> Result<Box<dyn Receiver>, DriverError> {
        let link = self.open(seat.destinations.format).await?;
        let receiver = LiveReceiver::open(link, seat, &self.known).await?;
        Ok(Box::new(receiver))
    }

    async fn connection(&self) -> Result<Box<dyn Debug + Send>, DriverError> {
        let idle = self.idle().await?;
        Ok(Box::new(idle))
    }
}
