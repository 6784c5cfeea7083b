//! Transactions over several cells of a cluster. Their coordinator is in the first cell.
//!
//! ```text
//! coordinator   partition is stored ──▶ … ──▶ end is stored ──┬──▶ all cells have it ──▶ Ended
//!                                             (it decides)    │            ▲
//! other cell    batches: the coordinator is asked ──▶ …       └─ control batches
//! ```
//!
//! The end is one append in the coordinator's journal, with the control batches of its own logs. Other cells
//! get theirs behind it, as often as it takes, and nothing else of that producer begins before: batches of
//! two transactions may have the same epoch. Readers of committed batches of a cell see the transaction from
//! its control batch there on. Commits of groups of other cells wait here, too, and go to their cells with
//! the control batches.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use stafett_groups::PendingCommits;
use stafett_model::{LogId, ProducerId, TransactionEnd};
use stafett_store::{NotStored, only_outcome, spaces};
use stafett_topics::{Topic, Topics, cell_of};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::end::Next;
use crate::producer::{Instance, Place, Producer, Status};
use crate::registry::{Entry, Transactions};
use crate::stored;

/// Longest time that the answer to an end waits for the other cells.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// Pause before another attempt to store that all cells have their control batches.
const PAUSE: Duration = Duration::from_secs(1);
/// Most control batches for a cell that go together.
const TOGETHER_MAX: usize = 500;

/// Bytes of the commits of groups of other cells that a transaction may have: they go to a cell in one
/// message.
pub const COMMITS_ELSEWHERE_BYTES_MAX: usize = 8 << 20;

/// Partitions that a transaction may append to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parts {
    /// Logs of this cell.
    pub logs: Vec<LogId>,
    /// Partitions in other cells.
    pub elsewhere: Vec<Place>,
}

impl Parts {
    /// Returns parts of this cell alone.
    pub fn of_logs(logs: impl IntoIterator<Item = LogId>) -> Self {
        Self {
            logs: logs.into_iter().collect(),
            elsewhere: Vec::new(),
        }
    }

    /// Adds a partition. False if the topic has none of this number.
    pub fn add(&mut self, topic: &Topic, partition: u32) -> bool {
        match topic.log(partition) {
            Some(log) if cell_of(log).is_none() => self.logs.push(log),
            Some(_) => self.elsewhere.push((topic.id, partition)),
            None => return false,
        }
        true
    }
}

/// Control batches of an end that is stored, and commits. Other cells do not have all of them.
#[derive(Debug, Clone)]
pub(crate) struct Owed {
    /// Producer and epoch of the control batches.
    pub(crate) by: Instance,
    pub(crate) end: TransactionEnd,
    /// Status of the producer once all cells have them.
    pub(crate) after: Status,
    pub(crate) places: BTreeSet<Place>,
    /// Commits of groups of other cells.
    pub(crate) commits: Vec<PendingCommits>,
    /// Cells that have not said that they have them.
    cells: BTreeSet<u32>,
    /// Number of the transaction since the start.
    number: u64,
    /// Cancelled once all cells have them.
    pub(crate) done: CancellationToken,
}

impl Owed {
    pub(crate) fn new(by: Instance, after: Status, places: BTreeSet<Place>) -> Self {
        let end = match after {
            Status::Ended(end) | Status::Ending(end) => end,
            // Another instance of the producer is to begin.
            Status::Empty | Status::Ongoing | Status::Gone => TransactionEnd::Abort,
        };
        Self {
            by,
            end,
            after,
            places,
            commits: Vec::new(),
            cells: BTreeSet::new(),
            number: 0,
            done: CancellationToken::new(),
        }
    }
}

/// Producers that owe control batches, by the cell that lacks them.
pub(crate) type OwedByCell = HashMap<u32, Vec<(Arc<str>, Entry)>>;

/// A stored end. Other cells may not have their control batches yet.
pub(crate) struct StoredEnd {
    pub(crate) instance: Instance,
    pub(crate) marked: Option<CancellationToken>,
}

