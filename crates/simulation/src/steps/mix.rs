//! The mixture of steps that a seed draws from.

use super::draws::{close, fault, full, remove, settle, small};
use super::{Action, Age, CLIENTS, End, Message, PARTITIONS, PRODUCERS, PUBLISHERS, Step, TOPICS};
use crate::amqp::{DefinitionStep, FAN, LATE, Move, Patience, SpaceStep, StreamStep, TxStep, ViewStep};
use crate::jobs::{JobStep, Trade};
use crate::kafka::{GroupStep, ReaderStep, ShareStep, TransactionStep};
use crate::live::LiveStep;
use crate::loss::Loss;
use crate::mail::MailStep;
use crate::random::Random;

/// Weights of the kinds of steps, which differ between seeds.
pub(super) struct Mix {
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
    /// Jobs of the apps.
    trades: &'static [Trade],
}

/// Kinds of steps that a seed may have.
#[derive(Debug, Clone, Copy)]
enum Kinds {
    Not(&'static [Kind]),
    Only(&'static [Kind]),
}

impl Kinds {
    fn has(self, kind: Kind) -> bool {
        match self {
            Self::Not(kinds) => !kinds.contains(&kind),
            Self::Only(kinds) => kinds.contains(&kind),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
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
    Job,
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
const KINDS: [(u64, Kind); 38] = [
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
    (40, Kind::Job),
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
const NOT_OF_KAFKA: [Kind; 14] = [
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
    Kind::Job,
    Kind::Move,
    Kind::Space,
];
/// Steps without a part in a seed with transactional clients only.
const NOT_OF_TRANSACTIONS: [Kind; 21] = [
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
    Kind::Job,
    Kind::Move,
    Kind::Space,
];
/// Steps without a part in a seed with share groups.
const NOT_OF_SHARES: [Kind; 20] = [
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
    Kind::Job,
    Kind::Move,
    Kind::Space,
];
/// Steps without a part in a seed with consumer groups.
const NOT_OF_GROUPS: [Kind; 19] = [
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
    Kind::Job,
    Kind::Move,
    Kind::Space,
];
/// Steps without a part in a seed with clients of AMQP only.
const NOT_OF_AMQP: [Kind; 7] = [
    Kind::Produce,
    Kind::Group,
    Kind::Share,
    Kind::Transaction,
    Kind::Live,
    Kind::Mail,
    Kind::Job,
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

/// Steps of a seed with workers of apps only.
const OF_JOBS: [Kind; 10] = [
    Kind::Job,
    Kind::Look,
    Kind::Fault,
    Kind::End,
    Kind::Checkpoint,
    Kind::BackUp,
    Kind::Restore,
    Kind::Jump,
    Kind::Full,
    Kind::Rest,
];
/// Weight of a worker's step in such a seed, above all others together: a join, a commit, a cut of a task
/// and another commit have to come behind one another.
const JOBS_WEIGHT: u64 = 200;

/// Steps without a part in a seed with transactional clients of AMQP and few others.
const NOT_OF_TX: [Kind; 13] = [
    Kind::Produce,
    Kind::Group,
    Kind::Share,
    Kind::Transaction,
    Kind::Live,
    Kind::Mail,
    Kind::Job,
    Kind::Stream,
    Kind::Move,
    Kind::Space,
    Kind::View,
    Kind::Define,
    Kind::Remove,
];

/// Most seeds have the clients of one protocol or kind only, and some omit a kind, so that others run
/// undisturbed.
const SEEDS: [Kinds; 12] = [
    Kinds::Not(&[]),
    Kinds::Not(&[]),
    Kinds::Not(&NOT_OF_KAFKA),
    Kinds::Not(&NOT_OF_AMQP),
    Kinds::Not(&NOT_OF_TX),
    Kinds::Not(&NOT_OF_TRANSACTIONS),
    Kinds::Not(&NOT_OF_SHARES),
    Kinds::Not(&NOT_OF_SHARES),
    Kinds::Not(&NOT_OF_GROUPS),
    Kinds::Not(&NOT_OF_MAIL),
    Kinds::Only(&OF_JOBS),
    Kinds::Only(&OF_JOBS),
];

impl Mix {
    pub(super) fn new(random: &mut Random) -> Self {
        let kinds = random.pick(&SEEDS);
        let are_jobs = matches!(kinds, Kinds::Only(_));
        let has_losses = random.below(3) == 0 && !are_jobs;
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
                    | Kind::Job
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
        let first_topic = random.pick(&[0, 0, 0, TOPICS - 2]);
        let weights: Vec<_> = KINDS
            .into_iter()
            .filter(|(_, kind)| may_be(*kind) && kinds.has(*kind))
            .map(|(weight, kind)| {
                let is_job = are_jobs && kind == Kind::Job;
                let weight = if is_job {
                    JOBS_WEIGHT
                } else {
                    weight * random.below(4)
                };
                (weight, kind)
            })
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
            // A claim is stored before its worker gets records.
            waits: random.pick(if are_jobs { &[5, 30, 100] } else { &[1, 5, 30] }),
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
            trades: random.pick(&[&Trade::ALL[..], &Trade::ALL[..1], &Trade::ALL[1..]]),
        }
    }

    pub(super) fn step(&self, number: usize, random: &mut Random) -> Step {
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
        match kind {
            Kind::Produce => self.produce(random),
            Kind::Leave => Action::Leave {
                producer: small(random, PRODUCERS),
            },
            Kind::Read => Action::Read {
                topic: small(random, TOPICS),
                partition: small(random, PARTITIONS),
            },
            Kind::Reader => Action::Reader(ReaderStep::draw(random)),
            Kind::Recreate => Action::Recreate {
                topic: small(random, TOPICS),
            },
            Kind::Group => Action::Group(GroupStep::draw(random)),
            Kind::Share => Action::Share(ShareStep::draw(random)),
            Kind::Transaction => Action::Transaction(TransactionStep::draw(random, self.bytes_max)),
            Kind::Publish => self.publish(random),
            Kind::Consume => Action::Consume {
                client: small(random, CLIENTS),
                queue: small(random, 8),
            },
            Kind::Get => Action::Get {
                client: small(random, CLIENTS),
                queue: small(random, 8),
            },
            Kind::Settle => settle(random),
            Kind::Cancel => Action::Cancel {
                client: small(random, CLIENTS),
            },
            Kind::Close => close(random),
            Kind::Pause => Action::Pause {
                client: small(random, CLIENTS),
                for_ms: u32::try_from(random.below(300)).unwrap_or(0),
            },
            Kind::Define => Action::Define(DefinitionStep::draw(random)),
            Kind::View => Action::View(ViewStep::draw(random)),
            Kind::Tx => Action::Tx(TxStep::draw(random, self.bytes_max)),
            Kind::Stream => Action::Stream(StreamStep::draw(random)),
            Kind::Live => Action::Live(LiveStep::draw(random)),
            Kind::Mail => Action::Mail(MailStep::draw(random)),
            Kind::Job => Action::Job(random.pick(self.trades), JobStep::draw(random)),
            Kind::Move => Action::Move(Move::draw(random)),
            Kind::Space => Action::Space(SpaceStep::draw(random)),
            Kind::Remove => remove(random),
            Kind::Look => Action::Look,
            Kind::Fault => fault(random),
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
                producer: small(random, PRODUCERS / 2) * 2,
                back: small(random, 5),
            },
            Kind::Checkpoint => Action::Checkpoint,
            Kind::Rewrite => Action::Rewrite {
                frees: small(random, 2) == 0,
                covers: small(random, 2) == 0,
            },
            Kind::Retain => Action::Retain,
            Kind::Jump => Action::Jump {
                seconds: random.pick(&[-3600, -5, 5, 2 * 86_400, 2 * 86_400]),
            },
            Kind::Full => full(random),
            Kind::Rest => Action::Rest {
                seconds: u32::try_from(random.below(60)).unwrap_or(0),
            },
        }
    }

    fn produce(&self, random: &mut Random) -> Action {
        Action::Produce {
            producer: small(random, PRODUCERS),
            topic: self.first_topic + small(random, TOPICS - self.first_topic),
            partition: small(random, PARTITIONS),
            records: u16::try_from(1 + random.below(20)).unwrap_or(1),
            bytes: u32::try_from(random.below(self.bytes_max.into())).unwrap_or(0),
            age: random.pick(&self.ages),
        }
    }

    fn publish(&self, random: &mut Random) -> Action {
        Action::Publish {
            client: small(random, PUBLISHERS),
            target: match small(random, 9) {
                LATE if self.has_losses => FAN,
                target => target,
            },
            message: Message {
                count: 1 + small(random, 20),
                priority: small(random, 4),
                is_persistent: small(random, 8) != 0,
                patience: Patience::draw(small(random, 10), small(random, u8::MAX)),
                bytes: u32::try_from(random.below(self.bytes_max.into())).unwrap_or(0),
            },
        }
    }
}
