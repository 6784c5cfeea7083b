//! A journal that hands appends and reads of other cells' logs on.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Debug;
use std::future::pending;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use smallvec::SmallVec;
use stafett_journal::{
    Append, BatchFrame, Bounds, DiskSpace, Frame, Journal, OpenTransaction, Outcome, OwnerEpoch, PlacedBatch,
    ProducerStatus, Reaching, ReadError, ReadRequest, ReadTicket, Refusal, RequestId, StateItem, StateSpace,
    StateUnreadable, Ticket, TicketSettler, TimeQuery, TimeTicket, Watch,
};
use stafett_model::{Epoch, Lock, LogId};
use stafett_net::Reached;
use stafett_topics::{Cells, Topics, cell_of};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::task::TaskTracker;

use crate::conversation;
use crate::other_cell::{OtherCell, Wanted, What};

/// Pause between two looks for topics that are new.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// The ways to the owners of other cells.
pub trait Ways: Debug + Send + Sync {
    /// Connects to a [`crate::LogsDoor`].
    fn reach(&self, cell: u32) -> Reached<'_>;
}

/// The journal of a cell, and the logs of all other cells.
///
/// An append goes to one cell, and a divisible one to each of its cells. One with state beside logs of
/// another cell is refused, as about a log that does not exist; so is a read of logs of several cells. Bounds
/// of other cells' logs are those that were heard last; reads and appends go to the cell. Only the first cell
/// appends to others: elsewhere, such appends are refused as about a log that does not exist.
#[derive(Debug)]
pub struct CellJournal {
    own: Arc<dyn Journal>,
    cell: u32,
    others: Vec<Arc<OtherCell>>,
    topics: OnceLock<Arc<Topics>>,
    /// Taken by [`Self::run`].
    wanted: Lock<Vec<mpsc::Receiver<Wanted>>>,
    /// Appends to the own journal that were asked for together with others.
    waiting: TaskTracker,
}

/// Cell of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Home {
    Own,
    Other,
    /// Several cells, for one part in each.
    Divided,
    /// Several cells, or conditions that another cell does not know; with a log of one of these.
    Mixed(LogId),
}

impl CellJournal {
    /// `own`: the journal of this cell. `pause`: least time between two messages of a cell about the bounds
    /// of its logs; shorter ones than 10 ms are 10 ms.
    pub fn new(own: Arc<dyn Journal>, cells: Cells, pause: Duration) -> Self {
        let (others, wanted) = (0..cells.count).map(|cell| OtherCell::new(cell, pause)).unzip();
        Self {
            own,
            cell: cells.own,
            others,
            topics: OnceLock::new(),
            wanted: Lock::new(wanted),
            waiting: TaskTracker::new(),
        }
    }

    /// Takes questions about logs of these topics to their cells. Does not return. Called once.
    pub async fn run(&self, topics: &Arc<Topics>, ways: Arc<dyn Ways>) {
        let _ = self.topics.set(Arc::clone(topics));
        let mut talks = JoinSet::new();
        let wanted = std::mem::take(&mut *self.wanted.lock());
        for (other, wanted) in self.others.iter().zip(wanted) {
            if other.cell == self.cell {
                continue;
            }
            let (topics, ways) = (Arc::clone(topics), Arc::clone(&ways));
            talks.spawn(conversation::run(Arc::clone(other), wanted, topics, ways));
        }
        let mut changes = topics.watch_changes();
        loop {
            let mut logs: HashMap<u32, Vec<LogId>> = HashMap::new();
            for log in topics.logs_elsewhere() {
                logs.entry(cell_of(log).unwrap_or_default())
                    .or_default()
                    .push(log);
            }
            for other in &self.others {
                let logs = logs.remove(&other.cell).unwrap_or_default();
                other.follow(&logs);
                let logs: HashSet<LogId> = logs.into_iter().collect();
                other.retain(|log| logs.contains(&log) || topics.place_elsewhere(log).is_some());
            }
            sleep(LOOK_PAUSE).await;
            if changes.changed().await.is_err() {
                pending::<()>().await;
            }
        }
    }

    fn knows_others(&self) -> bool {
        self.cell == 0 || self.topics.get().is_some()
    }

    /// Returns the cell of a log, if it is another one. A cell behind the first one knows none before it
    /// runs.
    fn other(&self, log: LogId) -> Option<&Arc<OtherCell>> {
        if !self.knows_others() {
            return None;
        }
        self.others.get(usize::try_from(cell_of(log)?).ok()?)
    }

