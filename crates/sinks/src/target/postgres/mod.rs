//! PostgreSQL: rows by binary COPY, and the position in the same transaction.
//!
//! ```text
//! BEGIN; COPY table …; INSERT INTO stafett_flushes …;
//! UPDATE stafett_positions SET next = … WHERE … AND epoch = … AND next = …   0 rows: fenced
//! COMMIT
//! ```
//!
//! The position comes last, so that its row is locked for a moment only. An upsert copies into a temporary
//! table first. Another writer is fenced by the epoch that `open` raises. A position of an earlier version
//! has no id of its topic; `open` adds it.

mod binary;
mod closing;
mod connect;
mod errors;
mod figures;
mod lake;
mod stats;
mod sums;
mod tables;

use std::pin::pin;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::task::JoinSet;
use tokio_postgres::Client;
use uuid::Uuid;

use super::{Opened, Part, Place, Promise, Start, Steps, Target, TargetError};
use crate::columns::Column;
use crate::definition::{DucklakeSpec, Mode, PostgresSpec};
use crate::rows::Slice;
use closing::Closing;
pub(crate) use connect::connect;
use errors::refused;
pub(crate) use errors::stopped;
pub use figures::{Figures, Summed};
use lake::Lake;
use tables::Tables;
pub(crate) use tables::quoted;

/// Bytes that are sent to the server at a time.
const CHUNK_BYTES: usize = 256 << 10;
const SESSION: &str = "SET idle_in_transaction_session_timeout = '30s'; SET client_min_messages = 'error'; \
                       SET synchronous_commit = 'on'";

/// A table of a PostgreSQL database, or of a lake whose catalog lies there.
#[derive(Debug)]
pub struct Postgres {
    sink: String,
    spec: PostgresSpec,
    columns: Vec<Column>,
    mode: Mode,
    worker: String,
    tables: Tables,
    steps: Steps,
    connection: Option<Connected>,
    lake: Option<Lake>,
}

#[derive(Debug)]
struct Connected {
    client: Client,
    closing: Option<Closing>,
    /// Ends with this.
    _task: JoinSet<()>,
}

impl Postgres {
    pub fn new(sink: &str, spec: &PostgresSpec, columns: &[Column], mode: &Mode, steps: Steps) -> Self {
        Self {
            sink: sink.to_owned(),
            spec: spec.clone(),
            columns: columns.to_vec(),
            mode: mode.clone(),
            worker: Uuid::new_v4().simple().to_string(),
            tables: Tables::new(spec, columns, mode),
            steps,
            connection: None,
            lake: None,
        }
    }

    /// A table of a lake: rows lie in files, and their places beside the positions.
    pub fn of_lake(sink: &str, spec: &DucklakeSpec, columns: &[Column], steps: Steps) -> Self {
        let catalog = PostgresSpec {
            url: spec.url.clone(),
            schema: spec.catalog_schema.clone(),
            table: spec.table.clone(),
            create: true,
            ca: spec.ca.clone(),
        };
        let mut target = Self::new(sink, &catalog, columns, &Mode::Append, steps);
        target.lake = Some(Lake::new(spec, columns, &target.worker));
        target
    }

    async fn client(&mut self) -> Result<&Client, TargetError> {
        let is_open = self.connection.as_ref().is_some_and(|it| !it.client.is_closed());
        if !is_open {
            self.connection = None;
            self.connection = Some(self.connect().await?);
        }
        match &self.connection {
            Some(connected) => Ok(&connected.client),
            None => Err(TargetError::Retry("the connection ended".to_owned())),
        }
    }

    async fn closing(&mut self) -> Result<Closing, TargetError> {
        let tables = self.tables.clone();
        self.client().await?;
        let gone = || TargetError::Retry("the connection ended".to_owned());
        let connected = self.connection.as_mut().ok_or_else(gone)?;
        if let Some(closing) = &connected.closing {
            return Ok(closing.clone());
        }
        let closing = Closing::prepare(&connected.client, &tables).await?;
        Ok(connected.closing.insert(closing).clone())
    }

    async fn connect(&self) -> Result<Connected, TargetError> {
        let (client, task) = connect(&self.spec.url, self.spec.ca.as_deref()).await?;
        client.batch_execute(SESSION).await.map_err(|why| stopped(&why))?;
        Ok(Connected {
            client,
            closing: None,
            _task: task,
        })
    }

