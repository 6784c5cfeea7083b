//! The database as PostgreSQL, version 12 or later.
//!
//! Three connections: one for commits, one for the beat, one for all else, so that no publication holds up a
//! commit or a beat. Commits are single statements: no transaction of a stopped node holds anything.

mod files;
mod line;
mod nodes;
mod tables;

use std::fmt;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use stafett_trust::PostgresTls;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use self::line::{Connection, Line, Target};
pub use self::nodes::{DatabaseFacts, PostgresDirectory};
use crate::database::{
    BLOCK_BYTES, Body, Database, DatabaseError, Kept, Link, Nonce, Owner, Publication, Reference, Row,
    append_part, copy_part,
};
use crate::objects::Part;

/// Time for a commit or a look.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for a publication or a read.
const BULK_PATIENCE: Duration = Duration::from_mins(1);
/// Version of the tables, with one cell and with several.
const FORMATS: [&str; 2] = ["3", "4"];

/// PostgreSQL, as one node sees one cell.
#[derive(Debug)]
pub struct Postgres {
    cell: i32,
    /// Cells that there have to be; 0 is any number.
    cells: u32,
    commits: Line,
    beats: Line,
    others: Line,
    on_commit: Option<OnCommit>,
}

/// Is told the time of each commit.
struct OnCommit(Box<dyn Fn(Duration) + Send + Sync>);

impl fmt::Debug for OnCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnCommit")
    }
}

/// Reason why an address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    #[error("it is no address such as postgres://USER@HOST/DATABASE")]
    Malformed,
    #[error("its certificate cannot be checked: {0}")]
    Tls(String),
    #[error("it cannot be used: {0}")]
    Io(#[from] io::Error),
}

/// Returns true if an address can be used.
pub fn check_address(url: &str) -> Result<(), AddressError> {
    parse(url).map(drop)
}

/// Returns an address as it may be shown.
pub fn without_password(url: &str) -> String {
    let Ok(config) = parse(url) else {
        return "an address that cannot be used".to_owned();
    };
    let hosts = config
        .get_hosts()
        .iter()
        .zip(config.get_ports().iter().chain(std::iter::repeat(&5432)));
    let hosts: Vec<String> = hosts
        .map(|(host, port)| match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            Host::Unix(path) => path.display().to_string(),
        })
        .collect();
    format!(
        "postgres://{}@{}/{}",
        config.get_user().unwrap_or_default(),
        hosts.join(","),
        config.get_dbname().unwrap_or_default()
    )
}

fn parse(url: &str) -> Result<Config, AddressError> {
    let config: Config = url.parse().map_err(|_| AddressError::Malformed)?;
    if config.get_hosts().is_empty() {
        return Err(AddressError::Malformed);
    }
    Ok(config)
}

/// Returns the server at an address. `ca` is the file with the authorities that are trusted; `None` for those
/// of the system.
fn target(url: &str, ca: Option<&Path>) -> Result<Target, AddressError> {
    let config = parse(url)?;
    let tls = if config.get_ssl_mode() == SslMode::Require {
        let ca = ca.map(Path::to_string_lossy);
        let connector = stafett_trust::connector(ca.as_deref()).map_err(AddressError::Tls)?;
        Some(PostgresTls(connector))
    } else {
        None
    };
    Ok(Target { config, tls })
}

impl Postgres {
    /// Makes the database of a cell. Nothing is connected yet. `beat_patience` is the time for one beat.
    pub fn new(url: &str, cell: i32, beat_patience: Duration) -> Result<Self, AddressError> {
        Self::trusting(url, None, cell, beat_patience)
    }

    /// As [`Self::new`], with a file of the authorities that are trusted, if the address asks for TLS.
    pub fn trusting(
        url: &str,
        ca: Option<&Path>,
        cell: i32,
        beat_patience: Duration,
    ) -> Result<Self, AddressError> {
        let target = target(url, ca)?;
        Ok(Self {
            cell,
            cells: 0,
            commits: Line::new(&target, PATIENCE)?,
            beats: Line::new(&target, beat_patience)?,
            others: Line::new(&target, BULK_PATIENCE)?,
            on_commit: None,
        })
    }

    /// Has a database without tables be given `cells` cells, and refuses one with another number of them.
    #[must_use]
    pub fn with_cells(self, cells: u32) -> Self {
        Self { cells, ..self }
    }

