//! Records of one partition, read ahead by a bounded number of pieces.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stafett_kafka_client::batches::{Aborted, Batches};
use stafett_kafka_client::{
    Client, ClientError, ErrorCode, FetchSettings, Fetched, Fetcher, Place as Position, PooledClient, Topic,
};
use stafett_model::{BatchError, Lock, Offset, StoredRecord, records};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::amqp::Feed;
use crate::definition::{Begin, OnGap};
use crate::target::{Place, Start};

/// Pieces that wait for the pump. Behind them nothing is read: back-pressure is lag.
const AHEAD: usize = 2;
/// Time of empty answers after which a record is gone that was there when its batch was read.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for which a poll of an idle partition waits, at most; at the broker, unless its connection is shared.
const WAIT: Duration = Duration::from_millis(500);
const IDLE_MIN: Duration = Duration::from_millis(10);
const PARTITION_BYTES: i32 = 1 << 20;
/// Memory of a piece behind which it takes no further batch.
const PIECE_BYTES: usize = 1 << 20;
/// Records of one batch, decompressed, at most.
const BATCH_BYTES_MAX: usize = 256 << 20;

/// Records of an answer or of a part of it, and the offset behind them.
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

fn unreadable(place: &Place, why: &BatchError) -> ReadError {
    ReadError::Unreadable(format!("{place}: {why}"))
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
    /// Reads from an offset on, of the topic with an id; of any without one. Its connection is not that of
    /// `client`: polls of idle partitions would hold up all others.
    pub(crate) fn spawn(client: &Client, place: Place, id: Option<Uuid>, from: u64, on_gap: OnGap) -> Self {
        let (sender, pieces) = mpsc::channel(AHEAD);
        let client = client.pooled();
        let mut task = JoinSet::new();
        task.spawn(async move {
            if let Err(why) = read(&client, &place, id, from, on_gap, &sender).await {
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
    pooled: &PooledClient,
    place: &Place,
    id: Option<Uuid>,
    mut from: u64,
    on_gap: OnGap,
    pieces: &mpsc::Sender<Result<Piece, ReadError>>,
) -> Result<(), ReadError> {
    let client = pooled.client();
    loop {
        let topic = client.topic(&place.topic).await?;
        if id.is_some() && id != id_of(&topic) {
            return Err(ReadError::MadeAgain(place.clone()));
        }
        let start = offset(client, &topic, place, Position::Start).await?.unwrap_or(0);
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
        let end = offset(client, &topic, place, Position::CommittedEnd).await?;
        let first = Piece {
            records: Vec::new(),
            next: from,
            end: end.unwrap_or(from),
        };
        if pieces.send(Ok(first)).await.is_err() {
            return Ok(());
        }
        match follow(pooled, &topic, place, &mut from, pieces).await {
            // Retention may have been faster meanwhile: the start is looked at again.
            Err(ReadError::Client(why)) if why.code() == Some(ErrorCode::OffsetOutOfRange) => {
                let end = offset(client, &topic, place, Position::End).await?.unwrap_or(0);
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
        wait: WAIT,
        ..FetchSettings::default()
    };
    let mut fetcher = Fetcher::new(client.clone(), settings);
    fetcher.add(topic, index(place), i64::try_from(from).unwrap_or(i64::MAX));
    fetcher
}

/// Reads until the receiver is gone.
async fn follow(
    pooled: &PooledClient,
    topic: &Topic,
    place: &Place,
    from: &mut u64,
    pieces: &mpsc::Sender<Result<Piece, ReadError>>,
) -> Result<(), ReadError> {
    let mut fetcher = fetcher(pooled.client(), topic, place, *from);
    let mut idle = IDLE_MIN;
    loop {
        let is_shared = pooled.is_shared();
        fetcher.set_wait(if is_shared { Duration::ZERO } else { WAIT });
        let answers = fetcher.next().await?;
        let is_idle = answers.iter().all(|fetched| fetched.bytes.is_empty());
        if is_idle && is_shared {
            // Instead of the broker, which answers all requests of a connection in order.
            sleep(idle).await;
            idle = (idle * 2).min(WAIT);
        } else {
            idle = IDLE_MIN;
        }
        for fetched in answers {
            let mut answer = Answer::new(fetched, *from);
            while let Some(piece) = answer.piece().map_err(|why| unreadable(place, &why))? {
                *from = piece.next;
                if pieces.send(Ok(piece)).await.is_err() {
                    return Ok(());
                }
            }
        }
        if pieces.is_closed() {
            return Ok(());
        }
    }
}

/// An answer that is read in pieces of a bounded size, as it may be large once decompressed.
struct Answer {
    batches: Batches,
    aborted: Aborted,
    next: u64,
    end: u64,
    is_done: bool,
}

impl Answer {
    fn new(fetched: Fetched, from: u64) -> Self {
        Self {
            batches: Batches::new(fetched.bytes),
            aborted: Aborted::new(fetched.aborted),
            next: from,
            end: u64::try_from(fetched.end).unwrap_or(0),
            is_done: false,
        }
    }

    /// Returns the next records, without those before the position and of aborted transactions. `None` behind
    /// the last piece; an answer has at least one.
    fn piece(&mut self) -> Result<Option<Piece>, BatchError> {
        if self.is_done {
            return Ok(None);
        }
        let (from, mut found, mut bytes) = (self.next, Vec::new(), 0);
        while bytes < PIECE_BYTES {
            let Some(batch) = self.batches.next() else {
                self.is_done = true;
                break;
            };
            let (header, batch) = batch?;
            let behind = header.base_offset + i64::from(header.last_offset_delta) + 1;
            let is_aborted = self.aborted.has(&header, &batch);
            if !header.is_control() && !is_aborted {
                let mut batch = records(&batch, BATCH_BYTES_MAX)?;
                batch.seek(Offset(from))?;
                for record in batch {
                    let record = record?;
                    bytes += size_of(&record);
                    found.push(record);
                }
            }
            self.next = self.next.max(u64::try_from(behind).unwrap_or(0));
        }
        Ok(Some(Piece {
            records: found,
            next: self.next,
            end: self.end,
        }))
    }
}

/// Returns the memory of a record, about.
fn size_of(record: &StoredRecord) -> usize {
    let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
    std::mem::size_of::<StoredRecord>() + length(&record.key) + length(&record.value)
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
                let mut answer = Answer::new(answer, from);
                while let Some(piece) = answer.piece().map_err(|why| unreadable(place, &why))? {
                    let wanted = |record: &StoredRecord| offsets.binary_search(&record.offset.0).is_ok();
                    found.extend(piece.records.into_iter().filter(wanted));
                    from = piece.next;
                }
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
    use bytes::BytesMut;
    use stafett_model::{BatchBuilder, Codec, Record};

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

    #[test]
    fn an_answer_that_is_large_once_decompressed_is_read_in_pieces() {
        let value = vec![b'a'; 600_000];
        let mut bytes = BytesMut::new();
        for base in 0..5_i64 {
            let mut batch = BatchBuilder::with_capacity(Codec::Zstd, 0);
            let record = Record {
                key: None,
                value: Some(&value),
                headers: &[],
                timestamp: 0,
            };
            batch.push(&record).unwrap();
            let mut batch = BytesMut::from(&*batch.finish().unwrap());
            batch[..8].copy_from_slice(&base.to_be_bytes());
            bytes.extend_from_slice(&batch);
        }
        assert!(bytes.len() < 10_000);
        let fetched = |bytes| Fetched {
            source: 0,
            from: 0,
            end: 0,
            bytes,
            aborted: Vec::new(),
        };
        let mut answer = Answer::new(fetched(bytes.freeze()), 1);
        let mut pieces = Vec::new();
        while let Some(piece) = answer.piece().unwrap() {
            pieces.push((piece.records.len(), piece.next));
        }
        assert_eq!(pieces, [(2, 3), (2, 5), (0, 5)]);
        let mut empty = Answer::new(fetched(Bytes::new()), 7);
        assert_eq!(empty.piece().unwrap().unwrap().next, 7);
        assert!(empty.piece().unwrap().is_none());
    }
}
