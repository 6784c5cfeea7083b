//! The part of an experiment that is about the load: topics, and roles that use them.

use serde::{Deserialize, Serialize};

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
    /// Time within which an answer counts.
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
    raise: f64 = 1.5;
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
    /// Connects and keeps silent.
    Idle,
}

/// Rate of a role's messages.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Rate {
    /// As fast as acknowledgements come.
    #[default]
    Closed,
    /// Evenly spaced, per second.
    Fixed(f64),
    /// Independent of each other, per second on average.
    Poisson(f64),
    /// Evenly spaced, faster and faster.
    Steps(Steps),
    /// Raised until a latency bound breaks, then backed off: finds the highest rate that holds.
    Adaptive(Adaptive),
}

impl Rate {
    /// Returns the settings of the search, if the rate is searched for.
    pub fn adaptive(&self) -> Option<&Adaptive> {
        match self {
            Self::Adaptive(adaptive) => Some(adaptive),
            Self::Closed | Self::Fixed(_) | Self::Poisson(_) | Self::Steps(_) => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Steps {
    pub first: f64,
    pub add: f64,
    pub every: Span,
    pub up_to: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adaptive {
    pub first: f64,
    /// The 99th percentile may not be longer.
    pub p99: Span,
    /// Time for which each rate is tried.
    pub every: Span,
    /// Factor of the next rate while a rate holds.
    #[serde(default = "raise")]
    pub raise: f64,
}

/// Sizes of messages. The smallest carry 24 bytes of the lab's own: their sender, their number and their
/// time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "expected bytes, such as 100 or \"1KiB\", { uniform = [10, 100] } or { lognormal = [100, 1.0] }"
)]
pub enum Size {
    Fixed(ByteCount),
    Distributed(Distribution),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// Any number from the first to the second, all alike.
    Uniform([ByteCount; 2]),
    /// The median, and the standard deviation of the logarithm.
    Lognormal([f64; 2]),
}

impl Default for Size {
    fn default() -> Self {
        Self::Fixed(ByteCount(100))
    }
}

/// Content of messages behind the lab's own bytes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Content {
    /// The same letter: compresses to nothing.
    Constant,
    /// Compresses not at all.
    #[default]
    Random,
    /// Lines of this file, one after the other, so that compression is judged fairly.
    File(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    AtMostOnce,
    #[default]
    AtLeastOnce,
    ExactlyOnce,
}

/// `acks` of Kafka's producers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Acks {
    /// Nothing is answered.
    #[serde(rename = "0")]
    None,
    /// The broker that was asked has it. A producer of this kind cannot be idempotent.
    #[serde(rename = "1")]
    Leader,
    /// All that have to have it have it: with a single broker the same, from an idempotent producer.
    #[serde(rename = "all")]
    All,
}

impl Acks {
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "0",
            Self::Leader => "1",
            Self::All => "all",
        }
    }
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

    /// Returns a reason if acknowledgements of the leader alone are asked for: other protocols than Kafka's
    /// have none.
    pub fn lacks_acks(&self, protocol: &str) -> Option<String> {
        (self.acks == Some(Acks::Leader)).then(|| {
            format!("{protocol} has no acks = \"1\": what is confirmed is stored as its durability says")
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Codec {
    #[default]
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// Work of a consumer on its messages: it takes time, as a database would.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// For every hand-over, however many messages are in it.
    pub each: Span,
    /// And for every message.
    pub message: Span,
    /// Messages that are handed over together.
    pub bulk: u32,
}

/// Sessions of messages with a key in common, and the app that assembles them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Session {
    /// Messages of a session. The last one ends it.
    pub fragments: u32,
    /// Sessions of each producer that are under way at once.
    pub open: u32,
    /// The share of sessions that are not ended by their last message, but by the time-out.
    pub unended: f64,
    /// Time after the last message.
    pub timeout: Span,
    /// Silence after which a worker's tasks go to others.
    pub worker_timeout: Span,
}

impl Default for Session {
    fn default() -> Self {
        Self {
            fragments: 20,
            open: 10,
            unended: 0.0,
            timeout: Span::seconds(2),
            worker_timeout: Span::seconds(2),
        }
    }
}

/// Clients that come bit by bit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrive {
    pub first: u32,
    pub add: u32,
    pub every: Span,
}

/// Clients that are cut off without a word, and come back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kill {
    /// Time of the first one, after the start of the load.
    pub after: Span,
    /// One after the other.
    pub every: Span,
    /// Time that it stays away.
    pub away: Span,
}
