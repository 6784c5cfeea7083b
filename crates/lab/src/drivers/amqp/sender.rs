//! Publishes: messages that are handed over together go out together, in large writes; confirms are taken in
//! while writing.
//!
//! Nothing is sent again: messages without a confirm are counted, and the connection is given up.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::BytesMut;
use stafett_amqp_wire::methods::{BASIC, channel, confirm};
use stafett_amqp_wire::{FrameKind, FrameRef};

use super::layout::Layout;
use super::link::{Link, check, id_of, u64_at};
use super::template::Template;
use super::unconfirmed::Unconfirmed;
use crate::drivers::{Destinations, DriverError, Seat, Sender};
use crate::experiment::Delivery;
use crate::workload::content::Contents;
use crate::workload::recorder::{Handover, Parcel};
use crate::workload::{Message, Reports};

/// So much is gathered before it is written.
const WRITE_BYTES: usize = 256 << 10;
/// Of more addresses than this the others' templates are made again.
const TEMPLATES_MAX: usize = 4096;
const ACK: u16 = 80;
const NACK: u16 = 120;

/// A connection that publishes.
#[derive(Debug)]
pub(super) struct AmqpSender {
    link: Link,
    reports: Reports,
    destinations: Arc<Destinations>,
    contents: Contents,
    /// For the address (topic, lane and priority) that was used last.
    template: Template,
    address: Option<(u32, u32, u8)>,
    /// For others that were used.
    templates: HashMap<(u32, u32, u8), Template>,
    lane: u32,
    lanes: u32,
    delivery_mode: u8,
    /// `None`: at most once, nothing is confirmed.
    unconfirmed: Option<Unconfirmed>,
    /// Bytes that may be without a confirm.
    unconfirmed_bytes_max: u64,
    scratch: Vec<u8>,
}

impl AmqpSender {
    pub(super) async fn open(mut link: Link, seat: &Seat, reports: Reports) -> Result<Self, DriverError> {
        let role = &seat.role;
        let is_confirmed = role.delivery != Delivery::AtMostOnce;
        if is_confirmed {
            link.call(confirm::Select { no_wait: false }).await?;
        }
        let layout = Layout::of(&seat.destinations);
        Ok(Self {
            reports,
            contents: seat.contents.clone(),
            template: Template::default(),
            address: None,
            templates: HashMap::new(),
            lane: seat.client % layout.lanes(),
            lanes: layout.lanes(),
            delivery_mode: layout.delivery_mode,
            destinations: Arc::clone(&seat.destinations),
            unconfirmed: is_confirmed.then(Unconfirmed::new),
            unconfirmed_bytes_max: u64::from(role.in_flight).saturating_mul(role.batch.0),
            scratch: Vec::new(),
            link,
        })
    }

