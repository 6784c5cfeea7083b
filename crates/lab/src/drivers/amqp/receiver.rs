//! Consumes: acknowledges what its caller has dealt with, for several messages at once.
//!
//! Without a `commit` of the role, what was given out is acknowledged when the caller asks for more: it has dealt with it
//! then. With one, it is acknowledged when the caller says so, and before the prefetch is used up.

use stafett_amqp_wire::FrameRef;
use stafett_amqp_wire::methods::basic;

use super::deliveries::Deliveries;
use super::layout::Layout;
use super::link::{Link, failed};
use crate::drivers::{DriverError, Reads, Receiver, Seat, Task};
use crate::experiment::Delivery;
use crate::workload::Received;

/// Messages that a consumer may hold unsettled where the role says nothing; a commit has to be waited for without a bound.
const PREFETCH: u32 = 1000;

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

/// When deliveries are settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settling {
    /// By the broker, as it sends them.
    Never,
    WhenAskedForMore,
    /// By `settle`, or when so many are unsettled.
    OnCommit {
        at_least_every: Option<u64>,
    },
}

impl AmqpReceiver {
    pub(super) async fn open(mut link: Link, seat: &Seat) -> Result<Self, DriverError> {
        let role = &seat.role;
        let has_commit = role.commit.is_some();
        let prefetch = role.prefetch.unwrap_or(if has_commit { 0 } else { PREFETCH });
        let settling = if role.delivery == Delivery::AtMostOnce {
            Settling::Never
        } else if has_commit {
            Settling::OnCommit {
                at_least_every: (prefetch > 0).then(|| u64::from(prefetch).div_ceil(2)),
            }
        } else {
            Settling::WhenAskedForMore
        };
        let is_bounded = settling != Settling::Never && prefetch > 0;
        if is_bounded {
            let prefetch_count = u16::try_from(prefetch).unwrap_or(u16::MAX);
            let qos = basic::Qos {
                prefetch_count,
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

    async fn next(&mut self, into: &mut Vec<Received>) -> Result<(), DriverError> {
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
        // What came while something was written is there already.
        self.take_in(into)?;
        while into.is_empty() {
            self.link.socket.read().await.map_err(failed)?;
            self.take_in(into)?;
        }
        self.given = self.deliveries.last_tag();
        Ok(())
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

/// The queues of a seat: all, its own, or its share.
fn queues(seat: &Seat) -> Vec<String> {
    let layout = Layout::of(&seat.destinations);
    match seat.reads {
        Reads::All => layout.queues(&seat.group, |_| true),
        Reads::One(one) => {
            let count = seat.destinations.names.len().max(1);
            let wanted = usize::try_from(one).unwrap_or(usize::MAX) % count;
            layout.queues(&seat.group, |place| place == wanted)
        }
        Reads::Share => {
            let all = layout.queues(&seat.group, |_| true);
            share(all, seat.client, seat.clients)
        }
    }
}

/// Queues are shared out by number; where there are fewer of them than clients, several clients share one.
fn share(all: Vec<String>, client: u32, clients: u32) -> Vec<String> {
    let client = usize::try_from(client).unwrap_or(0);
    let clients = usize::try_from(clients).unwrap_or(1).max(1);
    let count = all.len().max(1);
    let is_ours = |number: usize| {
        if count < clients {
            number == client % count
        } else {
            number % clients == client
        }
    };
    let numbered = all.into_iter().enumerate();
    numbered
        .filter_map(|(number, queue)| is_ours(number).then_some(queue))
        .collect()
}

impl Receiver for AmqpReceiver {
    fn receive<'a>(&'a mut self, into: &'a mut Vec<Received>) -> Task<'a, ()> {
        Box::pin(self.next(into))
    }

    fn settle(&mut self) -> Task<'_, ()> {
        Box::pin(async {
            if self.settling != Settling::Never {
                self.acknowledge();
                self.link.write().await?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    fn shares(queues: usize, clients: u32) -> Vec<Vec<String>> {
        let all: Vec<String> = (0..queues).map(|number| number.to_string()).collect();
        (0..clients)
            .map(|client| share(all.clone(), client, clients))
            .collect()
    }

    #[test]
    fn every_queue_has_a_client_and_every_client_a_queue() {
        assert_eq!(shares(3, 2), [vec!["0", "2"], vec!["1"]]);
        assert_eq!(shares(2, 3), [["0"], ["1"], ["0"]]);
        assert_eq!(shares(1, 1), [["0"]]);
    }
}