impl StoredEnd {
    /// Waits until all cells have their control batches, or for a second: a cell may have no owner for some
    /// time. Returns the instance as which the producer goes on.
    pub(crate) async fn answerable(self) -> Instance {
        if let Some(marked) = self.marked {
            // The answer is the same after both.
            let _ = timeout(ANSWER_WAIT, marked.cancelled()).await;
        }
        self.instance
    }
}

/// End of a transaction, for its partitions in one cell.
#[derive(Debug, Clone)]
pub struct Marker {
    /// Producer and epoch of the control batch.
    pub by: Instance,
    pub end: TransactionEnd,
    /// Partitions, by topic.
    pub partitions: Vec<(Arc<Topic>, Vec<u32>)>,
    /// Commits of groups of the cell.
    pub commits: Vec<PendingCommits>,
    of: (Arc<str>, Entry),
    number: u64,
}

/// Returns the cell of a partition in another one. `None` if the topic is gone.
fn cell(topics: &Topics, (topic, partition): Place) -> Option<u32> {
    cell_of(topics.with_id(topic)?.log(partition)?)
}

impl Producer {
    fn owed_of(&mut self, number: u64) -> Option<&mut Owed> {
        self.owed.as_mut().filter(|owed| owed.number == number)
    }

    /// Returns the control batches and commits that other cells are owed once an end is stored. `by`: their
    /// producer and epoch.
    pub(crate) fn owes(&self, by: Instance, next: Next, topics: &Topics) -> Option<Owed> {
        let places = self.elsewhere.keys().copied();
        let places: BTreeSet<_> = places.filter(|place| cell(topics, *place).is_some()).collect();
        let is_owed = |pending: &&PendingCommits| next.end == TransactionEnd::Commit && pending.cell != 0;
        let commits: Vec<_> = self.pending.iter().filter(is_owed).cloned().collect();
        (!places.is_empty() || !commits.is_empty()).then(|| Owed {
            commits,
            ..Owed::new(by, next.status, places)
        })
    }
}