    /// Tells the time of each commit.
    #[must_use]
    pub fn timed(self, on_commit: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        Self {
            on_commit: Some(OnCommit(Box::new(on_commit))),
            ..self
        }
    }

    /// Ends all calls but those of the lease, and those that come.
    pub fn hang_up(&self) {
        self.commits.hang_up();
        self.others.hang_up();
    }

    /// Creates tables and cells where they are missing. Returns the number of cells, which does not change
    /// any more.
    pub fn prepare(&self) -> Result<u32, DatabaseError> {
        let (cell, wanted) = (self.cell, self.cells);
        let (format, cells): (String, i64) = self.others.call(async |it: &mut Connection| {
            let are_there = it.client.query_one(tables::ARE_THERE, &[]).await?.try_get(0)?;
            // Tables of an earlier version may have no cell yet.
            let has_cells = are_there && it.client.query_one(tables::HAS_CELLS, &[]).await?.try_get(0)?;
            if !has_cells {
                it.client.batch_execute(&tables::create(wanted)).await?;
            }
            let first: &[u8] = &Nonce::default();
            it.client.execute(tables::ADD_CELL, &[&cell, &first]).await?;
            let row = it.client.query_one(tables::FORMAT, &[]).await?;
            Ok((row.try_get(0)?, row.try_get(1)?))
        })?;
        if !FORMATS.contains(&&*format) {
            return Err(DatabaseError::Refused(format!(
                "its tables are of format {format}, which another version of this program made"
            )));
        }
        if wanted != 0 && i64::from(wanted) != cells {
            return Err(DatabaseError::Refused(format!(
                "its number of cells is {cells}, and cluster.cells says {wanted}: it is fixed when the first node \
                 starts"
            )));
        }
        Ok(u32::try_from(cells).unwrap_or_default())
    }

    /// Returns the key of the number of the cell's object store.
    fn store_key(&self) -> String {
        format!("objects-{}", self.cell)
    }

    /// Runs an update of the cell's row under an epoch. False if there is no such row.
    fn update(&self, line: &Line, text: &'static str, epoch: u64) -> Result<bool, DatabaseError> {
        let (cell, epoch) = (self.cell, signed(epoch));
        let changed = line.call(async |it: &mut Connection| {
            let statement = it.prepared(text).await?;
            it.client.execute(&statement, &[&cell, &epoch]).await
        })?;
        Ok(changed > 0)
    }
}

impl Database for Postgres {
    fn owner(&self) -> Result<Owner, DatabaseError> {
        let cell = self.cell;
        let (epoch, node, beat): (i64, Option<Vec<u8>>, i64) =
            self.commits.call(async |it: &mut Connection| {
                let statement = it.prepared(tables::OWNER).await?;
                let row = it.client.query_one(&statement, &[&cell]).await?;
                Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
            })?;
        Ok(Owner {
            epoch: unsigned(epoch),
            node: node.map(|node| nonce_of(&node)),
            beat: unsigned(beat),
        })
    }

    fn claim(&self, seen: u64, node: Nonce) -> Result<bool, DatabaseError> {
        let (cell, seen, node) = (self.cell, signed(seen), node.as_slice());
        let changed = self.commits.call(async |it: &mut Connection| {
            let statement = it.prepared(tables::CLAIM).await?;
            it.client.execute(&statement, &[&cell, &seen, &node]).await
        })?;
        Ok(changed > 0)
    }

    fn beat(&self, epoch: u64) -> Result<bool, DatabaseError> {
        self.update(&self.beats, tables::BEAT, epoch)
    }

    fn release(&self, epoch: u64) -> Result<(), DatabaseError> {
        self.update(&self.beats, tables::RELEASE, epoch).map(drop)
    }

    fn newest(&self) -> Result<Link, DatabaseError> {
        let cell = self.cell;
        let (seq, nonce): (i64, Vec<u8>) = self.commits.call(async |it: &mut Connection| {
            let statement = it.prepared(tables::NEWEST).await?;
            let row = it.client.query_one(&statement, &[&cell]).await?;
            Ok((row.try_get(0)?, row.try_get(1)?))
        })?;
        Ok(Link {
            seq: unsigned(seq),
            nonce: nonce_of(&nonce),
        })
    }

