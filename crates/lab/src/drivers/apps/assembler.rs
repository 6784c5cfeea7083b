//! A worker over a WebSocket: it has tasks, assembles their sessions, and passes each on in one commit with
//! the records of it. Records that come while a commit is stored go into the next one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::sleep;

use super::TABLE;
use super::board::Board;
use super::sessions::Sessions;
use super::words::{Command, Commit, Commits, Head, Joined, OfTask, Page, Records};
use crate::drivers::websocket::Link;
use crate::drivers::{DriverError, Receiver, Seat};
use crate::experiment::{LiveFormat, Session};
use crate::workload::Received;

const PROTOCOL: &str = "stafett.work.json";
/// Records and bytes that may be delivered and not committed: a thousand records for each of many tasks.
const CREDIT: (u32, u32) = (100_000, 32 << 20);
/// Bytes of messages whose records go into one commit.
const COMMIT_BYTES: usize = 2 << 20;
/// Beginnings of most events, which answer nothing, and of those with records.
const EVENT: &[u8] = b"{\"event\":";
const RECORDS: &[u8] = b"{\"event\":\"records\",";

/// A worker.
pub(in crate::drivers) struct Assembler {
    link: Link,
    board: Arc<Board>,
    number: u32,
    session: Session,
    /// Topic of finished sessions.
    to: String,
    tasks: BTreeMap<String, Task>,
    /// Messages that came before an answer.
    waiting: VecDeque<Vec<u8>>,
    /// Number of the last command.
    asked: u64,
    /// The last command as JSON. Commits are long: its room is used again.
    text: Vec<u8>,
    /// Commits to come.
    batch: Batch,
    /// The commit without an answer yet.
    under_way: Option<UnderWay>,
    /// Time between signs of life.
    beat: Duration,
}

struct Task {
    epoch: u64,
    seq: u64,
    sessions: Sessions,
}

/// A commit that was sent, and the messages that it passes on.
struct UnderWay {
    id: u64,
    finished: Vec<Received>,
}

/// Commits that are stored together, and the messages that they pass on.
#[derive(Default)]
struct Batch {
    commits: Vec<Commit>,
    finished: Vec<Received>,
    bytes: usize,
}

impl Assembler {
    pub(super) async fn open(
        server: &str,
        app: &str,
        number: u32,
        seat: &Seat,
        board: &Arc<Board>,
    ) -> Result<Self, DriverError> {
        let path = format!("/v1/apps/{app}/work");
        let link = Link::open(server, 0, (&path, PROTOCOL), LiveFormat::Json).await?;
        let to = seat.onward.as_ref().and_then(|onward| onward.names.first());
        let mut assembler = Self {
            link,
            board: Arc::clone(board),
            number,
            session: seat.role.session.clone().unwrap_or_default(),
            to: to.cloned().unwrap_or_default(),
            tasks: BTreeMap::new(),
            waiting: VecDeque::new(),
            asked: 0,
            text: Vec::new(),
            batch: Batch::default(),
            under_way: None,
            beat: Duration::ZERO,
        };
        let (records, bytes) = CREDIT;
        let credit = json!({"records": records, "bytes": bytes});
        let join = json!({"worker": format!("{}-{number}", seat.group), "credit": credit});
        let joined: Joined = assembler.ask("join", join).await?;
        assembler.beat = Duration::from_millis(joined.worker_timeout_ms) / 4;
        board.joined(number, joined.tasks);
        Ok(assembler)
    }

    /// Sends a command. Returns its number.
    async fn tell(&mut self, command: &str, what: impl Serialize) -> Result<u64, DriverError> {
        self.asked += 1;
        let id = self.asked;
        let name = command;
        let command = Command { name, id, what };
        self.text.clear();
        serde_json::to_writer(&mut self.text, &command)
            .map_err(|error| DriverError::Failed(error.to_string()))?;
        self.link.put(&self.text);
        self.link.flush().await?;
        Ok(id)
    }

    /// Sends a command and waits for its answer. Other messages are kept.
    async fn ask<T: DeserializeOwned>(
        &mut self,
        command: &str,
        what: impl Serialize,
    ) -> Result<T, DriverError> {
        let id = self.tell(command, what).await?;
        self.answer(command, id).await
    }

    /// Waits for the answer to a command. Other messages are kept.
    async fn answer<T: DeserializeOwned>(&mut self, command: &str, id: u64) -> Result<T, DriverError> {
        let mut looked = 0;
        loop {
            while let Some(message) = self.waiting.get(looked) {
                if answers(message, id)? {
                    let answer = answer_of(message, command);
                    self.waiting.remove(looked);
                    return answer;
                }
                looked += 1;
            }
            self.read().await?;
        }
    }

    /// Adds the messages that are there, and waits for one where there is none.
    async fn read(&mut self) -> Result<(), DriverError> {
        let waiting = &mut self.waiting;
        self.link
            .read(|message| waiting.push_back(message.to_vec()))
            .await
    }

    /// Waits for messages. Gives a sign of life if nothing comes for a while.
    async fn wait(&mut self) -> Result<(), DriverError> {
        let beat = self.beat;
        tokio::select! {
            biased;
            read = self.read() => return read,
            () = sleep(beat) => {}
        }
        self.tell("beat", json!({})).await.map(|_| ())
    }

