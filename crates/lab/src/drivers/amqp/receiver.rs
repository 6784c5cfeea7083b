//! Consumes, and acknowledges several messages at once, after its caller has dealt with them.

use async_trait::async_trait;
use stafett_amqp_wire::FrameRef;
use stafett_amqp_wire::methods::basic;

use super::deliveries::Deliveries;
use super::layout::queues;
use super::link::Link;
use super::settling::{Settlement, Settling};
use crate::drivers::{DriverError, Receiver, Seat};
use crate::workload::Received;

/// A connection that consumes.
#[derive(Debug)]
pub(super) struct AmqpReceiver {
    link: Link,
    deliveries: Deliveries,
    settling: Settling,
    /// The tag up to which the caller has everything.
    given: u64,
    /// The tag up to which everything is acknowledged.
    settled: u64,
    /// There is nothing to read.
    is_idle: bool,
}

impl AmqpReceiver {
    pub(super) async fn open(mut link: Link, seat: &Seat) -> Result<Self, DriverError> {
        let Settlement { settling, prefetch } = Settlement::of(&seat.role);
        let is_bounded = settling != Settling::Never && prefetch > 0;
        if is_bounded {
            let qos = basic::Qos {
                prefetch_count: prefetch,
                ..basic::Qos::default()
            };
            link.call(qos).await?;
        }
        let queues = queues(seat);
        for (number, queue) in queues.iter().enumerate() {
            let consume = basic::Consume {
                queue: queue.as_str().into(),
                consumer_tag: format!("{number}").into(),
                no_ack: settling == Settling::Never,
                no_wait: true,
                ..basic::Consume::default()
            };
            link.tell(consume);
        }
        link.write().await?;
        Ok(Self {
            link,
            deliveries: Deliveries::default(),
            settling,
            given: 0,
            settled: 0,
            is_idle: queues.is_empty(),
        })
    }

    fn take_in(&mut self, into: &mut Vec<Received>) -> Result<(), DriverError> {
        let deliveries = &mut self.deliveries;
        self.link
            .socket
            .frames(|frame: FrameRef<'_>, _| deliveries.take(frame, into))
    }

    /// For all that was given out.
    fn acknowledge(&mut self) {
        if self.given > self.settled {
            self.link.tell(basic::Ack {
                delivery_tag: self.given,
                multiple: true,
            });
            self.settled = self.given;
        }
    }
}

#[async_trait]
impl Receiver for AmqpReceiver {
    async fn receive(&mut self, into: &mut Vec<Received>) -> Result<(), DriverError> {
        if self.is_idle {
            // More clients than queues, and each queue for one of them.
            return std::future::pending().await;
        }
        let unsettled = self.given - self.settled;
        let settles = match self.settling {
            Settling::Never => false,
            Settling::WhenAskedForMore => true,
            Settling::OnCommit { at_least_every } => at_least_every.is_some_and(|every| unsettled >= every),
        };
        if settles {
            self.acknowledge();
        }
        // Deliveries that came during a write are there already.
        self.take_in(into)?;
        while into.is_empty() {
            self.link.socket.read().await?;
            self.take_in(into)?;
        }
        self.given = self.deliveries.last_tag();
        Ok(())
    }

    async fn settle(&mut self) -> Result<(), DriverError> {
        if self.settling != Settling::Never {
            self.acknowledge();
            self.link.write().await?;
        }
        Ok(())
    }
}
