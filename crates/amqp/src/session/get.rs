//! `basic.get`: one message, if one is ready.

use std::sync::Arc;

use stafett_access::Rate;
use stafett_amqp_wire::methods::basic;
use stafett_delivery::{Delivery, Source};
use stafett_messaging::queues::Queue;

use super::channel::Unsettled;
use super::deliver::{Head, get_ok, write_message};
use super::held::Flow;
use super::stream::{ConsumeTarget, not_for_streams};
use super::{MethodError, Session, replies};
use crate::arguments::QueueType;
use crate::content::Additions;
use crate::context::AmqpContext;
use crate::error;
use crate::exception::Exception;
use crate::operation::{Done, Operation};

impl Session {
    pub(super) fn on_get(&mut self, number: u16, method: &basic::Get) -> Result<Flow, MethodError> {
        if let Some(Done::Taken(queue, taken)) = self.done.take() {
            self.on_taken(number, method.no_ack, &queue, taken)?;
            return Ok(Flow::Continue);
        }
        if method.queue == replies::PSEUDO_QUEUE {
            return Err(Exception::precondition("direct replies are consumed, not asked for").into());
        }
        let name = self.queue_name(number, method.queue.clone())?;
        let queue = match self.found(&name)? {
            ConsumeTarget::Queue(queue) => queue,
            ConsumeTarget::Stream(_) => {
                let what = error::queue_in(&name, &self.namespace);
                return Err(not_for_streams("basic.get not supported by stream queues", &what).into());
            }
        };
        if queue.declared.single_active_consumer && AmqpContext::queue_type(&queue) == QueueType::Quorum {
            return Err(error::only_for_the_active_consumer(&error::queue_in(&name, &self.namespace)).into());
        }
        // Messages that this connection has published, requeued or dead-lettered before can be got.
        Ok(Flow::Hold(match self.await_earlier()? {
            Some(operation) => operation,
            None => Operation::TakeOne {
                queue,
                settles: !method.no_ack,
            },
        }))
    }

    fn on_taken(
        &mut self,
        number: u16,
        no_ack: bool,
        queue: &Arc<Queue>,
        taken: Option<(Delivery, u64)>,
    ) -> Result<(), MethodError> {
        let Some((delivery, remaining)) = taken else {
            self.context.metrics.get_empty.inc();
            self.out.send(number, basic::GetEmpty::default());
            return Ok(());
        };
        if no_ack {
            self.context.metrics.got_unsettled.inc();
        }
        let channel = self.channel(number)?;
        channel.last_delivery_tag += 1;
        let tag = channel.last_delivery_tag;
        self.out.send(number, get_ok(&delivery, tag, remaining));
        let head = Head {
            channel: number,
            frame_bytes_max: self.agreed.frame_bytes_max,
        };
        let counts = AmqpContext::queue_type(queue) == QueueType::Quorum && delivery.delivery_count > 0;
        let additions = Additions {
            delivery_count: counts.then_some(delivery.delivery_count),
            ..Additions::default()
        };
        write_message(&mut self.out, head, &delivery.message, additions);
        self.context.metrics.delivered.inc();
        self.charge(Rate::Fetched, delivery.message.value_len());
        if !no_ack {
            let unsettled = Unsettled {
                source: Source::of(queue),
                id: delivery.id,
                token: None,
            };
            self.channel(number)?.unacked.push(tag, unsettled);
        }
        Ok(())
    }
}