    /// Waits while as many are without a confirm as may be; and while too much waits to be written.
    async fn make_room(&mut self) -> Result<(), DriverError> {
        if self.link.socket.output().len() >= WRITE_BYTES {
            self.link.write().await?;
            self.take_in()?;
        }
        if self.is_full() {
            // A write that was given up midway has left input behind.
            self.take_in()?;
        }
        while self.is_full() {
            self.link.socket.read().await?;
            self.take_in()?;
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        let unconfirmed = self.unconfirmed.as_ref();
        unconfirmed.is_some_and(|unconfirmed| unconfirmed.bytes() >= self.unconfirmed_bytes_max)
    }

    #[inline]
    fn put(&mut self, message: &Message) {
        let address = (message.topic, self.lane, message.priority);
        if self.address != Some(address) {
            self.turn_to(address);
        }
        self.contents.write(message, &mut self.scratch);
        self.template.put(&self.scratch, self.link.socket.output());
        if let Some(unconfirmed) = &mut self.unconfirmed {
            unconfirmed.push(message);
        }
    }

    /// Has the template for another address.
    fn turn_to(&mut self, address: (u32, u32, u8)) {
        let (topic, lane, priority) = address;
        let found = self.templates.remove(&address);
        let next = found.unwrap_or_else(|| {
            let layout = Layout::of(&self.destinations);
            let place = usize::try_from(topic).unwrap_or(usize::MAX);
            Template::new(
                layout.address(place, lane),
                self.delivery_mode,
                priority,
                self.link.socket.frame_bytes_max(),
            )
        });
        let before = std::mem::replace(&mut self.template, next);
        let was = self.address.replace(address);
        if let Some(was) = was.filter(|_| self.templates.len() < TEMPLATES_MAX) {
            self.templates.insert(was, before);
        }
    }

    /// Takes confirms and refusals from the input.
    fn take_in(&mut self) -> Result<(), DriverError> {
        let (mut stored, mut refused) = (Parcel::default(), Parcel::default());
        let unconfirmed = &mut self.unconfirmed;
        let understood = self.link.socket.frames(|frame: FrameRef<'_>, _: &mut BytesMut| {
            if frame.kind != FrameKind::Method as u8 {
                return Ok(());
            }
            let parcel = match id_of(frame.payload) {
                (BASIC, ACK) => &mut stored,
                (BASIC, NACK) => &mut refused,
                _ => return check(frame),
            };
            let number = u64_at(frame.payload, 4);
            let bits = frame.payload.get(12);
            if let (Some(unconfirmed), Some(number), Some(bits)) = (unconfirmed.as_mut(), number, bits) {
                unconfirmed.settle(number, bits & 1 == 1, parcel);
            }
            Ok::<(), DriverError>(())
        });
        if stored.messages > 0 {
            self.reports.acknowledged(&stored);
        }
        if refused.messages > 0 {
            self.reports
                .failed(&refused, "the broker refused messages (basic.nack)");
        }
        understood
    }

    async fn answers(&mut self) -> Result<(), DriverError> {
        self.link.socket.read().await?;
        self.take_in()
    }

    fn waits(&self) -> bool {
        self.unconfirmed
            .as_ref()
            .is_some_and(|unconfirmed| !unconfirmed.is_empty())
    }
}

#[async_trait]
impl Sender for AmqpSender {
    /// Takes messages over. Those that it cannot take any more are reported as failed, so that none is
    /// forgotten.
    async fn send(&mut self, messages: &[Message]) -> Result<(), DriverError> {
        let is_confirmed = self.unconfirmed.is_some();
        let mut handover = Handover::new(&self.reports, messages);
        for message in messages {
            if let Err(error) = self.make_room().await {
                handover.failed(&error);
                return Err(error);
            }
            self.put(message);
            // Without confirms nothing is known of it until all are written.
            handover.taken(usize::from(is_confirmed));
        }
        if let Err(error) = self.link.write().await {
            handover.failed(&error);
            return Err(error);
        }
        if !is_confirmed {
            handover.taken(messages.len());
            self.reports.unanswered(&Parcel::from_iter(messages));
        }
        drop(handover);
        self.lane = (self.lane + 1) % self.lanes.max(1);
        self.take_in()
    }

    async fn tick(&mut self) -> Result<(), DriverError> {
        self.answers().await
    }

    async fn finish(&mut self) -> Result<(), DriverError> {
        self.link.write().await?;
        // Input that came during the write may be the last.
        self.take_in()?;
        while self.waits() {
            self.answers().await?;
        }
        if self.unconfirmed.is_none() {
            // Messages without a confirm have at least been taken when the channel is closed in order.
            self.link.call(channel::Close::default()).await?;
        }
        Ok(())
    }
}

impl Drop for AmqpSender {
    /// Whatever has no answer by now will have none.
    fn drop(&mut self) {
        if let Some(left) = self.unconfirmed.as_mut().map(Unconfirmed::drain) {
            self.reports
                .given_up(&left, "the connection was given up before the confirm came");
        }
    }
}
