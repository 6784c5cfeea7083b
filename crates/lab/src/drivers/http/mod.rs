//! Queues over HTTP (`docs/http.md`), one request at a time on a connection that is kept, as a client without
//! a library would send them.
//!
//! A topic is a queue. A message is acknowledged by the answer to its request, and is done with the answer
//! that hands it out (`ack=auto`).
//!
//! - `link`: requests and answers of a connection
//! - `sender`, `receiver`: the two kinds of clients

mod link;
mod receiver;
mod sender;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use serde_json::json;

use self::link::Link;
use self::receiver::HttpReceiver;
use self::sender::HttpSender;
use super::{Destinations, Driver, DriverError, Receiver, Seat, Sender, lacks_queues};
use crate::experiment::{Codec, Delivery, Does, Plan, Rate, TopicKind};
use crate::workload::Reports;

/// The driver, for one system.
#[derive(Debug, Clone)]
pub struct Http {
    server: String,
    /// Connections so far.
    opened: Arc<AtomicU32>,
}

impl Http {
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            opened: Arc::default(),
        }
    }

    async fn open(&self) -> Result<Link, DriverError> {
        Link::open(&self.server, self.opened.fetch_add(1, Ordering::Relaxed)).await
    }

    /// Returns an error if the system does not answer.
    pub async fn ping(&self) -> Result<(), DriverError> {
        self.open().await?.call("GET", "/v1", b"").await
    }
}

/// The definition of a queue, out of AMQP's words for it.
fn definition(destinations: &Destinations) -> String {
    let setting = |wanted: &str| {
        let mut found = destinations.settings.iter().rev();
        found.find_map(|(name, value)| (name == wanted).then_some(value.as_str()))
    };
    let number = |wanted: &str| setting(wanted).and_then(|value| value.parse::<u64>().ok());
    json!({
        "durable": setting("durable") == Some("true"),
        "durability": setting("x-stafett-durability"),
        "length_max": number("x-max-length"),
        "priority_max": number("x-max-priority").unwrap_or(0),
    })
    .to_string()
}

/// The name under which a client of a role is registered. It is the same in all roles, so that consumers can
/// choose it.
fn client_name(destinations: &Destinations, client: u32) -> String {
    let of_point = destinations.names.first().map_or("", String::as_str);
    format!("{of_point}-{client}")
}

#[async_trait]
impl Driver for Http {
    fn name(&self) -> &'static str {
        "lean http"
    }

    fn lacks(&self, plan: &Plan) -> Option<String> {
        let is_plain = |topics: &crate::experiment::Topics| {
            topics.kind != TopicKind::Live && topics.exchange.is_none() && !topics.one_queue
        };
        if !plan.topics.values().all(is_plain) {
            return Some("over HTTP messages are sent to queues, without exchanges".to_owned());
        }
        for (name, role) in &plan.roles {
            let sends = role.does.sends_first();
            let is_closed = role.does == Does::Produce && role.rate == Rate::Closed;
            let lack = if role.fan_out {
                "HTTP has no exchange that copies a message to several queues"
            } else if role.delivery == Delivery::ExactlyOnce {
                "HTTP has no transactions"
            } else if role.delivery == Delivery::AtMostOnce && sends {
                "over HTTP each message is answered"
            } else if role.compression != Codec::None && sends {
                "messages over HTTP are not compressed"
            } else if role.leave || role.commit.is_some() || role.prefetch.is_some() {
                "a consumer over HTTP has nothing subscribed and holds nothing"
            } else if is_closed && role.window != Some(1) {
                "over HTTP a client sends its next message behind the answer: a closed loop has window = 1"
            } else {
                continue;
            };
            return Some(format!("`{name}`: {lack}"));
        }
        lacks_queues(plan, "HTTP")
    }

    async fn prepare(&self, destinations: &Destinations) -> Result<(), DriverError> {
        let (mut link, definition) = (self.open().await?, definition(destinations));
        for name in &destinations.names {
            let path = format!("/v1/queues/{name}");
            link.call("PUT", &path, definition.as_bytes()).await?;
        }
        Ok(())
    }

    async fn discard(&self, destinations: &Destinations) -> Result<(), DriverError> {
        let mut link = self.open().await?;
        for name in &destinations.names {
            link.call("DELETE", &format!("/v1/queues/{name}"), b"").await?;
        }
        Ok(())
    }

    async fn sender(&self, seat: &Seat, reports: Reports) -> Result<Box<dyn Sender>, DriverError> {
        let sender = HttpSender::open(self.open().await?, seat, reports).await?;
        Ok(Box::new(sender))
    }

    async fn receiver(&self, seat: &Seat) -> Result<Box<dyn Receiver>, DriverError> {
        Ok(Box::new(HttpReceiver::new(self.open().await?, seat)))
    }

    async fn connection(&self) -> Result<Box<dyn Debug + Send>, DriverError> {
        let mut link = self.open().await?;
        link.call("GET", "/v1", b"").await?;
        Ok(Box::new(link))
    }
}
