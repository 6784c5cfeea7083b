//! What a channel remembers.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytestring::ByteString;
use stafett_broker::queues::{Consumer, Credit, DeliveryId, Source};
use stafett_broker::readers::Reading;
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
    pub settlements: Vec<Settlement>,
    /// The deliveries that these settle: none can be settled twice.
    pub settled: BTreeSet<u64>,
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
#[expect(dead_code, reason = "they are held, and end when they are dropped")]
pub(crate) enum Taking {
    Queue(Consumer),
    Reader(Reading),
}

/// A delivery that is to be settled.
#[derive(Debug)]
pub(crate) struct Unsettled {
    pub source: Source,
    pub id: DeliveryId,
    /// Whose it is; none: it was asked for.
    pub token: Option<u64>,
}

impl Unsettled {
    /// Whether it took of the credit that the consumers of its channel share.
    pub(crate) fn takes_shared_credit(&self) -> bool {
        self.token.is_some() && matches!(self.source, Source::Queue(_))
    }
}

#[derive(Debug)]
pub(crate) struct Replies {
    pub tag: ByteString,
    /// What requests of this channel are to be answered to.
    pub address: ByteString,
}
