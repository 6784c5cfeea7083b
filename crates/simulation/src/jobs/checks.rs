//! The state of apps after a start, compared with their records.

use std::collections::BTreeMap;
use std::sync::Arc;

use stafett_apps::{App, Definition, Start, Table, TaskId};
use stafett_broker::Broker;
use stafett_journal::Visibility;
use stafett_model::{Offset, StoredRecord};
use stafett_topics::{NewTopic, ReadEnd, RecordItem, RecordTail, TopicSettings};

use super::{TABLE, Trade, counts, text, transfers};
use crate::server::Server;
use crate::world::{Broken, Finding, World};

const PARTITIONS: u32 = 2;
const TIMEOUT_MS: u64 = 2_000;
/// Entries of a scan, more than there are.
const PAGE: usize = 1 << 16;

impl World {
    /// Declares the apps after a start, and compares their states with the records.
    pub async fn check_jobs(&mut self, server: &mut Server) -> Result<(), Broken> {
        if self.has_lost {
            return Ok(());
        }
        for trade in [Trade::Counts, Trade::Transfers] {
            let broker = Arc::clone(&server.broker);
            let Some(app) = self.wait_for(server, declare(Arc::clone(&broker), trade)).await? else {
                self.tick(server).await?;
                if self.may_refuse || self.has_failed() {
                    return Ok(());
                }
                return Err(Finding(format!("app {} cannot be declared", trade.app())).into());
            };
            let floor = self.jobs.of(trade).floor.clone();
            let checking = check(broker, Arc::clone(&app), trade, floor);
            let checked = self.wait_for(server, checking).await?;
            self.tick(server).await?;
            checked.map_err(|what| Finding(format!("app {}: {what}", trade.app())))?;
            self.jobs.of(trade).app = Some(app);
        }
        Ok(())
    }
}

async fn declare(broker: Arc<Broker>, trade: Trade) -> Option<Arc<App>> {
    let inputs = trade.inputs().iter().map(|name| (*name, PARTITIONS));
    for (name, partitions) in inputs.chain([(trade.results(), 1)]) {
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
        topics: trade.inputs().iter().map(|name| (*name).into()).collect(),
        tables: [(TABLE.into(), Table::default())].into(),
        worker_timeout_ms: TIMEOUT_MS,
        ..Definition::default()
    };
    let declared = broker
        .apps()
        .declare(trade.app(), definition, Start::Earliest)
        .await;
    declared.ok().map(|(app, _)| app)
}

/// Sums by key as they are stored, and the records before the positions, per input.
pub(super) struct Seen {
    pub(super) sums: BTreeMap<String, i64>,
    pub(super) done: Vec<Vec<StoredRecord>>,
}

/// Compares state and results with the records.
async fn check(
    broker: Arc<Broker>,
    app: Arc<App>,
    trade: Trade,
    floor: BTreeMap<String, u64>,
) -> Result<(), String> {
    let mut seen = Seen {
        sums: BTreeMap::new(),
        done: vec![Vec::new(); trade.inputs().len()],
    };
    let tasks: Vec<TaskId> = app.stored().tasks.keys().copied().collect();
    for task in tasks {
        let position = app.position(task).await.map_err(|why| why.to_string())?;
        let scanned = Box::pin(app.scan(task, TABLE, b"", None, PAGE)).await;
        let (scan, _) = scanned.map_err(|why| why.to_string())?;
        for entry in scan.entries {
            let sum: i64 = text(&entry.value)?.parse().map_err(|_| "a value is no sum")?;
            seen.sums.insert(text(&entry.key)?, sum);
        }
        for ((input, topic), done) in trade.inputs().iter().enumerate().zip(&mut seen.done) {
            let mut records = read(&broker, topic, task.partition).await?;
            records.retain(|record| {
                let key = record.key.as_deref();
                task.slice().has(key) && record.offset.0 < position.next_for(input, key)
            });
            done.extend(records);
        }
    }
    let found = match trade {
        Trade::Counts => counts::check(&seen, &read(&broker, trade.results(), 0).await?)?,
        Trade::Transfers => {
            let mut passed = Vec::new();
            for partition in 0..PARTITIONS {
                passed.extend(read(&broker, trade.results(), partition).await?);
            }
            transfers::check(&seen, &passed)?
        }
    };
    let is_missing = |(fact, least): &(&String, &u64)| found.get(*fact).copied().unwrap_or(0) < **least;
    if let Some((fact, least)) = floor.iter().find(is_missing) {
        return Err(format!("{fact} was {least}, as acknowledged, of {found:?}"));
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
