//! DuckLake: rows in a Parquet file, and its place in the catalog, which lies in PostgreSQL beside the
//! positions.
//!
//! ```text
//! the file, under a name of its own
//! BEGIN; ducklake_data_file, ducklake_file_column_stats, ducklake_table_stats, ducklake_table_column_stats,
//! ducklake_snapshot, ducklake_snapshot_changes; the position; COMMIT
//! ```
//!
//! A snapshot has the number behind the newest one. Another writer that has taken it meanwhile makes the
//! statement fail, and the flush is tried again. A file of a flush that failed stays; the lake's own clean-up
//! (`ducklake_delete_orphaned_files`) removes it.
//!
//! Absent: changes of the table, its partitions, and encryption. A table that has these is refused.

use std::path::Path;

use tokio_postgres::Client;
use uuid::Uuid;

use super::errors::stopped;
use super::stats::{Stats, type_of};
use super::tables::quoted;
use crate::columns::{Column, Kind};
use crate::definition::DucklakeSpec;
use crate::rows::Slice;
use crate::target::TargetError;
use crate::target::files::parquet;
use crate::target::files::storage::{Storage, computed};

/// Versions of the catalog's format.
const VERSIONS: [&str; 3] = ["0.3", "1.0", "1.1"];
/// Lock of all sinks on one catalog while they take a number.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1::text, 7140))";

/// A table of a lake.
#[derive(Debug)]
pub(super) struct Lake {
    spec: DucklakeSpec,
    columns: Vec<Column>,
    storage: Storage,
    writer: String,
    table: Option<Table>,
}

/// A table as the catalog has it.
#[derive(Debug, Clone)]
pub(super) struct Table {
    /// Schema of the catalog's own tables.
    catalog: String,
    id: i64,
    /// Version of the lake's schemas at which it was read.
    schema_version: i64,
    /// Folder of its files, below that of the lake.
    folder: String,
    /// Ids of the declared columns, and of all others.
    ids: Vec<i32>,
    lacking: Vec<i64>,
}

/// A file that no snapshot has yet.
#[derive(Debug)]
pub(super) struct Staged {
    name: String,
    records: i64,
    bytes: i64,
    footer: i64,
    stats: Vec<(i64, Kind, Stats)>,
}

fn stop(why: String) -> TargetError {
    TargetError::Stop(why)
}

impl Lake {
    pub(super) fn new(spec: &DucklakeSpec, columns: &[Column], writer: &str) -> Self {
        Self {
            spec: spec.clone(),
            columns: columns.to_vec(),
            storage: Storage::of(&spec.files),
            writer: writer.to_owned(),
            table: None,
        }
    }

    pub(super) fn table(&self) -> Result<Table, TargetError> {
        let missing = || TargetError::Retry("the table of the lake was not looked at".to_owned());
        self.table.clone().ok_or_else(missing)
    }

    /// Looks at the table, and at the folder of the lake. Returns statements for missing parts, which the
    /// lake's own tools execute.
    pub(super) async fn look(&mut self, client: &Client) -> Result<Vec<String>, TargetError> {
        let catalog = quoted(&self.spec.catalog_schema);
        self.check(client, &catalog).await?;
        let (schema, name) = (&self.spec.schema, &self.spec.table);
        let statement = format!(
            "SELECT t.table_id, s.path || t.path, s.path_is_relative AND t.path_is_relative, \
             (SELECT schema_version FROM {catalog}.ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1), \
             EXISTS (SELECT FROM {catalog}.ducklake_partition_info p WHERE p.table_id = t.table_id AND p.end_snapshot IS NULL) \
             FROM {catalog}.ducklake_table t JOIN {catalog}.ducklake_schema s ON s.schema_id = t.schema_id \
             WHERE s.schema_name = $1::text AND t.table_name = $2::text AND t.end_snapshot IS NULL AND s.end_snapshot IS NULL"
        );
        let found = client.query_opt(&statement, &[schema, name]).await;
        let Some(row) = found.map_err(|why| stopped(&why))? else {
            return Ok(vec![self.create()]);
        };
        if row.get::<_, Option<bool>>(2) != Some(true) || row.get::<_, bool>(4) {
            let why = "has a folder elsewhere, or partitions: a sink writes into neither";
            return Err(stop(format!("the table {schema}.{name} of the lake {why}")));
        }
        let id: i64 = row.get(0);
        let (ids, lacking) = match self.columns_of(client, &catalog, id).await? {
            Ok(columns) => columns,
            Err(missing) => return Ok(missing),
        };
        self.table = Some(Table {
            catalog,
            id,
            schema_version: row.get(3),
            folder: row.get(1),
            ids,
            lacking,
        });
        Ok(Vec::new())
    }

