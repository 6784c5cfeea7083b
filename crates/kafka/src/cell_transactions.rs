//! Transactions over the cells of a cluster, between their nodes: a cell asks the first one, where all
//! coordinators are, whether batches are part of a transaction, and has it keep commits (`cell_commits`); the
//! first one brings control batches and commits.
//!
//! ```text
//! message, both ways: u32 bytes, big-endian | JSON
//! ```
//!
//! Connections are between nodes, which trust each other. Each message has its answer before the next one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stafett_broker::Broker;
use stafett_groups::PendingCommits;
use stafett_kafka_wire::ErrorCode;
use stafett_model::{Lock, LogId, ProducerId, TransactionEnd};
use stafett_net::{Connection, Duplex, Protocol, ToCell};
use stafett_topics::{Append, Ticket, TopicId, Topics, cell_of};
use stafett_transactions::{
    COMMITS_ELSEWHERE_BYTES_MAX, Coordinator, Instance, Marker, Parts, Place, RemoteMarker, TransactionError,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::call::Close;
use crate::cell_commits::{self, Commits};
use crate::cells::Cells;
use crate::context::KafkaContext;
use crate::error;
use crate::transaction_operation::Outcomes;

/// Largest message.
const MESSAGE_BYTES_MAX: u32 = 64 << 20;
/// Most partitions of control batches and commits in a message, unless it has one alone.
const PARTITIONS_MAX: usize = 20_000;
/// Most questions to the first cell at once, each over a connection that is kept.
const ASKING_MAX: usize = 32;
/// Time for an answer, below the time-outs of clients' libraries.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// Pause before another attempt to reach a cell.
const PAUSE: Duration = Duration::from_millis(100);
/// Pause before control batches come again that a cell could not store: its disk may be full.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// Time between two looks for transactions that their coordinator does not know. Several looks go by before
/// one is aborted: a former coordinator has ended meanwhile.
const LOOK: Duration = Duration::from_secs(20);

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// Are these partitions part of the transaction? They are added if `adds`. Answered by the epoch of the
    /// coordinator's cell, and an error code.
    Check {
        id: String,
        by: Producer,
        adds: bool,
        places: Vec<Partition>,
    },
    /// Are these partitions part of an open transaction of the producer? Answered for each.
    Open(Vec<(i64, Partition)>),
    /// Keep commits of a group of another cell until the end of the transaction. Answered as `Check` is.
    Commit {
        id: String,
        by: Producer,
        adds: bool,
        /// Version of the client's request.
        version: i16,
        commits: Commits,
    },
    /// Which partitions of these groups have commits that wait? Answered for each group.
    Pending(Vec<String>),
    /// Store control batches, and commits. Answered for each: is it stored?
    Mark { from: Coordinator, markers: Vec<Marked> },
}

/// Id and epoch of a producer.
pub(crate) type Producer = (i64, i16);
/// Id of a topic, and a partition.
pub(crate) type Partition = (u128, u32);

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Marked {
    by: Producer,
    commits: bool,
    places: Vec<Partition>,
    /// Commits of groups of the cell.
    #[serde(default)]
    of_groups: Vec<Commits>,
}

/// Connections to other cells about transactions.
#[derive(Debug)]
pub(crate) struct ToCoordinators {
    cells: Arc<dyn Cells>,
    /// Connections to the first cell that nothing waits for.
    kept: Lock<Vec<ToCell>>,
    /// Permits for questions.
    asking: Semaphore,
}

impl ToCoordinators {
    pub(crate) fn new(cells: Arc<dyn Cells>) -> Self {
        Self {
            cells,
            kept: Lock::default(),
            asking: Semaphore::new(ASKING_MAX),
        }
    }

