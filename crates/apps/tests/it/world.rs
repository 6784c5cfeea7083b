//! A broker's topics and apps, its restarts, and workers that are driven by hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use stafett_apps::machine::{EventKind, JoinSpec};
use stafett_apps::{
    App, AppError, Appended, Apps, Claim, Committed, Definition, FetchLimits, Fetched, NewCommit, NewEntry,
    QueueMessages, QueueRefusal, QueueResults, Session, Start, TaskId,
};
use stafett_journal::{Append, Journal, MemoryJournal};
use stafett_store::{Clock, NotStored};
use stafett_topics::{NewRecord, NewTopic, Outcome, TopicCatalog, TopicDefaults, TopicSettings};
use tokio::sync::Notify;

pub(crate) const ALL: FetchLimits = FetchLimits {
    records: 1000,
    bytes: 1 << 20,
};

pub(crate) struct World {
    memory: Option<Arc<MemoryJournal>>,
    pub(crate) catalog: Arc<TopicCatalog>,
    pub(crate) apps: Arc<Apps>,
}

/// An owner of queues that stores once it is told to.
#[derive(Debug)]
struct Later {
    catalog: Arc<TopicCatalog>,
    go: Arc<Notify>,
}

impl QueueResults for Later {
    fn append(&self, append: Append, _: QueueMessages) -> Appended {
        let (catalog, go) = (Arc::clone(&self.catalog), Arc::clone(&self.go));
        Box::pin(async move {
            go.notified().await;
            let Some(Outcome::Committed(placed)) = catalog.append(vec![append]).await.pop() else {
                return Err(QueueRefusal::NotStored(NotStored::Unknown));
            };
            Ok(placed.iter().map(|batch| batch.base.0).collect())
        })
    }
}

/// A worker's session.
#[derive(Debug, Clone)]
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) session: u64,
    pub(crate) after: u64,
    pub(crate) claims: BTreeMap<TaskId, u64>,
    pub(crate) told: Vec<EventKind>,
}

pub(crate) fn definition(topics: &[&str]) -> Definition {
    let mut definition = Definition {
        topics: topics.iter().map(|name| (*name).into()).collect(),
        ..Definition::default()
    };
    definition.time.grace_ms = 0;
    definition
        .tables
        .insert("t".into(), stafett_apps::Table::default());
    definition
}

impl World {
    pub(crate) fn new() -> Self {
        Self::over(Arc::new(MemoryJournal::new()))
    }

    fn over(memory: Arc<MemoryJournal>) -> Self {
        let journal: Arc<dyn Journal> = Arc::clone(&memory) as Arc<dyn Journal>;
        Self {
            memory: Some(memory),
            ..Self::on(&journal)
        }
    }

    /// Starts on any journal.
    pub(crate) fn on(journal: &Arc<dyn Journal>) -> Self {
        Self::by_clock(journal, &Arc::new(Clock::start()))
    }

    /// Starts on any journal, by a clock.
    pub(crate) fn by_clock(journal: &Arc<dyn Journal>, clock: &Arc<Clock>) -> Self {
        let catalog = TopicCatalog::load(Arc::clone(journal), TopicDefaults::default()).unwrap();
        let catalog = Arc::new(catalog);
        let apps = Apps::open(journal, &catalog, clock).unwrap();
        Self {
            memory: None,
            catalog,
            apps,
        }
    }

    /// Has commits with results for queues stored once they are told to, one at a time.
    pub(crate) fn stores_later(&self) -> Arc<Notify> {
        let (catalog, go) = (Arc::clone(&self.catalog), Arc::new(Notify::new()));
        let later = Later {
            catalog,
            go: Arc::clone(&go),
        };
        self.apps.set_queues(Arc::new(later));
        go
    }

    /// The broker is killed and starts again.
    pub(crate) fn killed(&self) -> Self {
        Self::over(Arc::new(self.memory.as_ref().unwrap().reopen()))
    }

    pub(crate) async fn topic(&self, name: &str, partitions: u32) {
        let new = NewTopic {
            name: name.into(),
            partitions: Some(partitions),
            settings: TopicSettings::default(),
        };
        self.catalog.create(vec![new]).await.remove(0).unwrap();
    }

    pub(crate) async fn send(&self, topic: &str, records: &[(&str, &str, i64)]) {
        self.try_send(topic, records).await.unwrap();
    }

    /// Stores records. `None` if the journal refuses them or has failed.
    pub(crate) async fn try_send(&self, topic: &str, records: &[(&str, &str, i64)]) -> Option<()> {
        let topic = self.catalog.topics().named(topic)?;
        let record = |(key, value, timestamp): &(&str, &str, i64)| NewRecord {
            key: Some(Bytes::copy_from_slice(key.as_bytes())),
            value: Some(Bytes::copy_from_slice(value.as_bytes())),
            timestamp: Some(*timestamp),
            ..NewRecord::default()
        };
        let records: Vec<_> = records.iter().map(record).collect();
        let built = self.catalog.records_append(&topic, &records, 0, i64::MAX).ok()?;
        let outcome = self.catalog.append(vec![built.append]).await;
        matches!(&outcome[..], [Outcome::Committed(_)]).then_some(())
    }