    /// Appends to the own journal.
    fn store_own(&self, own: Vec<(Append, TicketSettler)>) {
        if own.is_empty() {
            return;
        }
        let (appends, settlers): (Vec<_>, Vec<_>) = own.into_iter().unzip();
        let stored = self.own.append(appends);
        self.waiting.spawn(async move {
            for (settler, outcome) in settlers.into_iter().zip(stored.await) {
                settler.settle(outcome);
            }
        });
    }

    /// Returns true if a cell of an append is away.
    fn has_away(&self, append: &Append) -> bool {
        logs_of(append).any(|log| self.other(log).is_some_and(|other| other.is_away()))
    }
}

/// Returns the logs that an append is about, in order.
fn logs_of(append: &Append) -> impl Iterator<Item = LogId> {
    append.frames.iter().flat_map(|frame| {
        let (targets, one) = match frame {
            Frame::Batch(batch) => (&batch.targets[..], None),
            Frame::Truncate { log, .. } | Frame::Claim { log, .. } => (&[][..], Some(*log)),
            Frame::State(_)
            | Frame::CreateLogs { .. }
            | Frame::ChangeLogs { .. }
            | Frame::DeleteLogs { .. } => (&[][..], None),
        };
        targets.iter().map(|target| target.log).chain(one)
    })
}

fn home(append: &Append) -> Home {
    let Some((log, cell)) = logs_of(append).find_map(|log| Some((log, cell_of(log)?))) else {
        return Home::Own;
    };
    let is_simple = |frame: &Frame| matches!(frame, Frame::Batch(_) | Frame::Truncate { .. });
    let has_conditions = !append.require.is_empty() || append.owner.is_some();
    if has_conditions || !append.frames.iter().all(is_simple) {
        return Home::Mixed(log);
    }
    if logs_of(append).all(|log| cell_of(log) == Some(cell)) {
        return Home::Other;
    }
    if append.is_divisible && append.frames.iter().all(|frame| matches!(frame, Frame::Batch(_))) {
        Home::Divided
    } else {
        Home::Mixed(log)
    }
}

/// Divides an append of batches by cell. Each part has the places of its targets among those of the whole.
fn divide(append: &Append) -> Vec<(Append, Vec<usize>)> {
    let mut parts: BTreeMap<Option<u32>, (Append, Vec<usize>)> = BTreeMap::new();
    let mut at = 0;
    for frame in &append.frames {
        let Frame::Batch(batch) = frame else { continue };
        for target in &batch.targets {
            let (part, places) = parts.entry(cell_of(target.log)).or_insert_with(|| {
                let part = Append {
                    level: append.level,
                    request: append.request,
                    pinned_bytes: append.pinned_bytes,
                    ..Append::default()
                };
                (part, Vec::new())
            });
            part.frames.push(Frame::Batch(BatchFrame {
                body: batch.body.clone(),
                targets: SmallVec::from_buf([*target]),
            }));
            places.push(at);
            at += 1;
        }
    }
    parts.into_values().collect()
}

/// Returns the outcome of an append from those of its parts: stored or refused if all of them are.
fn merge(parts: Vec<(Outcome, Vec<usize>)>) -> Outcome {
    let mut refusal = None;
    let mut placed: BTreeMap<usize, PlacedBatch> = BTreeMap::new();
    for (outcome, places) in parts {
        match outcome {
            Outcome::Committed(batches) => placed.extend(places.into_iter().zip(batches)),
            Outcome::Refused(why) => refusal = refusal.or(Some(why)),
            Outcome::Unknown => return Outcome::Unknown,
        }
    }
    match refusal {
        None => Outcome::Committed(placed.into_values().collect()),
        Some(why) if placed.is_empty() => Outcome::Refused(why),
        Some(_) => Outcome::Unknown,
    }
}

impl Journal for CellJournal {
    fn epoch(&self) -> Epoch {
        self.own.epoch()
    }

    fn allocate(&self, count: u32) -> LogId {
        self.own.allocate(count)
    }

