//! The end of a cell for the other cells' questions about its logs.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
use stafett_journal::{
    Append, BatchFrame, Bounds, Frame, LogSlice, Outcome, ReadError, ReadFrom, ReadRequest, Refusal,
    RequestId, Selection, StateWait, Target, TimeQuery, Visibility, Watch,
};
use stafett_model::{LogId, Offset, Tenure};
use stafett_net::{Connection, Duplex, Protocol};
use stafett_topics::{TopicCatalog, TopicId, cell_of};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, split};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::wire::{self, Answer, Appended, Framed, Place, Question, Reason, Slice, Told, Unread};

/// Questions of a connection that are worked on at once.
const AT_ONCE_MAX: usize = 256;
/// Least time between two messages about bounds, and the most that may be asked for.
const TELL_PAUSE: Duration = Duration::from_millis(10);
const TELL_PAUSE_MAX: Duration = Duration::from_secs(10);
/// Time between two looks for bounds that changed without growth.
const LOOK: Duration = Duration::from_secs(5);
/// Time for a topic to come that another cell knows.
const MISSING_MAX: Duration = Duration::from_hours(1);

/// Serves other cells' questions about logs. Connections of clients must not reach it.
#[derive(Debug)]
pub struct LogsDoor {
    catalog: Arc<TopicCatalog>,
    tenure: Tenure,
}

/// Head and bytes of an answer.
type Answered = (Answer, Vec<Bytes>);

/// Logs whose bounds are told, by the numbers under which they are.
struct Followed {
    watch: Watch,
    logs: HashMap<u32, Follow>,
    /// Numbers of those whose topics are not here yet.
    missing: Vec<u32>,
    /// Least time between two messages.
    pause: Duration,
}

impl Followed {
    fn new(watch: Watch) -> Self {
        Self {
            watch,
            logs: HashMap::new(),
            missing: Vec::new(),
            pause: TELL_PAUSE,
        }
    }

    fn set_pause(&mut self, ms: u64) {
        self.pause = Duration::from_millis(ms).clamp(TELL_PAUSE, TELL_PAUSE_MAX);
    }
}

struct Follow {
    place: Place,
    since: Instant,
    /// `None` until the topic is here.
    log: Option<LogId>,
    told: Option<Bounds>,
    is_told: bool,
}

impl Follow {
    fn new(place: Place) -> Self {
        Self {
            place,
            since: Instant::now(),
            log: None,
            told: None,
            is_told: false,
        }
    }
}

impl LogsDoor {
    pub fn new(catalog: &Arc<TopicCatalog>, tenure: Tenure) -> Self {
        Self {
            catalog: Arc::clone(catalog),
            tenure,
        }
    }

    /// Returns the log of a partition of this cell. `None` if it is not here.
    fn log(&self, (topic, partition): Place) -> Option<LogId> {
        let log = self.catalog.topics().with_id(TopicId(topic))?.log(partition)?;
        cell_of(log).is_none().then_some(log)
    }

    /// Serves a connection until it ends.
    pub async fn serve(&self, stream: impl Duplex, drain: &CancellationToken) -> io::Result<()> {
        let (mut reader, mut writer) = split(stream);
        let (questions, mut come) = mpsc::channel(AT_ONCE_MAX);
        // Takes the sender with it: then no more questions come.
        let hearing = async move { drain.run_until_cancelled(hear(&mut reader, &questions)).await };
        let mut answering = std::pin::pin!(self.answer(&mut writer, &mut come));
        let heard = tokio::select! {
            heard = hearing => heard,
            answered = &mut answering => return answered,
        };
        let answered = answering.await;
        heard.unwrap_or(Ok(())).and(answered)
    }