    /// Asks the first cell.
    pub(crate) async fn ask<A: DeserializeOwned>(&self, message: &Message) -> io::Result<A> {
        let answered = timeout(ANSWER_MAX, self.ask_once_or_twice(message)).await;
        answered.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn ask_once_or_twice<A: DeserializeOwned>(&self, message: &Message) -> io::Result<A> {
        let _turn = self.asking.acquire().await.map_err(io::Error::other)?;
        let kept = self.kept.lock().pop();
        if let Some(mut to) = kept
            && let Ok(answer) = exchange(&mut to, message).await
        {
            self.kept.lock().push(to);
            return Ok(answer);
        }
        // The former owner may have ended its connections.
        self.kept.lock().clear();
        let mut to = reach(&*self.cells, 0).await?;
        let answer = exchange(&mut to, message).await?;
        self.kept.lock().push(to);
        Ok(answer)
    }

    /// Appends batches of a transaction, one to each log, once its coordinator says that they are part of it.
    pub(crate) async fn append(&self, broker: &Broker, joining: Joining) -> Result<Ticket, NotPart> {
        let logs: Vec<LogId> = joining.parts.iter().map(|(log, _)| *log).collect();
        let places = joining.parts.iter();
        let question = Message::Check {
            id: joining.id.clone(),
            by: (joining.by.producer.0, joining.by.epoch),
            adds: joining.adds,
            places: places
                .map(|(_, (topic, partition))| (topic.0, *partition))
                .collect(),
        };
        let ask = async {
            match self.ask::<(i32, i16)>(&question).await {
                Ok((epoch, 0)) => Ok(epoch),
                Ok((_, code)) => Err(NotPart(
                    ErrorCode::try_from(code).unwrap_or(ErrorCode::UnknownServerError),
                )),
                Err(why) => {
                    tracing::debug!(%why, "the coordinator of a transaction does not answer");
                    // Producers try it again.
                    Err(NotPart(ErrorCode::NotEnoughReplicas))
                }
            }
        };
        let remote = broker.remote_transactions();
        remote
            .append(&joining.id, joining.by, &logs, joining.appends, ask)
            .await
    }
}

/// Batches that are to join a transaction.
pub(crate) struct Joining {
    pub id: String,
    pub by: Instance,
    /// True if the partitions are added to the transaction.
    pub adds: bool,
    /// Log and place of each batch.
    pub parts: Vec<(LogId, Place)>,
    pub appends: Vec<Append>,
}

impl Joining {
    /// Appends the batches, and waits for their outcomes.
    pub(crate) async fn append(self, shared: &KafkaContext) -> Result<Outcomes, NotPart> {
        let coordinators = shared.coordinators.as_ref();
        let coordinators = coordinators.ok_or(NotPart(ErrorCode::NotEnoughReplicas))?;
        Ok(coordinators.append(&shared.broker, self).await?.await)
    }
}

/// Reason why batches are not part of a transaction.
#[derive(Debug)]
pub(crate) struct NotPart(pub ErrorCode);

impl From<TransactionError> for NotPart {
    fn from(why: TransactionError) -> Self {
        Self(error::transaction(&why, false).unwrap_or(ErrorCode::NotEnoughReplicas))
    }
}

async fn reach(cells: &dyn Cells, cell: u32) -> io::Result<ToCell> {
    let reached = cells.reach(cell).await;
    reached.ok_or_else(|| io::Error::other("the cell has no owner"))
}

/// Sends a message, and returns its answer.
async fn exchange<A: DeserializeOwned>(to: &mut ToCell, message: &Message) -> io::Result<A> {
    let ToCell { stream, lost } = to;
    let answered = async {
        write(stream, message).await?;
        let answer = read(stream).await?;
        answer.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    };
    tokio::select! {
        biased;
        () = lost => Err(io::Error::other("the cell has lost its node")),
        answered = timeout(ANSWER_MAX, answered) => answered.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
    }
}

async fn write<T: Serialize>(stream: &mut (impl Duplex + ?Sized), message: &T) -> io::Result<()> {
    let json = serde_json::to_vec(message)?;
    let bytes = u32::try_from(json.len())
        .ok()
        .filter(|bytes| *bytes <= MESSAGE_BYTES_MAX);
    stream
        .write_u32(bytes.ok_or(io::ErrorKind::InvalidInput)?)
        .await?;
    stream.write_all(&json).await?;
    stream.flush().await
}

/// Reads a message. `None` at the end of the connection.
async fn read<T: DeserializeOwned>(stream: &mut (impl Duplex + ?Sized)) -> io::Result<Option<T>> {
    let bytes = match stream.read_u32().await {
        Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        bytes => bytes?,
    };
    if bytes > MESSAGE_BYTES_MAX {
        return Err(io::Error::other("a message of another cell is too long"));
    }
    let mut json = Vec::new();
    stream.take(bytes.into()).read_to_end(&mut json).await?;
    Ok(Some(serde_json::from_slice(&json)?))
}

/// Serves other cells' questions and control batches. Connections of clients must not reach it.
#[derive(Debug)]
pub struct TransactionDoor {
    broker: Arc<Broker>,
    cells: Arc<dyn Cells>,
}

impl TransactionDoor {
    pub fn new(broker: &Arc<Broker>, cells: Arc<dyn Cells>) -> Self {
        Self {
            broker: Arc::clone(broker),
            cells,
        }
    }

