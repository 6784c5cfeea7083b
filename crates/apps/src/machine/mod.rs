//! The state machine of one app: workers, claims and their moves. Pure: no I/O, and the clock is an
//! argument.
//!
//! ```text
//! free ──claim──▶ claiming ──stored──▶ held ──revoke──▶ revoking
//!   ▲                │ refused          │ release, leave, silence     │ release, deadline
//!   └────────────────┴──────────────────┴─────────────────────────────┘
//! ```
//!
//! A claim has an epoch, which the owner of the machine stores before the worker is told of the claim
//! ([`Effect::Claim`], [`Machine::on_claimed`]). Epochs of a task only grow, so whatever an earlier claim
//! commits later is refused.
//!
//! - `worker`: workers, their sessions and events; `moves`: balance and claims; `operator`: changes from
//!   outside

mod moves;
mod operator;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use self::operator::{Absent, AssignError, DrainError, Marks};
use self::worker::{Drain, Worker, WorkerName};
pub use self::worker::{Event, EventKind, JoinSpec, Joined, WorkerView};
use crate::task::TaskId;

/// Way in which tasks are given to workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Balance {
    #[default]
    Count,
    Weight,
    Load,
    /// Workers claim tasks by themselves.
    Manual,
}

/// Rules of an app that the machine follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    pub balance: Balance,
    /// True if held tasks move at every change; else only at a request.
    pub auto: bool,
    pub worker_timeout_ms: u64,
    pub revoke_ms: u64,
    pub workers_max: usize,
}

/// Reason for a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Start,
    Balance,
    Takeover,
    Handover,
    Assigned,
    Split,
    Merge,
}

impl Reason {
    pub const ALL: [Self; 7] = [
        Self::Start,
        Self::Balance,
        Self::Takeover,
        Self::Handover,
        Self::Assigned,
        Self::Split,
        Self::Merge,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Balance => "balance",
            Self::Takeover => "takeover",
            Self::Handover => "handover",
            Self::Assigned => "assigned",
            Self::Split => "split",
            Self::Merge => "merge",
        }
    }
}

/// Work for the owner of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The epoch is to be stored; then [`Machine::on_claimed`] is called. With the worker that had the task
    /// before, if it fell silent.
    Claim {
        task: TaskId,
        epoch: u64,
        died: Option<Arc<str>>,
    },
    /// The worker has new events.
    Wake(Arc<str>),
    /// A drain ended by itself: [`Machine::marks`] are to be stored.
    Marks,
    /// A worker has a task that had none for a time.
    Claimed { reason: Reason, gap_ms: i64 },
    /// A claim was taken from a worker that did not release it in time.
    Overdue,
}

/// Refusal of a worker's command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    #[error("there is no worker of this name: it never joined, left, or was silent for too long")]
    NoSuchWorker,
    #[error("another session joined under the name of this worker")]
    TakenOver,
    #[error("the app has as many workers as it may: {max}")]
    TooManyWorkers { max: usize },
    #[error("the app has no task {0}")]
    NoSuchTask(TaskId),
    #[error("task {task} is not this worker's under this epoch; it has epoch {epoch}")]
    LostClaim {
        task: TaskId,
        epoch: u64,
        holder: Option<Arc<str>>,
    },
    #[error("task {task} is {by}'s under epoch {epoch}")]
    Taken { task: TaskId, by: Arc<str>, epoch: u64 },
    #[error("the worker has its share of {target} tasks")]
    OverShare { target: u32 },
    #[error("task {task} is pinned to {to}")]
    Pinned { task: TaskId, to: Arc<str> },
    #[error("the worker is being drained")]
    Draining,
}

/// A task in the view of the machine.
#[derive(Debug)]
struct Task {
    /// Latest epoch that a claim had.
    epoch: u64,
    holder: Holder,
    /// Cause of the next claim, and the worker that had it last.
    last: (Reason, Option<WorkerName>),
    /// Worker that fell silent with the task, until the next claim.
    died: Option<WorkerName>,
    /// Time since which no worker does the task.
    free_ms: i64,
    pin: Option<(WorkerName, Absent)>,
    /// Worker to which a move brings it.
    goes_to: Option<WorkerName>,
    /// Planned move whose worker reads the state first.
    prepare: Option<Prepare>,
    load: u64,
    moves: u64,
}

