//! The conversation with the owners of another cell, one after the other: questions go as they come, and
//! wait for their answers over the end of a connection where asking twice does no harm.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use stafett_journal::{
    Append, BatchFrame, Bounds, Frame, Outcome, PlacedBatch, ReadRequest, RequestId, Selection, StateWait,
    TimeQuery, Visibility,
};
use stafett_model::{Lock, LogId, Offset};
use stafett_net::{Duplex, ToCell};
use stafett_topics::Topics;
use tokio::io::{AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::cell_journal::Ways;
use crate::other_cell::{OtherCell, Wanted, What};
use crate::wire::{self, Answer, Appended, Framed, From, Place, Question, Told};

/// Time for an answer from an owner, below the time-outs of clients' libraries.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Pause before another attempt to reach the cell, and between two looks for questions that waited too long.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes that are written at once.
const WRITE_BYTES: usize = 256 << 10;
/// Logs in a message.
const FOLLOWED_TOGETHER: usize = 4096;

type Stream = Box<dyn Duplex>;

/// Questions that wait for their answers.
#[derive(Debug, Default)]
struct Waiting {
    last: u64,
    questions: BTreeMap<u64, Asked>,
    /// Followed logs, by the numbers under which the cell tells their bounds.
    numbers: Vec<LogId>,
}

#[derive(Debug)]
struct Asked {
    since: Instant,
    /// True if it was written to a connection.
    is_sent: bool,
    what: What,
}

struct Conversation {
    other: Arc<OtherCell>,
    topics: Arc<Topics>,
    waiting: Lock<Waiting>,
}

/// Takes questions to the owners of a cell. Ends with the last of those that may ask.
pub(crate) async fn run(
    other: Arc<OtherCell>,
    mut wanted: mpsc::Receiver<Wanted>,
    topics: Arc<Topics>,
    ways: Arc<dyn Ways>,
) {
    let cell = other.cell;
    let this = Conversation {
        other,
        topics,
        waiting: Lock::default(),
    };
    this.other.note_loss();
    loop {
        let reached = {
            let mut reaching = ways.reach(cell);
            loop {
                tokio::select! {
                    reached = &mut reaching => break reached,
                    Some(more) = wanted.recv() => drop(this.accept(more)),
                    () = sleep(PAUSE) => this.give_up(),
                }
            }
        };
        if let Some(to) = reached {
            let ended = this.talk(to, &mut wanted).await;
            this.other.note_loss();
            let Err(why) = ended else { return };
            tracing::debug!(%why, cell, "the connection to a cell for its logs has ended");
            this.on_break();
        }
        this.give_up();
        sleep(PAUSE).await;
    }
}

impl Conversation {
    /// Notes a question. Returns its number.
    fn accept(&self, Wanted { since, what }: Wanted) -> u64 {
        let mut waiting = self.waiting.lock();
        waiting.last += 1;
        let id = waiting.last;
        let asked = Asked {
            since,
            is_sent: false,
            what,
        };
        waiting.questions.insert(id, asked);
        id
    }

    /// Fails questions that have waited too long, and all of them while the cell is away.
    fn give_up(&self) {
        let is_away = self.other.is_away();
        self.fail_if(|asked| is_away || asked.since.elapsed() > ANSWER_MAX);
    }

    /// After a connection: appends that were sent have no known outcome, unless they may be sent again.
    fn on_break(&self) {
        self.fail_if(|asked| {
            let is_repeatable = match &asked.what {
                What::Append { append, .. } => append.request.is_some(),
                What::Read { .. } | What::FindTime { .. } => true,
            };
            asked.is_sent && !is_repeatable
        });
    }

    fn fail_if(&self, fails: impl Fn(&Asked) -> bool) {
        let mut waiting = self.waiting.lock();
        let failed = waiting.questions.extract_if(.., |_, asked| fails(asked));
        let failed: Vec<Asked> = failed.map(|(_, asked)| asked).collect();
        drop(waiting);
        for asked in failed {
            asked.what.fail(self.other.cell, asked.is_sent);
        }
    }

    /// Asks over a connection until that ends. Returns without an error once all that may ask
    /// have ended.
    async fn talk(
        &self,
        ToCell { stream, lost }: ToCell,
        wanted: &mut mpsc::Receiver<Wanted>,
    ) -> io::Result<()> {
        self.waiting.lock().numbers.clear();
        let (mut reader, mut writer) = split(stream);
        tokio::select! {
            ended = self.ask_all(&mut writer, wanted) => ended,
            ended = self.hear(&mut reader) => ended,
            () = lost => Err(io::Error::other("the cell has lost its node")),
            () = self.expire() => Err(io::Error::other("it expires for ever")),
        }
    }

    async fn expire(&self) {
        loop {
            sleep(PAUSE).await;
            self.give_up();
        }
    }

    async fn ask_all(
        &self,
        writer: &mut WriteHalf<Stream>,
        wanted: &mut mpsc::Receiver<Wanted>,
    ) -> io::Result<()> {
        let mut out = BytesMut::new();
        self.put_follow(&self.other.followed(), &mut out)?;
        let again: Vec<u64> = self.waiting.lock().questions.keys().copied().collect();
        for id in again {
            self.put(id, &mut out)?;
        }
        loop {
            writer.write_all(&out).await?;
            writer.flush().await?;
            out.clear();
            tokio::select! {
                first = wanted.recv() => {
                    let Some(first) = first else { return Ok(()) };
                    self.put(self.accept(first), &mut out)?;
                }
                new = self.other.newly_followed() => self.put_follow(&new, &mut out)?,
            }
            while out.len() < WRITE_BYTES
                && let Ok(more) = wanted.try_recv()
            {
                self.put(self.accept(more), &mut out)?;
            }
        }
    }

    fn put_follow(&self, logs: &[LogId], out: &mut BytesMut) -> io::Result<()> {
        let mut waiting = self.waiting.lock();
        let pause_ms = u64::try_from(self.other.pause.as_millis()).unwrap_or(u64::MAX);
        let follow = |logs| Question::Follow { logs, pause_ms };
        if logs.is_empty() {
            // It is answered all the same.
            wire::put(&follow(Vec::new()), [], out)?;
        }
        for some in logs.chunks(FOLLOWED_TOGETHER) {
            let mut followed = Vec::with_capacity(some.len());
            for log in some {
                if let Some(place) = self.place(*log) {
                    followed.push((u32::try_from(waiting.numbers.len()).unwrap_or(u32::MAX), place));
                    waiting.numbers.push(*log);
                }
            }
            wire::put(&follow(followed), [], out)?;
        }
        Ok(())
    }

    fn place(&self, log: LogId) -> Option<Place> {
        let (topic, partition) = self.topics.place_elsewhere(log)?;
        Some((topic.0, partition))
    }

    /// Writes a question. One about a topic that is gone is answered at once.
    fn put(&self, id: u64, out: &mut BytesMut) -> io::Result<()> {
        let mut waiting = self.waiting.lock();
        let Some(asked) = waiting.questions.get_mut(&id) else {
            return Ok(());
        };
        let question = match &asked.what {
            What::Append { append, .. } => self.append(id, append),
            What::Read { request, .. } => self.read(id, request),
            What::FindTime { log, query, .. } => self.place(*log).map(|place| {
                let at_or_after = match query {
                    TimeQuery::AtOrAfter(time) => Some(*time),
                    TimeQuery::Latest => None,
                };
                let question = Question::FindTime {
                    id,
                    place,
                    at_or_after,
                };
                (question, Vec::new())
            }),
        };
        let Some((question, bodies)) = question else {
            let gone = waiting.questions.remove(&id);
            drop(waiting);
            if let Some(gone) = gone {
                gone.what.refuse_as_gone();
            }
            return Ok(());
        };
        wire::put(&question, &bodies, out)?;
        asked.is_sent = true;
        Ok(())
    }

    fn append(&self, id: u64, append: &Append) -> Option<(Question, Vec<Bytes>)> {
        let (mut frames, mut bodies) = (Vec::new(), Vec::new());
        for frame in &append.frames {
            match frame {
                Frame::Batch(BatchFrame { body, targets }) => {
                    let targets = targets.iter().map(|target| {
                        let part = match target.records {
                            Selection::All => None,
                            Selection::Range { first, count } => Some((first, count)),
                        };
                        Some((self.place(target.log)?, part))
                    });
                    frames.push(Framed::Batch {
                        bytes: body.len(),
                        targets: targets.collect::<Option<_>>()?,
                    });
                    bodies.push(body.clone());
                }
                Frame::Truncate { log, before } => frames.push(Framed::Truncate {
                    place: self.place(*log)?,
                    before: before.0,
                }),
                Frame::State(_)
                | Frame::CreateLogs { .. }
                | Frame::ChangeLogs { .. }
                | Frame::DeleteLogs { .. }
                | Frame::Claim { .. } => return None,
            }
        }
        let question = Question::Append {
            id,
            frames,
            level: append.level.map(|level| level.to_string()),
            request: append.request.map(|RequestId(id)| id),
            frees_space: append.frees_space,
            synced: append.state == StateWait::Synced,
        };
        Some((question, bodies))
    }

    fn read(&self, id: u64, request: &ReadRequest) -> Option<(Question, Vec<Bytes>)> {
        let logs = request.logs.iter().map(|from| {
            Some(From {
                place: self.place(from.log)?,
                offset: from.offset.0,
                bytes_max: from.bytes_max,
                committed: from.visibility == Visibility::Committed,
            })
        });
        let question = Question::Read {
            id,
            logs: logs.collect::<Option<_>>()?,
            bytes_max: request.bytes_max,
            first_batch_whole: request.first_batch_whole,
        };
        Some((question, Vec::new()))
    }

    /// Hears answers until the connection ends.
    async fn hear(&self, reader: &mut ReadHalf<Stream>) -> io::Result<()> {
        while let Some((answer, bytes)) = wire::read(reader).await? {
            self.on_answer(answer, bytes)?;
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    fn on_answer(&self, answer: Answer, mut bytes: Bytes) -> io::Result<()> {
        // A node that owns the cell no longer takes connections for a while, and answers nothing.
        self.other.note_answer();
        match answer {
            Answer::Bounds(told) => {
                let waiting = self.waiting.lock();
                let known = told.into_iter().filter_map(|(number, told)| {
                    let log = waiting.numbers.get(usize::try_from(number).ok()?)?;
                    Some((*log, told))
                });
                let known: Vec<_> = known.collect();
                drop(waiting);
                for (log, told) in known {
                    self.other.note(log, told.map(Bounds::from));
                }
                Ok(())
            }
            Answer::Appended { id, outcome, bounds } => {
                if let Some(What::Append { logs, settler, .. }) = self.answered(id) {
                    self.note(&logs, bounds);
                    settler.settle(outcome_of(outcome, &logs));
                }
                Ok(())
            }
            Answer::Read { id, logs: answers } => {
                let Some(What::Read { request, reply }) = self.answered(id) else {
                    return Ok(());
                };
                let mut results = Vec::with_capacity(answers.len());
                for (from, answer) in request.logs.iter().zip(answers) {
                    results.push(match answer {
                        Ok(slice) => {
                            let slice = slice.read(&mut bytes)?;
                            if slice.bounds.is_some() {
                                self.other.note(from.log, slice.bounds);
                            }
                            Ok(slice)
                        }
                        Err(why) => Err(why.about(from.log)),
                    });
                }
                let _ = reply.send(results);
                Ok(())
            }
            Answer::Found { id, batch } => {
                let Some(What::FindTime { log, reply, .. }) = self.answered(id) else {
                    return Ok(());
                };
                let found = match batch {
                    Ok(None) => Ok(None),
                    Ok(Some(count)) => Ok(Some(wire::take(&mut bytes, count)?)),
                    Err(why) => Err(why.about(log)),
                };
                let _ = reply.send(found);
                Ok(())
            }
        }
    }

    fn answered(&self, id: u64) -> Option<What> {
        Some(self.waiting.lock().questions.remove(&id)?.what)
    }

    fn note(&self, logs: &[LogId], bounds: Vec<Option<Told>>) {
        for (log, told) in logs.iter().zip(bounds) {
            if let Some(told) = told {
                self.other.note(*log, Some(told.into()));
            }
        }
    }
}

fn outcome_of(outcome: Appended, logs: &[LogId]) -> Outcome {
    match outcome {
        Appended::Committed(bases) => {
            let placed = logs
                .iter()
                .zip(bases)
                .map(|(log, (base, duplicate))| PlacedBatch {
                    log: *log,
                    base: Offset(base),
                    duplicate,
                });
            Outcome::Committed(placed.collect())
        }
        Appended::Refused(at, why) => {
            let log = logs.get(at).or_else(|| logs.first()).copied().unwrap_or_default();
            Outcome::Refused(why.about(log))
        }
        Appended::Unknown => Outcome::Unknown,
    }
}
