//! Records of one partition, read ahead by a bounded number of batches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stafett_kafka_client::batches::{Aborted, Batches};
use stafett_kafka_client::{
    Client, ClientError, ErrorCode, FetchSettings, Fetcher, Place as Position, Topic,
};
use stafett_model::{Lock, Offset, StoredRecord, records};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use crate::amqp::Feed;
use crate::definition::{Begin, OnGap};
use crate::target::{Place, Start};

/// Batches that wait for the pump. Behind them nothing is read: back-pressure is lag.
const AHEAD: usize = 2;
/// Time of empty answers after which a record is gone that was there when its batch was read.
const PATIENCE: Duration = Duration::from_secs(10);
const PARTITION_BYTES: i32 = 1 << 20;
/// Records of one batch, decompressed, at most.
const BATCH_BYTES_MAX: usize = 256 << 20;

/// Records of one answer, and the offset behind it.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) records: Vec<StoredRecord>,
    pub(crate) next: u64,
    /// Offset behind the last record of the partition.
    pub(crate) end: u64,
}

/// Reason why reading ended.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("records {from} to {to} of {place} are gone: retention was faster than the sink")]
    Gap { place: Place, from: u64, to: u64 },
    /// There is another topic of that name now.
    #[error("topic_made_again: the topic of {0} was deleted and made again")]
    MadeAgain(Place),
    #[error("{0}")]
    Unreadable(String),
}

/// Records of a queue that are not in the target yet, for dead letters.
pub(crate) type Unwritten = Arc<Lock<VecDeque<StoredRecord>>>;

/// Reader of a partition or a queue.
#[derive(Debug)]
pub(crate) enum Reader {
    /// A task that reads; it ends with this.
    Log {
        pieces: mpsc::Receiver<Result<Piece, ReadError>>,
        _task: JoinSet<()>,
    },
    Queue {
        feed: Feed,
        /// Offset of the first message.
        base: u64,
        unwritten: Unwritten,
    },
}

fn index(place: &Place) -> i32 {
    i32::try_from(place.partition).unwrap_or(i32::MAX)
}

/// Returns the id of a topic, where brokers give ids.
fn id_of(topic: &Topic) -> Option<Uuid> {
    (!topic.id.is_zero()).then(|| Uuid::from_bytes(topic.id.0))
}

/// Returns a place as its broker has it, with the offset at which a target begins that knows nothing of it;
/// and the end of its committed records.
pub(crate) async fn begin(client: &Client, place: &Place, begin: Begin) -> Result<(Start, u64), ClientError> {
    let topic = client.topic(&place.topic).await?;
    let earliest = offset(client, &topic, place, Position::Start).await?.unwrap_or(0);
    let end = offset(client, &topic, place, Position::CommittedEnd).await?;
    let end = end.unwrap_or(earliest);
    let next = match begin {
        Begin::Earliest => earliest,
        Begin::Latest => end,
        Begin::Time(time) => offset(client, &topic, place, Position::Time(time))
            .await?
            .unwrap_or(end),
    };
    let start = Start {
        next,
        earliest,
        topic: id_of(&topic),
    };
    Ok((start, end))
}

async fn offset(
    client: &Client,
    topic: &Topic,
    place: &Place,
    position: Position,
) -> Result<Option<u64>, ClientError> {
    let offsets = client.offsets(&[topic], position).await?;
    let at = topic
        .partitions
        .iter()
        .position(|partition| partition.index == index(place));
    let found = at.and_then(|at| offsets.first()?.get(at).copied().flatten());
    Ok(found.and_then(|offset| u64::try_from(offset).ok()))
}

impl Reader {
    /// Reads from an offset on, of the topic with an id; of any without one. It has a connection of its own:
    /// polls of idle partitions would hold up all others.
    pub(crate) fn spawn(client: &Client, place: Place, id: Option<Uuid>, from: u64, on_gap: OnGap) -> Self {
        let (sender, pieces) = mpsc::channel(AHEAD);
        let client = client.another();
        let mut task = JoinSet::new();
        task.spawn(async move {
            if let Err(why) = read(client, &place, id, from, on_gap, &sender).await {
                // The pump is gone if nothing takes it.
                let _ = sender.send(Err(why)).await;
            }
        });
        Self::Log { pieces, _task: task }
    }

    /// Returns the next piece. `None` once reading has ended. Safe to drop.
    pub(crate) async fn next(&mut self) -> Option<Result<Piece, ReadError>> {
        match self {
            Self::Log { pieces, .. } => pieces.recv().await,
            Self::Queue {
                feed,
                base,
                unwritten,
            } => {
                let mut records = feed.recv().await?;
                for record in &mut records {
                    record.offset.0 += *base;
                }
                let next = records.last().map_or(*base, |last| last.offset.0 + 1);
                *base = next;
                unwritten.lock().extend(records.iter().cloned());
                Some(Ok(Piece {
                    records,
                    next,
                    end: next,
                }))
            }
        }
    }
}

