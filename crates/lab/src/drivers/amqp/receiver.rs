//! Consumes, and acknowledges several messages at once, after its caller has dealt with them.

use async_trait::async_trait;
use stafett_amqp_wire::methods::{BASIC, QUEUE, basic};
use stafett_amqp_wire::{FrameKind, FrameRef, Method};

use super::deliveries::Deliveries;
use super::layout::{Layout, queues};
use super::link::{Link, check, id_of};
use super::settling::{Settlement, Settling};
use crate::drivers::{DriverError, Reads, Receiver, Seat};
use crate::workload::Received;

const UNBIND_OK: u16 = 51;
const CANCEL_OK: u16 = 31;

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
    /// Its queues: none of a client of which there are more than queues, each queue for one of them.
    queues: Vec<String>,
    /// It asks for a message at a time (`basic.get`), of one queue after the other.
    is_asking: bool,
    /// A question is under way.
    is_asked: bool,
    /// Bindings that it takes back when it leaves.
    bindings: Vec<Method>,
}

impl AmqpReceiver {
    pub(super) async fn open(mut link: Link, seat: &Seat) -> Result<Self, DriverError> {
        let Settlement { settling, prefetch } = Settlement::of(&seat.role);
        let is_asking = seat.role.poll.is_some();
        let is_bounded = settling != Settling::Never && prefetch > 0;
        if is_bounded {
            let qos = basic::Qos {
                prefetch_count: prefetch,
                ..basic::Qos::default()
            };
            link.call(qos).await?;
        }
        let queues = queues(seat);
        let consumed = queues.iter().enumerate().filter(|_| !is_asking);
        for (number, queue) in consumed {
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
            queues,
            is_asking,
            is_asked: false,
            bindings: bindings(seat),
        })
    }

    fn take_in(&mut self, into: &mut Vec<Received>) -> Result<(), DriverError> {
        let deliveries = &mut self.deliveries;
        self.link
            .socket
            .frames(|frame: FrameRef<'_>, _| deliveries.take(frame, into))
    }

    /// Asks the next queue for a message, unless a question is under way.
    fn ask(&mut self) {
        if !self.is_asking || self.is_asked {
            return;
        }
        self.queues.rotate_left(1);
        let queue = self.queues.last().cloned().unwrap_or_default();
        self.link.tell(basic::Get {
            queue: queue.into(),
            no_ack: self.settling == Settling::Never,
            ..basic::Get::default()
        });
        self.is_asked = true;
        self.deliveries.is_empty = false;
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
        if self.queues.is_empty() {
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
        self.ask();
        // Deliveries that came during a write are there already.
        self.take_in(into)?;
        while into.is_empty() && !self.deliveries.is_empty {
            self.link.socket.read().await?;
            self.take_in(into)?;
        }
        self.is_asked = false;
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

    async fn leave(&mut self) -> Result<(), DriverError> {
        let mut left = self.bindings.len();
        for unbind in std::mem::take(&mut self.bindings) {
            self.link.tell(unbind);
        }
        let consumers = if self.is_asking { 0 } else { self.queues.len() };
        for number in 0..consumers {
            self.link.tell(basic::Cancel {
                consumer_tag: format!("{number}").into(),
                no_wait: false,
            });
        }
        left += consumers;
        while left > 0 {
            self.link.socket.read().await?;
            self.link.socket.frames(|frame: FrameRef<'_>, _| {
                match id_of(frame.payload) {
                    (QUEUE, UNBIND_OK) | (BASIC, CANCEL_OK) if frame.kind == FrameKind::Method as u8 => {
                        left = left.saturating_sub(1);
                    }
                    _ if frame.kind == FrameKind::Method as u8 => return check(frame),
                    _ => {}
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// Returns the methods that take back the bindings of a seat's audience, which one of its clients does.
fn bindings(seat: &Seat) -> Vec<Method> {
    let is_one = seat.reads == Reads::All || seat.client == 0;
    if !seat.role.leave || !is_one {
        return Vec::new();
    }
    Layout::of(&seat.destinations).unbindings(&seat.group)
}
