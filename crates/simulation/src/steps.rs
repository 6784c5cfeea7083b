//! Plan of a seed: settings and steps, all drawn before anything runs, so that steps can be left out.

use crate::amqp::{
    DefinitionStep, FAN, LATE, Move, OVER, Patience, Removal, Removing, SpaceStep, StreamStep, TxStep,
    ViewStep,
};
use crate::full::UsedUp;
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
            Self::Read { .. }
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

/// Weights of the kinds of steps, which differ between seeds.
struct Mix {
    weights: Vec<(u64, Kind)>,
    total: u64,
    waits: u32,
    pumps: u64,
    bytes_max: u32,
    ages: [Age; 4],
    /// First topic that producers use.
    first_topic: u8,
    /// True if files are lost. Kinds of steps whose state after a loss is unpredictable are left out then.
    has_losses: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Produce,
    Leave,
    Read,
    Reader,
    Recreate,
    Group,
    Share,
    Transaction,
    Publish,
    Consume,
    Get,
    Settle,
    Cancel,
    Close,
    Pause,
    Remove,
    Define,
    View,
    Tx,
    Stream,
    Live,
    Mail,
    Move,
    Space,
    Look,
    Fault,
    End,
    Lose,
    BackUp,
    Restore,
    Repeat,
    Checkpoint,
    Rewrite,
    Retain,
    Jump,
    Full,
    Rest,
}

/// Usual weights.
const KINDS: [(u64, Kind); 37] = [
    (40, Kind::Produce),
    (2, Kind::Leave),
    (4, Kind::Read),
    (8, Kind::Reader),
    (2, Kind::Recreate),
    (50, Kind::Group),
    (50, Kind::Share),
    (50, Kind::Transaction),
    (30, Kind::Publish),
    (8, Kind::Consume),
    (4, Kind::Get),
    (20, Kind::Settle),
    (2, Kind::Cancel),
    (6, Kind::Close),
    (2, Kind::Pause),
    (3, Kind::Remove),
    (20, Kind::Define),
    (24, Kind::View),
    (40, Kind::Tx),
    (12, Kind::Stream),
    (36, Kind::Live),
    (60, Kind::Mail),
    (4, Kind::Move),
    (6, Kind::Space),
    (6, Kind::Look),
    (4, Kind::Fault),
    (4, Kind::End),
    (2, Kind::Checkpoint),
    (5, Kind::Rewrite),
    (2, Kind::Retain),
    (8, Kind::Lose),
    (4, Kind::BackUp),
    (4, Kind::Restore),
    (6, Kind::Repeat),
    (4, Kind::Jump),
    (4, Kind::Full),
    (1, Kind::Rest),
];
/// Steps without a part in a seed with clients of Kafka only.
const NOT_OF_KAFKA: [Kind; 13] = [
    Kind::Define,
    Kind::Tx,
    Kind::Publish,
    Kind::Consume,
    Kind::Get,
    Kind::Settle,
    Kind::Cancel,
    Kind::Close,
    Kind::Stream,
    Kind::Live,
    Kind::Mail,
    Kind::Move,
    Kind::Space,
];
/// Steps without a part in a seed with transactional clients only.
const NOT_OF_TRANSACTIONS: [Kind; 20] = [
    Kind::Define,
    Kind::View,
    Kind::Tx,
    Kind::Share,
    Kind::Produce,
    Kind::Leave,
    Kind::Repeat,
    Kind::Group,
    Kind::Publish,
    Kind::Consume,
    Kind::Get,
    Kind::Settle,
    Kind::Cancel,
    Kind::Close,
    Kind::Pause,
    Kind::Remove,
    Kind::Live,
    Kind::Mail,
    Kind::Move,
    Kind::Space,
];
/// Steps without a part in a seed with share groups.
const NOT_OF_SHARES: [Kind; 19] = [
    Kind::Define,
    Kind::View,
    Kind::Tx,
    Kind::Leave,
    Kind::Repeat,
    Kind::Group,
    Kind::Publish,
    Kind::Consume,
    Kind::Get,
    Kind::Settle,
    Kind::Cancel,
    Kind::Close,
    Kind::Pause,
    Kind::Remove,
    Kind::Stream,
    Kind::Live,
    Kind::Mail,
    Kind::Move,
    Kind::Space,
];
/// Steps without a part in a seed with consumer groups.
const NOT_OF_GROUPS: [Kind; 18] = [
    Kind::Share,
    Kind::Transaction,
    Kind::Publish,
    Kind::Consume,
    Kind::Get,
    Kind::Settle,
    Kind::Cancel,
    Kind::Close,
    Kind::Pause,
    Kind::Remove,
    Kind::Define,
    Kind::View,
    Kind::Tx,
    Kind::Stream,
    Kind::Live,
    Kind::Mail,
    Kind::Move,
    Kind::Space,
];
/// Steps without a part in a seed with clients of AMQP only.
const NOT_OF_AMQP: [Kind; 6] = [
    Kind::Produce,
    Kind::Group,
    Kind::Share,
    Kind::Transaction,
    Kind::Live,
    Kind::Mail,
];

