//! All apps: declared, found and deleted.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock, Weak};

use prometheus_client::registry::Registry;
use stafett_journal::{Compaction, Frame, Journal, LogSpec, OwnerEpoch, StateUnreadable};
use stafett_model::{Durability, LogId, SharedLock};
use stafett_store::{Changes, Changing, Clock, NotStored, spaces, store_synced};
use stafett_topics::{ReadEnd, Topic, TopicCatalog, TopicId, offset_at_time};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::{App, Parts};
use crate::deadlines::{self, Deadlines};
use crate::definition::{Definition, NAME_BYTES_MAX, StoredApp, StoredTask, TABLES_MAX, TOPICS_MAX};
use crate::error::AppError;
use crate::lost_topics::{check_whole, reach};
use crate::machine::{Machine, Marks, Rules};
use crate::metrics::AppMetrics;
use crate::queues::QueueResults;
use crate::task::TaskId;

const APPS_MAX: usize = 10_000;
pub(crate) const TASKS_MAX: usize = 65_536;
const WORKERS_MAX: usize = 10_000;

/// Place at which tasks begin that have never committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    Earliest,
    Latest,
    /// The first record at this time or later, ms since 1970.
    Time(i64),
}

/// All apps of a broker.
#[derive(Debug)]
pub struct Apps {
    pub(crate) this: Weak<Self>,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) parts: Arc<Parts>,
    by_name: SharedLock<BTreeMap<Box<str>, Arc<App>>>,
    /// Declarations and deletions follow each other.
    turn: Semaphore,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Apps {
    /// Loads all apps. Must be called within a Tokio runtime, before anything is appended.
    pub fn open(
        journal: &Arc<dyn Journal>,
        catalog: &Arc<TopicCatalog>,
        clock: &Arc<Clock>,
    ) -> Result<Arc<Self>, StateUnreadable> {
        let parts = Arc::new(Parts {
            journal: Arc::clone(journal),
            queues: OnceLock::new(),
            catalog: Arc::clone(catalog),
            clock: Arc::clone(clock),
            changes: Changes::default(),
            deadlines: Arc::default(),
        });
        let mut apps = BTreeMap::new();
        spaces::APPS.load_values(&**journal, |key, value| {
            let name: Box<str> = std::str::from_utf8(key).ok()?.into();
            let stored = StoredApp::decode(value)?;
            let machine = machine(&**journal, &stored, clock.now_ms());
            let deadline = machine.deadline_ms();
            let app = App::new(name.clone(), stored, machine, &parts);
            if let Some(at_ms) = deadline {
                app.schedule(at_ms);
            }
            apps.insert(name, app);
            Some(())
        })?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let keeps_time = deadlines::run(
            Arc::<Deadlines>::clone(&parts.deadlines),
            Arc::clone(clock),
            stop.clone(),
        );
        tasks.spawn(keeps_time);
        let known: Vec<Arc<App>> = apps.values().cloned().collect();
        let learning = stop.clone();
        tasks.spawn(async move {
            // Positions are known before a worker comes, so that the lag of an app without one is.
            for app in known {
                let learned = learning.run_until_cancelled(app.know_positions()).await;
                if learned.is_none() {
                    return;
                }
            }
        });
        Ok(Arc::new_cyclic(|this| Self {
            this: this.clone(),
            journal: Arc::clone(journal),
            parts,
            by_name: SharedLock::new(apps),
            turn: Semaphore::new(1),
            stop,
            tasks,
        }))
    }

    /// Sets the owner of queues; without one, there are none.
    pub fn set_queues(&self, queues: Arc<dyn QueueResults>) {
        // Set once, at the start.
        drop(self.parts.queues.set(queues));
    }

    /// Waits until every change has ended. No change may begin afterwards.
    pub async fn finish(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.parts.changes.finish().await;
    }

    pub fn register_metrics(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(AppMetrics(self.this.clone())));
    }

    /// Returns an app by its name.
    pub fn named(&self, name: &str) -> Result<Arc<App>, AppError> {
        self.by_name.read().get(name).cloned().ok_or(AppError::NoSuchApp)
    }

    /// Returns all apps in the order of their names.
    pub fn all(&self) -> Vec<Arc<App>> {
        self.by_name.read().values().cloned().collect()
    }

    /// Returns an app that reads a topic.
    pub fn reader_of(&self, topic: TopicId) -> Option<Arc<App>> {
        let apps = self.by_name.read();
        let mut readers = apps.values().filter(|app| app.stored().topics.contains(&topic));
        readers.next().cloned()
    }

    /// Declares an app. Returns it, and true if it is new.
    pub fn declare(
        &self,
        name: &str,
        definition: Definition,
        start: Start,
    ) -> Changing<(Arc<App>, bool), AppError> {
        let (this, name) = (self.this.clone(), Box::<str>::from(name));
        self.parts.changes.begin(async move {
            let apps = this.upgrade().ok_or(NotStored::Unknown)?;
            let _turn = apps.turn().await;
            apps.declare_here(name, definition, start).await
        })
    }

    async fn declare_here(
        &self,
        name: Box<str>,
        definition: Definition,
        start: Start,
    ) -> Result<(Arc<App>, bool), AppError> {
        if let Ok(known) = self.named(&name) {
            return match known.stored().definition.difference(&definition) {
                None => Ok((known, false)),
                Some(field) => Err(AppError::ExistsDifferently(field)),
            };
        }
        check_names(&name, &definition)?;
        if self.by_name.read().len() >= APPS_MAX {
            return Err(AppError::TooManyApps { max: APPS_MAX });
        }
        self.check_dead_letter(&definition)?;
        let topics = self.inputs(&definition)?;
        let partitions = topics.first().map_or(0, |topic| topic.partitions());
        if partitions as usize > TASKS_MAX {
            let max = TASKS_MAX as u64;
            return Err(AppError::TooLarge {
                what: "the number of tasks",
                max,
            });
        }
        let first = self.journal.allocate(partitions);
        let mut tasks = BTreeMap::new();
        for partition in 0..partitions {
            let log = LogId(first.0 + u64::from(partition));
            let starts = self.starts(&topics, partition, start).await?;
            tasks.insert(TaskId::whole(partition), StoredTask { log, starts });
        }
        let durability = definition.durability;
        let stored = StoredApp {
            topics: topics.iter().map(|topic| topic.id).collect(),
            definition,
            tasks,
            paused: false,
            marks: Marks::default(),
            unfinished: Vec::new(),
        };
        let spec = log_spec(durability.unwrap_or_else(|| self.parts.catalog.defaults().logs.durability));
        let logs = Frame::CreateLogs {
            first,
            count: partitions,
            spec,
        };
        let row = spaces::APPS.put(name.as_bytes().to_vec(), stored.encode());
        store_synced(&*self.journal, [logs, row]).await?;
        let machine = machine(&*self.journal, &stored, self.parts.clock.now_ms());
        let app = App::new(name.clone(), stored, machine, &self.parts);
        self.by_name.write().insert(name, Arc::clone(&app));
        Ok((app, true))
    }

    pub(crate) async fn turn(&self) -> tokio::sync::SemaphorePermit<'_> {
        let turn = self.turn.acquire().await;
        turn.expect("the turn is never closed")
    }

    pub(crate) fn check_dead_letter(&self, definition: &Definition) -> Result<(), AppError> {
        let Some(name) = &definition.dead_letter else {
            return Ok(());
        };
        let topic = self.parts.catalog.topics().named(name);
        let topic = topic.filter(|topic| !topic.id.is_queue());
        let topic = topic.ok_or_else(|| AppError::NoSuchTopic(name.clone()))?;
        check_whole(&topic, "dead_letter")
    }

    fn inputs(&self, definition: &Definition) -> Result<Vec<Arc<Topic>>, AppError> {
        let mut topics: Vec<Arc<Topic>> = Vec::new();
        for name in &definition.topics {
            let topic = self.parts.catalog.topics().named(name);
            let topic = topic
                .filter(|topic| !topic.id.is_queue())
                .ok_or_else(|| AppError::NoSuchTopic(name.clone()))?;
            if let Some(first) = topics
                .first()
                .filter(|first| first.partitions() != topic.partitions())
            {
                return Err(AppError::NotCopartitioned {
                    one: first.name.clone(),
                    partitions: first.partitions(),
                    other: topic.name.clone(),
                    others: topic.partitions(),
                });
            }
            topics.push(topic);
        }
        Ok(topics)
    }

    /// Returns the offsets of a start per input; none for the earliest.
    pub(crate) async fn starts(
        &self,
        topics: &[Arc<Topic>],
        partition: u32,
        start: Start,
    ) -> Result<Vec<u64>, AppError> {
        let mut starts = Vec::new();
        if start == Start::Earliest {
            return Ok(starts);
        }
        reach(&self.parts.catalog, topics.iter(), partition).await?;
        for topic in topics {
            let Some(log) = topic.log(partition) else { continue };
            let end = self.journal.bounds(log).map_or(0, |bounds| bounds.stable.0);
            starts.push(match start {
                Start::Earliest => return Ok(Vec::new()),
                Start::Latest => end,
                Start::Time(at) => {
                    let found = offset_at_time(&*self.journal, log, at).await;
                    let found = found.map_err(|why| AppError::Input(ReadEnd::Failed(why)))?;
                    found.unwrap_or(end)
                }
            });
        }
        Ok(starts)
    }

    /// Deletes an app with its state. Refused while workers hold tasks, unless forced.
    pub fn delete(&self, name: &str, force: bool) -> Changing<(), AppError> {
        let (this, name) = (self.this.clone(), Box::<str>::from(name));
        self.parts.changes.begin(async move {
            let apps = this.upgrade().ok_or(NotStored::Unknown)?;
            let _turn = apps.turn().await;
            let app = apps.named(&name)?;
            if !force && app.with_machine(Machine::has_claims) {
                return Err(AppError::InUse);
            }
            let _row = app.row().await;
            let stored = app.stored();
            let row = spaces::APPS.delete(name.as_bytes().to_vec());
            let frames: Vec<Frame> = deletions(&stored.tasks).into_iter().chain([row]).collect();
            store_synced(&*apps.journal, frames).await?;
            apps.by_name.write().remove(&name);
            app.on_deleted();
            Ok(())
        })
    }

    /// Stops or continues deliveries. Commits of delivered records still count.
    pub fn pause(&self, name: &str, paused: bool) -> Changing<(), AppError> {
        let (this, name) = (self.this.clone(), Box::<str>::from(name));
        self.parts.changes.begin(async move {
            let apps = this.upgrade().ok_or(NotStored::Unknown)?;
            let _turn = apps.turn().await;
            let app = apps.named(&name)?;
            let set = |stored: &mut StoredApp| stored.paused = paused;
            app.update(Vec::new(), set).await
        })
    }
}

