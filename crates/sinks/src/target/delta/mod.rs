//! A Delta table: rows in Parquet files, which count once a commit of the table's log names them.
//!
//! ```text
//! stafett-ID.parquet                    a file of rows, under a name of its own
//! _delta_log/NUMBER.json                add the file, txn the position: put only if absent
//! ```
//!
//! The position of a place is the version of an application, `stafett.SINK/TOPIC/PARTITION@TOPIC_ID`. A
//! commit whose number is taken reads those before it, and is put again behind them, unless one of them has
//! moved the position: then another writer is further, and this one is fenced. So each record counts once
//! without a number of writers: a writer that was believed dead may finish a batch, and the one behind it
//! goes on there.
//!
//! Absent: partitions, checkpoints, and changes of tables. Checkpoints of others are read.

mod log;

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde_json::{Value, json};
use uuid::Uuid;

use super::files::storage::{Storage, computed};
use super::files::{WallClock, parquet};
use super::{Opened, Part, Place, Promise, Start, Steps, Target, TargetError};
use crate::columns::{Column, Kind};
use crate::definition::DeltaSpec;
pub(crate) use log::type_of;
use log::{Log, Position, stop};

/// Commits of others that are met in one flush, at most.
const TRIES: usize = 100;

/// A table in a folder or a bucket.
#[derive(Debug)]
pub struct Delta {
    sink: String,
    spec: DeltaSpec,
    /// Columns as files have them: JSON is text.
    columns: Vec<Column>,
    storage: Storage,
    writer: String,
    wall: WallClock,
    steps: Steps,
    log: Log,
    /// Positions and ids of topics of places that this writer has.
    places: BTreeMap<Place, (u64, Option<Uuid>)>,
}

impl Delta {
    pub fn new(sink: &str, spec: &DeltaSpec, columns: &[Column], wall: WallClock, steps: Steps) -> Self {
        let mut columns = columns.to_vec();
        for column in &mut columns {
            if column.kind == Kind::Jsonb {
                column.kind = Kind::Text;
            }
        }
        Self {
            sink: sink.to_owned(),
            storage: Storage::of(&spec.files),
            spec: spec.clone(),
            columns,
            writer: Uuid::new_v4().simple().to_string(),
            wall,
            steps,
            log: Log::default(),
            places: BTreeMap::new(),
        }
    }

    fn prefix(&self, place: &Place) -> String {
        format!("stafett.{}/{place}@", self.sink)
    }

    fn app(&self, place: &Place, topic: Option<Uuid>) -> String {
        let id = topic.map(|id| id.to_string()).unwrap_or_default();
        format!("{}{id}", self.prefix(place))
    }

    /// Returns the position of a place that was set last, and the id of its topic.
    fn newest(&self, place: &Place) -> Option<(Position, Option<Uuid>)> {
        let prefix = self.prefix(place);
        let all = self.log.positions.range(prefix.clone()..);
        let own = all.map_while(|(app, position)| Some((*position, app.strip_prefix(&prefix)?)));
        let newest = own.max_by_key(|(position, _)| (position.since, position.updated))?;
        Some((newest.0, newest.1.parse().ok()))
    }

    /// Reads the log, and makes a table that is missing, if it is to be made.
    async fn follow(&mut self) -> Result<(), TargetError> {
        self.storage.check(&self.writer).await?;
        self.log.follow(&mut self.storage).await?;
        if self.log.version.is_none() {
            if !self.spec.create {
                let path = &self.spec.files.path;
                return Err(stop(format!("{path} has no Delta table: create = true makes it")));
            }
            self.storage.make_parent(&log::path(0)).await?;
            let lines = [protocol(), self.metadata()];
            // Another writer may be faster: its table is checked.
            self.put(0, &lines).await?;
            self.log.follow(&mut self.storage).await?;
        }
        self.log.check(&self.columns)
    }

    fn metadata(&self) -> Value {
        let fields = self.columns.iter().map(|column| {
            let kind = type_of(column.kind).unwrap_or_default();
            json!({"name": column.name, "type": kind, "nullable": column.nullable, "metadata": {}})
        });
        let fields: Vec<Value> = fields.collect();
        let schema = json!({"type": "struct", "fields": fields}).to_string();
        json!({"metaData": {
            "id": Uuid::new_v4().to_string(), "format": {"provider": "parquet", "options": {}},
            "schemaString": schema, "partitionColumns": [], "configuration": {}, "createdTime": (self.wall)(),
        }})
    }

    /// Puts a commit. Returns false if its number is taken.
    async fn put(&mut self, version: u64, actions: &[Value]) -> Result<bool, TargetError> {
        let info = json!({"commitInfo": {
            "timestamp": (self.wall)(), "operation": "WRITE", "operationParameters": {"mode": "Append"},
            "isBlindAppend": true, "engineInfo": "stafett", "txnId": Uuid::new_v4().to_string(),
        }});
        let lines = [&info]
            .into_iter()
            .chain(actions)
            .map(|action| format!("{action}\n"));
        let bytes = lines.collect::<String>().into_bytes();
        let path = log::path(version);
        let is_put = self
            .storage
            .put_if_absent(&path, &self.writer, bytes.clone())
            .await?;
        if is_put {
            self.log.commit(version, &bytes)?;
        }
        Ok(is_put)
    }

