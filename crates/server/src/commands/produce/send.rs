//! Sends records from standard input to the topic.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow};
use serde_json::json;
use stafett_kafka_client::Str;
use stafett_kafka_client::partitioner::partition_of;
use stafett_kafka_client::{Delivery, Producer, ProducerSettings, Topic};
use stafett_model::Record;
use tokio::sync::mpsc;
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Job;
use super::input::{Found, Splitter, pieces};
use super::lines::Parsed;
use super::outcome::Outcome;
use crate::client::{Session, human, position};

/// Time that a batch waits for more records while the input pauses.
const LINGER: Duration = Duration::from_millis(5);
const PROGRESS: Duration = Duration::from_millis(200);
const RECORD_BYTES_DEFAULT: usize = 1 << 20;
/// Maximum bytes of a record and its batch without key, value and headers.
const OVERHEAD: usize = 61 + 64;

pub(super) async fn run(session: &Session, job: &Job, topic: Topic) -> anyhow::Result<()> {
    let record_bytes_max = record_bytes_max(session, &topic).await;
    let outcome = Arc::new(Outcome::new(job.quiet, input_bytes()));
    let counting = Arc::clone(&outcome);
    let mut settings = ProducerSettings {
        acks: job.acks,
        codec: job.codec,
        ..ProducerSettings::default()
    };
    settings.batch_bytes = settings.batch_bytes.min(record_bytes_max);
    let producer = Producer::open(
        session.client.clone(),
        topic.clone(),
        settings,
        move |delivery: Delivery| counting.deliver(&delivery),
    )
    .await?;

    let (tasks, end) = (TaskTracker::new(), CancellationToken::new());
    let (watching, watched) = (end.clone(), Arc::clone(&outcome));
    tasks.spawn(async move {
        let mut ticks = interval(PROGRESS);
        while watching.run_until_cancelled(ticks.tick()).await.is_some() {
            watched.progress();
        }
    });
    let mut sending = Sending {
        job,
        topic: &topic,
        producer,
        outcome: &outcome,
        splitter: Splitter::new(
            job.delimiter.as_deref(),
            record_bytes_max.saturating_sub(OVERHEAD),
        ),
        sticky: first_partition(topic.partitions.len()),
        line: 0,
        now: position::now(),
    };
    let read = sending.read(pieces()).await;
    let lines = sending.line;
    sending.producer.finish().await;
    end.cancel();
    tasks.close();
    tasks.wait().await;
    tell(session, job, &outcome, lines)?;
    read
}

fn tell(session: &Session, job: &Job, outcome: &Outcome, lines: u64) -> anyhow::Result<()> {
    if session.json {
        Session::object(&json!({
            "topic": job.topic,
            "records": outcome.stored(),
            "failed": outcome.failed(),
            "seconds": outcome.seconds(),
        }))?;
    } else if !job.quiet {
        outcome.summary(&job.topic);
    }
    if outcome.failed() == 0 {
        return Ok(());
    }
    let untold = match outcome.untold() {
        0 => String::new(),
        more => format!("; {more} failures are not shown"),
    };
    let stopped = if outcome.must_stop() {
        format!("; stopped after line {lines}")
    } else {
        String::new()
    };
    Err(anyhow!(
        "{} of {} records were not stored{stopped}{untold}",
        human::count(outcome.failed()),
        human::count(lines)
    ))
}

/// Returns the topic's limit on the bytes of a batch, or a default if the broker does not report it.
async fn record_bytes_max(session: &Session, topic: &Topic) -> usize {
    const KEY: &str = "max.message.bytes";
    let names: [Str; 1] = [topic.name.clone()];
    let settings = session
        .client
        .settings(&names, Some(&[KEY]))
        .await
        .unwrap_or_default();
    let value = settings.into_iter().flatten().find(|setting| setting.name == KEY);
    value
        .and_then(|setting| setting.value?.parse().ok())
        .unwrap_or(RECORD_BYTES_DEFAULT)
}