    pub(crate) async fn serve(&self, stream: &mut impl Duplex, drain: &CancellationToken) -> io::Result<()> {
        while let Some(message) = drain
            .run_until_cancelled(read(stream))
            .await
            .transpose()?
            .flatten()
        {
            match message {
                Message::Check { id, by, adds, places } => {
                    let code = self.check(&id, by, adds, &places).await;
                    let code = code.map_err(io::Error::other)?.code();
                    self.answer(stream, &(self.cells.epoch(), code)).await?;
                }
                Message::Commit {
                    id,
                    by,
                    adds,
                    version,
                    commits,
                } => {
                    let kept = cell_commits::keep(&self.broker, &id, by, (adds, version), commits).await;
                    let code = kept.map_err(io::Error::other)?.code();
                    self.answer(stream, &(self.cells.epoch(), code)).await?;
                }
                Message::Pending(groups) => {
                    let waiting = cell_commits::waiting(&self.broker, &groups);
                    self.answer(stream, &waiting).await?;
                }
                Message::Open(asked) => self.answer(stream, &self.open(asked)).await?,
                Message::Mark { from, markers } => {
                    let stored = self.mark(from, markers).await;
                    self.answer(stream, &stored).await?;
                }
            }
        }
        Ok(())
    }

    async fn answer<A: Serialize>(&self, stream: &mut impl Duplex, answer: &A) -> io::Result<()> {
        if !self.cells.is_owner() {
            return Err(io::Error::other("another node may own the cell"));
        }
        write(stream, answer).await
    }

    async fn check(
        &self,
        id: &str,
        (producer, epoch): Producer,
        adds: bool,
        places: &[Partition],
    ) -> Result<ErrorCode, Close> {
        let by = Instance {
            producer: ProducerId(producer),
            epoch,
        };
        let mut parts = Parts::default();
        for (topic, partition) in places {
            let topic = self.broker.topics().with_id(TopicId(*topic));
            if !topic.is_some_and(|topic| parts.add(&topic, *partition)) {
                return Ok(ErrorCode::UnknownTopicOrPartition);
            }
        }
        let transactions = self.broker.transactions();
        let checked = if adds {
            transactions.add_parts(id, by, parts).await
        } else {
            transactions.check_parts(id, by, &parts)
        };
        match checked {
            Ok(()) => Ok(ErrorCode::None),
            // Earlier clients try this again, and do not know the other.
            Err(TransactionError::Busy) if !adds => Ok(ErrorCode::NotEnoughReplicas),
            Err(why) => error::transaction(&why, false),
        }
    }

    fn open(&self, asked: Vec<(i64, Partition)>) -> Vec<bool> {
        let asked = asked.into_iter();
        let asked: Vec<_> = asked
            .map(|(producer, (topic, partition))| (ProducerId(producer), (TopicId(topic), partition)))
            .collect();
        self.broker.transactions().are_open(&asked)
    }