    async fn answer(
        &self,
        writer: &mut (impl AsyncWrite + Unpin),
        come: &mut mpsc::Receiver<(Question, Bytes)>,
    ) -> io::Result<()> {
        let mut work: JoinSet<Answered> = JoinSet::new();
        let mut followed = Followed::new(self.catalog.watch());
        let mut changes = self.catalog.topics().watch_changes();
        let (mut may_tell, mut look) = (Instant::now(), Instant::now() + LOOK);
        let mut out = BytesMut::new();
        let mut has_ended = false;
        // Questions that came are answered when there are no more.
        while !has_ended || !work.is_empty() {
            tokio::select! {
                question = come.recv(), if !has_ended && work.len() < AT_ONCE_MAX => {
                    let Some((question, bytes)) = question else {
                        has_ended = true;
                        continue;
                    };
                    self.begin(question, bytes, &mut work, &mut followed, &mut out)?;
                    while work.len() < AT_ONCE_MAX && let Ok((question, bytes)) = come.try_recv() {
                        self.begin(question, bytes, &mut work, &mut followed, &mut out)?;
                    }
                }
                Some(done) = work.join_next() => put(done, &mut out)?,
                () = async { sleep_until(may_tell).await; followed.watch.grown().await; } => {
                    let grown = followed.watch.take();
                    self.tell(&mut followed, grown, &mut out)?;
                    may_tell = Instant::now() + followed.pause;
                }
                Ok(()) = changes.changed() => self.find(&mut followed, &mut out)?,
                () = sleep_until(look) => {
                    self.forget_gone(&mut followed);
                    let all: Vec<u32> = followed.logs.keys().copied().collect();
                    self.tell(&mut followed, all, &mut out)?;
                    look = Instant::now() + LOOK;
                }
            }
            while let Some(done) = work.try_join_next() {
                put(done, &mut out)?;
            }
            if out.is_empty() {
                continue;
            }
            if !self.tenure.holds() {
                return Err(io::Error::other("another node may own the cell"));
            }
            writer.write_all(&out).await?;
            writer.flush().await?;
            out.clear();
        }
        Ok(())
    }

    fn begin(
        &self,
        question: Question,
        mut bytes: Bytes,
        work: &mut JoinSet<Answered>,
        followed: &mut Followed,
        out: &mut BytesMut,
    ) -> io::Result<()> {
        match question {
            Question::Append {
                id,
                frames,
                level,
                request,
                frees_space,
                synced,
            } => {
                let append = Append {
                    level: level
                        .map(|level| level.parse().map_err(io::Error::other))
                        .transpose()?,
                    request: request.map(RequestId),
                    frees_space,
                    state: if synced {
                        StateWait::Synced
                    } else {
                        StateWait::Written
                    },
                    pinned_bytes: bytes.len(),
                    ..Append::default()
                };
                self.begin_append(id, append, frames, &mut bytes, work)?;
            }
            Question::Read {
                id,
                logs,
                bytes_max,
                first_batch_whole,
            } => self.begin_read(id, &logs, (bytes_max, first_batch_whole), work),
            Question::FindTime {
                id,
                place,
                at_or_after,
            } => {
                let query = at_or_after.map_or(TimeQuery::Latest, TimeQuery::AtOrAfter);
                self.begin_find(id, place, query, work);
            }
            Question::Follow { logs, pause_ms } => {
                followed.set_pause(pause_ms);
                for (number, place) in logs {
                    followed.missing.push(number);
                    followed.logs.insert(number, Follow::new(place));
                }
                let before = out.len();
                self.find(followed, out)?;
                self.tell(followed, followed.missing.clone(), out)?;
                if out.len() == before {
                    wire::put(&Answer::Bounds(Vec::new()), [], out)?;
                }
            }
        }
        Ok(())
    }