    pub(crate) async fn declare(&self, name: &str, definition: Definition) -> Arc<App> {
        self.apps
            .declare(name, definition, Start::Earliest)
            .await
            .unwrap()
            .0
    }

    /// Returns the headers of a partition's last record.
    pub(crate) async fn headers(&self, topic: &str, partition: u32) -> Vec<(String, String)> {
        let last = self.records(topic, partition).await.pop().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let headers = last.headers.iter();
        headers
            .map(|(name, value)| (text(name), text(value.unwrap_or_default())))
            .collect()
    }

    /// Returns the values of a topic's partition.
    pub(crate) async fn values(&self, topic: &str, partition: u32) -> Vec<String> {
        let records = self.records(topic, partition).await.into_iter();
        records
            .map(|record| String::from_utf8(record.value.unwrap().to_vec()).unwrap())
            .collect()
    }

    async fn records(&self, topic: &str, partition: u32) -> Vec<stafett_model::StoredRecord> {
        let log = self
            .catalog
            .topics()
            .named(topic)
            .unwrap()
            .log(partition)
            .unwrap();
        let visibility = stafett_topics::Visibility::Committed;
        let mut tail = stafett_topics::RecordTail::new(log, stafett_model::Offset(0), 1 << 20, visibility);
        let mut records = Vec::new();
        loop {
            while let Some(stafett_topics::RecordItem::Record(record)) = tail.item() {
                records.push(record);
            }
            if tail.read(&self.catalog).await.is_err() {
                return records;
            }
        }
    }
}

impl Worker {
    pub(crate) fn join(app: &App, name: &str) -> Self {
        let spec = JoinSpec {
            weight: 1,
            tasks_max: None,
            deliver: true,
            eager: false,
        };
        let joined = app.join(name, spec).unwrap();
        Self {
            name: name.to_owned(),
            session: joined.session,
            after: 0,
            claims: joined.resumed.into_iter().collect(),
            told: Vec::new(),
        }
    }

    pub(crate) fn beat(&self, app: &App) {
        app.beat(self.session()).unwrap();
    }

    pub(crate) fn session(&self) -> Session<'_> {
        Session::new(&self.name, self.session)
    }

    /// Takes the events that are there, or the first that comes.
    pub(crate) async fn poll(&mut self, app: &App) {
        let wait = tokio::time::sleep(std::time::Duration::from_secs(5));
        let events = app.poll(self.session(), self.after, 100, wait).await.unwrap();
        for event in events {
            self.after = event.number;
            match &event.kind {
                EventKind::Claimed { task, epoch, .. } => drop(self.claims.insert(*task, *epoch)),
                EventKind::Lost { task, epoch, .. } => {
                    if self.claims.get(task) == Some(epoch) {
                        self.claims.remove(task);
                    }
                }
                EventKind::Prepare { .. } | EventKind::Revoke { .. } => {}
            }
            self.told.push(event.kind);
        }
    }

    /// Polls until the worker has this many claims.
    pub(crate) async fn has(mut self, app: &App, claims: usize) -> Self {
        while self.claims.len() != claims {
            self.poll(app).await;
        }
        self
    }

    pub(crate) fn claim(&self, task: TaskId) -> Claim {
        let epoch = self.claims.get(&task).copied().unwrap();
        Claim { task, epoch }
    }

    pub(crate) async fn fetch(&self, app: &App, task: TaskId) -> Result<Fetched, AppError> {
        let claim = self.claim(task);
        app.fetch(self.session(), claim, &[], ALL, std::future::ready(()))
            .await
    }

    pub(crate) async fn commit(
        &self,
        app: &Arc<App>,
        task: TaskId,
        commit: NewCommit,
    ) -> Result<Committed, AppError> {
        app.commit(self.session(), self.claim(task), commit).await
    }

    pub(crate) async fn get(&self, app: &App, task: TaskId, key: &str) -> Option<String> {
        let keys = [Bytes::copy_from_slice(key.as_bytes())];
        let (mut values, _) = app.get(task, "t", &keys).await.unwrap();
        let entry = values.remove(0)?;
        Some(String::from_utf8(entry.value.to_vec()).unwrap())
    }
}

pub(crate) fn put(key: &str, value: &str) -> NewEntry {
    NewEntry {
        table: "t".into(),
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Some(Bytes::copy_from_slice(value.as_bytes())),
        ttl_ms: None,
    }
}

pub(crate) fn delete(key: &str) -> NewEntry {
    NewEntry {
        value: None,
        ..put(key, "")
    }
}

pub(crate) fn result(topic: &str, value: &str) -> (Box<str>, NewRecord) {
    let record = NewRecord {
        partition: Some(0),
        value: Some(Bytes::copy_from_slice(value.as_bytes())),
        ..NewRecord::default()
    };
    (topic.into(), record)
}