/// A planned move that has not begun for the holder of the task.
#[derive(Debug)]
struct Prepare {
    to: WorkerName,
    reason: Reason,
    /// Time at which it begins whatever was read.
    deadline_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Holder {
    Free,
    Claiming(WorkerName),
    Held(WorkerName),
    Revoking {
        worker: WorkerName,
        deadline_ms: i64,
        reason: Reason,
    },
}

impl Holder {
    fn worker(&self) -> Option<&WorkerName> {
        match self {
            Self::Free => None,
            Self::Claiming(worker) | Self::Held(worker) | Self::Revoking { worker, .. } => Some(worker),
        }
    }
}

/// A task as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskView {
    pub task: TaskId,
    pub epoch: u64,
    pub worker: Option<Arc<str>>,
    /// `free`, `claiming`, `held` or `revoking`.
    pub state: &'static str,
    pub pin: Option<Arc<str>>,
    /// Claims of the task in this run of the broker.
    pub moves: u64,
}

/// The machine: see the module.
#[derive(Debug)]
pub struct Machine {
    rules: Rules,
    tasks: BTreeMap<TaskId, Task>,
    workers: BTreeMap<WorkerName, Worker>,
    /// Drains by worker, also of workers that are not back after a start.
    drains: BTreeMap<WorkerName, Drain>,
    sessions: u64,
    /// Time from which a move by load may be made.
    load_from_ms: i64,
    /// Time at which a claim that could not be stored is tried again.
    retry_ms: Option<i64>,
    /// True if a worker came since the last balancing: then tasks move by their number, also by load.
    spread: bool,
    /// True while a task is being cut.
    cuts: bool,
    /// Reasons of claims that were stored, counted.
    moved: [u64; Reason::ALL.len()],
}

impl Machine {
    /// Creates the machine of an app without workers, from the latest epoch of each task.
    pub fn new(rules: Rules, tasks: impl IntoIterator<Item = (TaskId, u64)>) -> Self {
        let tasks = tasks
            .into_iter()
            .map(|(id, epoch)| (id, Task::new(epoch, Reason::Start)));
        Self {
            rules,
            tasks: tasks.collect(),
            workers: BTreeMap::new(),
            drains: BTreeMap::new(),
            sessions: 0,
            load_from_ms: i64::MIN,
            retry_ms: None,
            spread: false,
            cuts: false,
            moved: [0; Reason::ALL.len()],
        }
    }

    /// Sets the number of the first session.
    #[must_use]
    pub fn with_sessions_from(self, first: u64) -> Self {
        let sessions = first;
        Self { sessions, ..self }
    }

    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Replaces the rules, and balances by them.
    pub fn set_rules(&mut self, rules: Rules, now_ms: i64, effects: &mut Vec<Effect>) {
        self.rules = rules;
        self.balance(now_ms, effects);
    }

    /// Returns the tasks in their order.
    pub fn tasks(&self) -> impl Iterator<Item = TaskView> {
        self.tasks.iter().map(|(id, task)| task.view(*id))
    }

    pub fn task(&self, id: TaskId) -> Option<TaskView> {
        self.tasks.get(&id).map(|task| task.view(id))
    }

    /// Returns the number of claims by reason, in the order of [`Reason::ALL`].
    pub fn moved(&self) -> [u64; Reason::ALL.len()] {
        self.moved
    }

    /// Returns true if a worker has, or is getting, a task.
    pub fn has_claims(&self) -> bool {
        self.tasks.values().any(|task| task.holder != Holder::Free)
    }