    /// Refuses a catalog of an unknown version, and one whose files lie elsewhere.
    async fn check(&mut self, client: &Client, catalog: &str) -> Result<(), TargetError> {
        let statement = format!(
            "SELECT key, value FROM {catalog}.ducklake_metadata WHERE scope IS NULL AND key IN ('version', 'data_path', 'encrypted')"
        );
        let rows = client.query(&statement, &[]).await.map_err(|why| {
            let TargetError::Stop(why) = stopped(&why) else {
                return stopped(&why);
            };
            stop(format!("the database has no catalog of DuckLake: {why}"))
        })?;
        let value = |name: &str| {
            rows.iter()
                .find(|row| row.get::<_, String>(0) == name)
                .map(|row| row.get::<_, String>(1))
        };
        let version = value("version").unwrap_or_default();
        if !VERSIONS.contains(&&*version) {
            let known = VERSIONS.join(", ");
            return Err(stop(format!(
                "the lake has version {version:?}, and the sink knows {known}"
            )));
        }
        if value("encrypted").as_deref() == Some("true") {
            return Err(stop(
                "the lake is encrypted, and a sink does not encrypt".to_owned(),
            ));
        }
        let (data, path) = (value("data_path").unwrap_or_default(), &self.spec.files.path);
        if !is_same(&data, path) {
            return Err(stop(format!(
                "the files of the lake lie in {data:?}, and path is {path:?}"
            )));
        }
        let missing = self.storage.prepare(false).await?;
        match missing.first() {
            Some(what) => Err(stop(format!("there is not {what}"))),
            None => Ok(()),
        }
    }

    /// Returns the ids of the declared columns and of others, or statements for those that are missing.
    async fn columns_of(
        &self,
        client: &Client,
        catalog: &str,
        table: i64,
    ) -> Result<Result<(Vec<i32>, Vec<i64>), Vec<String>>, TargetError> {
        let statement = format!(
            "SELECT column_id, column_name, column_type, coalesce(initial_default, 'NULL') FROM {catalog}.ducklake_column \
             WHERE table_id = $1 AND end_snapshot IS NULL AND parent_column IS NULL"
        );
        let rows = client
            .query(&statement, &[&table])
            .await
            .map_err(|why| stopped(&why))?;
        let name = format!("{}.{}", quoted(&self.spec.schema), quoted(&self.spec.table));
        let (mut ids, mut missing) = (Vec::new(), Vec::new());
        for column in &self.columns {
            let there = rows.iter().find(|row| row.get::<_, String>(1) == column.name);
            let Some(row) = there else {
                missing.push(format!("ALTER TABLE {name} ADD COLUMN {};", declared(column)));
                continue;
            };
            let kind: String = row.get(2);
            if !fits(column.kind, &kind) {
                let (column, declared) = (&column.name, column.kind);
                let why = format!("column {column} of {name} is {kind}, and the sink declares {declared}");
                return Err(stop(why));
            }
            let id = i32::try_from(row.get::<_, i64>(0)).unwrap_or(i32::MAX);
            ids.push(id);
        }
        let mut lacking = Vec::new();
        for row in &rows {
            let (id, column): (i64, String) = (row.get(0), row.get(1));
            if ids.iter().any(|declared| i64::from(*declared) == id) {
                continue;
            }
            if row.get::<_, String>(3) != "NULL" {
                let why = format!("column {column} of {name} has a default in files without it: declare it");
                return Err(stop(why));
            }
            lacking.push(id);
        }
        Ok(if missing.is_empty() {
            Ok((ids, lacking))
        } else {
            Err(missing)
        })
    }