    fn commit(&self, row: &Row<'_>) -> Result<bool, DatabaseError> {
        let (cell, seq, epoch, at) = (self.cell, signed(row.link.seq), signed(row.epoch), signed(row.at));
        let bytes = i32::try_from(row.body.bytes()).unwrap_or(i32::MAX);
        let (body, object, checksum) = match row.body {
            Body::Inline(body) => (body, None, None),
            Body::Object(part) => (
                [].as_slice(),
                Some(part.object.as_str()),
                Some(i64::from(part.checksum)),
            ),
        };
        let (nonce, previous) = (row.link.nonce.as_slice(), row.previous.as_slice());
        let begun = Instant::now();
        let inserted = self.commits.call(async |it: &mut Connection| {
            let statement = it.prepared(tables::COMMIT).await?;
            it.client
                .execute(
                    &statement,
                    &[
                        &cell, &seq, &epoch, &nonce, &row.name, &at, &bytes, &body, &previous, &object,
                        &checksum,
                    ],
                )
                .await
        })?;
        if let Some(OnCommit(on_commit)) = &self.on_commit {
            on_commit(begun.elapsed());
        }
        Ok(inserted > 0)
    }

    fn nonce_at(&self, seq: u64) -> Result<Option<Nonce>, DatabaseError> {
        let (cell, seq) = (self.cell, signed(seq));
        let nonce: Option<Vec<u8>> = self.commits.call(async |it: &mut Connection| {
            let statement = it.prepared(tables::NONCE).await?;
            let row = it.client.query_opt(&statement, &[&cell, &seq]).await?;
            row.map(|row| row.try_get(0)).transpose()
        })?;
        Ok(nonce.map(|nonce| nonce_of(&nonce)))
    }

    fn publish(&self, epoch: u64, publication: &Publication) -> Result<bool, DatabaseError> {
        let (cell, epoch) = (self.cell, signed(epoch));
        self.others.call(async |it: &mut Connection| {
            let removed = &publication.removed;
            let transaction = it.client.transaction().await?;
            if !removed.is_empty() {
                for text in [tables::REMOVE_BLOCKS, tables::REMOVE_FILES] {
                    transaction.execute(text, &[&cell, removed]).await?;
                }
                let kept: [&str; 0] = [];
                for text in [tables::REMOVE_ROWS, tables::REMOVE_PARTS] {
                    transaction
                        .execute(text, &[&cell, removed, &kept.as_slice()])
                        .await?;
                }
            }
            for file in &publication.changed {
                files::put(&transaction, cell, file).await?;
            }
            // Last, so that a claim waits for a moment only, also for a node that is stopped here.
            transaction.batch_execute(tables::SHORT).await?;
            let is_owner = transaction.execute(tables::PUBLISHED, &[&cell, &epoch]).await? > 0;
            if is_owner {
                transaction.commit().await?;
            } else {
                transaction.rollback().await?;
            }
            Ok(is_owner)
        })
    }