async fn read(
    client: Client,
    place: &Place,
    id: Option<Uuid>,
    mut from: u64,
    on_gap: OnGap,
    pieces: &mpsc::Sender<Result<Piece, ReadError>>,
) -> Result<(), ReadError> {
    loop {
        let topic = client.topic(&place.topic).await?;
        if id.is_some() && id != id_of(&topic) {
            return Err(ReadError::MadeAgain(place.clone()));
        }
        let start = offset(&client, &topic, place, Position::Start)
            .await?
            .unwrap_or(0);
        if from < start {
            match on_gap {
                OnGap::Stop => {
                    let place = place.clone();
                    return Err(ReadError::Gap {
                        place,
                        from,
                        to: start,
                    });
                }
                OnGap::Skip => from = start,
            }
        }
        // Tells that reading goes on, and where the records end.
        let end = offset(&client, &topic, place, Position::CommittedEnd).await?;
        let first = Piece {
            records: Vec::new(),
            next: from,
            end: end.unwrap_or(from),
        };
        if pieces.send(Ok(first)).await.is_err() {
            return Ok(());
        }
        match follow(&client, &topic, place, &mut from, pieces).await {
            // Retention may have been faster meanwhile: the start is looked at again.
            Err(ReadError::Client(why)) if why.code() == Some(ErrorCode::OffsetOutOfRange) => {
                let end = offset(&client, &topic, place, Position::End).await?.unwrap_or(0);
                if from > end {
                    let text = format!("the target is at {from} of {place}, and the topic ends at {end}");
                    return Err(ReadError::Unreadable(text));
                }
            }
            ended => return ended,
        }
    }
}

fn fetcher(client: &Client, topic: &Topic, place: &Place, from: u64) -> Fetcher {
    let settings = FetchSettings {
        partition_bytes_max: PARTITION_BYTES,
        committed: true,
        ..FetchSettings::default()
    };
    let mut fetcher = Fetcher::new(client.clone(), settings);
    fetcher.add(topic, index(place), i64::try_from(from).unwrap_or(i64::MAX));
    fetcher
}

/// Reads until the receiver is gone.
async fn follow(
    client: &Client,
    topic: &Topic,
    place: &Place,
    from: &mut u64,
    pieces: &mpsc::Sender<Result<Piece, ReadError>>,
) -> Result<(), ReadError> {
    let mut fetcher = fetcher(client, topic, place, *from);
    loop {
        for fetched in fetcher.next().await? {
            let mut piece = decode(fetched.bytes, fetched.aborted, *from)
                .map_err(|why| ReadError::Unreadable(format!("{place}: {why}")))?;
            piece.end = u64::try_from(fetched.end).unwrap_or(0);
            *from = piece.next;
            if pieces.send(Ok(piece)).await.is_err() {
                return Ok(());
            }
        }
        if pieces.is_closed() {
            return Ok(());
        }
    }
}

/// Returns the records of an answer, without those before `from` and of aborted transactions.
fn decode(bytes: Bytes, aborted: Vec<(i64, i64)>, from: u64) -> Result<Piece, stafett_model::BatchError> {
    let mut aborted = Aborted::new(aborted);
    let mut found = Vec::new();
    let mut next = from;
    for batch in Batches::new(bytes) {
        let (header, bytes) = batch?;
        let behind = header.base_offset + i64::from(header.last_offset_delta) + 1;
        let is_aborted = aborted.has(&header, &bytes);
        if !header.is_control() && !is_aborted {
            let mut batch = records(&bytes, BATCH_BYTES_MAX)?;
            batch.seek(Offset(from))?;
            for record in batch {
                found.push(record?);
            }
        }
        next = next.max(u64::try_from(behind).unwrap_or(0));
    }
    Ok(Piece {
        records: found,
        next,
        end: 0,
    })
}

/// Returns the records at offsets, in order, as far as they are still there. Offsets ascend.
///
/// A broker that does not answer is an error: only its answers tell that a record is gone.
pub(crate) async fn records_at(
    client: &Client,
    place: &Place,
    id: Option<Uuid>,
    offsets: &[u64],
) -> Result<Vec<StoredRecord>, ReadError> {
    let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else {
        return Ok(Vec::new());
    };
    let (mut found, mut from) = (Vec::new(), *first);
    loop {
        let topic = client.topic(&place.topic).await?;
        if id.is_some() && id != id_of(&topic) {
            return Ok(found);
        }
        let start = offset(client, &topic, place, Position::Start).await?;
        from = from.max(start.unwrap_or(0));
        if from > *last {
            return Ok(found);
        }
        let mut fetcher = fetcher(client, &topic, place, from);
        let mut silence = Silence::new(Instant::now());
        let ended = loop {
            let answers = match fetcher.next().await {
                Ok(answers) => answers,
                Err(why) => break why,
            };
            if silence.lasts(answers.is_empty(), fetcher.is_failing(), Instant::now()) {
                return Ok(found);
            }
            for answer in answers {
                let piece = decode(answer.bytes, answer.aborted, from)
                    .map_err(|why| ReadError::Unreadable(format!("{place}: {why}")))?;
                let wanted = |record: &StoredRecord| offsets.binary_search(&record.offset.0).is_ok();
                found.extend(piece.records.into_iter().filter(wanted));
                from = piece.next;
            }
            if from > *last {
                return Ok(found);
            }
        };
        if ended.code() != Some(ErrorCode::OffsetOutOfRange) {
            return Err(ended.into());
        }
    }
}

/// Time in which a broker has answered that nothing is there: compaction may have removed the last record,
/// with nothing behind it.
struct Silence(Instant);

impl Silence {
    fn new(now: Instant) -> Self {
        Self(now)
    }

    /// Takes an answer. Returns true if there have been only empty ones for long.
    fn lasts(&mut self, is_empty: bool, is_failing: bool, now: Instant) -> bool {
        if !is_empty || is_failing {
            self.0 = now;
        }
        now.duration_since(self.0) >= PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_tell_that_nothing_is_there() {
        let begin = Instant::now();
        let mut silence = Silence::new(begin);
        let at = |seconds| begin + Duration::from_secs(seconds);
        for seconds in 0..15 {
            assert!(!silence.lasts(true, true, at(seconds)), "the broker is away");
        }
        assert!(!silence.lasts(true, false, at(20)));
        assert!(!silence.lasts(false, false, at(22)));
        assert!(!silence.lasts(true, false, at(31)));
        assert!(silence.lasts(true, false, at(32)));
    }
}