    /// Returns statements for missing parts, and executes them if `make` says so; those of a lake are left to
    /// its own tools.
    async fn look(
        &mut self,
        tables: &Tables,
        lake: Option<&mut Lake>,
        make: bool,
    ) -> Result<Vec<String>, TargetError> {
        let client = self.client().await?;
        let mut missing = tables.missing_positions(client).await?;
        let of_lake = if let Some(lake) = lake {
            lake.look(client).await?
        } else {
            missing.extend(tables.missing(client).await?);
            Vec::new()
        };
        if make {
            for statement in &missing {
                client
                    .batch_execute(statement)
                    .await
                    .map_err(|why| stopped(&why))?;
            }
            if let Some(statement) = of_lake.first() {
                let why = format!("the lake's own tools make tables, with {statement}");
                return Err(TargetError::Stop(why));
            }
        }
        missing.extend(of_lake);
        Ok(missing)
    }

    /// Raises the epoch of a place, and returns its position. `next` and `topic` are the
    /// expressions of both where the place is there already.
    async fn take_over(
        &mut self,
        place: &Place,
        start: Start,
        next: &str,
        topic: &str,
    ) -> Result<Opened, TargetError> {
        // A statement that hangs in an earlier connection must not hold this one up.
        self.connection = None;
        let tables = self.tables.clone();
        tables.upgrade(self.client().await?).await?;
        let missing = self.prepare(self.spec.create).await?;
        if !missing.is_empty() && !self.spec.create {
            return Err(TargetError::Stop(format!(
                "the database lacks: {}",
                missing.join(" ")
            )));
        }
        let statement = format!(
            "INSERT INTO {positions} AS there (sink, topic, partition, next, epoch, worker, topic_id) \
             VALUES ($1, $2, $3, $4, 1, $5, $6::text::uuid) \
             ON CONFLICT (sink, topic, partition) \
             DO UPDATE SET epoch = there.epoch + 1, worker = excluded.worker, changed = now(), \
             next = {next}, topic_id = coalesce({topic}, there.topic_id, excluded.topic_id) \
             RETURNING next, epoch, topic_id::text",
            positions = self.tables.positions()
        );
        let (sink, worker) = (self.sink.clone(), self.worker.clone());
        let (partition, next) = (partition(place)?, signed(start.next)?);
        let id = start.topic.map(|id| id.to_string());
        let client = self.client().await?;
        let row = client
            .query_one(
                &statement,
                &[&sink, &place.topic, &partition, &next, &worker, &id],
            )
            .await
            .map_err(|why| stopped(&why))?;
        let number = |name: &str| u64::try_from(row.get::<_, i64>(name)).unwrap_or(0);
        let topic = row.get::<_, Option<String>>("topic_id");
        Ok(Opened {
            next: number("next"),
            epoch: number("epoch"),
            begun: None,
            topic: topic.and_then(|id| id.parse().ok()),
        })
    }

    /// Does the steps of a transaction up to its commit.
    async fn store(&mut self, part: &Part<'_>) -> Result<(), TargetError> {
        let steps = self.steps.clone();
        let numbers = Numbers::of(part)?;
        let (sink, columns, mode) = (self.sink.clone(), self.columns.clone(), self.mode.clone());
        let tables = self.tables.clone();
        let mut staged = None;
        if let Some(lake) = self.lake.as_mut().filter(|_| !part.rows.is_empty()) {
            staged = Some((lake.table()?, lake.stage(&part.rows).await?));
            steps.reach("file")?;
        }
        let closing = self.closing().await?;
        let client = self.client().await?;
        client.batch_execute("BEGIN").await.map_err(|why| stopped(&why))?;
        steps.reach("begin")?;
        if let Some((table, file)) = staged {
            table.add(client, &file).await?;
            steps.reach("added")?;
        } else if !part.rows.is_empty() {
            if mode != Mode::Append {
                let staged = client.batch_execute(&tables.make_staging()).await;
                staged.map_err(|why| stopped(&why))?;
            }
            copy(client, &tables.copy(), &columns, &part.rows, mode != Mode::Append).await?;
            steps.reach("copied")?;
            if mode != Mode::Append {
                let merged = client.batch_execute(&tables.merge()).await;
                merged.map_err(|why| refused(&why))?;
                steps.reach("merged")?;
            }
        }
        closing.run(client, &sink, part, &numbers).await?;
        steps.reach("position")?;
        // If the answer is lost, the position says at the next `open` if it counts.
        client
            .batch_execute("COMMIT")
            .await
            .map_err(|why| refused(&why))?;
        steps.reach("commit")
    }
}

/// Numbers of a part as PostgreSQL has them.
struct Numbers {
    partition: i32,
    from: i64,
    next: i64,
    epoch: i64,
}

