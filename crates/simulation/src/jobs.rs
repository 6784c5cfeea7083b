//! Workers of an app, at the level of the core verbs behind `/v1/apps`: they join, count records by key, fall
//! silent, leave, and commit under claims that are over, while tasks are split and merged.
//!
//! After each start the state of every key is the number of its records before the position, nothing that was
//! acknowledged is missing, and each count came out once.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use stafett_apps::machine::{EventKind, JoinSpec};
use stafett_apps::{
    App, AppError, Claim, Definition, FetchLimits, NewCommit, NewEntry, Session, Start, Table, TaskId,
};
use stafett_broker::Broker;
use stafett_journal::Visibility;
use stafett_model::{Offset, StoredRecord};
use stafett_topics::{NewRecord, NewTopic, ReadEnd, RecordItem, RecordTail, TopicSettings};

use crate::random::Random;
use crate::server::Server;
use crate::world::{Broken, Finding, World};

const APP: &str = "jobs";
const RECORDS: &str = "jobs.in";
const RESULTS: &str = "jobs.out";
const TABLE: &str = "counts";
const PARTITIONS: u32 = 2;
const WORKERS: u8 = 3;
const KEYS: u8 = 7;
const TIMEOUT_MS: u64 = 2_000;
const PAGE: usize = 1 << 16;

/// Step of the app's workers, or of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobStep {
    /// Records are stored.
    Feed {
        count: u8,
    },
    Join {
        worker: u8,
    },
    /// A worker works through some records of one of its tasks.
    Work {
        worker: u8,
        task: u8,
        records: u8,
    },
    Leave {
        worker: u8,
    },
    /// A worker forgets its tasks, without a word.
    Forget {
        worker: u8,
    },
    Split {
        task: u8,
    },
    Merge {
        task: u8,
    },
}

impl JobStep {
    pub fn draw(random: &mut Random) -> Self {
        let mut small = |bound: u8| u8::try_from(random.below(bound.into())).unwrap_or(0);
        let (kind, worker, task) = (small(32), small(WORKERS), small(16));
        match kind {
            0..=6 => Self::Feed { count: 1 + small(8) },
            7..=10 => Self::Join { worker },
            11..=26 => Self::Work {
                worker,
                task,
                records: 1 + small(10),
            },
            27 => Self::Leave { worker },
            28 | 29 => Self::Forget { worker },
            30 => Self::Split { task },
            _ => Self::Merge { task },
        }
    }
}

/// Counts by key that a commit stored, if it was acknowledged.
type Counted = Result<Vec<(String, u64)>, AppError>;
type Work = Pin<Box<dyn Future<Output = Counted> + Send>>;

/// The workers and their knowledge.
#[derive(Default)]
pub struct Jobs {
    app: Option<Arc<App>>,
    workers: BTreeMap<u8, Worker>,
    /// Least count of each key, as acknowledged.
    floor: BTreeMap<String, u64>,
    pending: Vec<Work>,
    fed: u64,
}

/// A session. A worker that forgot its session still has the claims of the one before.
#[derive(Debug, Clone, Default)]
struct Worker {
    number: u64,
    after: u64,
    claims: BTreeMap<TaskId, u64>,
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jobs")
            .field("workers", &self.workers)
            .field("pending", &self.pending.len())
            .finish_non_exhaustive()
    }
}

fn name(worker: u8) -> String {
    format!("w-{worker}")
}

fn text(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|why| why.to_string())
}

impl Jobs {
    /// Handles the end of the program: no worker gets an answer any more.
    pub fn on_end(&mut self) {
        self.leave();
        self.app = None;
        self.workers.clear();
    }

    /// Ends all requests without their answers.
    pub fn leave(&mut self) {
        self.pending.clear();
    }

    /// Forgets acknowledged commits: an earlier state is restored.
    pub fn forget(&mut self) {
        self.floor.clear();
    }

