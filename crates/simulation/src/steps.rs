//! What a seed says: settings and steps, all of them drawn before anything runs, so that some can be left
//! out.

use crate::amqp::{FAN, LATE, Move, Patience, Removal, Removing, SpaceStep};
use crate::full::UsedUp;
use crate::kafka::GroupStep;
use crate::live::LiveStep;
use crate::loss::Loss;
use crate::random::Random;

/// Topics of a run, and their partitions.
pub const TOPICS: u8 = 4;
pub const PARTITIONS: u8 = 2;
/// Clients of each kind.
pub const PRODUCERS: u8 = 4;
pub const CLIENTS: u8 = 5;
/// The first of AMQP's clients publish; a full disk never keeps the others from being heard.
pub const PUBLISHERS: u8 = 3;

/// Everything about one seed.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub shape: Shape,
    pub steps: Vec<Step>,
}

/// Settings of the broker that differ from seed to seed.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub segment_bytes: u32,
    pub tail_cache_bytes: usize,
    pub checkpoint_bytes: u64,
}

/// One step, and the time behind it.
#[derive(Debug, Clone)]
pub struct Step {
    /// Its place in the plan of the seed.
    pub number: usize,
    pub action: Action,
    /// Milliseconds until the next one.
    pub wait_ms: u32,
    /// The journal writes and syncs every so many milliseconds.
    pub pump_every: u32,
}

/// What happens in a step.
#[derive(Debug, Clone)]
pub enum Action {
    /// A producer sends a batch, and before it what it has to send again.
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
    /// Somebody reads a partition from its beginning.
    Read { topic: u8, partition: u8 },
    /// A topic is deleted and made again.
    Recreate { topic: u8 },
    /// A member of a group does something.
    Group(GroupStep),
    /// A client of AMQP publishes to a queue or an exchange.
    Publish {
        client: u8,
        target: u8,
        message: Message,
    },
    /// A client consumes a queue, beside what it consumes already.
    Consume { client: u8, queue: u8 },
    /// A client takes one message.
    Get { client: u8, queue: u8 },
    /// A client settles some of what it holds, the oldest first.
    Settle { client: u8, count: u8, how: Settling },
    /// A client cancels a consumer.
    Cancel { client: u8 },
    /// A client's channel, or its connection, ends.
    /// Right before, it may settle what it holds.
    Close {
        client: u8,
        how: Closing,
        settles: Option<Settling>,
    },
    /// A client does not read for some time.
    Pause { client: u8, for_ms: u32 },
    /// A client of live topics does something.
    Live(LiveStep),
    /// Messages are moved between queues.
    Move(Move),
    /// A namespace is made, used or deleted.
    Space(SpaceStep),
    /// A queue is purged, or deleted and made again.
    Remove(Removal),
    /// Once all is quiet, what is in flight is what clients hold.
    Look,
    /// The disk fails at its change of that number from now.
    Fault { after: u64, fault: DiskFault },
    /// The program ends.
    End(End),
    /// The program ends, and something of its files is lost.
    Lose { end: End, loss: Loss },
    /// A producer sends again a batch that was acknowledged, one of its last.
    Repeat { producer: u8, back: u8 },
    /// The journal stores a checkpoint.
    Checkpoint,
    /// The journal rewrites what it can.
    Rewrite,
    /// The journal frees what is older than topics keep.
    Retain,
    /// The wall clock is set by so many seconds.
    Jump { seconds: i64 },
    /// The disk is full for some time.
    Full { for_ms: u32, used_up: UsedUp },
    /// Time passes in which nothing is asked.
    Rest { seconds: u32 },
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

/// How messages are settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settling {
    Ack,
    /// All with one method.
    AckAll,
    Requeue,
    Reject,
}

/// How something of a client ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    Channel,
    Connection,
    /// Without a word.
    Cut,
}

/// How old records say they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    Now,
    Days(u8),
    /// They have no timestamp.
    Unknown,
}

/// What the disk does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFault {
    /// The program is killed in the middle of the change; the seed says how far it came.
    Kill(u64),
    /// The power goes; the seed says what is left.
    Power(u64),
    /// The change fails.
    Error,
    /// All changes from then on fail.
    Broken,
}

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Stop,
    Kill,
    Power(u64),
}

impl Plan {
    /// The plan of a seed.
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

    /// The same with those steps alone.
    #[must_use]
    pub fn only(mut self, kept: &[usize]) -> Self {
        self.steps.retain(|step| kept.contains(&step.number));
        self
    }
}