    /// Appends at once, so that appends are in the order of their questions.
    fn begin_append(
        &self,
        id: u64,
        mut append: Append,
        frames: Vec<Framed>,
        bytes: &mut Bytes,
        work: &mut JoinSet<Answered>,
    ) -> io::Result<()> {
        let mut logs = Vec::new();
        let mut missing = None;
        let mut find = |place| {
            let log = self.log(place);
            if log.is_none() {
                missing = missing.or(Some(logs.len()));
            }
            let log = log.unwrap_or_default();
            logs.push(log);
            log
        };
        for frame in frames {
            append.frames.push(match frame {
                Framed::Batch {
                    bytes: count,
                    targets,
                } => {
                    let target = |(place, part): (Place, Option<(u32, u32)>)| Target {
                        log: find(place),
                        records: part
                            .map_or(Selection::All, |(first, count)| Selection::Range { first, count }),
                    };
                    Frame::Batch(BatchFrame {
                        body: wire::take(bytes, count)?,
                        targets: targets.into_iter().map(target).collect::<SmallVec<_>>(),
                    })
                }
                Framed::Truncate { place, before } => Frame::Truncate {
                    log: find(place),
                    before: Offset(before),
                },
            });
        }
        let ticket = match missing {
            Some(at) => Err(at),
            None => Ok(self.catalog.append(vec![append])),
        };
        let catalog = Arc::clone(&self.catalog);
        work.spawn(async move {
            let outcome = match ticket {
                Ok(ticket) => said(ticket.await.pop(), &logs),
                Err(at) => Appended::Refused(at, Reason::NoSuchLog),
            };
            let bounds = logs.iter().map(|log| catalog.bounds(*log).map(Told::from));
            let bounds = bounds.collect();
            (Answer::Appended { id, outcome, bounds }, Vec::new())
        });
        Ok(())
    }

    fn begin_read(
        &self,
        id: u64,
        wanted: &[wire::From],
        (bytes_max, first_batch_whole): (usize, bool),
        work: &mut JoinSet<Answered>,
    ) {
        let logs: Vec<Option<LogId>> = wanted.iter().map(|from| self.log(from.place)).collect();
        let found = wanted.iter().zip(&logs);
        let found = found.filter_map(|(from, log)| {
            Some(ReadFrom {
                log: (*log)?,
                offset: Offset(from.offset),
                bytes_max: from.bytes_max,
                visibility: if from.committed {
                    Visibility::Committed
                } else {
                    Visibility::Stored
                },
            })
        });
        let ticket = self.catalog.read(ReadRequest {
            logs: found.collect(),
            bytes_max,
            first_batch_whole,
        });
        work.spawn(async move {
            let read = ticket.finish().await.unwrap_or_default();
            let mut read = read.into_iter();
            let (mut answers, mut bytes) = (Vec::with_capacity(logs.len()), Vec::new());
            for log in logs {
                let result: Option<Result<LogSlice, ReadError>> = log.and_then(|_| read.next());
                answers.push(match (log, result) {
                    (None, _) => Err(Unread::NoSuchLog),
                    (Some(_), None) => Err(Unread::Failed("the journal has stopped".to_owned())),
                    (Some(_), Some(Err(error))) => Err(Unread::of(&error)),
                    (Some(_), Some(Ok(mut slice))) => {
                        let said = Slice::of(&slice);
                        bytes.append(&mut slice.pieces);
                        Ok(said)
                    }
                });
            }
            (Answer::Read { id, logs: answers }, bytes)
        });
    }

    fn begin_find(&self, id: u64, place: Place, query: TimeQuery, work: &mut JoinSet<Answered>) {
        let ticket = self.log(place).map(|log| self.catalog.find_time(log, query));
        work.spawn(async move {
            let found = match ticket {
                Some(ticket) => match ticket.finish().await {
                    Ok(found) => found.map_err(|error| Unread::of(&error)),
                    Err(why) => Err(Unread::Failed(why.to_string())),
                },
                None => Err(Unread::NoSuchLog),
            };
            let (batch, bytes) = match found {
                Ok(Some(bytes)) => (Ok(Some(bytes.len())), vec![bytes]),
                Ok(None) => (Ok(None), Vec::new()),
                Err(why) => (Err(why), Vec::new()),
            };
            (Answer::Found { id, batch }, bytes)
        });
    }

