//! Plan of a seed: settings and steps, all drawn before anything runs, so that steps can be left out.

mod draws;
mod mix;

use self::mix::Mix;
use crate::amqp::{DefinitionStep, Move, Patience, Removal, SpaceStep, StreamStep, TxStep, ViewStep};
use crate::full::UsedUp;
use crate::jobs::{JobStep, Trade};
use crate::kafka::{GroupStep, ReaderStep, ShareStep, TransactionStep};
use crate::live::LiveStep;
use crate::loss::Loss;
use crate::mail::MailStep;
use crate::random::Random;

/// Number of topics. The last ones are compacted ([`crate::ledger::compaction`]).
pub const TOPICS: u8 = 6;
/// Partitions of each topic.
pub const PARTITIONS: u8 = 2;
/// Number of Kafka producers.
pub const PRODUCERS: u8 = 4;
/// Number of AMQP clients.
pub const CLIENTS: u8 = 5;
/// Number of AMQP clients that publish: the first ones. The others are read even on a full disk.
pub const PUBLISHERS: u8 = 3;

/// Everything about one seed.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub shape: Shape,
    pub steps: Vec<Step>,
}

/// Settings of the broker that differ between seeds.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub segment_bytes: u32,
    pub tail_cache_bytes: usize,
    pub checkpoint_bytes: u64,
}

/// One step, and the time after it.
#[derive(Debug, Clone)]
pub struct Step {
    /// Index in the plan of the seed.
    pub number: usize,
    pub action: Action,
    /// Milliseconds until the next step.
    pub wait_ms: u32,
    /// Interval in which the journal writes and syncs, in milliseconds.
    pub pump_every: u32,
}

impl Step {
    /// Returns the step of a client that tries again, or changes its mind, after the broker has failed.
    #[must_use]
    pub fn again(self) -> Self {
        let mut again = Self { wait_ms: 1, ..self };
        if let Action::Live(LiveStep::Unsubscribe { client, topic }) = again.action {
            again.action = Action::Live(LiveStep::Subscribe {
                client,
                topic,
                from_first: false,
            });
        }
        again
    }
}

/// Action of a step.
#[derive(Debug, Clone)]
pub enum Action {
    /// A producer resends unanswered batches, then sends a new one.
    Produce {
        producer: u8,
        topic: u8,
        partition: u8,
        records: u16,
        bytes: u32,
        age: Age,
    },
    /// A producer's connection ends.
    Leave { producer: u8 },
    /// A partition is read from its beginning.
    Read { topic: u8, partition: u8 },
    /// A reader beside the load acts.
    Reader(ReaderStep),
    /// A topic is deleted and created again.
    Recreate { topic: u8 },
    /// A group member acts.
    Group(GroupStep),
    /// A member of a share group acts.
    Share(ShareStep),
    /// A transactional client acts.
    Transaction(TransactionStep),
    /// An AMQP client publishes to a queue or an exchange.
    Publish {
        client: u8,
        target: u8,
        message: Message,
    },
    /// A client consumes from a queue, in addition to its other consumers.
    Consume { client: u8, queue: u8 },
    /// A client gets one message.
    Get { client: u8, queue: u8 },
    /// A client settles up to `count` messages that it holds, oldest first.
    Settle { client: u8, count: u8, how: Settling },
    /// A client cancels a consumer.
    Cancel { client: u8 },
    /// A client's channel or connection ends. It may settle its messages right before.
    Close {
        client: u8,
        how: Closing,
        settles: Option<Settling>,
    },
    /// A client does not read for some time.
    Pause { client: u8, for_ms: u32 },
    /// Definitions are made or deleted.
    Define(DefinitionStep),
    /// A queue over a topic of Kafka's producers is used.
    View(ViewStep),
    /// A transactional AMQP client acts.
    Tx(TxStep),
    /// A reader of streams acts.
    Stream(StreamStep),
    /// A client of live topics acts.
    Live(LiveStep),
    /// A client of the HTTP API's messages acts.
    Mail(MailStep),
    /// A worker of an app acts, or its operator.
    Job(Trade, JobStep),
    /// Messages are moved between queues.
    Move(Move),
    /// A namespace is created, used or deleted.
    Space(SpaceStep),
    /// A queue is purged, or deleted and declared again.
    Remove(Removal),
    /// Once no answer is pending, the messages in flight are compared with those that clients hold.
    Look,
    /// The disk fails at the change with this number, counted from now.
    Fault { after: u64, fault: DiskFault },
    /// The program ends.
    End(End),
    /// The program ends, and a file is lost or damaged.
    Lose { end: End, loss: Loss },
    /// The journal is backed up.
    BackUp,
    /// The program ends and starts on the last backup. Without one, it is made.
    Restore { end: End },
    /// A producer sends one of its last acknowledged batches again.
    Repeat { producer: u8, back: u8 },
    /// The journal stores a checkpoint.
    Checkpoint,
    /// The journal rewrites segments: all that are sealed, with a checkpoint before it. With one behind it,
    /// it frees them at once.
    Rewrite { covers: bool, frees: bool },
    /// The journal applies retention.
    Retain,
    /// The wall clock is set forward or back by `seconds`.
    Jump { seconds: i64 },
    /// The disk is full for some time.
    Full { for_ms: u32, used_up: UsedUp },
    /// Time passes without requests.
    Rest { seconds: u32 },
}