    /// Processes answers.
    pub fn turn(&mut self) -> Vec<String> {
        let mut context = Context::from_waker(Waker::noop());
        let mut notes = Vec::new();
        for mut work in std::mem::take(&mut self.pending) {
            match work.as_mut().poll(&mut context) {
                Poll::Pending => self.pending.push(work),
                Poll::Ready(Ok(counts)) => {
                    notes.push(format!("a job has counted {counts:?}"));
                    for (key, count) in counts {
                        let floor = self.floor.entry(key).or_default();
                        *floor = count.max(*floor);
                    }
                }
                Poll::Ready(Err(why)) => notes.push(format!("a job hears: {why}")),
            }
        }
        notes
    }

    fn step(&mut self, broker: &Arc<Broker>, app: &Arc<App>, step: JobStep) {
        let tasks: Vec<TaskId> = app.stored().tasks.keys().copied().collect();
        let at = |task: u8| tasks.get(usize::from(task) % tasks.len().max(1)).copied();
        match step {
            JobStep::Feed { count } => {
                let first = self.fed;
                self.fed += u64::from(count);
                let broker = Arc::clone(broker);
                self.pending.push(Box::pin(async move {
                    feed(&broker, first, count).await;
                    Ok(Vec::new())
                }));
            }
            JobStep::Join { worker } => {
                let spec = JoinSpec {
                    weight: 1,
                    tasks_max: None,
                    deliver: true,
                    eager: false,
                };
                if let Ok(joined) = app.join(&name(worker), spec) {
                    let worker = self.workers.entry(worker).or_default();
                    *worker = Worker {
                        number: joined.session,
                        after: 0,
                        claims: joined.resumed.into_iter().collect(),
                    };
                }
            }
            JobStep::Work {
                worker,
                task,
                records,
            } => self.work(app, worker, task, records),
            JobStep::Leave { worker } => {
                if let Some(known) = self.workers.get(&worker) {
                    // It may have been put out already. Its claims stay with it, and are of no use.
                    drop(app.leave(Session::new(&name(worker), known.number)));
                }
            }
            JobStep::Forget { worker } => drop(self.workers.remove(&worker)),
            JobStep::Split { task } => {
                if let Some(task) = at(task).filter(|_| tasks.len() < 8) {
                    let cut = broker.apps().split(APP, task, 2);
                    self.pending
                        .push(Box::pin(async { cut.await.map(|_| Vec::new()) }));
                }
            }
            JobStep::Merge { task } => {
                if let Some(parent) = at(task).and_then(TaskId::parent) {
                    let cut = broker.apps().merge(APP, parent);
                    self.pending
                        .push(Box::pin(async { cut.await.map(|_| Vec::new()) }));
                }
            }
        }
    }

    fn work(&mut self, app: &Arc<App>, worker: u8, task: u8, records: u8) {
        let Some(known) = self.workers.get_mut(&worker) else {
            return;
        };
        let worker = name(worker);
        let session = Session::new(&worker, known.number);
        let (after, claims) = (&mut known.after, &mut known.claims);
        let events = app.step(|machine, _, _| machine.events(session.worker, *after, 100));
        for event in events {
            *after = event.number;
            match event.kind {
                EventKind::Claimed { task, epoch, .. } => drop(claims.insert(task, epoch)),
                // It goes on under a claim that is over.
                EventKind::Lost { .. } | EventKind::Prepare { .. } => {}
                EventKind::Revoke { task, epoch, .. } => {
                    claims.remove(&task);
                    let (app, worker, number) = (Arc::clone(app), worker.clone(), known.number);
                    self.pending.push(Box::pin(async move {
                        let session = Session::new(&worker, number);
                        app.release(session, Claim { task, epoch })
                            .await
                            .map(|()| Vec::new())
                    }));
                }
            }
        }
        let count = claims.len().max(1);
        let claim = claims.iter().nth(usize::from(task) % count);
        let Some((&task, &epoch)) = claim else { return };
        let (app, number) = (Arc::clone(app), known.number);
        self.pending.push(Box::pin(async move {
            let session = Session::new(&worker, number);
            count_some(&app, session, Claim { task, epoch }, records.into()).await
        }));
    }
}