    fn create(&self) -> String {
        let columns: Vec<_> = self.columns.iter().map(declared).collect();
        let (schema, name) = (quoted(&self.spec.schema), quoted(&self.spec.table));
        format!("CREATE TABLE {schema}.{name} ({});", columns.join(", "))
    }

    /// Writes a file.
    pub(super) async fn stage(&mut self, rows: &Slice<'_>) -> Result<Staged, TargetError> {
        let table = self.table()?;
        let ids = table.ids.iter().map(|id| i64::from(*id));
        let columns = ids.zip(&self.columns).enumerate();
        let stats = columns
            .map(|(at, (id, column))| Ok((id, column.kind, Stats::of(rows, at, column.kind)?)))
            .collect::<Result<_, TargetError>>()?;
        let encoded = computed(|| parquet::encode(&self.columns, &table.ids, rows, true));
        let bytes = encoded.map_err(|why| stop(format!("Parquet: {why}")))?;
        let name = format!("stafett-{}.parquet", Uuid::new_v4());
        let path = format!("{}{name}", table.folder);
        let size = bytes.len();
        let footer = size
            .checked_sub(8)
            .and_then(|at| bytes.get(at..at + 4)?.try_into().ok());
        self.storage.make_parent(&path).await?;
        self.storage.replace(&path, &self.writer, bytes).await?;
        Ok(Staged {
            name,
            records: signed(rows.len()),
            bytes: signed(size),
            footer: footer.map_or(0, |bytes| i64::from(u32::from_le_bytes(bytes))),
            stats,
        })
    }
}

impl Table {
    /// Adds a file to the lake, in the transaction that is open.
    pub(super) async fn add(&self, client: &Client, staged: &Staged) -> Result<(), TargetError> {
        let Self { catalog, id, .. } = self;
        let failed = |why: tokio_postgres::Error| taken(&why);
        client.execute(LOCK, &[catalog]).await.map_err(failed)?;
        let newest = format!(
            "SELECT snapshot_id, schema_version, next_catalog_id, next_file_id FROM {catalog}.ducklake_snapshot \
             ORDER BY snapshot_id DESC LIMIT 1"
        );
        let newest = client.query_one(&newest, &[]).await.map_err(failed)?;
        let number = |at: usize| newest.get::<_, i64>(at);
        let (snapshot, file) = (number(0) + 1, number(3));
        if number(1) != self.schema_version {
            return Err(TargetError::Retry(
                "the tables of the lake have changed".to_owned(),
            ));
        }
        let row = self.count(client, staged).await?;
        let statement = format!(
            "INSERT INTO {catalog}.ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative, \
             file_format, record_count, file_size_bytes, footer_size, row_id_start) \
             VALUES ($1, $2, $3, $4::text, true, 'parquet', $5, $6, $7, $8)"
        );
        let Staged {
            name,
            records,
            bytes,
            footer,
            ..
        } = staged;
        client
            .execute(
                &statement,
                &[&file, id, &snapshot, name, records, bytes, footer, &row],
            )
            .await
            .map_err(failed)?;
        self.describe(client, file, staged).await?;
        let statement = format!(
            "INSERT INTO {catalog}.ducklake_snapshot (snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id) \
             VALUES ($1, now(), $2, $3, $4)"
        );
        client
            .execute(&statement, &[&snapshot, &number(1), &number(2), &(file + 1)])
            .await
            .map_err(failed)?;
        let statement = format!(
            "INSERT INTO {catalog}.ducklake_snapshot_changes (snapshot_id, changes_made) VALUES ($1, $2::text)"
        );
        let changes = format!("inserted_into_table:{id}");
        client
            .execute(&statement, &[&snapshot, &changes])
            .await
            .map_err(failed)?;
        Ok(())
    }