    /// Returns the time at which [`Machine::on_time`] has to be called.
    pub fn deadline_ms(&self) -> Option<i64> {
        let silent = self.workers.values().map(|worker| self.silent_at(worker));
        let drains = self
            .drains
            .iter()
            .map(|(name, drain)| drain.deadline_ms(self.workers.contains_key(name)));
        let overdue = self.tasks.values().filter_map(|task| match task.holder {
            Holder::Revoking { deadline_ms, .. } => Some(deadline_ms),
            Holder::Free | Holder::Claiming(_) | Holder::Held(_) => None,
        });
        let prepares = self.tasks.values().filter_map(|task| task.prepare.as_ref());
        let prepares = prepares.map(|prepare| prepare.deadline_ms);
        let by_load = (self.rules.balance == Balance::Load && self.rules.auto && self.workers.len() > 1)
            .then_some(self.load_from_ms);
        silent
            .chain(drains)
            .chain(overdue)
            .chain(prepares)
            .chain(by_load)
            .chain(self.retry_ms)
            .min()
    }

    /// Returns true if records are delivered to the worker; else it reads by itself.
    pub fn delivers_to(&self, worker: &str) -> bool {
        self.workers.get(worker).is_none_or(|worker| worker.spec.deliver)
    }

    /// Begins to cut a task. False if a worker reads by itself; none may join until the end of the cut.
    pub fn begin_cut(&mut self) -> bool {
        self.cuts = self.workers.values().all(|worker| worker.spec.deliver);
        self.cuts
    }

    pub fn end_cut(&mut self) {
        self.cuts = false;
    }

    /// True if tasks are slices, or about to be.
    pub fn is_sliced(&self) -> bool {
        self.cuts || self.tasks.keys().any(|task| !task.slice().is_whole())
    }

    /// Checks that a claim is held, also while it is being revoked.
    pub fn check_claim(&self, worker: &str, task: TaskId, epoch: u64) -> Result<(), WorkerError> {
        let Some(known) = self.tasks.get(&task) else {
            // A task that was split or merged is one that its worker has lost.
            let mut others = self
                .tasks
                .iter()
                .filter(|(other, _)| other.partition == task.partition);
            return Err(others.next().map_or(WorkerError::NoSuchTask(task), |(_, other)| {
                WorkerError::LostClaim {
                    task,
                    epoch: other.epoch,
                    holder: None,
                }
            }));
        };
        let holds = match &known.holder {
            Holder::Held(holder) | Holder::Revoking { worker: holder, .. } => **holder == *worker,
            Holder::Free | Holder::Claiming(_) => false,
        };
        if holds && known.epoch == epoch {
            return Ok(());
        }
        Err(WorkerError::LostClaim {
            task,
            epoch: known.epoch,
            holder: known.holder.worker().cloned(),
        })
    }
}

impl Machine {
    /// Checks that a worker may read the state of a task: it has it, or is about to.
    pub fn check_read(&self, worker: &str, task: TaskId, epoch: u64) -> Result<(), WorkerError> {
        let known = self.tasks.get(&task).filter(|known| known.epoch == epoch);
        let prepare = known.and_then(|known| known.prepare.as_ref());
        if prepare.is_some_and(|prepare| *prepare.to == *worker) {
            return Ok(());
        }
        self.check_claim(worker, task, epoch)
    }
}

impl Task {
    fn new(epoch: u64, reason: Reason) -> Self {
        Self {
            epoch,
            holder: Holder::Free,
            last: (reason, None),
            died: None,
            free_ms: i64::MAX,
            pin: None,
            goes_to: None,
            prepare: None,
            load: 0,
            moves: 0,
        }
    }

    fn view(&self, task: TaskId) -> TaskView {
        TaskView {
            task,
            epoch: self.epoch,
            worker: self.holder.worker().cloned(),
            state: match self.holder {
                Holder::Free => "free",
                Holder::Claiming(_) => "claiming",
                Holder::Held(_) => "held",
                Holder::Revoking { .. } => "revoking",
            },
            pin: self.pin.as_ref().map(|(worker, _)| Arc::clone(worker)),
            moves: self.moves,
        }
    }
}
