//! Sends messages: one request for each, the next behind the answer.

use std::fmt::Write as _;
use std::sync::Arc;

use async_trait::async_trait;

use super::client_name;
use super::link::Link;
use crate::drivers::{Destinations, DriverError, Seat, Sender};
use crate::workload::content::Contents;
use crate::workload::recorder::{Handover, Parcel};
use crate::workload::{Message, Reports};

/// A connection that sends.
pub(super) struct HttpSender {
    link: Link,
    reports: Reports,
    destinations: Arc<Destinations>,
    contents: Contents,
    /// The message whose answer is awaited.
    under_way: Option<Parcel>,
    /// Name of the registered client that it sends as.
    client: Option<String>,
    headers: String,
    scratch: Vec<u8>,
}

impl HttpSender {
    pub(super) async fn open(mut link: Link, seat: &Seat, reports: Reports) -> Result<Self, DriverError> {
        let name = client_name(&seat.destinations, seat.client);
        let client = seat.role.registered.then_some(name);
        if let Some(client) = &client {
            link.call("PUT", &format!("/v1/clients/{client}"), b"").await?;
        }
        Ok(Self {
            link,
            reports,
            destinations: Arc::clone(&seat.destinations),
            contents: seat.contents.clone(),
            under_way: None,
            client,
            headers: String::new(),
            scratch: Vec::new(),
        })
    }

    fn put(&mut self, message: &Message) {
        self.headers.clear();
        self.headers
            .push_str("Content-Type: application/octet-stream\r\n");
        // Writing to a text does not fail.
        if message.priority > 0 {
            let _ = write!(self.headers, "Stafett-Priority: {}\r\n", message.priority);
        }
        if let Some(client) = &self.client {
            let (context, headers) = (message.sequence, &mut self.headers);
            let _ = write!(
                headers,
                "Stafett-Client: {client}\r\nStafett-Context: {context}\r\n"
            );
        }
        self.contents.write(message, &mut self.scratch);
        let place = usize::try_from(message.topic).unwrap_or(usize::MAX);
        let queue = self.destinations.names.get(place).map_or("", String::as_str);
        let path = format!("/v1/queues/{queue}/messages");
        self.link.put("POST", &path, &self.headers, &self.scratch);
        self.under_way = Some([message].into_iter().collect());
    }

    /// Waits for the answer to the message that is under way. Safe to drop.
    async fn settle(&mut self) -> Result<(), DriverError> {
        if self.under_way.is_none() {
            return Ok(());
        }
        let answer = self.link.answer().await?;
        if let Some(parcel) = self.under_way.take() {
            match answer.status {
                200..=299 => self.reports.acknowledged(&parcel),
                _ => self.reports.failed(&parcel, &answer.reason()),
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Sender for HttpSender {
    async fn send(&mut self, messages: &[Message]) -> Result<(), DriverError> {
        let reports = self.reports.clone();
        let mut handover = Handover::new(&reports, messages);
        // A request whose sender was dropped before its answer came is answered first.
        let mut settled = self.settle().await;
        while settled.is_ok()
            && let Some(message) = handover.turn()
        {
            self.put(message);
            handover.taken(1);
            settled = self.settle().await;
        }
        if let Err(error) = &settled {
            handover.failed(error);
        }
        settled
    }

    async fn tick(&mut self) -> Result<(), DriverError> {
        if self.under_way.is_none() {
            return std::future::pending().await;
        }
        self.settle().await
    }

    async fn finish(&mut self) -> Result<(), DriverError> {
        self.settle().await
    }
}

impl Drop for HttpSender {
    /// A message without an answer by now will have none.
    fn drop(&mut self) {
        if let Some(left) = self.under_way.take() {
            self.reports
                .given_up(&left, "the connection was given up before the answer came");
        }
    }
}
