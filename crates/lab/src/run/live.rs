//! A run that can be followed and ended from outside: `live.ndjson` has all that happens, a line each, and
//! the socket `control` takes commands while the run is alive.
//!
//! Lines are added as long as the run exists, also when it goes on later, so a byte offset names a line.
//!
//! | command | effect |
//! |---|---|
//! | `stop` | the run ends behind the point under way |
//! | `stop now` | the run ends at once, and that point is thrown away |
//!
//! Both are answered `ok`; everything else is answered `not known`.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use stafett_model::Lock;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Watch, now_ms};
use crate::results::{Planned, Point, Run};
use crate::workload::load::Second;

/// File with all that happens, in the folder of the run.
pub const LIVE: &str = "live.ndjson";
/// Socket of the running program, in the folder of the run.
pub const CONTROL: &str = "control";
/// Time that a program on the other side of the socket has.
const PATIENCE: Duration = Duration::from_secs(2);

/// Signals that end a run.
#[derive(Debug, Clone, Default)]
pub struct Ends {
    /// At once: a point under way is thrown away.
    pub now: CancellationToken,
    /// Behind the point under way.
    pub soon: CancellationToken,
}

impl Ends {
    pub(super) fn is_any(&self) -> bool {
        self.now.is_cancelled() || self.soon.is_cancelled()
    }
}

/// Returns the length of the file of a run with all that happens, in bytes; 0 if there is none.
pub fn bytes(folder: &Path) -> u64 {
    fs::metadata(folder.join(LIVE)).map_or(0, |found| found.len())
}

/// Writes `live.ndjson`, and tells another watcher as well.
pub(super) struct Live {
    file: Lock<Option<File>>,
    next: Arc<dyn Watch>,
}

impl Live {
    /// A file that cannot be written is left out: a run needs no readers.
    pub(super) fn new(folder: &Path, next: Arc<dyn Watch>) -> Self {
        let opened = fs::create_dir_all(folder).and_then(|()| {
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(folder.join(LIVE))
        });
        Self {
            file: Lock::new(opened.ok()),
            next,
        }
    }

    fn add(&self, event: &str, mut value: Value) {
        if let Some(fields) = value.as_object_mut() {
            fields.insert("event".to_owned(), event.into());
            fields.insert("at".to_owned(), now_ms().into());
        }
        let mut file = self.file.lock();
        let written = file
            .as_mut()
            .map(|file| file.write_all(format!("{value}\n").as_bytes()));
        if let Some(Err(_)) = written {
            // A line that was cut off would spoil those behind it.
            *file = None;
        }
    }

    /// Writes how the run ended.
    pub(super) fn closes(&self, run: &Run) {
        self.add("closed", json!({"status": run.status, "reason": run.reason}));
    }
}

impl Watch for Live {
    fn begins(&self, run: &Run, done: usize) {
        self.add("begins", json!({"points": run.order.len(), "done": done}));
        self.next.begins(run, done);
    }

    fn does(&self, what: &str) {
        self.add("does", json!({"text": what}));
        self.next.does(what);
    }

    fn point(&self, planned: &Planned, durability: &str, done: usize, left: Duration) {
        self.add(
            "point",
            json!({"number": planned.number, "system": planned.system, "parameters": planned.parameters,
                "repetition": planned.repetition, "durability": durability, "done": done,
                "left_s": left.as_secs_f64().round()}),
        );
        self.next.point(planned, durability, done, left);
    }

    fn second(&self, second: &Second) {
        let rounded = Second {
            rate: second.rate.round(),
            received_rate: second.received_rate.round(),
            ..*second
        };
        self.add("second", json!(rounded));
        self.next.second(second);
    }

    fn ended(&self, point: &Point) {
        self.add(
            "ended",
            json!({"number": point.number, "outcome": point.outcome.kind, "reason": point.outcome.reason,
                "durability": point.durability.given, "metrics": point.metrics}),
        );
        self.next.ended(point);
    }
}

/// Takes commands until it is dropped, which also removes the socket.
pub(super) struct Control {
    path: PathBuf,
    _task: JoinSet<()>,
}

impl Control {
    /// Returns `None` where there can be no socket, as in a folder whose path is too long for one.
    pub(super) fn listen(folder: &Path, ends: Ends) -> Option<Self> {
        let path = folder.join(CONTROL);
        // A program that was killed left it. One that is alive holds the data folder, so this is not reached.
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).ok()?;
        let mut task = JoinSet::new();
        task.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // One at a time: a silent one is given up.
                let _ = timeout(PATIENCE, answer(stream, &ends)).await;
            }
        });
        Some(Self { path, _task: task })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

async fn answer(mut stream: UnixStream, ends: &Ends) -> std::io::Result<()> {
    let mut command = String::new();
    BufReader::new(&mut stream).read_line(&mut command).await?;
    let said = match command.trim() {
        "stop" => {
            ends.soon.cancel();
            "ok\n"
        }
        "stop now" => {
            ends.now.cancel();
            "ok\n"
        }
        _ => "not known\n",
    };
    stream.write_all(said.as_bytes()).await
}

/// Sends a command to the program of a run. Returns false if no program runs it.
pub async fn command(folder: &Path, command: &str) -> bool {
    let sent = async {
        let mut stream = UnixStream::connect(folder.join(CONTROL)).await?;
        stream.write_all(format!("{command}\n").as_bytes()).await?;
        let mut answer = String::new();
        BufReader::new(&mut stream).read_line(&mut answer).await?;
        std::io::Result::Ok(answer.trim() == "ok")
    };
    matches!(timeout(PATIENCE, sent).await, Ok(Ok(true)))
}

/// Returns true if a program runs the run in this folder.
pub async fn is_alive(folder: &Path) -> bool {
    UnixStream::connect(folder.join(CONTROL)).await.is_ok()
}