/// What is frequent in one seed and rare in another.
struct Mix {
    weights: Vec<(u64, Kind)>,
    total: u64,
    waits: u32,
    pumps: u64,
    bytes_max: u32,
    ages: [Age; 4],
    /// Files are lost, and nothing is done of which it is not known what is left then.
    has_losses: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Produce,
    Leave,
    Read,
    Recreate,
    Group,
    Publish,
    Consume,
    Get,
    Settle,
    Cancel,
    Close,
    Pause,
    Remove,
    Live,
    Move,
    Space,
    Look,
    Fault,
    End,
    Lose,
    Repeat,
    Checkpoint,
    Rewrite,
    Retain,
    Jump,
    Full,
    Rest,
}

impl Mix {
    fn new(random: &mut Random) -> Self {
        let kinds = [
            (40, Kind::Produce),
            (2, Kind::Leave),
            (4, Kind::Read),
            (2, Kind::Recreate),
            (20, Kind::Group),
            (30, Kind::Publish),
            (8, Kind::Consume),
            (4, Kind::Get),
            (20, Kind::Settle),
            (2, Kind::Cancel),
            (6, Kind::Close),
            (2, Kind::Pause),
            (3, Kind::Remove),
            (12, Kind::Live),
            (4, Kind::Move),
            (3, Kind::Space),
            (6, Kind::Look),
            (4, Kind::Fault),
            (4, Kind::End),
            (2, Kind::Checkpoint),
            (2, Kind::Rewrite),
            (2, Kind::Retain),
            (3, Kind::Lose),
            (6, Kind::Repeat),
            (3, Kind::Jump),
            (2, Kind::Full),
            (1, Kind::Rest),
        ];
        let has_losses = random.below(3) == 0;
        let is_uncertain = |kind| matches!(kind, Kind::Group | Kind::Live | Kind::Move | Kind::Space);
        let may_be = |kind| {
            if has_losses {
                !is_uncertain(kind)
            } else {
                kind != Kind::Lose
            }
        };
        // Some seeds leave a kind out, so that others come undisturbed.
        let weights: Vec<_> = kinds
            .into_iter()
            .filter(|(_, kind)| may_be(*kind))
            .map(|(weight, kind)| (weight * random.below(4), kind))
            .collect();
        let total = weights.iter().map(|(weight, _)| weight).sum::<u64>().max(1);
        Self {
            weights,
            total,
            waits: random.pick(&[1, 5, 30]),
            pumps: random.pick(&[1, 4, 20]),
            bytes_max: random.pick(&[100, 1_000, 10_000, 60_000, 200_000]),
            // Some producers send what is old, or what has no time, and nothing else.
            ages: random.pick(&[
                [Age::Now; 4],
                [Age::Now, Age::Now, Age::Days(2), Age::Unknown],
                [Age::Days(2); 4],
                [Age::Unknown; 4],
            ]),
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
                topic: small(TOPICS),
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
            Kind::Recreate => Action::Recreate { topic: small(TOPICS) },
            Kind::Group => Action::Group(GroupStep::draw(random)),
            Kind::Publish => Action::Publish {
                client: small(PUBLISHERS),
                target: match small(8) {
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
                queue: small(7),
            },
            Kind::Get => Action::Get {
                client: small(CLIENTS),
                queue: small(7),
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
            Kind::Live => Action::Live(LiveStep::draw(random)),
            Kind::Move => Action::Move(Move::draw(random)),
            Kind::Space => Action::Space(SpaceStep::draw(random)),
            Kind::Remove => Action::Remove(Removal {
                queue: small(5),
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
            Kind::End => Action::End(match random.below(4) {
                0 => End::Stop,
                1 => End::Power(random.next()),
                _ => End::Kill,
            }),
            Kind::Lose => Action::Lose {
                end: match random.below(3) {
                    0 => End::Stop,
                    1 => End::Power(random.next()),
                    _ => End::Kill,
                },
                loss: match random.below(5) {
                    0 => Loss::Checkpoint,
                    1 | 2 => Loss::Segment(random.next()),
                    3 => Loss::Sidecar(random.next()),
                    _ => Loss::Bit(random.next()),
                },
            },
            Kind::Repeat => Action::Repeat {
                // Those that number their batches.
                producer: small(PRODUCERS / 2) * 2,
                back: small(5),
            },
            Kind::Checkpoint => Action::Checkpoint,
            Kind::Rewrite => Action::Rewrite,
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
