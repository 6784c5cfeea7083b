//! The part of an experiment that is about the load: topics, and roles that use them.

mod parts;

use serde::{Deserialize, Serialize};

pub use self::parts::{
    Acks, Adaptive, Arrive, Codec, Content, Delivery, Distribution, DrawnPriority, Kill, Priority, Rate,
    Select, SelectOrder, Session, Size, Steps, Think, Work,
};
use super::units::{ByteCount, Span};

/// A set of topics or queues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Topics {
    pub kind: TopicKind,
    pub count: u32,
    /// Of each topic.
    pub partitions: u32,
    /// Of a queue: `classic` or `quorum`.
    pub queue_type: Option<String>,
    /// Messages that a queue holds at most.
    pub length_max: Option<u64>,
    /// Of queues: the exchange that messages are published to, where every audience has a queue of its own.
    /// By default `fanout` for several audiences.
    pub exchange: Option<ExchangeKind>,
    /// Over AMQP: each audience has one queue for all topics of the set, bound to the exchange once for each
    /// topic.
    pub one_queue: bool,
    /// Distribution over the topics: 0 for all alike, else the exponent of a Zipf distribution.
    pub zipf: f64,
    /// The same content on the same topic, from whomever, is delivered once within this time. Every duplicate
    /// begins it anew.
    pub filter: Option<Span>,
    /// Live topics: there is a log behind them, and new subscribers get earlier messages.
    pub stored: bool,
    /// Live topics: how messages are written.
    pub format: LiveFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LiveFormat {
    #[default]
    Json,
    Msgpack,
}

impl Default for Topics {
    fn default() -> Self {
        Self {
            kind: TopicKind::Topic,
            count: 1,
            partitions: 1,
            queue_type: None,
            length_max: None,
            exchange: None,
            one_queue: false,
            zipf: 0.0,
            filter: None,
            stored: false,
            format: LiveFormat::Json,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TopicKind {
    /// Stored: a log per partition.
    #[default]
    Topic,
    /// Each message goes to one consumer, is settled, and is gone.
    Queue,
    /// Not stored: goes to its subscribers.
    Live,
}

/// Rule by which an exchange finds the queues of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExchangeKind {
    /// All that are bound to it.
    Fanout,
    /// Those that are bound with the message's routing key.
    Direct,
    /// Those that are bound with a pattern that the routing key fits.
    Topic,
}

impl ExchangeKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Fanout => "fanout",
            Self::Direct => "direct",
            Self::Topic => "topic",
        }
    }
}

