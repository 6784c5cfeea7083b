//! Another cell: bounds of its logs as last heard, and the questions to it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use stafett_journal::ticket::{ReadResult, TimeResult};
use stafett_journal::{
    Append, Bounds, Outcome, Reaching, ReadError, ReadRequest, Refusal, TicketSettler, TimeQuery, Watcher,
    Watchers,
};
use stafett_model::{Lock, LogId};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

/// Questions that wait until they are taken.
const WAITING_MAX: usize = 65_536;
/// Time to hear of bounds, and for a cell that has lost its owner to have another one, while a request waits.
const REACH_MAX: Duration = Duration::from_secs(5);
/// Time after the loss of its owner from which nothing is asked: memory and turns of requests are for others.
const AWAY_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct OtherCell {
    pub(crate) cell: u32,
    /// Least time between two messages about bounds.
    pub(crate) pause: Duration,
    logs: Lock<HashMap<LogId, RemoteLog>>,
    /// Followed logs that the cell has not been told of.
    new: Lock<Vec<LogId>>,
    /// Notified of new logs.
    has_new: Notify,
    /// Notified when bounds are known that were not, and when there is a connection again.
    known: Notify,
    /// `None` while an owner answers, and before it is looked for.
    away_since: Lock<Option<Instant>>,
    wanted: mpsc::Sender<Wanted>,
}

/// A log of the other cell.
#[derive(Debug, Default)]
struct RemoteLog {
    bounds: Option<Bounds>,
    watchers: Watchers,
}

/// A question to the other cell.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) since: Instant,
    pub(crate) what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    Append {
        append: Box<Append>,
        /// Logs of its targets, in their order.
        logs: Vec<LogId>,
        settler: TicketSettler,
    },
    Read {
        request: ReadRequest,
        reply: oneshot::Sender<ReadResult>,
    },
    FindTime {
        log: LogId,
        query: TimeQuery,
        reply: oneshot::Sender<TimeResult>,
    },
}

impl OtherCell {
    /// Returns the cell, and the questions to it.
    pub(crate) fn new(cell: u32, pause: Duration) -> (Arc<Self>, mpsc::Receiver<Wanted>) {
        let (wanted, receiver) = mpsc::channel(WAITING_MAX);
        let other = Self {
            cell,
            pause,
            logs: Lock::default(),
            new: Lock::default(),
            has_new: Notify::new(),
            known: Notify::new(),
            away_since: Lock::default(),
            wanted,
        };
        (Arc::new(other), receiver)
    }

    /// Notes that an owner answers.
    pub(crate) fn note_answer(&self) {
        if self.away_since.lock().take().is_some() {
            self.known.notify_waiters();
        }
    }

    /// Notes that there is no owner that answers.
    pub(crate) fn note_loss(&self) {
        self.away_since.lock().get_or_insert_with(Instant::now);
    }

    fn is_here(&self) -> bool {
        self.away_since.lock().is_none()
    }

    /// Returns true if there has been no owner for a while.
    pub(crate) fn is_away(&self) -> bool {
        let since = *self.away_since.lock();
        since.is_some_and(|since| since.elapsed() > AWAY_MAX)
    }

    /// Asks. Fails at once if the cell is away, or too much waits for it.
    pub(crate) fn ask(&self, what: What) {
        if self.is_away() {
            return what.fail(self.cell, false);
        }
        let since = Instant::now();
        if let Err(refused) = self.wanted.try_send(Wanted { since, what }) {
            refused.into_inner().what.fail(self.cell, false);
        }
    }

    pub(crate) fn bounds(&self, log: LogId) -> Option<Bounds> {
        self.logs.lock().get(&log)?.bounds
    }

    /// Has the bounds of logs told from now on.
    pub(crate) fn follow(&self, logs: &[LogId]) {
        let mut known = self.logs.lock();
        let mut new = self.new.lock();
        for log in logs {
            known.entry(*log).or_insert_with(|| {
                new.push(*log);
                RemoteLog::default()
            });
        }
        if !new.is_empty() {
            self.has_new.notify_one();
        }
    }