/// Frames that delete the logs of an app's tasks, one for each run of ids.
pub(crate) fn deletions(tasks: &BTreeMap<TaskId, StoredTask>) -> Vec<Frame> {
    let mut logs: Vec<u64> = tasks.values().map(|task| task.log.0).collect();
    logs.sort_unstable();
    let runs = logs.chunk_by(|one, next| one + 1 == *next);
    let frame = |run: &[u64]| Frame::DeleteLogs {
        first: LogId(run.first().copied().unwrap_or(0)),
        count: u32::try_from(run.len()).unwrap_or(u32::MAX),
    };
    runs.map(frame).collect()
}

/// Returns the settings of a task's log.
pub(crate) fn log_spec(durability: Durability) -> LogSpec {
    LogSpec {
        durability,
        compaction: Some(Compaction::default()),
        ..LogSpec::default()
    }
}

/// Returns the rules of an app's machine.
pub(crate) fn rules(definition: &Definition) -> Rules {
    Rules {
        balance: definition.balance,
        auto: !definition.manual_rebalance,
        worker_timeout_ms: definition.worker_timeout_ms,
        revoke_ms: definition.revoke_ms,
        workers_max: WORKERS_MAX,
    }
}

/// Creates the machine of an app. The epochs of its tasks are those of their logs.
fn machine(journal: &dyn Journal, stored: &StoredApp, now_ms: i64) -> Machine {
    let tasks = stored.tasks.iter().map(|(id, task)| {
        let OwnerEpoch(epoch) = journal.owner(task.log).unwrap_or_default();
        (*id, epoch)
    });
    // A session of an earlier run is never taken for one of this run.
    let first_session = RandomState::new().hash_one(stored.topics.len());
    Machine::new(rules(&stored.definition), tasks)
        .with_sessions_from(first_session)
        .with_marks(&stored.marks, now_ms)
}

