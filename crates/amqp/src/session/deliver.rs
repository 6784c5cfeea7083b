//! Deliveries from the outbox to the client.

use bytes::BytesMut;
use stafett_amqp_wire::methods::basic;
use stafett_amqp_wire::{Encoder, FrameKind, frame};
use stafett_delivery::{Delivery, DeliveryBatch, Event};
use stafett_model::StoredMessage;
use stafett_net::output::SHARED_BYTES_MIN;

use super::Session;
use super::channel::{SettleKind, Unsettled};
use super::consume::TokenOwner;
use crate::content::{self, Additions};

/// Approximate bytes of a delivery without its body.
const DELIVERY_BYTES: usize = 128;
/// A copied body fits into one frame for any agreed frame size.
const _: () = assert!(SHARED_BYTES_MIN <= frame::FRAME_MAX_MIN as usize - frame::FRAME_OVERHEAD);

impl Session {
    /// Writes the deliveries of the outbox. Returns true if there were any.
    pub(crate) fn deliver(&mut self) -> bool {
        let before = self.out.len();
        let (mut runs, mut events) = (std::mem::take(&mut self.runs), std::mem::take(&mut self.events));
        self.outbox.take(&mut runs, &mut events);
        for run in runs.drain(..) {
            self.deliver_run(run);
        }
        for event in events.drain(..) {
            let Event::ConsumerGone { token } = event;
            self.on_consumer_gone(token);
        }
        (self.runs, self.events) = (runs, events);
        self.deliver_replies();
        self.flush_settlements();
        self.out.len() > before
    }

    fn deliver_run(&mut self, run: DeliveryBatch) {
        let holder = self.token_owners.get(&run.token);
        let channel = holder.and_then(|holder| self.channels.get_mut(&holder.channel));
        let (Some(holder), Some(channel)) = (holder, channel) else {
            // The consumer was removed meanwhile.
            for delivery in run.deliveries {
                let unsettled = Unsettled {
                    source: run.source.clone(),
                    id: delivery.id,
                    token: None,
                };
                self.settle(unsettled, SettleKind::Requeue);
            }
            return;
        };
        self.context.metrics.delivered.inc_by(run.deliveries.len() as u64);
        let mut owed = 0;
        if self.context.broker.access().directory().has_quotas() {
            owed = run
                .deliveries
                .iter()
                .map(|delivery| delivery.message.value_len())
                .sum();
        }
        let bytes = |delivery: &Delivery| DELIVERY_BYTES + delivery.message.value_len().min(SHARED_BYTES_MIN);
        self.out.tail().reserve(run.deliveries.iter().map(bytes).sum());
        for delivery in run.deliveries {
            channel.last_delivery_tag += 1;
            let tag = channel.last_delivery_tag;
            if holder.settles {
                let unsettled = Unsettled {
                    source: run.source.clone(),
                    id: delivery.id,
                    token: holder.shares_credit.then_some(run.token),
                };
                channel.unacked.push(tag, unsettled);
            }
            let head = Head {
                channel: holder.channel,
                frame_bytes_max: self.agreed.frame_bytes_max,
            };
            let additions = additions(&delivery, holder);
            write_deliver(self.out.tail(), head, holder, tag, &delivery);
            write_message(&mut self.out, head, &delivery.message, additions);
        }
        self.charge_deliveries(owed);
    }
}

/// Values common to all frames of a delivery.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub channel: u16,
    pub frame_bytes_max: u32,
}

fn additions(delivery: &Delivery, holder: &TokenOwner) -> Additions {
    Additions {
        delivery_count: (holder.counts_deliveries && delivery.delivery_count > 0)
            .then_some(delivery.delivery_count),
        stream_offset: holder.stream.as_ref().map(|_| delivery.id.offset),
        partition: holder
            .stream
            .as_ref()
            .and_then(|stream| stream.has_partitions.then_some(delivery.id.lane)),
    }
}

fn write_deliver(out: &mut BytesMut, head: Head, holder: &TokenOwner, tag: u64, delivery: &Delivery) {
    let (exchange, mut routing_key) = (delivery.message.exchange(), delivery.message.routing_key());
    if let Some(stream) = &holder.stream
        && exchange.is_empty()
        && routing_key.is_empty()
    {
        // Treat it as published to the queue name of the stream.
        routing_key = &stream.name;
    }
    Encoder::frame(out, FrameKind::Method, head.channel, |e| {
        e.u16(60);
        e.u16(60);
        e.short_string(&holder.tag);
        e.u64(tag);
        e.bit(delivery.redelivered);
        e.short_string(exchange);
        e.short_string(routing_key);
    });
}

/// Writes a message's content header and body.
pub(super) fn write_message(
    out: &mut crate::output::Output,
    head: Head,
    message: &StoredMessage,
    additions: Additions,
) {
    let tail = out.tail();
    Encoder::frame(tail, FrameKind::Header, head.channel, |e| {
        e.u16(60);
        e.u16(0);
        e.u64(message.value_len() as u64);
        e.with(|tail| content::write_properties(message, additions, tail));
    });
    match message.value_len() {
        0 => {}
        1..SHARED_BYTES_MIN => {
            Encoder::frame(tail, FrameKind::Body, head.channel, |e| e.raw(message.value()));
        }
        _ => out.body(head.channel, message.value_bytes(), head.frame_bytes_max),
    }
}

/// Builds `basic.get-ok`.
pub(super) fn get_ok(delivery: &Delivery, tag: u64, remaining: u64) -> basic::GetOk {
    basic::GetOk {
        delivery_tag: tag,
        redelivered: delivery.redelivered,
        exchange: delivery.message.exchange().into(),
        routing_key: delivery.message.routing_key().into(),
        message_count: u32::try_from(remaining).unwrap_or(u32::MAX),
    }
}
