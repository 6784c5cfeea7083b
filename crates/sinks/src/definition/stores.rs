//! Document stores and warehouses, as a definition declares them.

use super::DefinitionError;
use super::sources::login;
use super::targets::{BucketSpec, Compression, FilesSpec, Format, TIMEOUT_MS, TargetSpec, address, bucket};
use crate::fields::Fields;
use crate::secret::Secret;

/// A table of a lake (`DuckLake`) whose catalog lies in a PostgreSQL database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DucklakeSpec {
    pub url: Secret,
    /// Schema of the catalog's own tables.
    pub catalog_schema: String,
    pub schema: String,
    pub table: String,
    /// Place of the lake's files.
    pub files: FilesSpec,
    /// PEM file of trusted authorities, of the database and the store. `None` is those of the system.
    pub ca: Option<String>,
}

/// A Delta table in a folder or a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeltaSpec {
    /// Place of the table.
    pub files: FilesSpec,
    /// True if a missing table is made.
    pub create: bool,
}

/// A collection of a MongoDB database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MongodbSpec {
    pub url: Secret,
    /// `None` is that of the address.
    pub database: Option<String>,
    pub collection: String,
    /// PEM file of trusted authorities. `None` is those of the system.
    pub ca: Option<String>,
    pub timeout_ms: u64,
}

/// A table of a ClickHouse server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClickhouseSpec {
    /// Address of the HTTP interface.
    pub url: Secret,
    /// `USER:PASSWORD`.
    pub login: Option<Secret>,
    pub database: String,
    pub table: String,
    /// True if a missing table is made.
    pub create: bool,
    /// PEM file of trusted authorities. `None` is those of the system.
    pub ca: Option<String>,
    pub timeout_ms: u64,
}

pub(super) fn ducklake(fields: &mut Fields) -> Result<TargetSpec, DefinitionError> {
    let path = fields.required("path")?;
    let bucket = bucket(fields, &path)?;
    let ca = match &bucket {
        Some(bucket) => bucket.ca.clone(),
        None => fields.text("ca")?,
    };
    Ok(TargetSpec::Ducklake(DucklakeSpec {
        url: address(fields, "url")?,
        catalog_schema: fields
            .text("catalog_schema")?
            .unwrap_or_else(|| "public".to_owned()),
        schema: fields.text("schema")?.unwrap_or_else(|| "main".to_owned()),
        table: fields.required("table")?,
        files: parquet_in(path, bucket),
        ca,
    }))
}

pub(super) fn delta(fields: &mut Fields) -> Result<TargetSpec, DefinitionError> {
    let path = fields.required("path")?;
    let bucket = bucket(fields, &path)?;
    Ok(TargetSpec::Delta(DeltaSpec {
        files: parquet_in(path, bucket),
        create: fields.flag("create")?.unwrap_or(false),
    }))
}

/// Returns the place of Parquet files that a table of a lake names.
fn parquet_in(path: String, bucket: Option<BucketSpec>) -> FilesSpec {
    FilesSpec {
        path,
        bucket,
        format: Format::Parquet,
        compression: Compression::Zstd,
        split_records: None,
        header: false,
    }
}

pub(super) fn mongodb(fields: &mut Fields) -> Result<TargetSpec, DefinitionError> {
    Ok(TargetSpec::Mongodb(MongodbSpec {
        url: address(fields, "url")?,
        database: fields.text("database")?,
        collection: fields.required("collection")?,
        ca: fields.text("ca")?,
        timeout_ms: fields.time("timeout")?.unwrap_or(TIMEOUT_MS),
    }))
}

pub(super) fn clickhouse(fields: &mut Fields) -> Result<TargetSpec, DefinitionError> {
    Ok(TargetSpec::Clickhouse(ClickhouseSpec {
        url: address(fields, "url")?,
        login: login(fields, "login")?,
        database: fields.text("database")?.unwrap_or_else(|| "default".to_owned()),
        table: fields.required("table")?,
        create: fields.flag("create")?.unwrap_or(false),
        ca: fields.text("ca")?,
        timeout_ms: fields.time("timeout")?.unwrap_or(TIMEOUT_MS),
    }))
}