pub(crate) fn check_names(name: &str, definition: &Definition) -> Result<(), AppError> {
    let bad = |field, why: &str| AppError::Bad {
        field,
        why: why.to_owned(),
    };
    let is_name =
        |name: &str| !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
    if !is_name(name) {
        return Err(bad("name", "a name has 1 to 249 bytes and no control characters"));
    }
    if definition.topics.is_empty() || definition.topics.len() > TOPICS_MAX {
        return Err(bad("topics", "an app reads 1 to 16 topics"));
    }
    let mut sorted = definition.topics.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() != definition.topics.len() {
        return Err(bad("topics", "an app reads a topic once"));
    }
    if definition.tables.len() > TABLES_MAX || !definition.tables.keys().all(|name| is_name(name)) {
        return Err(bad(
            "tables",
            "an app has up to 1,000 tables, whose names have 1 to 249 bytes",
        ));
    }
    if !(1_000..=3_600_000).contains(&definition.worker_timeout_ms) {
        return Err(bad(
            "worker_timeout_ms",
            "worker_timeout_ms is between 1000 and 3600000",
        ));
    }
    if definition.revoke_ms > 3_600_000 {
        return Err(bad("revoke_ms", "revoke_ms is at most 3600000"));
    }
    if definition.attempts_max == 0 {
        return Err(bad("attempts_max", "attempts_max is at least 1"));
    }
    Ok(())
}
