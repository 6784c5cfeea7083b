//! State of a channel.

use std::sync::Arc;

use bytestring::ByteString;
use stafett_delivery::{Consumer, Credit, DeliveryId, Source};
use stafett_messaging::readers::ReaderHandle;
use stafett_messaging::{ConsumerHolder, ListedConsumer};
use std::collections::HashMap;

use super::assembly::Assembly;
use super::unacked::Unacked;
use crate::content::Incoming;
use crate::limits::Admitted;
use crate::metrics::Counted;

/// A channel that its client has opened.
#[derive(Debug, Default)]
pub(crate) struct Channel {
    /// Closed by the server; until the client confirms that, everything it sends is ignored.
    pub closing: bool,
    pub assembly: Assembly,
    /// Name of the queue declared last, used for an empty queue name.
    pub last_queue: ByteString,
    pub consumers: HashMap<ByteString, Tagged>,
    pub unacked: Unacked<Unsettled>,
    pub last_delivery_tag: u64,
    pub prefetch: Prefetch,
    pub mode: Mode,
    /// The consumer of direct replies.
    pub replies: Option<Replies>,
    /// Present once the channel has published.
    pub publisher: Option<Counted>,
    /// Counted for its virtual host and its user; `None` for one that is closing or of a session of one
    /// request.
    #[expect(dead_code, reason = "it is counted until it is dropped")]
    pub tallied: Option<Admitted>,
}

/// Limits on unsettled deliveries of a client.
#[derive(Debug, Default)]
pub(crate) struct Prefetch {
    /// Limit of each consumer created from now on.
    pub each: Option<u32>,
    /// Limit shared by all consumers of the channel.
    pub shared: Option<Arc<Credit>>,
}

/// Mode of publishing on a channel.
#[derive(Debug, Default)]
pub(crate) enum Mode {
    #[default]
    Plain,
    /// Each message is confirmed by its number.
    Confirms { last: u64 },
    /// Messages and settlements wait for the commit.
    Transactions(HeldBack),
}

/// Messages and settlements that wait for a commit.
#[derive(Debug, Default)]
pub(crate) struct HeldBack {
    /// Published messages, each with its `mandatory` flag.
    pub messages: Vec<(bool, Incoming)>,
    /// Deliveries that it settles, with their tags.
    pub settlements: Vec<(u64, Unsettled, SettleKind)>,
    /// Bytes of the messages' bodies.
    pub bytes: usize,
}

/// `basic.ack`, `basic.nack` or `basic.reject`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settlement {
    pub tag: u64,
    pub multiple: bool,
    pub how: SettleKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SettleKind {
    Complete,
    Requeue,
    Discard,
}

/// A consumer by its tag.
#[derive(Debug)]
pub(crate) struct Tagged {
    pub token: u64,
    /// Source of the deliveries; always `Some`.
    pub consumer: Option<ConsumerHandle>,
    #[expect(dead_code, reason = "the consumer is listed until it is dropped")]
    pub listed: ListedConsumer,
}

/// Source of a consumer; dropping it ends the consumption.
#[derive(Debug)]
pub(crate) enum ConsumerHandle {
    Queue(Consumer),
    Reader(ReaderHandle),
}

impl ConsumerHandle {
    pub(crate) fn holder(&self) -> ConsumerHolder {
        match self {
            Self::Queue(consumer) => ConsumerHolder::Queue(consumer.downgrade()),
            Self::Reader(reader) => ConsumerHolder::Reader(reader.downgrade()),
        }
    }
}

impl Channel {
    /// Stops further deliveries to the channel's consumers.
    pub(crate) fn hold_consumers(&self) {
        for tagged in self.consumers.values() {
            if let Some(ConsumerHandle::Queue(consumer)) = &tagged.consumer {
                consumer.hold();
            }
        }
    }
}

/// A delivery that has to be settled.
#[derive(Debug)]
pub(crate) struct Unsettled {
    pub source: Source,
    pub id: DeliveryId,
    /// Token of the consumer, if the delivery counts towards the limit shared by the channel.
    pub token: Option<u64>,
}

impl Channel {
    /// Iterates over all unsettled deliveries of the client, including those held by a transaction.
    pub(crate) fn unsettled(&self) -> impl Iterator<Item = &Unsettled> {
        let settlements = match &self.mode {
            Mode::Transactions(transaction) => transaction.settlements.as_slice(),
            Mode::Plain | Mode::Confirms { .. } => &[],
        };
        let held_back = settlements.iter().map(|(_, unsettled, _)| unsettled);
        self.unacked.iter().chain(held_back)
    }

    /// Removes and returns all unsettled deliveries.
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
    /// Address for replies to requests of this channel.
    pub address: ByteString,
}