/// Returns the size of standard input. `None` if it is not a regular file.
fn input_bytes() -> Option<u64> {
    let stat = rustix::fs::fstat(io::stdin()).ok()?;
    let is_file = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::RegularFile;
    is_file.then(|| u64::try_from(stat.st_size).ok()).flatten()
}

/// Returns a partition that varies from run to run, so that short inputs are spread over the partitions.
fn first_partition(partitions: usize) -> usize {
    let time = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    usize::try_from(time.subsec_nanos()).unwrap_or(0) % partitions.max(1)
}

struct Sending<'a> {
    job: &'a Job,
    topic: &'a Topic,
    producer: Producer,
    outcome: &'a Outcome,
    splitter: Splitter,
    /// Partition for records without a key, until its batch is full.
    sticky: usize,
    line: u64,
    /// Timestamp of records without their own.
    now: i64,
}

impl Sending<'_> {
    async fn read(&mut self, mut pieces: mpsc::Receiver<io::Result<Vec<u8>>>) -> anyhow::Result<()> {
        let interrupted = tokio::signal::ctrl_c();
        tokio::pin!(interrupted);
        while !self.outcome.must_stop() {
            let soon = tokio::select! {
                biased;
                _ = &mut interrupted => return Err(self.interrupted()),
                soon = timeout(LINGER, pieces.recv()) => soon,
            };
            let piece = if let Ok(piece) = soon {
                piece
            } else {
                self.producer.flush().await;
                tokio::select! {
                    _ = &mut interrupted => return Err(self.interrupted()),
                    piece = pieces.recv() => piece,
                }
            };
            let Some(piece) = piece else {
                self.splitter.end();
                return self.take().await;
            };
            let piece = piece.context("standard input cannot be read")?;
            self.outcome.read(piece.len());
            self.now = position::now();
            self.splitter.feed(&piece);
            self.take().await?;
        }
        Ok(())
    }

    fn interrupted(&self) -> anyhow::Error {
        anyhow!("interrupted after line {}", self.line)
    }

    /// Sends all complete records.
    async fn take(&mut self) -> anyhow::Result<()> {
        while let Some(found) = self.splitter.next() {
            self.line += 1;
            let Found::Whole(line) = found else {
                let reason = "it is larger than the topic's max.message.bytes allows; see: stafett topic set";
                self.outcome.refuse(self.line, reason);
                continue;
            };
            let parsed = match self.job.shape.parse(line) {
                Ok(parsed) => parsed,
                Err(reason) => {
                    self.outcome.refuse(self.line, &reason);
                    continue;
                }
            };
            let wanted = self.job.partition.or(parsed.partition);
            let place = match wanted {
                Some(number) => self.topic.partitions.iter().position(|row| row.index == number),
                None => Some(choose(&self.producer, &mut self.sticky, &parsed)),
            };
            let Some(place) = place else {
                let reason = format!("the topic has no partition {}", wanted.unwrap_or(-1));
                self.outcome.refuse(self.line, &reason);
                continue;
            };
            let headers: Vec<_> = parsed
                .headers
                .iter()
                .map(|(key, value)| (key.as_ref(), value.as_deref()))
                .collect();
            let record = Record {
                key: parsed.key.as_deref(),
                value: parsed.value.as_deref(),
                headers: &headers,
                timestamp: parsed.timestamp.unwrap_or(self.now),
            };
            self.producer.push(place, &record, self.line).await?;
        }
        Ok(())
    }
}

/// Chooses a partition by the key, or without a key the one whose batch has room.
fn choose(producer: &Producer, sticky: &mut usize, parsed: &Parsed<'_>) -> usize {
    let partitions = producer.partitions().max(1);
    if let Some(key) = &parsed.key {
        return partition_of(key, partitions);
    }
    let bytes = |part: &Option<Cow<'_, [u8]>>| part.as_ref().map_or(0, |part| part.len());
    if !producer.fits(*sticky, bytes(&parsed.value)) {
        *sticky = (*sticky + 1) % partitions;
    }
    *sticky
}