    /// Adds to the counts of the table. Returns the number of the first row.
    async fn count(&self, client: &Client, staged: &Staged) -> Result<i64, TargetError> {
        let Self { catalog, id, .. } = self;
        let failed = |why: tokio_postgres::Error| taken(&why);
        let statement = format!(
            "UPDATE {catalog}.ducklake_table_stats SET record_count = record_count + $2, next_row_id = next_row_id + $2, \
             file_size_bytes = file_size_bytes + $3 WHERE table_id = $1 RETURNING next_row_id - $2"
        );
        let Staged { records, bytes, .. } = staged;
        let counted = client
            .query_opt(&statement, &[id, records, bytes])
            .await
            .map_err(failed)?;
        if let Some(row) = counted {
            return Ok(row.get(0));
        }
        let statement = format!(
            "INSERT INTO {catalog}.ducklake_table_stats (table_id, record_count, next_row_id, file_size_bytes) \
             VALUES ($1, $2, $2, $3)"
        );
        client
            .execute(&statement, &[id, records, bytes])
            .await
            .map_err(failed)?;
        Ok(0)
    }

    /// Stores counts and bounds of the values of a file.
    async fn describe(&self, client: &Client, file: i64, staged: &Staged) -> Result<(), TargetError> {
        let Self { catalog, id, .. } = self;
        let failed = |why: tokio_postgres::Error| taken(&why);
        let of_file = format!(
            "INSERT INTO {catalog}.ducklake_file_column_stats \
             (data_file_id, table_id, column_id, value_count, null_count, min_value, max_value, contains_nan) \
             VALUES ($1, $2, $3, $4, $5, $6::text, $7::text, false)"
        );
        let of_file = client.prepare(&of_file).await.map_err(failed)?;
        for (column, _, stats) in &staged.stats {
            let values = staged.records - stats.nulls;
            let (least, greatest) = stats.bounds.clone().unzip();
            client
                .execute(
                    &of_file,
                    &[&file, id, column, &values, &stats.nulls, &least, &greatest],
                )
                .await
                .map_err(failed)?;
        }
        // Columns that the file lacks are null in all of its rows.
        let lacking = format!(
            "INSERT INTO {catalog}.ducklake_file_column_stats (data_file_id, table_id, column_id, value_count, null_count) \
             SELECT $1, $2, c, 0, $4 FROM unnest($3::bigint[]) AS c"
        );
        client
            .execute(&lacking, &[&file, id, &self.lacking, &staged.records])
            .await
            .map_err(failed)?;
        self.widen(client, staged).await
    }