    /// Commits a position, with a file if there is one, while the position is as `before`. The place has no
    /// newer topic, unless it `moves` there.
    async fn commit(
        &mut self,
        place: &Place,
        topic: Option<Uuid>,
        before: Option<i64>,
        next: u64,
        file: Option<Value>,
        moves: bool,
    ) -> Result<(), TargetError> {
        let app = self.app(place, topic);
        let next = i64::try_from(next).map_err(|_| stop(format!("{next} is no offset")))?;
        let txn = json!({"txn": {"appId": app, "version": next, "lastUpdated": (self.wall)()}});
        let actions: Vec<Value> = [txn].into_iter().chain(file).collect();
        for _ in 0..TRIES {
            self.follow().await?;
            let is_over = !moves && self.newest(place).is_some_and(|(_, known)| known != topic);
            if is_over || self.log.positions.get(&app).map(|position| position.next) != before {
                return Err(TargetError::Fenced(place.clone()));
            }
            let version = self.log.version.map_or(0, |version| version + 1);
            if self.put(version, &actions).await? {
                return Ok(());
            }
        }
        Err(TargetError::Retry(
            "other writers of the table are faster".to_owned(),
        ))
    }

    /// Writes a file. Returns the action that adds it.
    async fn stage(&mut self, part: &Part<'_>) -> Result<Value, TargetError> {
        let ids: Vec<i32> = (1..).take(self.columns.len()).collect();
        let encoded = computed(|| parquet::encode(&self.columns, &ids, &part.rows, true));
        let bytes = encoded.map_err(|why| stop(format!("Parquet: {why}")))?;
        let path = format!("stafett-{}.parquet", Uuid::new_v4());
        let size = bytes.len();
        self.storage.replace(&path, &self.writer, bytes).await?;
        let stats = json!({"numRecords": part.rows.len()}).to_string();
        Ok(json!({"add": {
            "path": path, "partitionValues": {}, "size": size, "modificationTime": (self.wall)(),
            "dataChange": true, "stats": stats,
        }}))
    }
}

/// Returns the protocol action of a new table: the lowest versions, without features.
fn protocol() -> Value {
    json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
}

#[async_trait]
impl Target for Delta {
    async fn open(&mut self, place: &Place, start: Start) -> Result<Opened, TargetError> {
        self.places.remove(place);
        self.follow().await?;
        let known = self.newest(place);
        let (next, topic) = match known {
            Some((_, topic)) if !start.is_of(topic) => return Err(TargetError::MadeAgain(place.clone())),
            Some((position, topic)) => (u64::try_from(position.next).unwrap_or(0), topic.or(start.topic)),
            None => (start.next, start.topic),
        };
        if known.is_none_or(|(_, known)| known != topic) {
            // A place without rows yet has a position as well; one without an id gets it.
            self.commit(place, topic, None, next, None, true).await?;
        }
        self.steps.reach("opened")?;
        self.places.insert(place.clone(), (next, topic));
        Ok(Opened {
            next,
            epoch: self.log.version.unwrap_or(0),
            begun: None,
            topic,
        })
    }

    async fn write(&mut self, part: &Part<'_>) -> Result<(), TargetError> {
        let position = self.places.get(part.place).copied();
        let Some((from, topic)) = position.filter(|(next, _)| *next == part.from) else {
            return Err(TargetError::Fenced(part.place.clone()));
        };
        let file = if part.rows.is_empty() {
            None
        } else {
            let file = self.stage(part).await?;
            self.steps.reach("file")?;
            Some(file)
        };
        let before = i64::try_from(from).ok();
        self.commit(part.place, topic, before, part.next, file, false)
            .await?;
        self.places.insert(part.place.clone(), (part.next, topic));
        self.steps.reach("committed")
    }

    async fn positions(&mut self) -> Result<Vec<(Place, u64)>, TargetError> {
        self.log.follow(&mut self.storage).await?;
        let prefix = format!("stafett.{}/", self.sink);
        let mut places = Vec::new();
        for app in self.log.positions.keys() {
            let place = app.strip_prefix(&prefix).and_then(|rest| rest.rsplit_once('@'));
            let Some((topic, partition)) = place.and_then(|(place, _)| place.rsplit_once('/')) else {
                continue;
            };
            if let Ok(partition) = partition.parse() {
                let topic = topic.to_owned();
                places.push(Place { topic, partition });
            }
        }
        places.sort();
        places.dedup();
        let next = |place: Place| {
            let (position, _) = self.newest(&place)?;
            Some((place, u64::try_from(position.next).unwrap_or(0)))
        };
        Ok(places.into_iter().filter_map(next).collect())
    }

    async fn set_position(&mut self, place: &Place, start: Start) -> Result<(), TargetError> {
        self.follow().await?;
        let app = self.app(place, start.topic);
        let before = self.log.positions.get(&app).map(|position| position.next);
        self.commit(place, start.topic, before, start.next, None, true)
            .await
    }

    async fn set_position_since(
        &mut self,
        place: &Place,
        epoch: u64,
        start: Start,
    ) -> Result<(), TargetError> {
        self.follow().await?;
        if self
            .newest(place)
            .is_some_and(|(position, _)| position.since > epoch)
        {
            return Err(TargetError::Fenced(place.clone()));
        }
        self.set_position(place, start).await
    }

    async fn prepare(&mut self, make: bool) -> Result<Vec<String>, TargetError> {
        let mut missing = self.storage.prepare(make).await?;
        if !make && !missing.is_empty() {
            missing.push(self.missing());
            return Ok(missing);
        }
        self.log.follow(&mut self.storage).await?;
        if self.log.version.is_none() {
            missing.push(self.missing());
            if make {
                self.storage.make_parent(&log::path(0)).await?;
                let lines = [protocol(), self.metadata()];
                self.put(0, &lines).await?;
            }
        }
        Ok(missing)
    }

    fn promise(&self) -> Promise {
        Promise::ExactlyOnce
    }
}

impl Delta {
    fn missing(&self) -> String {
        format!("the Delta table in {}", self.spec.files.path)
    }
}
