//! Consumer: acknowledges the messages that its caller has processed, several at once.

use std::collections::BTreeSet;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::stream::{SelectAll, StreamExt as _};
use lapin::Consumer;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use stafett_lab::drivers::amqp::layout::queues;
use stafett_lab::drivers::amqp::settling::{Settlement, Settling};
use stafett_lab::drivers::{DriverError, Receiver, Seat};
use stafett_lab::workload::Received;

use super::{Link, failed};

/// Maximum messages per call of `receive`.
const BATCH_MESSAGES: usize = 1000;

/// A consuming client.
pub(super) struct LapinReceiver {
    link: Link,
    consumers: SelectAll<Consumer>,
    settling: Settling,
    given: Given,
    /// Tag up to which everything is acknowledged.
    settled: u64,
}

/// Delivery tags of messages that the caller has. Consumers of a channel interleave, while an acknowledgement
/// covers all tags up to one.
#[derive(Debug, Default)]
struct Given {
    /// Tag up to which the caller has every message.
    whole: u64,
    beyond: BTreeSet<u64>,
}

impl Given {
    fn add(&mut self, tag: u64) {
        if tag != self.whole + 1 {
            self.beyond.insert(tag);
            return;
        }
        self.whole = tag;
        while self.beyond.first() == Some(&(self.whole + 1)) {
            self.beyond.pop_first();
            self.whole += 1;
        }
    }
}

impl LapinReceiver {
    pub(super) async fn open(link: Link, seat: &Seat) -> Result<Self, DriverError> {
        let Settlement { settling, prefetch } = Settlement::of(&seat.role);
        let channel = &link.channel;
        if settling != Settling::Never && prefetch > 0 {
            let bounded = channel.basic_qos(prefetch, BasicQosOptions::default()).await;
            bounded.map_err(|error| failed(&error))?;
        }
        let mut consumers = SelectAll::new();
        for (number, queue) in queues(seat).into_iter().enumerate() {
            let options = BasicConsumeOptions {
                no_ack: settling == Settling::Never,
                ..BasicConsumeOptions::default()
            };
            let tag = number.to_string();
            let consumer = channel.basic_consume(queue.into(), tag.into(), options, FieldTable::default());
            consumers.push(consumer.await.map_err(|error| failed(&error))?);
        }
        Ok(Self {
            link,
            consumers,
            settling,
            given: Given::default(),
            settled: 0,
        })
    }

    fn take(
        &mut self,
        next: Option<Result<Delivery, lapin::Error>>,
        into: &mut Vec<Received>,
    ) -> Result<(), DriverError> {
        let Some(delivery) = next else {
            return Err(DriverError::Failed("the queue is gone".to_owned()));
        };
        let delivery = delivery.map_err(|error| failed(&error))?;
        into.extend(Received::read(&delivery.data));
        self.given.add(delivery.delivery_tag);
        Ok(())
    }

    /// Acknowledges all messages that the caller has.
    async fn acknowledge(&mut self) -> Result<(), DriverError> {
        let whole = self.given.whole;
        if whole > self.settled {
            // Set first, because the future may be dropped once the acknowledgement is under way.
            self.settled = whole;
            let options = BasicAckOptions { multiple: true };
            let told = self.link.channel.basic_ack(whole, options).await;
            told.map_err(|error| failed(&error))?;
        }
        Ok(())
    }
}

#[async_trait]
impl Receiver for LapinReceiver {
    async fn receive(&mut self, into: &mut Vec<Received>) -> Result<(), DriverError> {
        if self.consumers.is_empty() {
            // There are more clients than queues, and this one has no queue.
            return std::future::pending().await;
        }
        let unsettled = self.given.whole - self.settled;
        let settles = match self.settling {
            Settling::Never => false,
            Settling::WhenAskedForMore => true,
            Settling::OnCommit { at_least_every } => at_least_every.is_some_and(|every| unsettled >= every),
        };
        if settles {
            self.acknowledge().await?;
        }
        let first = self.consumers.next().await;
        self.take(first, into)?;
        for _ in 1..BATCH_MESSAGES {
            let Some(next) = self.consumers.next().now_or_never() else {
                break;
            };
            self.take(next, into)?;
        }
        Ok(())
    }

    async fn settle(&mut self) -> Result<(), DriverError> {
        if self.settling != Settling::Never {
            self.acknowledge().await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Given;

    #[test]
    fn what_came_out_of_turn_is_acknowledged_when_nothing_before_it_is_missing() {
        let mut given = Given::default();
        let whole = [2, 1, 5, 4, 3, 6].map(|tag| {
            given.add(tag);
            given.whole
        });
        assert_eq!(whole, [0, 2, 2, 2, 5, 6]);
        assert!(given.beyond.is_empty());
    }
}