/// Steps without a part in a seed with a client of the HTTP API's messages.
const NOT_OF_MAIL: [Kind; 15] = [
    Kind::Leave,
    Kind::Repeat,
    Kind::Group,
    Kind::Share,
    Kind::Transaction,
    Kind::Tx,
    Kind::View,
    Kind::Define,
    Kind::Remove,
    Kind::Pause,
    Kind::Stream,
    Kind::Live,
    Kind::Move,
    Kind::Space,
    Kind::Recreate,
];

/// Steps without a part in a seed with transactional clients of AMQP and few others.
const NOT_OF_TX: [Kind; 12] = [
    Kind::Produce,
    Kind::Group,
    Kind::Share,
    Kind::Transaction,
    Kind::Live,
    Kind::Mail,
    Kind::Stream,
    Kind::Move,
    Kind::Space,
    Kind::View,
    Kind::Define,
    Kind::Remove,
];

impl Mix {
    fn new(random: &mut Random) -> Self {
        let has_losses = random.below(3) == 0;
        let is_uncertain = |kind| {
            matches!(
                kind,
                Kind::Group
                    | Kind::Share
                    | Kind::Transaction
                    | Kind::Define
                    | Kind::View
                    | Kind::Tx
                    | Kind::Live
                    | Kind::Mail
                    | Kind::Move
                    | Kind::Space
            )
        };
        let may_be = |kind| {
            if has_losses {
                !is_uncertain(kind)
            } else {
                kind != Kind::Lose
            }
        };
        // Most seeds have the clients of one protocol or kind only, and some omit a kind, so that others run
        // undisturbed.
        let omitted = random.pick(&[
            &[][..],
            &[][..],
            &NOT_OF_KAFKA,
            &NOT_OF_AMQP,
            &NOT_OF_TX,
            &NOT_OF_TRANSACTIONS,
            &NOT_OF_SHARES,
            &NOT_OF_SHARES,
            &NOT_OF_GROUPS,
            &NOT_OF_MAIL,
        ]);
        let first_topic = random.pick(&[0, 0, 0, TOPICS - 2]);
        let weights: Vec<_> = KINDS
            .into_iter()
            .filter(|(_, kind)| may_be(*kind) && !omitted.contains(kind))
            .map(|(weight, kind)| (weight * random.below(4), kind))
            .map(|(weight, kind)| {
                // Segments are compacted once they are sealed, which a start does.
                let is_more = first_topic > 0 && matches!(kind, Kind::Rewrite | Kind::End);
                (if is_more { 8 + weight } else { weight }, kind)
            })
            .collect();
        let total = weights.iter().map(|(weight, _)| weight).sum::<u64>().max(1);
        Self {
            weights,
            total,
            waits: random.pick(&[1, 5, 30]),
            pumps: random.pick(&[1, 4, 20]),
            bytes_max: random.pick(&[100, 1_000, 10_000, 60_000, 200_000]),
            // Some seeds send only old records, or only records without a timestamp.
            ages: random.pick(&[
                [Age::Now; 4],
                [Age::Now, Age::Now, Age::Days(2), Age::Unknown],
                [Age::Days(2); 4],
                [Age::Unknown; 4],
            ]),
            first_topic,
            has_losses,
        }
    }