    fn list(&self) -> Result<Vec<(String, u64, Kept)>, DatabaseError> {
        let cell = self.cell;
        let rows: Vec<(String, i64, bool, bool)> = self.others.call(async |it: &mut Connection| {
            let rows = it.client.query(tables::LIST, &[&cell]).await?;
            rows.iter()
                .map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?)))
                .collect()
        })?;
        let read = |(name, bytes, is_in_rows, is_in_parts)| {
            let kept = match (is_in_rows, is_in_parts) {
                (true, _) => Kept::Rows,
                (false, true) => Kept::Parts,
                (false, false) => Kept::Blocks,
            };
            (name, unsigned(bytes), kept)
        };
        Ok(rows.into_iter().map(read).collect())
    }

    fn read(&self, name: &str, kept: Kept, from: u64, bytes: usize) -> Result<Vec<u8>, DatabaseError> {
        let cell = self.cell;
        let to = from + bytes as u64;
        let block = BLOCK_BYTES as u64;
        let parts: Vec<(u64, Vec<u8>)> = self.others.call(async |it: &mut Connection| match kept {
            Kept::Parts => Ok(Vec::new()),
            Kept::Rows => {
                let statement = it.prepared(tables::READ_ROWS).await?;
                let (from, to) = (signed(from), signed(to));
                let rows = it.client.query(&statement, &[&cell, &name, &from, &to]).await?;
                rows.iter()
                    .map(|row| Ok((unsigned(row.try_get(0)?), row.try_get(1)?)))
                    .collect()
            }
            Kept::Blocks => {
                let statement = it.prepared(tables::READ_BLOCKS).await?;
                let (first, last) = (number(from / block), number(to.saturating_sub(1) / block));
                let rows = it
                    .client
                    .query(&statement, &[&cell, &name, &first, &last])
                    .await?;
                rows.iter()
                    .map(|row| {
                        let number: Option<i32> = row.try_get(0)?;
                        let body: Option<Vec<u8>> = row.try_get(1)?;
                        let at = unsigned(number.unwrap_or_default().into()) * block;
                        Ok((at, body.unwrap_or_default()))
                    })
                    .collect()
            }
        })?;
        Ok(joined(kept, from, bytes, parts))
    }

    fn parts(&self, name: &str, kept: Kept) -> Result<Vec<Part>, DatabaseError> {
        let cell = self.cell;
        let text = match kept {
            Kept::Blocks => return Ok(Vec::new()),
            Kept::Parts => tables::PARTS,
            Kept::Rows => tables::PARTS_OF_ROWS,
        };
        self.others.call(async |it: &mut Connection| {
            let statement = it.prepared(text).await?;
            let rows = it.client.query(&statement, &[&cell, &name]).await?;
            rows.iter()
                .map(|row| {
                    let bytes: i32 = row.try_get(1)?;
                    let checksum: i64 = row.try_get(3)?;
                    Ok(Part {
                        at: unsigned(row.try_get(0)?),
                        bytes: u32::try_from(bytes).unwrap_or(0),
                        object: row.try_get(2)?,
                        checksum: u32::try_from(checksum).unwrap_or(0),
                    })
                })
                .collect()
        })
    }

    fn references(&self, behind: &str) -> Result<Vec<Reference>, DatabaseError> {
        let cell = self.cell;
        self.others.call(async |it: &mut Connection| {
            let rows = it.client.query(tables::REFERENCES, &[&cell, &behind]).await?;
            rows.iter()
                .map(|row| {
                    Ok(Reference {
                        object: row.try_get(0)?,
                        bytes: unsigned(row.try_get(1)?),
                        is_garbage: row.try_get(2)?,
                    })
                })
                .collect()
        })
    }

    fn garbage(&self, age: Duration) -> Result<Vec<String>, DatabaseError> {
        let (cell, age) = (self.cell, age.as_secs_f64());
        self.others.call(async |it: &mut Connection| {
            let rows = it.client.query(tables::GARBAGE, &[&cell, &age]).await?;
            rows.iter().map(|row| row.try_get(0)).collect()
        })
    }

    fn store(&self) -> Result<Option<String>, DatabaseError> {
        let key = self.store_key();
        self.others.call(async |it: &mut Connection| {
            let row = it.client.query_opt(tables::STORE, &[&key]).await?;
            row.map(|row| row.try_get(0)).transpose()
        })
    }

    fn set_store(&self, seen: Option<&str>, number: &str) -> Result<bool, DatabaseError> {
        let key = self.store_key();
        let changed = self.others.call(async |it: &mut Connection| match seen {
            None => it.client.execute(tables::ADD_STORE, &[&key, &number]).await,
            Some(seen) => {
                it.client
                    .execute(tables::CHANGE_STORE, &[&key, &number, &seen])
                    .await
            }
        })?;
        Ok(changed > 0)
    }

    fn forget_garbage(&self, objects: &[String]) -> Result<(), DatabaseError> {
        let cell = self.cell;
        self.others.call(async |it: &mut Connection| {
            it.client
                .execute(tables::FORGET_GARBAGE, &[&cell, &objects])
                .await
                .map(drop)
        })
    }
}

/// Returns the bytes of parts, in their order: as far as there are rows, or with zeros between blocks of a
/// file. No part at all: there is no file.
fn joined(kept: Kept, from: u64, bytes: usize, parts: Vec<(u64, Vec<u8>)>) -> Vec<u8> {
    let mut read = match kept {
        Kept::Blocks if !parts.is_empty() => vec![0; bytes],
        Kept::Blocks | Kept::Rows | Kept::Parts => Vec::with_capacity(bytes),
    };
    for (at, body) in parts {
        match kept {
            Kept::Rows | Kept::Parts => append_part(&mut read, from, bytes, at, &body),
            Kept::Blocks => copy_part(&mut read, from, at, &body),
        }
    }
    read
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn number(number: u64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn nonce_of(bytes: &[u8]) -> Nonce {
    bytes.try_into().unwrap_or_default()
}