impl Transactions {
    /// Waits until a cell is owed control batches, and returns these. They have to be reported by
    /// [`Self::marked`] once that cell has stored them.
    pub async fn owed_to(&self, cell: u32) -> Vec<Marker> {
        let mut owed = self.owed.subscribe();
        loop {
            let mut found = Vec::new();
            self.owed.send_if_modified(|by_cell| {
                if let Some(entries) = by_cell.get_mut(&cell) {
                    found = entries.drain(..entries.len().min(TOGETHER_MAX)).collect();
                }
                false
            });
            if !found.is_empty() {
                return found.into_iter().filter_map(|of| self.marker(cell, of)).collect();
            }
            if owed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn marker(&self, of_cell: u32, of: (Arc<str>, Entry)) -> Option<Marker> {
        let topics = self.catalog.topics();
        let producer = of.1.lock();
        let owed = producer.owed.as_ref()?;
        let mut partitions: Vec<(Arc<Topic>, Vec<u32>)> = Vec::new();
        for (id, partition) in &owed.places {
            if cell(topics, (*id, *partition)) != Some(of_cell) {
                continue;
            }
            match partitions.last_mut() {
                Some((topic, numbers)) if topic.id == *id => numbers.push(*partition),
                Some(_) | None => {
                    partitions.extend(topics.with_id(*id).map(|topic| (topic, vec![*partition])));
                }
            }
        }
        let of_cell = owed.commits.iter().filter(|pending| pending.cell == of_cell);
        let commits = of_cell.cloned().collect();
        let (by, end, number) = (owed.by, owed.end, owed.number);
        drop(producer);
        Some(Marker {
            by,
            end,
            partitions,
            commits,
            of,
            number,
        })
    }

    /// A cell has stored control batches. Transactions of which none are missing have ended, once that is
    /// stored.
    pub async fn marked(&self, cell: u32, markers: Vec<Marker>) {
        let mut ended = Vec::new();
        for marker in markers {
            let mut producer = marker.of.1.lock();
            let is_last = producer.owed_of(marker.number).is_some_and(|owed| {
                owed.cells.remove(&cell);
                owed.cells.is_empty()
            });
            drop(producer);
            if is_last {
                ended.push(marker);
            }
        }
        while !ended.is_empty() {
            match self.store_marked(&ended).await {
                Ok(()) => {
                    for marker in std::mem::take(&mut ended) {
                        self.on_marked(&marker);
                    }
                }
                Err(NotStored::Refused(_)) => sleep(PAUSE).await,
                // The journal has failed. The next start marks once more.
                Err(NotStored::Unknown) => return,
            }
        }
    }

    fn on_marked(
        &self,
        Marker {
            of: (id, entry),
            number,
            ..
        }: &Marker,
    ) {
        let mut producer = entry.lock();
        if producer.owed_of(*number).is_none() {
            return;
        }
        if let Some(owed) = producer.owed.take() {
            producer.status = owed.after;
            if !owed.commits.is_empty() {
                self.commits_ended();
            }
            self.metrics.owed.dec();
            self.on_ended(id, owed.end);
            owed.done.cancel();
        }
    }

    async fn store_marked(&self, ended: &[Marker]) -> Result<(), NotStored> {
        let row = |Marker {
                       of: (id, entry),
                       number,
                       ..
                   }: &Marker| {
            let mut producer = entry.lock();
            let after = producer.owed_of(*number)?.after;
            let row = stored::encode(
                (producer.instance, producer.before),
                producer.timeout_ms,
                after,
                producer.changed_at,
                None,
            );
            Some(spaces::TRANSACTIONS.put(id.as_bytes().to_vec(), row))
        };
        let ticket = self.append_state(ended.iter().filter_map(row));
        only_outcome(ticket.await.first())
    }

    /// Returns which of these producers have a transaction with the partition of which other cells, or this
    /// one, do not know the end.
    pub fn are_open(&self, asked: &[(ProducerId, Place)]) -> Vec<bool> {
        let mut open: HashSet<(ProducerId, Place)> = HashSet::new();
        for (_, entry) in self.open_entries() {
            let producer = entry.lock();
            let ongoing = producer.instance.producer;
            open.extend(producer.elsewhere.keys().map(|place| (ongoing, *place)));
            if let Some(owed) = &producer.owed {
                open.extend(owed.places.iter().map(|place| (owed.by.producer, *place)));
            }
        }
        asked.iter().map(|place| open.contains(place)).collect()
    }

    /// Has cells get the control batches that a producer owes them.
    pub(crate) fn owe(&self, of: &(Arc<str>, Entry), producer: &mut Producer, mut owed: Owed) {
        let topics = self.catalog.topics();
        owed.cells = owed
            .places
            .iter()
            .filter_map(|place| cell(topics, *place))
            .chain(owed.commits.iter().map(|pending| pending.cell))
            .collect();
        if owed.cells.is_empty() {
            // All topics were deleted meanwhile.
            producer.status = owed.after;
            self.on_ended(&of.0, owed.end);
            owed.done.cancel();
            return;
        }
        owed.number = producer.number;
        producer.status = Status::Ending(owed.end);
        self.metrics.owed.inc();
        self.owed.send_modify(|by_cell| {
            for cell in &owed.cells {
                let of = (Arc::clone(&of.0), Arc::clone(&of.1));
                by_cell.entry(*cell).or_default().push(of);
            }
        });
        producer.owed = Some(owed);
    }

    /// After a start: has cells get the control batches that they may not have yet. All topics are known.
    pub(crate) fn owe_again(&self) {
        let topics = self.catalog.topics();
        for of in self.entries() {
            let mut producer = of.1.lock();
            let Some(mut owed) = producer.owed.take() else {
                continue;
            };
            owed.places.retain(|place| cell(topics, *place).is_some());
            if !owed.places.is_empty() || !owed.commits.is_empty() {
                self.owe(&of, &mut producer, owed);
            }
        }
    }
}