/// Some clients that do the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Role {
    pub does: Does,
    #[serde(default = "one")]
    pub clients: u32,
    /// The set of topics; may be left out where there is one.
    pub topics: Option<String>,
    /// Of relays and responders: where they send to; by default the same set.
    pub to: Option<String>,
    /// Messages per second of the role as a whole; of relays at most.
    #[serde(default)]
    pub rate: Rate,
    /// Messages per second of each client, in place of a rate of the role as a whole.
    pub rate_each: Option<f64>,
    /// Closed loop: messages of each client that may be without an acknowledgement. By default as many as the
    /// driver has under way.
    pub window: Option<u32>,
    #[serde(default)]
    pub size: Size,
    #[serde(default)]
    pub content: Content,
    /// The share of messages that are sent twice, 0 to 1.
    #[serde(default)]
    pub duplicates: f64,
    /// Number of the role's clients that send each message, at the same moment; `rate` counts all of them.
    #[serde(default = "one")]
    pub copies: u32,
    /// Closed loop: messages of the role that may be sent and not yet received.
    pub ahead: Option<u64>,
    #[serde(default)]
    pub delivery: Delivery,
    /// Kafka's protocol: the acknowledgement that producers ask for. By default it follows `delivery`: see
    /// [`Role::acks`].
    pub acks: Option<Acks>,
    /// Exactly once: how long a transaction takes messages up before it is committed; 100 ms, if not given.
    pub transaction: Option<Span>,
    /// Bytes that go together.
    #[serde(default = "batch")]
    pub batch: ByteCount,
    /// Time that a message waits for others.
    #[serde(default = "linger")]
    pub linger: Span,
    /// Requests of a connection that are under way at once.
    #[serde(default = "in_flight")]
    pub in_flight: u32,
    #[serde(default)]
    pub compression: Codec,
    /// Messages of a queue that a consumer may hold unsettled; 0 is no bound. 1,000 by default, without a
    /// bound where there is a `commit`.
    pub prefetch: Option<u32>,
    /// Time that a fetch may wait for records.
    #[serde(default = "fetch_wait")]
    pub fetch_wait: Span,
    #[serde(default = "fetch_bytes")]
    pub fetch_bytes: ByteCount,
    /// Every consumer gets everything, instead of a share.
    #[serde(default)]
    pub fan_out: bool,
    /// Live topics: subscribers that share a connection.
    #[serde(default = "one")]
    pub users: u32,
    /// Live topics: number of the set's topics that each subscriber follows, each topic with as many
    /// subscribers as any other.
    pub follows: Option<u32>,
    /// Set that messages go to first, on their way through a filter or an app. Set by the lab, not by
    /// experiments.
    #[serde(skip)]
    pub via: Option<String>,
    /// The agents that its clients sit at, by name; all of them, if not given.
    #[serde(default)]
    pub on: Vec<String>,
    /// Time between a consumer's commits; never, if not given. A consumer that is cut off goes on from there.
    pub commit: Option<Span>,
    /// Priority of messages of queues.
    pub priority: Option<Priority>,
    /// HTTP: the client is registered, and its messages have its name and their number as context.
    #[serde(default)]
    pub registered: bool,
    /// HTTP: which message of its queue a consumer takes.
    pub select: Option<Select>,
    /// Receivers ask at these intervals instead of being pushed to.
    pub poll: Option<Span>,
    /// Requesters in a closed loop: time between an answer and the next question.
    pub think: Option<Think>,
    /// Consumers unsubscribe in the end, and the time that it takes is measured.
    #[serde(default)]
    pub leave: bool,
    /// Sessions that the role assembles.
    pub session: Option<Session>,
    /// Work of a consumer on its messages.
    pub work: Option<Work>,
    /// Number of messages of the role as a whole, after which it ends.
    pub total: Option<u64>,
    /// Starts when the role of that name has ended.
    pub after: Option<String>,
    /// Clients come one after the other instead of together.
    pub arrive: Option<Arrive>,
    /// Clients are cut off and come back.
    pub kill: Option<Kill>,
    /// Time within which an answer counts, and a message from one relay to the next.
    #[serde(default = "patience")]
    pub patience: Span,
}

macro_rules! defaults {
    ($($name:ident: $type:ty = $value:expr;)*) => {
        $(fn $name() -> $type { $value })*
    };
}

defaults! {
    one: u32 = 1;
    batch: ByteCount = ByteCount(64 << 10);
    linger: Span = Span::millis(5);
    in_flight: u32 = 5;
    fetch_wait: Span = Span::millis(500);
    fetch_bytes: ByteCount = ByteCount(4 << 20);
    patience: Span = Span::seconds(1);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Does {
    Produce,
    Consume,
    /// Sends each message that it receives on to a random other client of its role.
    Relay,
    /// Sends to a responder and waits for the answer.
    Request,
    /// Answers requests.
    Respond,
    /// Sends on messages that are new. Added by the lab (`filter` of topics), not by experiments.
    #[serde(skip)]
    Filter,
    /// Works for an app of the broker: assembles sessions and passes them on (see [`Session`]).
    Assemble,
    /// Looks at the first message of its queue and takes nothing.
    Peek,
    /// Connects and keeps silent.
    Idle,
}

impl Role {
    /// Returns the acknowledgement that producers ask for. By default it is none for at most once, else that
    /// of all replicas.
    pub fn acks(&self) -> Acks {
        self.acks.unwrap_or(match self.delivery {
            Delivery::AtMostOnce => Acks::None,
            Delivery::AtLeastOnce | Delivery::ExactlyOnce => Acks::All,
        })
    }

    /// Returns a reason if messages are to be looked at or chosen: other protocols than HTTP hand them out in
    /// their own order.
    pub fn lacks_choice(&self, protocol: &str) -> Option<String> {
        (self.does == Does::Peek || self.select.is_some() || self.registered).then(|| {
            format!(
                "{protocol} has no peek, no choice of messages and no registered clients: protocol = \"http\""
            )
        })
    }

    /// Returns a reason if acknowledgements of the leader alone are asked for: other protocols than Kafka's
    /// have none.
    pub fn lacks_acks(&self, protocol: &str) -> Option<String> {
        (self.acks == Some(Acks::Leader)).then(|| {
            format!("{protocol} has no acks = \"1\": what is confirmed is stored as its durability says")
        })
    }
}