    async fn mark(&self, from: Coordinator, mut markers: Vec<Marked>) -> Vec<bool> {
        // Nothing of this coordinator may have come to this owner of the cell before.
        if from.0 < self.cells.epoch_of_first() {
            return vec![false; markers.len()];
        }
        let commits = markers
            .iter_mut()
            .map(|marked| std::mem::take(&mut marked.of_groups));
        let are_committed = cell_commits::store_ended(&self.broker, commits).await;
        let topics = self.broker.topics();
        let marker = |marked: Marked| RemoteMarker {
            by: Instance {
                producer: ProducerId(marked.by.0),
                epoch: marked.by.1,
            },
            end: if marked.commits {
                TransactionEnd::Commit
            } else {
                TransactionEnd::Abort
            },
            logs: marked
                .places
                .iter()
                .filter_map(|place| log(topics, *place))
                .collect(),
        };
        let due = markers.into_iter().zip(&are_committed);
        let due: Vec<_> = due
            .filter_map(|(marked, is_committed)| is_committed.then(|| marker(marked)))
            .collect();
        let outcomes = self.broker.remote_transactions().mark(from, &due).await;
        let mut outcomes = outcomes.into_iter();
        let are_committed = are_committed.into_iter();
        are_committed
            .map(|is_committed| is_committed && outcomes.next() == Some(true))
            .collect()
    }
}

/// Returns the log of a partition of this cell. `None` if the topic is gone.
fn log(topics: &Topics, (topic, partition): Partition) -> Option<LogId> {
    let log = topics.with_id(TopicId(topic))?.log(partition)?;
    cell_of(log).is_none().then_some(log)
}

impl Protocol for TransactionDoor {
    async fn connection(&self, mut connection: Connection) {
        if let Err(why) = self.serve(&mut connection.stream, &connection.drain).await {
            tracing::debug!(%why, "a connection of another cell about transactions ended");
        }
    }
}

/// At the first cell: brings control batches to another one. Does not return.
pub async fn mark_cell(broker: Arc<Broker>, cells: Arc<dyn Cells>, cell: u32) {
    let transactions = broker.transactions();
    let (mut markers, mut way) = (Vec::new(), None);
    loop {
        if markers.is_empty() {
            markers = transactions.owed_to(cell).await;
            continue;
        }
        let part = first_part(&markers);
        let count = part.len();
        match bring(&*cells, cell, &mut way, part).await {
            Ok(stored) => {
                let mut stored = stored.into_iter();
                let (done, rest): (Vec<_>, Vec<_>) =
                    markers.drain(..count).partition(|_| stored.next() == Some(true));
                let is_refused = !rest.is_empty();
                markers.extend(rest);
                transactions.marked(cell, done).await;
                if is_refused {
                    tracing::debug!(cell, "control batches are not stored yet");
                    sleep(REFUSED_PAUSE).await;
                }
            }
            Err(why) => {
                tracing::debug!(%why, cell, "control batches are not brought yet");
                way = None;
                sleep(PAUSE).await;
            }
        }
    }
}

/// Returns the first markers, which go together: at least one, which may be large.
fn first_part(markers: &[Marker]) -> &[Marker] {
    let (mut partitions, mut bytes) = (0, 0);
    let fits = |marker: &&Marker| {
        let of_topics = marker.partitions.iter().map(|(_, numbers)| numbers.len());
        let commits = marker.commits.iter().map(|pending| pending.commits.len());
        partitions += of_topics.sum::<usize>() + commits.sum::<usize>();
        bytes += marker.commits.iter().map(PendingCommits::bytes).sum::<usize>();
        partitions <= PARTITIONS_MAX && bytes <= COMMITS_ELSEWHERE_BYTES_MAX
    };
    let count = markers.iter().take_while(fits).count().max(1);
    markers.get(..count).unwrap_or(markers)
}

/// Brings control batches to a cell, over a connection that is kept. Returns which are stored. Once one came
/// over the connection, those of earlier ones are late, and refused.
async fn bring(
    cells: &dyn Cells,
    cell: u32,
    way: &mut Option<(Coordinator, ToCell)>,
    markers: &[Marker],
) -> io::Result<Vec<bool>> {
    static CONNECTIONS: AtomicU64 = AtomicU64::new(1);
    let (from, to) = if let Some(way) = way {
        way
    } else {
        let from = (cells.epoch(), CONNECTIONS.fetch_add(1, Ordering::Relaxed));
        way.insert((from, reach(cells, cell).await?))
    };
    let message = Message::Mark {
        from: *from,
        markers: markers.iter().map(marked).collect(),
    };
    exchange(to, &message).await
}

fn marked(marker: &Marker) -> Marked {
    let places = marker
        .partitions
        .iter()
        .flat_map(|(topic, numbers)| numbers.iter().map(|number| (topic.id.0, *number)));
    Marked {
        by: (marker.by.producer.0, marker.by.epoch),
        commits: marker.end == TransactionEnd::Commit,
        places: places.collect(),
        of_groups: marker.commits.iter().map(Into::into).collect(),
    }
}

/// At another cell than the first: aborts transactions that their coordinator does not know. Does not return.
pub async fn abort_abandoned(broker: Arc<Broker>, cells: Arc<dyn Cells>) {
    let first = ToCoordinators::new(cells);
    loop {
        sleep(LOOK).await;
        let ask = async |asked: &[(ProducerId, Place)]| {
            let asked = asked.iter();
            let asked = asked.map(|(producer, (topic, partition))| (producer.0, (topic.0, *partition)));
            first.ask(&Message::Open(asked.collect())).await.ok()
        };
        broker.remote_transactions().abort_abandoned(ask).await;
    }
}