async fn feed(broker: &Broker, first: u64, count: u8) {
    let Some(topic) = broker.topics().named(RECORDS) else {
        return;
    };
    let records = (first..first + u64::from(count)).map(|number| NewRecord {
        key: Some(format!("k{}", number * 31 % u64::from(KEYS)).into()),
        value: Some(Bytes::from_static(b"x")),
        ..NewRecord::default()
    });
    let records: Vec<_> = records.collect();
    if let Ok(built) = broker
        .catalog()
        .records_append(&topic, &records, 0, stafett_store::wall_ms())
    {
        // Records without an answer are there or not: the app counts those that are.
        drop(broker.catalog().append(vec![built.append]).await);
    }
}

/// Counts some records of a task by key, and commits.
async fn count_some(app: &Arc<App>, session: Session<'_>, claim: Claim, max: usize) -> Counted {
    let limits = FetchLimits {
        records: max,
        bytes: 1 << 20,
    };
    let fetched = Box::pin(app.fetch(session, claim, &[], limits, std::future::ready(()))).await?;
    if fetched.records.is_empty() {
        return Ok(Vec::new());
    }
    let mut new: BTreeMap<Bytes, u64> = BTreeMap::new();
    for it in &fetched.records {
        *new.entry(it.record.key.clone().unwrap_or_default()).or_default() += 1;
    }
    let keys: Vec<Bytes> = new.keys().cloned().collect();
    let (known, seq) = Box::pin(app.get(claim.task, TABLE, &keys)).await?;
    let mut commit = NewCommit {
        seq: seq + 1,
        next: fetched.next.iter().copied().map(Some).collect(),
        ..NewCommit::default()
    };
    let mut counts = Vec::new();
    for ((key, new), known) in new.into_iter().zip(known) {
        let before = known.and_then(|entry| std::str::from_utf8(&entry.value).ok()?.parse().ok());
        let count = before.unwrap_or(0_u64) + new;
        let value = Bytes::from(count.to_string());
        commit.emit.push((
            RESULTS.into(),
            NewRecord {
                key: Some(key.clone()),
                value: Some(value.clone()),
                ..NewRecord::default()
            },
        ));
        commit.entries.push(NewEntry {
            table: TABLE.into(),
            key: key.clone(),
            value: Some(value),
            ttl_ms: None,
        });
        counts.push((String::from_utf8_lossy(&key).into_owned(), count));
    }
    let committed = app.commit(session, claim, commit).await?;
    // A repeated number is a commit of another fetch of this worker, whose counts may differ.
    Ok(if committed.repeated { Vec::new() } else { counts })
}

impl World {
    pub fn job_step(&mut self, server: &Server, step: JobStep) {
        if let Some(app) = self.jobs.app.clone() {
            self.jobs.step(&server.broker, &app, step);
        }
    }

    /// Declares the app after a start, and compares its state with the records.
    pub async fn check_jobs(&mut self, server: &mut Server) -> Result<(), Broken> {
        if self.has_lost {
            return Ok(());
        }
        let broker = Arc::clone(&server.broker);
        let Some(app) = self.wait_for(server, declare(Arc::clone(&broker))).await? else {
            self.tick(server).await?;
            if self.may_refuse || self.has_failed() {
                return Ok(());
            }
            return Err(Finding("the app cannot be declared".to_owned()).into());
        };
        let checking = check(broker, Arc::clone(&app), self.jobs.floor.clone());
        let checked = self.wait_for(server, checking).await?;
        self.tick(server).await?;
        checked.map_err(|what| Finding(format!("the app: {what}")))?;
        self.jobs.app = Some(app);
        Ok(())
    }
}