    /// Waits for logs to be followed that the cell has not been told of.
    pub(crate) async fn newly_followed(&self) -> Vec<LogId> {
        loop {
            let new = std::mem::take(&mut *self.new.lock());
            if !new.is_empty() {
                return new;
            }
            self.has_new.notified().await;
        }
    }

    pub(crate) fn watch(&self, log: LogId, watcher: Watcher) {
        self.follow(&[log]);
        if let Some(known) = self.logs.lock().get_mut(&log) {
            known.watchers.add(watcher);
        }
    }

    /// Returns all logs that are followed, for a cell that has been told of none.
    pub(crate) fn followed(&self) -> Vec<LogId> {
        let logs = self.logs.lock();
        self.new.lock().clear();
        logs.keys().copied().collect()
    }

    /// Forgets all logs but those of topics that are there.
    pub(crate) fn retain(&self, is_there: impl Fn(LogId) -> bool) {
        self.logs.lock().retain(|log, _| is_there(*log));
    }

    /// Notes bounds. They come in any order, and never go back. `None`: the log is not there.
    pub(crate) fn note(&self, log: LogId, heard: Option<Bounds>) {
        let mut logs = self.logs.lock();
        let Some(known) = logs.get_mut(&log) else { return };
        let before = known.bounds;
        known.bounds = heard.map(|heard| match before {
            Some(before) => Bounds {
                start: before.start.max(heard.start),
                end: before.end.max(heard.end),
                stable: before.stable.max(heard.stable),
                bytes: heard.bytes,
            },
            None => heard,
        });
        if known.bounds == before {
            return;
        }
        let bytes = |bounds: Option<Bounds>| bounds.map_or(0, |bounds| bounds.bytes);
        let more = bytes(known.bounds).saturating_sub(bytes(before));
        known.watchers.on_growth(more);
        let is_new = before.is_none();
        drop(logs);
        if is_new {
            self.known.notify_waiters();
        }
    }

    /// Waits for an owner, and for the bounds of logs. `None` if all is there.
    pub(crate) fn reach(self: &Arc<Self>, logs: Vec<LogId>) -> Option<Reaching> {
        if self.is_reached(&logs) {
            return None;
        }
        self.follow(&logs);
        let since = self.away_since.lock().unwrap_or_else(Instant::now);
        let (this, deadline) = (Arc::clone(self), since + REACH_MAX);
        Some(Box::pin(async move {
            let waiting = async {
                loop {
                    let mut notified = std::pin::pin!(this.known.notified());
                    notified.as_mut().enable();
                    if this.is_reached(&logs) {
                        return;
                    }
                    notified.await;
                }
            };
            timeout_at(deadline, waiting).await.is_ok()
        }))
    }

    fn is_reached(&self, logs: &[LogId]) -> bool {
        let known = self.logs.lock();
        let is_known = |log: &LogId| known.get(log).is_some_and(|log| log.bounds.is_some());
        logs.iter().all(is_known) && self.is_here()
    }
}

impl What {
    /// Answers that the cell gives none. `may_be_done`: it may have been asked.
    pub(crate) fn fail(self, cell: u32, may_be_done: bool) {
        let outcome = if may_be_done {
            Outcome::Unknown
        } else {
            Outcome::Refused(Refusal::Closed)
        };
        self.answer(outcome, |log| ReadError::Io {
            log,
            reason: format!("cell {cell} of the cluster gives no answer").into(),
        });
    }

    /// Answers that the topic is gone.
    pub(crate) fn refuse_as_gone(self) {
        let log = match &self {
            Self::Append { logs, .. } => logs.first().copied(),
            Self::Read { .. } | Self::FindTime { .. } => None,
        };
        let refusal = Refusal::NoSuchLog(log.unwrap_or_default());
        self.answer(Outcome::Refused(refusal), ReadError::NoSuchLog);
    }

    /// Answers an append with an outcome, and a read with errors.
    fn answer(self, outcome: Outcome, error: impl Fn(LogId) -> ReadError) {
        match self {
            Self::Append { settler, .. } => settler.settle(outcome),
            Self::Read { request, reply } => {
                let _ = reply.send(request.logs.iter().map(|from| Err(error(from.log))).collect());
            }
            Self::FindTime { log, reply, .. } => {
                let _ = reply.send(Err(error(log)));
            }
        }
    }
}
