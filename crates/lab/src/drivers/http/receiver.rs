//! Takes messages, or looks at them: one request, one answer.

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::Deserialize;

use super::client_name;
use super::link::Link;
use crate::drivers::{DriverError, Receiver, Seat};
use crate::experiment::{Does, SelectOrder};
use crate::workload::Received;

/// Messages of one answer, at most, of a consumer that does not ask at intervals.
const AT_ONCE: u32 = 100;

/// A connection that receives.
pub(super) struct HttpReceiver {
    link: Link,
    seat: Seat,
    /// Its queues, with commas.
    queues: String,
    is_asked: bool,
    random: SmallRng,
    /// Messages that it has asked for by their context.
    asked: u64,
}

/// Messages of an answer.
#[derive(Deserialize)]
struct Messages {
    messages: Vec<One>,
}

#[derive(Deserialize)]
struct One {
    content_base64: Option<String>,
}

impl HttpReceiver {
    pub(super) fn new(link: Link, seat: &Seat) -> Self {
        let names = &seat.destinations.names;
        let ours = |place: u32| seat.reads.is_of(place, seat, names.len());
        let queues = (0_u32..).zip(names).filter(|(place, _)| ours(*place));
        let queues: Vec<&str> = queues.map(|(_, name)| name.as_str()).collect();
        Self {
            link,
            queues: queues.join(","),
            is_asked: false,
            random: SmallRng::seed_from_u64(u64::from(seat.client)),
            asked: 0,
            seat: seat.clone(),
        }
    }

    /// Method, path and query of the next request.
    fn request(&mut self) -> (&'static str, String) {
        let choice = self.choice();
        let role = &self.seat.role;
        let (queues, is_asking) = (&self.queues, role.poll.is_some());
        if role.does == Does::Peek {
            let queue = queues.split(',').next().unwrap_or_default();
            return (
                "GET",
                format!("/v1/queues/{queue}/messages?count=1&as=base64{choice}"),
            );
        }
        // A message that is asked for by its properties is one, too.
        let count = if is_asking || role.select.is_some() {
            1
        } else {
            AT_ONCE
        };
        let wait = if is_asking {
            0
        } else {
            role.fetch_wait.0.as_millis()
        };
        // The broker wakes a request for one queue at once, and looks for one of several from time to time.
        let of = if queues.contains(',') {
            format!("/v1/receive?queue={queues}&")
        } else {
            format!("/v1/queues/{queues}/receive?")
        };
        let rest = format!("count={count}&wait={wait}ms&as=base64&settled=stored{choice}");
        ("POST", of + &rest)
    }

    /// The part of a query that chooses among messages.
    fn choice(&mut self) -> String {
        let Some(select) = &self.seat.role.select else {
            return String::new();
        };
        let mut choice = match select.order {
            SelectOrder::Priority => String::new(),
            SelectOrder::Oldest => "&order=oldest".to_owned(),
        };
        if let Some(senders) = select.senders {
            let client = self.random.random_range(0..senders.max(1));
            choice.push_str("&sender=");
            choice.push_str(&client_name(&self.seat.destinations, client));
        }
        if select.context {
            // Clients take turns through the numbers of the senders' messages.
            let context = self.asked * u64::from(self.seat.clients) + u64::from(self.seat.client);
            self.asked += 1;
            choice.push_str("&context=");
            choice.push_str(&context.to_string());
        }
        choice
    }
}

#[async_trait]
impl Receiver for HttpReceiver {
    async fn receive(&mut self, into: &mut Vec<Received>) -> Result<(), DriverError> {
        if !self.is_asked {
            let (method, path) = self.request();
            self.link.put(method, &path, "", b"");
            self.is_asked = true;
        }
        let answer = self.link.answer().await?;
        self.is_asked = false;
        let body = answer.checked()?.body;
        let answer: Messages =
            serde_json::from_slice(&body).map_err(|error| DriverError::Failed(error.to_string()))?;
        for message in answer.messages {
            let content = message.content_base64.unwrap_or_default();
            let content = STANDARD.decode(content).unwrap_or_default();
            into.extend(Received::read(&content));
        }
        Ok(())
    }
}
