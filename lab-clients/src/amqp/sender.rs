//! Publisher: many messages at once, each with the confirm future that lapin returns.
//!
//! lapin's publish future ends when the message is written. Awaiting each before the next one would measure
//! that wait. Nothing is resent: unconfirmed messages are counted, and the connection is given up.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Confirmation};
use stafett_lab::drivers::amqp::layout::Layout;
use stafett_lab::drivers::{Destinations, DriverError, Seat, Sender};
use stafett_lab::experiment::Delivery;
use stafett_lab::workload::content::Contents;
use stafett_lab::workload::recorder::{Handover, Parcel};
use stafett_lab::workload::{Message, Reports};

use super::{Link, failed};

/// A publishing client.
pub(super) struct LapinSender {
    link: Link,
    reports: Reports,
    destinations: Arc<Destinations>,
    contents: Contents,
    lane: u32,
    lanes: u32,
    properties: BasicProperties,
    is_confirmed: bool,
    publishing: FuturesUnordered<Publishing>,
    /// Bytes of unanswered messages.
    bytes: u64,
    /// Maximum bytes of unanswered messages.
    bytes_max: u64,
}

/// A message in flight: until it is confirmed, or written if there are no confirms.
struct Publishing {
    message: Message,
    confirmed: Pin<Box<dyn Future<Output = Result<Confirmation, lapin::Error>> + Send>>,
}

impl Future for Publishing {
    type Output = (Message, Result<Confirmation, lapin::Error>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let message = self.message;
        self.confirmed
            .as_mut()
            .poll(context)
            .map(|confirmed| (message, confirmed))
    }
}

impl LapinSender {
    pub(super) async fn open(link: Link, seat: &Seat, reports: Reports) -> Result<Self, DriverError> {
        let role = &seat.role;
        let is_confirmed = role.delivery != Delivery::AtMostOnce;
        if is_confirmed {
            let selected = link.channel.confirm_select(ConfirmSelectOptions::default()).await;
            selected.map_err(|error| failed(&error))?;
        }
        let layout = Layout::of(&seat.destinations);
        Ok(Self {
            link,
            reports,
            contents: seat.contents.clone(),
            lane: seat.client % layout.lanes(),
            lanes: layout.lanes(),
            properties: BasicProperties::default().with_delivery_mode(layout.delivery_mode),
            destinations: Arc::clone(&seat.destinations),
            is_confirmed,
            publishing: FuturesUnordered::new(),
            bytes: 0,
            bytes_max: u64::from(role.in_flight).saturating_mul(role.batch.0),
        })
    }

    fn publish(&mut self, message: &Message) {
        let mut body = Vec::new();
        self.contents.write(message, &mut body);
        let place = usize::try_from(message.topic).unwrap_or(usize::MAX);
        let address = Layout::of(&self.destinations).address(place, self.lane);
        let (channel, properties) = (self.link.channel.clone(), self.properties.clone());
        self.bytes += u64::from(message.size);
        self.publishing.push(Publishing {
            message: *message,
            confirmed: Box::pin(async move {
                let published = channel.basic_publish(
                    address.exchange.into(),
                    address.routing_key.into(),
                    BasicPublishOptions::default(),
                    &body,
                    properties,
                );
                published.await?.await
            }),
        });
    }

    /// Processes all available confirms.
    fn take_in(&mut self, context: &mut Context<'_>) -> Result<(), DriverError> {
        let mut stored = Parcel::default();
        let mut gone = None;
        while let Poll::Ready(Some((message, confirmed))) = self.publishing.poll_next_unpin(context) {
            self.bytes = self.bytes.saturating_sub(u64::from(message.size));
            match confirmed {
                Ok(Confirmation::Ack(_) | Confirmation::NotRequested) => stored.push(&message),
                Ok(Confirmation::Nack(_)) => {
                    let reason = "the broker refused messages (basic.nack)";
                    self.reports.failed(&Parcel::from_iter([&message]), reason);
                }
                Err(error) => {
                    self.reports
                        .failed(&Parcel::from_iter([&message]), &error.to_string());
                    gone.get_or_insert_with(|| failed(&error));
                }
            }
        }
        if stored.messages > 0 && self.is_confirmed {
            self.reports.acknowledged(&stored);
        } else if stored.messages > 0 {
            self.reports.unanswered(&stored);
        }
        gone.map_or(Ok(()), Err)
    }

    /// Waits for confirms. Safe to drop.
    async fn answers(&mut self) -> Result<(), DriverError> {
        let before = self.publishing.len();
        poll_fn(|context| {
            let taken = self.take_in(context);
            if taken.is_ok() && self.publishing.len() == before {
                return Poll::Pending;
            }
            Poll::Ready(taken)
        })
        .await
    }
}

#[async_trait]
impl Sender for LapinSender {
    /// Publishes messages. Those that were not published before an error are reported as failed.
    async fn send(&mut self, messages: &[Message]) -> Result<(), DriverError> {
        let mut handover = Handover::new(&self.reports, messages);
        while let Some(message) = handover.turn() {
            while self.bytes >= self.bytes_max {
                if let Err(error) = self.answers().await {
                    handover.failed(&error);
                    return Err(error);
                }
            }
            self.publish(message);
            handover.taken(1);
        }
        drop(handover);
        self.lane = (self.lane + 1) % self.lanes.max(1);
        // Messages are sent when their futures are first polled, in their order.
        poll_fn(|context| Poll::Ready(self.take_in(context))).await?;
        // Nothing waits here while there is room, so other tasks get their turn explicitly.
        tokio::task::yield_now().await;
        Ok(())
    }

    async fn tick(&mut self) -> Result<(), DriverError> {
        self.answers().await
    }

    async fn finish(&mut self) -> Result<(), DriverError> {
        while !self.publishing.is_empty() {
            self.answers().await?;
        }
        if !self.is_confirmed {
            // A clean close of the channel proves that unconfirmed messages have been read.
            let closed = self.link.channel.close(200, "done".into()).await;
            closed.map_err(|error| failed(&error))?;
        }
        Ok(())
    }
}

impl Drop for LapinSender {
    /// Reports the unanswered messages: they will get no answer.
    fn drop(&mut self) {
        let left: Parcel = self
            .publishing
            .iter()
            .map(|publishing| &publishing.message)
            .collect();
        self.reports
            .given_up(&left, "the connection was given up before the confirm came");
    }
}