    fn step(&self, number: usize, random: &mut Random) -> Step {
        let mut at = random.below(self.total);
        let mut chosen = Kind::Produce;
        for (weight, kind) in &self.weights {
            if at < *weight {
                chosen = *kind;
                break;
            }
            at -= weight;
        }
        let action = self.action(chosen, random);
        Step {
            number,
            action,
            wait_ms: u32::try_from(random.below(u64::from(self.waits) + 1)).unwrap_or(0),
            pump_every: u32::try_from(random.below(self.pumps) + 1).unwrap_or(1),
        }
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of the kinds of steps")]
    fn action(&self, kind: Kind, random: &mut Random) -> Action {
        let mut small = |bound: u8| u8::try_from(random.below(bound.into())).unwrap_or(0);
        match kind {
            Kind::Produce => Action::Produce {
                producer: small(PRODUCERS),
                topic: self.first_topic + small(TOPICS - self.first_topic),
                partition: small(PARTITIONS),
                records: u16::try_from(1 + random.below(20)).unwrap_or(1),
                bytes: u32::try_from(random.below(self.bytes_max.into())).unwrap_or(0),
                age: random.pick(&self.ages),
            },
            Kind::Leave => Action::Leave {
                producer: small(PRODUCERS),
            },
            Kind::Read => Action::Read {
                topic: small(TOPICS),
                partition: small(PARTITIONS),
            },
            Kind::Reader => Action::Reader(ReaderStep::draw(random)),
            Kind::Recreate => Action::Recreate { topic: small(TOPICS) },
            Kind::Group => Action::Group(GroupStep::draw(random)),
            Kind::Share => Action::Share(ShareStep::draw(random)),
            Kind::Transaction => Action::Transaction(TransactionStep::draw(random, self.bytes_max)),
            Kind::Publish => Action::Publish {
                client: small(PUBLISHERS),
                target: match small(9) {
                    LATE if self.has_losses => FAN,
                    target => target,
                },
                message: Message {
                    count: 1 + small(20),
                    priority: small(4),
                    is_persistent: small(8) != 0,
                    patience: Patience::draw(small(10), small(u8::MAX)),
                    bytes: u32::try_from(random.below(self.bytes_max.into())).unwrap_or(0),
                },
            },
            Kind::Consume => Action::Consume {
                client: small(CLIENTS),
                queue: small(8),
            },
            Kind::Get => Action::Get {
                client: small(CLIENTS),
                queue: small(8),
            },
            Kind::Settle => Action::Settle {
                client: small(CLIENTS),
                count: 1 + small(30),
                how: random.pick(&[
                    Settling::Ack,
                    Settling::AckAll,
                    Settling::Requeue,
                    Settling::Reject,
                ]),
            },
            Kind::Cancel => Action::Cancel {
                client: small(CLIENTS),
            },
            Kind::Close => Action::Close {
                client: small(CLIENTS),
                settles: match small(4) {
                    0 => Some(Settling::AckAll),
                    1 => Some(Settling::Ack),
                    2 => Some(Settling::Requeue),
                    _ => None,
                },
                how: random.pick(&[Closing::Channel, Closing::Connection, Closing::Cut]),
            },
            Kind::Pause => Action::Pause {
                client: small(CLIENTS),
                for_ms: u32::try_from(random.below(300)).unwrap_or(0),
            },
            Kind::Define => Action::Define(DefinitionStep::draw(random)),
            Kind::View => Action::View(ViewStep::draw(random)),
            Kind::Tx => Action::Tx(TxStep::draw(random, self.bytes_max)),
            Kind::Stream => Action::Stream(StreamStep::draw(random)),
            Kind::Live => Action::Live(LiveStep::draw(random)),
            Kind::Mail => Action::Mail(MailStep::draw(random)),
            Kind::Move => Action::Move(Move::draw(random)),
            Kind::Space => Action::Space(SpaceStep::draw(random)),
            Kind::Remove => Action::Remove(Removal {
                queue: match small(6) {
                    5 => OVER,
                    queue => queue,
                },
                last: (small(CLIENTS), small(8)),
                how: random.pick(&[Removing::Purge, Removing::Delete]),
            }),
            Kind::Look => Action::Look,
            Kind::Fault => Action::Fault {
                after: 1 + random.below(30),
                fault: match random.below(8) {
                    0 => DiskFault::Error,
                    1 => DiskFault::Broken,
                    2 | 3 => DiskFault::Power(random.next()),
                    _ => DiskFault::Kill(random.next()),
                },
            },
            Kind::End => Action::End(End::draw(random)),
            Kind::BackUp => Action::BackUp,
            Kind::Restore => Action::Restore {
                end: End::draw(random),
            },
            Kind::Lose => Action::Lose {
                end: End::draw(random),
                loss: Loss::draw(random),
            },
            Kind::Repeat => Action::Repeat {
                // Producers with even numbers are idempotent.
                producer: small(PRODUCERS / 2) * 2,
                back: small(5),
            },
            Kind::Checkpoint => Action::Checkpoint,
            Kind::Rewrite => Action::Rewrite {
                frees: small(2) == 0,
                covers: small(2) == 0,
            },
            Kind::Retain => Action::Retain,
            Kind::Jump => Action::Jump {
                seconds: random.pick(&[-3600, -5, 5, 2 * 86_400, 2 * 86_400]),
            },
            Kind::Full => Action::Full {
                for_ms: {
                    let longest = random.pick(&[100, 600, 3000]);
                    u32::try_from(random.below(longest)).unwrap_or(0)
                },
                used_up: random.pick(&[UsedUp::Nothing, UsedUp::State, UsedUp::Settlements]),
            },
            Kind::Rest => Action::Rest {
                seconds: u32::try_from(random.below(60)).unwrap_or(0),
            },
        }
    }
}