    /// Takes a task over, with the sessions that are under way in it.
    async fn claim(&mut self, claimed: OfTask) -> Result<(), DriverError> {
        let OfTask {
            task,
            epoch,
            seq,
            entries,
        } = claimed;
        let mut sessions = Sessions::default();
        let (mut after, mut is_done) = (None, entries == 0);
        while !is_done {
            let scan = json!({"task": task, "epoch": epoch, "table": TABLE, "after": after});
            let page: Page = self.ask("scan", scan).await?;
            page.entries.into_iter().for_each(|entry| sessions.restore(entry));
            after = page.next;
            is_done = after.is_none();
        }
        self.board.claimed(self.number, &task);
        let taken = Task { epoch, seq, sessions };
        self.tasks.insert(task, taken);
        Ok(())
    }

    async fn release(&mut self, task: &str, epoch: u64) -> Result<(), DriverError> {
        self.forget(task);
        let claim = json!({"task": task, "epoch": epoch});
        self.tell("release", claim).await.map(|_| ())
    }

    fn forget(&mut self, task: &str) {
        self.tasks.remove(task);
        self.board.released(self.number, task);
    }

    /// Adds the step of a task to the batch, behind which there is room for it.
    async fn assemble(&mut self, message: &[u8], into: &mut Vec<Received>) -> Result<(), DriverError> {
        let records: Records<'_> = parsed(message)?;
        let is_there = |commit: &Commit| commit.task == records.task;
        if self.batch.bytes > COMMIT_BYTES || self.batch.commits.iter().any(is_there) {
            self.commit(into).await?;
        }
        let Some(task) = self.tasks.get_mut(&records.task) else {
            // It was given back meanwhile.
            return Ok(());
        };
        let (name, next) = (records.task.clone(), records.next.to_owned());
        let now_ms = jiff::Timestamp::now().as_millisecond();
        let to = (self.to.as_str(), now_ms);
        let step = task
            .sessions
            .take(&self.session, records, to, &mut self.batch.finished);
        task.seq += 1;
        self.batch.bytes += message.len();
        self.batch.commits.push(Commit {
            task: name,
            epoch: task.epoch,
            seq: task.seq,
            next,
            step,
        });
        Ok(())
    }

    /// Has the batch stored, behind the one before.
    async fn commit(&mut self, into: &mut Vec<Received>) -> Result<(), DriverError> {
        if self.batch.commits.is_empty() {
            return Ok(());
        }
        self.stored(into).await?;
        let batch = std::mem::take(&mut self.batch);
        let tasks = &batch.commits;
        let id = self.tell("commit", Commits { tasks }).await?;
        let finished = batch.finished;
        self.under_way = Some(UnderWay { id, finished });
        Ok(())
    }

    /// Waits until all that was sent is stored.
    async fn stored(&mut self, into: &mut Vec<Received>) -> Result<(), DriverError> {
        if let Some(UnderWay { id, finished }) = self.under_way.take() {
            let _: serde::de::IgnoredAny = self.answer("commit", id).await?;
            into.extend(finished);
        }
        Ok(())
    }

    /// Handles one message. Commits first where the batch has to be stored before it.
    async fn on_message(&mut self, message: &[u8], into: &mut Vec<Received>) -> Result<(), DriverError> {
        if message.starts_with(RECORDS) {
            return self.assemble(message, into).await;
        }
        let head: Head<'_> = parsed(message)?;
        if let Some(notice) = head.notice {
            return Err(DriverError::Failed(format!("the app says {notice}")));
        }
        let is_commit = |commit: &mut UnderWay| head.id == Some(commit.id);
        if let Some(UnderWay { finished, .. }) = self.under_way.take_if(is_commit) {
            head.check("commit")?;
            into.extend(finished);
            return Ok(());
        }
        match head.event.as_deref() {
            Some("time") => self.assemble(message, into).await,
            Some("claimed") => {
                self.commit(into).await?;
                self.stored(into).await?;
                self.claim(parsed(message)?).await
            }
            Some("revoke") => {
                self.commit(into).await?;
                self.stored(into).await?;
                let OfTask { task, epoch, .. } = parsed(message)?;
                self.release(&task, epoch).await
            }
            Some("lost") => {
                let OfTask { task, .. } = parsed(message)?;
                self.forget(&task);
                Ok(())
            }
            Some("rests") => {
                let text = String::from_utf8_lossy(message).into_owned();
                Err(DriverError::Failed(format!("a task rests: {text}")))
            }
            // Answers to signs of life.
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Receiver for Assembler {
    /// Adds messages of sessions that were passed on. Not safe to drop, unless the worker is, too.
    async fn receive(&mut self, into: &mut Vec<Received>) -> Result<(), DriverError> {
        if self.waiting.is_empty() {
            self.wait().await?;
        }
        while let Some(message) = self.waiting.pop_front() {
            self.on_message(&message, into).await?;
        }
        if self.under_way.is_none() {
            self.commit(into).await?;
        }
        Ok(())
    }
}

impl Drop for Assembler {
    fn drop(&mut self) {
        self.board.left(self.number);
    }
}

/// Returns true if a message answers a command.
fn answers(message: &[u8], id: u64) -> Result<bool, DriverError> {
    if message.starts_with(EVENT) {
        return Ok(false);
    }
    let head: Head<'_> = parsed(message)?;
    Ok(head.id == Some(id))
}

fn answer_of<T: DeserializeOwned>(message: &[u8], command: &str) -> Result<T, DriverError> {
    parsed::<Head<'_>>(message)?.check(command)?;
    parsed(message)
}

fn parsed<'a, T: serde::Deserialize<'a>>(message: &'a [u8]) -> Result<T, DriverError> {
    let read = match std::str::from_utf8(message) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(message),
    };
    read.map_err(|error| {
        let text = String::from_utf8_lossy(message.get(..200).unwrap_or(message)).into_owned();
        DriverError::Failed(format!("an app's message cannot be read: {error}: {text}"))
    })
}