    fn append(&self, appends: Vec<Append>) -> Ticket {
        if appends.iter().all(|append| home(append) == Home::Own) {
            return self.own.append(appends);
        }
        let (ticket, settlers) = Ticket::new(appends.len());
        let mut own = Vec::new();
        for (append, settler) in appends.into_iter().zip(settlers) {
            match home(&append) {
                Home::Own => own.push((append, settler)),
                Home::Other | Home::Divided if self.cell != 0 => {
                    let log = logs_of(&append).find(|log| cell_of(*log).is_some());
                    settler.settle(Outcome::Refused(Refusal::NoSuchLog(log.unwrap_or_default())));
                }
                // Nothing of it is stored: it would be sent again and again.
                Home::Divided if self.has_away(&append) => {
                    settler.settle(Outcome::Refused(Refusal::Closed));
                }
                Home::Divided => {
                    self.store_own(std::mem::take(&mut own));
                    let parts = divide(&append).into_iter();
                    let parts: Vec<_> = parts
                        .map(|(part, places)| (self.append(vec![part]), places))
                        .collect();
                    self.waiting.spawn(async move {
                        let mut done = Vec::with_capacity(parts.len());
                        for (ticket, places) in parts {
                            done.push((ticket.await.pop().unwrap_or(Outcome::Unknown), places));
                        }
                        settler.settle(merge(done));
                    });
                }
                Home::Mixed(log) => settler.settle(Outcome::Refused(Refusal::NoSuchLog(log))),
                Home::Other => {
                    let logs: Vec<LogId> = logs_of(&append).collect();
                    // Without such a cell the outcome is unknown.
                    if let Some(other) = logs.first().and_then(|log| self.other(*log)) {
                        other.ask(What::Append {
                            append: Box::new(append),
                            logs,
                            settler,
                        });
                    }
                }
            }
        }
        self.store_own(own);
        ticket
    }

    fn knows(&self, request: RequestId) -> bool {
        self.own.knows(request)
    }

    fn batch_bytes(&self) -> usize {
        self.own.batch_bytes()
    }

    fn bounds(&self, log: LogId) -> Option<Bounds> {
        match self.other(log) {
            Some(other) => other.bounds(log),
            None => self.own.bounds(log),
        }
    }

    fn reach(&self, logs: &[LogId]) -> Option<Reaching> {
        if logs.iter().all(|log| cell_of(*log).is_none()) {
            return None;
        }
        let of = |other: &Arc<OtherCell>| {
            let mut logs = logs.to_vec();
            logs.retain(|log| cell_of(*log) == Some(other.cell));
            if logs.is_empty() { None } else { other.reach(logs) }
        };
        let others = self.others.iter().filter(|_| self.knows_others());
        let reaching: Vec<Reaching> = others.filter_map(of).collect();
        if reaching.is_empty() {
            return None;
        }
        Some(Box::pin(async move {
            let mut all = true;
            for reached in reaching {
                all &= reached.await;
            }
            all
        }))
    }

    fn filled(&self) -> Vec<(LogId, Bounds)> {
        self.own.filled()
    }

    fn owner(&self, log: LogId) -> Option<OwnerEpoch> {
        self.own.owner(log)
    }

    fn producers(&self, log: LogId) -> Option<Vec<ProducerStatus>> {
        self.own.producers(log)
    }

    fn open_transactions(&self) -> Vec<OpenTransaction> {
        self.own.open_transactions()
    }

    fn read(&self, request: ReadRequest) -> ReadTicket {
        let mut cells = request.logs.iter().map(|from| cell_of(from.log));
        let first = cells.next().flatten();
        if !cells.all(|cell| cell == first) {
            let failed = |log| ReadError::Io {
                log,
                reason: "logs of several cells are not read together".into(),
            };
            return ReadTicket::Ready(request.logs.iter().map(|from| Err(failed(from.log))).collect());
        }
        let other = request.logs.first().and_then(|from| self.other(from.log));
        let Some(other) = other else {
            return self.own.read(request);
        };
        let (reply, answer) = oneshot::channel();
        other.ask(What::Read { request, reply });
        ReadTicket::Pending(answer)
    }

    fn find_time(&self, log: LogId, query: TimeQuery) -> TimeTicket {
        let Some(other) = self.other(log) else {
            return self.own.find_time(log, query);
        };
        let (reply, answer) = oneshot::channel();
        other.ask(What::FindTime { log, query, reply });
        TimeTicket::Pending(answer)
    }

    fn watch(&self) -> Watch {
        self.own.watch()
    }

    fn watch_log(&self, watch: &Watch, log: LogId, token: u32) -> bool {
        let Some(other) = self.other(log) else {
            return self.own.watch_log(watch, log, token);
        };
        let is_there = self
            .topics
            .get()
            .is_some_and(|topics| topics.place_elsewhere(log).is_some());
        if is_there {
            other.watch(log, watch.watcher(token));
        }
        is_there
    }

    fn space(&self) -> DiskSpace {
        self.own.space()
    }

    fn load_state(
        &self,
        space: StateSpace,
        visit: &mut dyn FnMut(StateItem<'_>),
    ) -> Result<(), StateUnreadable> {
        self.own.load_state(space, visit)
    }

    fn failure(&self) -> Option<String> {
        self.own.failure()
    }

    fn close(&self) {
        self.own.close();
    }
}
