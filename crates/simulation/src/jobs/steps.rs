//! The jobs of apps, and the steps of their workers and operators.

use stafett_topics::NewRecord;

use super::{WORKERS, counts, transfers};
use crate::random::Random;

/// Job of an app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trade {
    Counts,
    Transfers,
}

impl Trade {
    pub const ALL: [Self; 2] = [Self::Counts, Self::Transfers];

    /// Returns the name of the app.
    pub(super) fn app(self) -> &'static str {
        match self {
            Self::Counts => "counts",
            Self::Transfers => "transfers",
        }
    }

    /// Returns the topics that the app reads; the first one is fed.
    pub(super) fn inputs(self) -> &'static [&'static str] {
        match self {
            Self::Counts => &counts::INPUTS,
            Self::Transfers => &transfers::INPUTS,
        }
    }

    /// Returns the topic of the results.
    pub(super) fn results(self) -> &'static str {
        match self {
            Self::Counts => counts::RESULTS,
            Self::Transfers => transfers::RESULTS,
        }
    }

    /// Returns a record to feed.
    pub(super) fn record(self, number: u64) -> NewRecord {
        match self {
            Self::Counts => counts::record(number),
            Self::Transfers => transfers::record(number),
        }
    }
}

/// Step of an app's workers, or of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobStep {
    /// Records are stored.
    Feed {
        count: u8,
    },
    Join {
        worker: u8,
    },
    Work(WorkStep),
    /// A worker does so, and pauses before its commit.
    Hold(WorkStep),
    /// The first worker that paused goes on, whatever has become of its session.
    GoOn,
    Leave {
        worker: u8,
    },
    /// A worker forgets its tasks, without a word.
    Forget {
        worker: u8,
    },
    Drain {
        worker: u8,
        cancel: bool,
    },
    Split {
        task: u8,
    },
    Merge {
        task: u8,
    },
}

/// A worker works through some records of one of its tasks. It joins before, if it has no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkStep {
    pub(super) worker: u8,
    pub(super) task: u8,
    pub(super) records: u8,
}

impl JobStep {
    pub fn draw(random: &mut Random) -> Self {
        let mut small = |bound: u8| u8::try_from(random.below(bound.into())).unwrap_or(0);
        let (kind, worker, task) = (small(40), small(WORKERS), small(16));
        match kind {
            0..=5 => Self::Feed { count: 1 + small(30) },
            6 | 7 => Self::Join { worker },
            8..=28 => {
                let work = WorkStep {
                    worker,
                    task,
                    records: 1 + small(10),
                };
                if kind <= 25 {
                    Self::Work(work)
                } else {
                    Self::Hold(work)
                }
            }
            29 | 30 => Self::GoOn,
            31 => Self::Leave { worker },
            32 => Self::Forget { worker },
            33 | 34 => Self::Drain {
                worker,
                cancel: kind == 34,
            },
            35..=37 => Self::Split { task },
            _ => Self::Merge { task },
        }
    }
}