    /// Looks for followed logs whose topics were not here.
    fn find(&self, followed: &mut Followed, out: &mut BytesMut) -> io::Result<()> {
        let mut found = Vec::new();
        let Followed {
            watch, logs, missing, ..
        } = followed;
        missing.retain(|number| {
            let Some(follow) = logs.get_mut(number) else {
                return false;
            };
            follow.log = self.log(follow.place);
            if let Some(log) = follow.log {
                self.catalog.watch_log(watch, log, *number);
                found.push(*number);
            }
            follow.log.is_none()
        });
        self.tell(followed, found, out)
    }

    /// Forgets logs of topics that are gone, or have not come for long.
    fn forget_gone(&self, followed: &mut Followed) {
        followed.logs.retain(|_, follow| {
            let is_new = !follow.is_told || (follow.log.is_none() && follow.since.elapsed() < MISSING_MAX);
            is_new || self.log(follow.place).is_some() || follow.told.is_some()
        });
    }

    /// Tells bounds that are not those of before.
    fn tell(
        &self,
        followed: &mut Followed,
        numbers: impl IntoIterator<Item = u32>,
        out: &mut BytesMut,
    ) -> io::Result<()> {
        let mut news = Vec::new();
        for number in numbers {
            let Some(follow) = followed.logs.get_mut(&number) else {
                continue;
            };
            let bounds = follow.log.and_then(|log| self.catalog.bounds(log));
            if !follow.is_told || follow.told != bounds {
                (follow.told, follow.is_told) = (bounds, true);
                news.push((number, bounds.map(Told::from)));
            }
        }
        if news.is_empty() {
            return Ok(());
        }
        wire::put(&Answer::Bounds(news), [], out)
    }
}

async fn hear(
    reader: &mut (impl AsyncRead + Unpin),
    questions: &mpsc::Sender<(Question, Bytes)>,
) -> io::Result<()> {
    while let Some(question) = wire::read(reader).await? {
        if questions.send(question).await.is_err() {
            break;
        }
    }
    Ok(())
}

fn put(done: Result<Answered, tokio::task::JoinError>, out: &mut BytesMut) -> io::Result<()> {
    let (answer, bytes) = done.map_err(io::Error::other)?;
    wire::put(&answer, &bytes, out)
}

/// Returns an outcome as it is said.
fn said(outcome: Option<Outcome>, logs: &[LogId]) -> Appended {
    match outcome {
        Some(Outcome::Committed(placed)) => Appended::Committed(
            placed
                .iter()
                .map(|placed| (placed.base.0, placed.duplicate))
                .collect(),
        ),
        Some(Outcome::Refused(why)) => {
            let at = logs.iter().position(|log| is_about(&why, *log));
            Appended::Refused(at.unwrap_or(0), Reason::of(&why))
        }
        Some(Outcome::Unknown) | None => Appended::Unknown,
    }
}

fn is_about(why: &Refusal, wanted: LogId) -> bool {
    match why {
        Refusal::NoSuchLog(log)
        | Refusal::OffsetsExhausted(log)
        | Refusal::Fenced { log }
        | Refusal::OutOfSequence { log, .. }
        | Refusal::StaleProducer { log, .. }
        | Refusal::OutsideTransaction { log, .. }
        | Refusal::NotAtOffset { log, .. }
        | Refusal::StaleOwner { log, .. } => *log == wanted,
        Refusal::TooLarge { .. } | Refusal::DiskFull | Refusal::Closed => false,
    }
}

impl Protocol for LogsDoor {
    async fn connection(&self, connection: Connection) {
        let Connection { stream, drain, .. } = connection;
        if let Err(why) = self.serve(stream, &drain).await {
            tracing::debug!(%why, "a connection of another cell about logs ended");
        }
    }
}