impl Numbers {
    fn of(part: &Part<'_>) -> Result<Self, TargetError> {
        Ok(Self {
            partition: partition(part.place)?,
            from: signed(part.from)?,
            next: signed(part.next)?,
            epoch: signed(part.epoch)?,
        })
    }
}

fn signed(number: u64) -> Result<i64, TargetError> {
    i64::try_from(number).map_err(|_| TargetError::Stop(format!("{number} is no offset")))
}

fn partition(place: &Place) -> Result<i32, TargetError> {
    i32::try_from(place.partition).map_err(|_| TargetError::Stop(format!("{place} is no partition")))
}

async fn copy(
    client: &Client,
    statement: &str,
    columns: &[Column],
    rows: &Slice<'_>,
    with_offset: bool,
) -> Result<(), TargetError> {
    use futures_sink::Sink;
    let sink = client
        .copy_in::<_, Bytes>(statement)
        .await
        .map_err(|why| stopped(&why))?;
    let mut sink = pin!(sink);
    let mut chunks = binary::Chunks::new(columns, rows, with_offset, CHUNK_BYTES);
    while let Some(chunk) = chunks.next() {
        std::future::poll_fn(|context| sink.as_mut().poll_ready(context))
            .await
            .map_err(|why| refused(&why))?;
        sink.as_mut().start_send(chunk).map_err(|why| refused(&why))?;
    }
    sink.finish().await.map_err(|why| refused(&why))?;
    Ok(())
}

#[async_trait]
impl Target for Postgres {
    async fn open(&mut self, place: &Place, start: Start) -> Result<Opened, TargetError> {
        let opened = self
            .take_over(place, start, "there.next", "there.topic_id")
            .await?;
        if !start.is_of(opened.topic) {
            return Err(TargetError::MadeAgain(place.clone()));
        }
        self.steps.reach("opened")?;
        Ok(opened)
    }

    async fn write(&mut self, part: &Part<'_>) -> Result<(), TargetError> {
        let stored = self.store(part).await;
        if stored.is_err()
            && let Some(connected) = &self.connection
        {
            // If that fails too, the connection is of no use, and the server rolls back by itself.
            if connected.client.batch_execute("ROLLBACK").await.is_err() {
                self.connection = None;
            }
        }
        stored
    }

    async fn positions(&mut self) -> Result<Vec<(Place, u64)>, TargetError> {
        let statement = format!(
            "SELECT topic, partition, next FROM {} WHERE sink = $1 ORDER BY topic, partition",
            self.tables.positions()
        );
        let sink = self.sink.clone();
        let client = self.client().await?;
        let rows = client
            .query(&statement, &[&sink])
            .await
            .map_err(|why| stopped(&why))?;
        let position = |row: &tokio_postgres::Row| {
            let place = Place {
                topic: row.get(0),
                partition: u32::try_from(row.get::<_, i32>(1)).unwrap_or(0),
            };
            (place, u64::try_from(row.get::<_, i64>(2)).unwrap_or(0))
        };
        Ok(rows.iter().map(position).collect())
    }

    async fn set_position(&mut self, place: &Place, start: Start) -> Result<(), TargetError> {
        self.take_over(place, start, "excluded.next", "excluded.topic_id")
            .await?;
        Ok(())
    }

    async fn set_position_since(
        &mut self,
        place: &Place,
        epoch: u64,
        start: Start,
    ) -> Result<(), TargetError> {
        let statement = format!(
            "UPDATE {} SET next = $1, topic_id = coalesce($2::text::uuid, topic_id), changed = now() \
             WHERE sink = $3 AND topic = $4 AND partition = $5 AND epoch = $6",
            self.tables.positions()
        );
        let (sink, id) = (self.sink.clone(), start.topic.map(|id| id.to_string()));
        let (next, epoch, partition) = (signed(start.next)?, signed(epoch)?, partition(place)?);
        let client = self.client().await?;
        let set = client
            .execute(&statement, &[&next, &id, &sink, &place.topic, &partition, &epoch])
            .await
            .map_err(|why| stopped(&why))?;
        if set == 0 {
            return Err(TargetError::Fenced(place.clone()));
        }
        Ok(())
    }

    async fn prepare(&mut self, make: bool) -> Result<Vec<String>, TargetError> {
        let tables = self.tables.clone();
        let mut lake = self.lake.take();
        let looked = self.look(&tables, lake.as_mut(), make).await;
        self.lake = lake;
        looked
    }

    fn promise(&self) -> Promise {
        Promise::ExactlyOnce
    }
}
