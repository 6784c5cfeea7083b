//! What a channel remembers.

use std::sync::Arc;

use bytestring::ByteString;
use stafett_messaging::queues::{Consumer, Credit, DeliveryId, Source};
use stafett_messaging::readers::Reading;
use std::collections::HashMap;

use super::assembly::{Assembly, Content};
use super::unacked::Unacked;

/// A channel that its client has opened.
#[derive(Debug, Default)]
pub(crate) struct Channel {
    /// We have closed it, and the client does not know yet: all it sends is ignored.
    pub closing: bool,
    pub assembly: Assembly,
    /// The queue that was declared last: what an empty name stands for.
    pub last_queue: ByteString,
    pub consumers: HashMap<ByteString, Tagged>,
    pub unacked: Unacked<Unsettled>,
    pub last_delivery_tag: u64,
    pub prefetch: Prefetch,
    pub mode: Mode,
    /// The consumer of direct replies.
    pub replies: Option<Replies>,
}

/// How many deliveries a client may have in hand.
#[derive(Debug, Default)]
pub(crate) struct Prefetch {
    /// Each consumer that comes from now on.
    pub each: Option<u32>,
    /// All consumers of the channel together.
    pub shared: Option<Arc<Credit>>,
}

/// What publishing on a channel means.
#[derive(Debug, Default)]
pub(crate) enum Mode {
    #[default]
    Plain,
    /// Each message is confirmed by its number.
    Confirms { last: u64 },
    /// Messages and settlements wait for the commit.
    Transactions(Transaction),
}

/// What waits for a commit.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub contents: Vec<Content>,
    /// Deliveries that it settles, by tag.
    pub settlements: Vec<(u64, Unsettled, How)>,
    pub bytes: usize,
}

/// `basic.ack`, `basic.nack` or `basic.reject`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settlement {
    pub tag: u64,
    pub multiple: bool,
    pub how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Complete,
    Requeue,
    Discard,
}

/// A consumer by its tag.
#[derive(Debug)]
pub(crate) struct Tagged {
    pub token: u64,
    /// Nothing for those that consume neither a queue nor a stream.
    pub consumer: Option<Taking>,
}

/// What a consumer takes from; dropping it ends that.
#[derive(Debug)]
pub(crate) enum Taking {
    Queue(Consumer),
    #[expect(dead_code, reason = "it is held, and ends when it is dropped")]
    Reader(Reading),
}

impl Channel {
    /// Lets its consumers get nothing more.
    pub(crate) fn hold_consumers(&self) {
        for tagged in self.consumers.values() {
            if let Some(Taking::Queue(consumer)) = &tagged.consumer {
                consumer.hold();
            }
        }
    }
}

/// A delivery that is to be settled.
#[derive(Debug)]
pub(crate) struct Unsettled {
    pub source: Source,
    pub id: DeliveryId,
    /// The consumer that it is for, if it counts in what the consumers of its channel share.
    pub token: Option<u64>,
}

impl Channel {
    /// All deliveries that the client has and that are not settled, those of a transaction among them.
    pub(crate) fn unsettled(&self) -> impl Iterator<Item = &Unsettled> {
        let settlements = match &self.mode {
            Mode::Transactions(transaction) => transaction.settlements.as_slice(),
            Mode::Plain | Mode::Confirms { .. } => &[],
        };
        let held_back = settlements.iter().map(|(_, unsettled, _)| unsettled);
        self.unacked.iter().chain(held_back)
    }

    /// Takes all of them out.
    pub(crate) fn take_unsettled(&mut self) -> Vec<Unsettled> {
        let mut all = self.unacked.take_all();
        if let Mode::Transactions(transaction) = &mut self.mode {
            let settlements = transaction.settlements.drain(..);
            all.extend(settlements.map(|(_, unsettled, _)| unsettled));
        }
        all
    }
}

#[derive(Debug)]
pub(crate) struct Replies {
    pub tag: ByteString,
    /// What requests of this channel are to be answered to.
    pub address: ByteString,
}