async fn declare(broker: Arc<Broker>) -> Option<Arc<App>> {
    for (name, partitions) in [(RECORDS, PARTITIONS), (RESULTS, 1)] {
        if broker.topics().named(name).is_none() {
            let settings = TopicSettings {
                retention_age: Some(None),
                retention_bytes: Some(None),
                ..TopicSettings::default()
            };
            let new = NewTopic {
                name: name.into(),
                partitions: Some(partitions),
                settings,
            };
            broker.catalog().create(vec![new]).await.pop()?.ok()?;
        }
    }
    let definition = Definition {
        topics: vec![RECORDS.into()],
        tables: [(TABLE.into(), Table::default())].into(),
        worker_timeout_ms: TIMEOUT_MS,
        ..Definition::default()
    };
    let declared = broker.apps().declare(APP, definition, Start::Earliest).await;
    declared.ok().map(|(app, _)| app)
}

/// Compares state and results with the records.
async fn check(broker: Arc<Broker>, app: Arc<App>, floor: BTreeMap<String, u64>) -> Result<(), String> {
    let mut records = Vec::new();
    for partition in 0..PARTITIONS {
        records.push(read(&broker, RECORDS, partition).await?);
    }
    let (mut found, mut wanted) = (BTreeMap::new(), BTreeMap::new());
    let tasks: Vec<TaskId> = app.stored().tasks.keys().copied().collect();
    for task in tasks {
        let position = app.position(task).await.map_err(|why| why.to_string())?;
        let scanned = Box::pin(app.scan(task, TABLE, b"", None, PAGE)).await;
        let (scan, _) = scanned.map_err(|why| why.to_string())?;
        for entry in scan.entries {
            let count: u64 = text(&entry.value)?.parse().map_err(|_| "a value is no count")?;
            found.insert(text(&entry.key)?, count);
        }
        for record in records.get(task.partition as usize).into_iter().flatten() {
            let key = record.key.as_deref();
            if task.slice().has(key) && record.offset.0 < position.next_for(0, key) {
                *wanted.entry(text(key.unwrap_or_default())?).or_default() += 1;
            }
        }
    }
    if found != wanted {
        return Err(format!(
            "counts are {found:?}, and the records before the positions {wanted:?}"
        ));
    }
    if let Some((key, least)) = floor
        .iter()
        .find(|(key, least)| found.get(*key).copied().unwrap_or(0) < **least)
    {
        return Err(format!(
            "{least} records of {key} were counted, as acknowledged, of {found:?}"
        ));
    }
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    for record in read(&broker, RESULTS, 0).await? {
        let key = text(&record.key.unwrap_or_default())?;
        let count: u64 = text(&record.value.unwrap_or_default())?
            .parse()
            .map_err(|_| "a result is no count")?;
        let before = last.insert(key.clone(), count).unwrap_or(0);
        if count <= before {
            return Err(format!("the count {count} of {key} came out behind {before}"));
        }
    }
    if last != found {
        return Err(format!("the last results are {last:?}, and counts {found:?}"));
    }
    Ok(())
}

async fn read(broker: &Broker, topic: &str, partition: u32) -> Result<Vec<StoredRecord>, String> {
    let log = broker
        .topics()
        .named(topic)
        .and_then(|topic| topic.log(partition));
    let log = log.ok_or("a topic is gone")?;
    let mut tail = RecordTail::new(log, Offset(0), 1 << 20, Visibility::Stored);
    let mut records = Vec::new();
    loop {
        while let Some(item) = tail.item() {
            match item {
                RecordItem::Record(record) => records.push(record),
                RecordItem::Skipped(skipped) => return Err(format!("{skipped:?} of {topic} is gone")),
            }
        }
        match tail.read(broker.catalog()).await {
            Ok(()) => {}
            Err(ReadEnd::AtEnd) => return Ok(records),
            Err(why) => return Err(why.to_string()),
        }
    }
}