impl Action {
    /// True for an action of clients that waits for no answer: a failed broker may serve it until it ends.
    pub fn may_meet_failure(&self) -> bool {
        match self {
            Self::Produce { .. }
            | Self::Leave { .. }
            | Self::Publish { .. }
            | Self::Consume { .. }
            | Self::Get { .. }
            | Self::Settle { .. }
            | Self::Cancel { .. }
            | Self::Close { .. }
            | Self::Pause { .. }
            | Self::Repeat { .. }
            | Self::Define(_)
            | Self::Move(_)
            | Self::Space(_)
            | Self::Recreate { .. }
            | Self::Rest { .. } => true,
            Self::Group(step) => !matches!(step, GroupStep::Fetch { .. } | GroupStep::Quiet),
            Self::Share(step) => !matches!(step, ShareStep::Empty { .. }),
            Self::Tx(step) => !matches!(step, TxStep::CommitAndEnd { .. }),
            Self::View(step) => !matches!(step, ViewStep::Look),
            Self::Live(step) => !matches!(step, LiveStep::Look),
            Self::Mail(step) => !matches!(step, MailStep::Look),
            Self::Transaction(step) => {
                !matches!(step, TransactionStep::Fetch { .. } | TransactionStep::Quiet)
            }
            Self::Job(..)
            | Self::Read { .. }
            | Self::Reader(_)
            | Self::Stream(_)
            | Self::Remove(_)
            | Self::Look
            | Self::Fault { .. }
            | Self::End(_)
            | Self::Lose { .. }
            | Self::BackUp
            | Self::Restore { .. }
            | Self::Checkpoint
            | Self::Rewrite { .. }
            | Self::Retain
            | Self::Jump { .. }
            | Self::Full { .. } => false,
        }
    }
}

/// Messages that are published together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    pub count: u8,
    pub bytes: u32,
    pub priority: u8,
    pub is_persistent: bool,
    pub patience: Patience,
}

/// Kind of settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settling {
    Ack,
    /// All with one method.
    AckAll,
    Requeue,
    Reject,
}

/// Kind of end of a client's channel or connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    Channel,
    Connection,
    /// Without a close.
    Cut,
}

/// Age of records by their timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    Now,
    Days(u8),
    /// No timestamp.
    Unknown,
}

/// Fault of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFault {
    /// The program is killed in the middle of the change; the seed determines the written part.
    Kill(u64),
    /// Power is lost; the seed determines the remaining content.
    Power(u64),
    /// The change fails.
    Error,
    /// All changes from then on fail.
    Broken,
}

/// Kind of end of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Stop,
    Kill,
    Power(u64),
}

impl End {
    pub fn draw(random: &mut Random) -> Self {
        match random.below(4) {
            0 => Self::Stop,
            1 => Self::Power(random.next()),
            _ => Self::Kill,
        }
    }
}

impl Plan {
    /// Draws the plan of a seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let shape = Shape {
            segment_bytes: random.pick(&[256 << 10, 256 << 10, 1 << 20]),
            tail_cache_bytes: random.pick(&[4 << 10, 64 << 10, 1 << 20]),
            checkpoint_bytes: random.pick(&[16 << 10, 256 << 10, 1 << 40]),
        };
        let count = 20 + random.index(100);
        let mix = Mix::new(&mut random);
        let steps = (0..count).map(|number| mix.step(number, &mut random)).collect();
        Self { seed, shape, steps }
    }

    /// Returns the same plan with the given steps only.
    #[must_use]
    pub fn only(mut self, kept: &[usize]) -> Self {
        self.steps.retain(|step| kept.contains(&step.number));
        self
    }
}