    /// Widens the bounds of the table's columns. Both are null while all values are; one alone is not known.
    async fn widen(&self, client: &Client, staged: &Staged) -> Result<(), TargetError> {
        let Self { catalog, id, .. } = self;
        let failed = |why: tokio_postgres::Error| taken(&why);
        let first = format!(
            "INSERT INTO {catalog}.ducklake_table_column_stats (table_id, column_id, contains_null, contains_nan) \
             SELECT $1, c, false, false FROM unnest($2::bigint[]) AS c WHERE NOT EXISTS \
             (SELECT FROM {catalog}.ducklake_table_column_stats s WHERE s.table_id = $1 AND s.column_id = c)"
        );
        let all: Vec<i64> = staged
            .stats
            .iter()
            .map(|(column, ..)| *column)
            .chain(self.lacking.clone())
            .collect();
        client.execute(&first, &[id, &all]).await.map_err(failed)?;
        let nulls = format!(
            "UPDATE {catalog}.ducklake_table_column_stats SET contains_null = true WHERE table_id = $1 AND column_id = ANY($2)"
        );
        let with_nulls = staged.stats.iter().filter(|(_, _, stats)| stats.nulls > 0);
        let with_nulls: Vec<i64> = with_nulls
            .map(|(column, ..)| *column)
            .chain(self.lacking.clone())
            .collect();
        client.execute(&nulls, &[id, &with_nulls]).await.map_err(failed)?;
        for (column, kind, stats) in &staged.stats {
            if staged.records == stats.nulls {
                continue;
            }
            let table = format!("{catalog}.ducklake_table_column_stats");
            let Some((kind, (least, greatest))) = type_of(*kind).zip(stats.bounds.clone()) else {
                // An empty text is below all others, and there is none above.
                let statement = format!(
                    "UPDATE {table} SET min_value = '', max_value = NULL WHERE table_id = $1 AND column_id = $2"
                );
                client.execute(&statement, &[id, column]).await.map_err(failed)?;
                continue;
            };
            let bound = |name: &str, new: &str, sign: &str| {
                format!(
                    "{name} = CASE WHEN min_value IS NULL AND max_value IS NULL THEN {new}::text WHEN {name} IS NULL THEN NULL \
                     WHEN {name}::{kind} {sign} {new}::text::{kind} THEN {name} ELSE {new}::text END"
                )
            };
            let (min, max) = (bound("min_value", "$3", "<="), bound("max_value", "$4", ">="));
            let statement = format!("UPDATE {table} SET {min}, {max} WHERE table_id = $1 AND column_id = $2");
            client
                .execute(&statement, &[id, column, &least, &greatest])
                .await
                .map_err(failed)?;
        }
        Ok(())
    }
}

/// A number that another writer of the lake has taken is free the next time.
fn taken(why: &tokio_postgres::Error) -> TargetError {
    let code = why.code();
    if code == Some(&tokio_postgres::error::SqlState::UNIQUE_VIOLATION) {
        TargetError::Retry("another writer of the lake was faster".to_owned())
    } else {
        stopped(why)
    }
}

fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// True for two texts of one folder or bucket.
fn is_same(data: &str, path: &str) -> bool {
    let plain = |text: &str| text.trim_end_matches('/').to_owned();
    let real = |text: &str| Path::new(text).canonicalize().ok();
    plain(data) == plain(path) || (real(data).is_some() && real(data) == real(path))
}

/// Returns a type as DuckDB declares it.
fn declared(column: &Column) -> String {
    let kind = match column.kind {
        Kind::Text => "varchar".to_owned(),
        Kind::Bytea => "blob".to_owned(),
        Kind::Jsonb => "json".to_owned(),
        Kind::Numeric { precision, scale } => format!("decimal({precision},{scale})"),
        Kind::Boolean
        | Kind::Bigint
        | Kind::Double
        | Kind::Timestamptz
        | Kind::Timestamp
        | Kind::Date
        | Kind::Uuid => column.kind.to_string(),
    };
    let null = if column.nullable { "" } else { " NOT NULL" };
    format!("{} {kind}{null}", quoted(&column.name))
}

/// True if values of a kind may be in a file of a column of that type.
fn fits(kind: Kind, there: &str) -> bool {
    match kind {
        Kind::Text => there == "varchar",
        Kind::Boolean => there == "boolean",
        Kind::Bigint => there == "int64",
        Kind::Double => there == "float64",
        Kind::Numeric { precision, scale } => there == format!("decimal({precision},{scale})"),
        Kind::Timestamptz => there == "timestamptz",
        Kind::Timestamp => there == "timestamp",
        Kind::Date => there == "date",
        Kind::Uuid => there == "uuid",
        Kind::Bytea => there == "blob",
        Kind::Jsonb => ["json", "varchar"].contains(&there),
    }
}
