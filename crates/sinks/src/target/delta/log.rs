//! The log of a Delta table: its protocol, its columns, and the positions in it.
//!
//! ```text
//! _delta_log/_last_checkpoint                  {"version": 120, …}
//! _delta_log/NUMBER.checkpoint.parquet         all of the table at that commit
//! _delta_log/NUMBER.json                       a commit: an action on each line, put only if absent
//! ```
//!
//! Files of the table are of no use to a writer that only adds some, and are passed over.

#![expect(clippy::indexing_slicing, reason = "a field that a JSON value lacks is null")]

use std::collections::BTreeMap;

use bytes::Bytes;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use parquet::schema::types::Type;
use serde_json::{Map, Value};

use crate::columns::{Column, Kind};
use crate::target::TargetError;
use crate::target::files::storage::Storage;

pub(super) const FOLDER: &str = "_delta_log";
/// Limit on the files of a checkpoint.
const PARTS_MAX: u64 = 10_000;
/// Actions of a checkpoint that a writer heeds.
const HEEDED: [&str; 3] = ["protocol", "metaData", "txn"];
/// Features of a table under which a writer that only adds files may do so, unless a column or a setting
/// makes use of them.
const FEATURES: [&str; 11] = [
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "domainMetadata",
    "generatedColumns",
    "identityColumns",
    "invariants",
    "timestampNtz",
    "vacuumProtocolCheck",
];
/// Highest version of writers without a list of features.
const WRITER_OLD: i64 = 6;
const WRITER_WITH_FEATURES: i64 = 7;

/// A position, and the commit that has set it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) next: i64,
    pub(super) since: u64,
    /// Time of the commit in ms since 1970: a checkpoint has one number for all of its positions.
    pub(super) updated: i64,
}

/// A table as the commits up to one have left it.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Number of the newest commit; `None` without a table.
    pub(super) version: Option<u64>,
    protocol: Value,
    metadata: Value,
    /// By the ids of applications.
    pub(super) positions: BTreeMap<String, Position>,
}

pub(super) fn path(version: u64) -> String {
    format!("{FOLDER}/{version:020}.json")
}

pub(super) fn stop(why: impl Into<String>) -> TargetError {
    TargetError::Stop(why.into())
}

/// Reads the file that names the newest checkpoint.
async fn read_last(storage: &mut Storage) -> Result<Option<Value>, TargetError> {
    let bytes = storage.read(&format!("{FOLDER}/_last_checkpoint")).await?;
    let parsed = bytes.map(|bytes| serde_json::from_slice(&bytes)).transpose();
    parsed.map_err(|why| stop(format!("_last_checkpoint: {why}")))
}

impl Log {
    /// Reads the commits that are not known yet. Begins anew where other programs have removed known ones: no
    /// reader would see a commit behind those.
    pub(super) async fn follow(&mut self, storage: &mut Storage) -> Result<(), TargetError> {
        if let Some(version) = self.version {
            let last = read_last(storage).await?;
            let checkpoint = last.as_ref().and_then(|last| last["version"].as_u64());
            let is_there = checkpoint == Some(version) || storage.read(&path(version)).await?.is_some();
            if !is_there || checkpoint.is_some_and(|checkpoint| checkpoint > version) {
                *self = Self::default();
            }
        }
        if self.version.is_none() {
            self.begin(storage).await?;
        }
        loop {
            let version = self.version.map_or(0, |version| version + 1);
            let Some(bytes) = storage.read(&path(version)).await? else {
                return Ok(());
            };
            self.commit(version, &bytes)?;
        }
    }

    /// Takes the newest checkpoint, if there is one.
    async fn begin(&mut self, storage: &mut Storage) -> Result<(), TargetError> {
        let Some(last) = read_last(storage).await? else {
            return Ok(());
        };
        if !last["v2Checkpoint"].is_null() {
            return Err(stop(
                "the table has checkpoints of the second form, which a sink does not read",
            ));
        }
        let version = last["version"].as_u64();
        let version = version.ok_or_else(|| stop("_last_checkpoint has no version"))?;
        let name = format!("{FOLDER}/{version:020}.checkpoint");
        let names: Vec<String> = match last["parts"].as_u64() {
            None => vec![format!("{name}.parquet")],
            Some(parts) if parts > PARTS_MAX => {
                return Err(stop(format!(
                    "the checkpoint of commit {version} has {parts} parts"
                )));
            }
            Some(parts) => (1..=parts)
                .map(|part| format!("{name}.{part:010}.{parts:010}.parquet"))
                .collect(),
        };
        for name in names {
            let bytes = storage.read(&name).await?;
            let bytes = bytes.ok_or_else(|| stop(format!("{name} is gone")))?;
            let actions = actions(bytes).map_err(|why| stop(format!("{name}: {why}")))?;
            for (action, value) in actions {
                self.take(&action, value, version);
            }
        }
        self.version = Some(version);
        Ok(())
    }

    /// Takes the actions of a commit.
    pub(super) fn commit(&mut self, version: u64, bytes: &[u8]) -> Result<(), TargetError> {
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let actions: Map<String, Value> =
                serde_json::from_slice(line).map_err(|why| stop(format!("commit {version}: {why}")))?;
            for (action, value) in actions {
                self.take(&action, value, version);
            }
        }
        self.version = Some(version);
        Ok(())
    }

    fn take(&mut self, action: &str, value: Value, version: u64) {
        match action {
            "protocol" => self.protocol = value,
            "metaData" => self.metadata = value,
            "txn" => {
                if let (Some(app), Some(next)) = (value["appId"].as_str(), value["version"].as_i64()) {
                    let updated = value["lastUpdated"].as_i64().unwrap_or(0);
                    let position = Position {
                        next,
                        since: version,
                        updated,
                    };
                    self.positions.insert(app.to_owned(), position);
                }
            }
            _ => {}
        }
    }

    /// Checks that a sink may add files with these columns.
    pub(super) fn check(&self, columns: &[Column]) -> Result<(), TargetError> {
        self.check_protocol()?;
        let settings = &self.metadata["configuration"];
        let mode = settings["delta.columnMapping.mode"].as_str().unwrap_or("none");
        if mode != "none" {
            return Err(stop(format!(
                "the table maps its columns ({mode}), and a sink does not"
            )));
        }
        let constraint = settings.as_object().into_iter().flatten().map(|(name, _)| name);
        if let Some(name) = constraint
            .into_iter()
            .find(|name| name.starts_with("delta.constraints."))
        {
            return Err(stop(format!(
                "the table has the constraint {name}, and a sink checks none"
            )));
        }
        if self.metadata["partitionColumns"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
        {
            return Err(stop("the table has partitions, and a sink writes none"));
        }
        let text = self.metadata["schemaString"].as_str().unwrap_or_default();
        let schema: Value = serde_json::from_str(text).map_err(|why| stop(format!("the schema: {why}")))?;
        let fields = schema["fields"].as_array().cloned().unwrap_or_default();
        check_fields(&fields, columns).map_err(stop)
    }

    fn check_protocol(&self) -> Result<(), TargetError> {
        let writer = self.protocol["minWriterVersion"].as_i64().unwrap_or(0);
        if writer <= WRITER_OLD {
            return Ok(());
        }
        let features = self.protocol["writerFeatures"].as_array();
        let unknown = features.into_iter().flatten().find(|feature| {
            let name = feature.as_str().unwrap_or_default();
            !FEATURES.contains(&name)
        });
        match unknown {
            None if writer == WRITER_WITH_FEATURES => Ok(()),
            None => Err(stop(format!("the table wants writers of version {writer}"))),
            Some(feature) => Err(stop(format!(
                "the table has the feature {feature}, and a sink does not"
            ))),
        }
    }
}

fn check_fields(fields: &[Value], columns: &[Column]) -> Result<(), String> {
    for field in fields {
        let name = field["name"].as_str().unwrap_or_default();
        let metadata = field["metadata"].as_object();
        let rule = metadata.into_iter().flatten().map(|(name, _)| name);
        if let Some(rule) = rule.into_iter().find(|rule| rule.starts_with("delta.")) {
            return Err(format!("column {name} has {rule}, and a sink does not heed it"));
        }
        let is_required = field["nullable"].as_bool() == Some(false);
        let column = columns.iter().find(|column| column.name == name);
        let Some(column) = column else {
            if is_required {
                return Err(format!("column {name} of the table is required: declare it"));
            }
            continue;
        };
        if is_required && column.nullable {
            return Err(format!("column {name} of the table is required: null = false"));
        }
        let declared = type_of(column.kind).unwrap_or_default();
        if field["type"].as_str() != Some(declared.as_str()) {
            let there = &field["type"];
            return Err(format!(
                "column {name} is {there} in the table, and the sink declares {}",
                column.kind
            ));
        }
    }
    let missing = columns
        .iter()
        .find(|column| fields.iter().all(|field| field["name"] != *column.name));
    match missing {
        None => Ok(()),
        Some(column) => {
            let kind = type_of(column.kind).unwrap_or_default();
            Err(format!(
                "the table lacks a column: ADD COLUMNS ({} {kind})",
                column.name
            ))
        }
    }
}

/// Returns the name of a type in the schema of a table. `None` for one that tables do not have.
pub(crate) fn type_of(kind: Kind) -> Option<String> {
    Some(match kind {
        Kind::Text | Kind::Jsonb => "string".to_owned(),
        Kind::Boolean => "boolean".to_owned(),
        Kind::Bigint => "long".to_owned(),
        Kind::Double => "double".to_owned(),
        Kind::Numeric { precision, scale } => format!("decimal({precision},{scale})"),
        Kind::Timestamptz => "timestamp".to_owned(),
        Kind::Date => "date".to_owned(),
        Kind::Bytea => "binary".to_owned(),
        Kind::Timestamp | Kind::Uuid => return None,
    })
}

/// Returns the actions of a checkpoint that are heeded.
fn actions(bytes: Vec<u8>) -> Result<Vec<(String, Value)>, String> {
    let text = |why: parquet::errors::ParquetError| why.to_string();
    let reader = SerializedFileReader::new(Bytes::from(bytes)).map_err(text)?;
    let root = reader.metadata().file_metadata().schema();
    let fields = root
        .get_fields()
        .iter()
        .filter(|field| HEEDED.contains(&field.name()));
    let heeded = Type::group_type_builder(root.name()).with_fields(fields.cloned().collect());
    let heeded = heeded.build().map_err(text)?;
    let mut actions = Vec::new();
    for row in reader.get_row_iter(Some(heeded)).map_err(text)? {
        for (name, field) in row.map_err(text)?.get_column_iter() {
            if *field != Field::Null {
                actions.push((name.clone(), json_of(field)));
            }
        }
    }
    Ok(actions)
}

/// Returns a value of a checkpoint as a commit has it. Types that no heeded action has are null.
fn json_of(field: &Field) -> Value {
    if let Field::Bool(it) = field {
        Value::Bool(*it)
    } else if let Field::Int(it) = field {
        Value::from(*it)
    } else if let Field::Long(it) = field {
        Value::from(*it)
    } else if let Field::Str(text) = field {
        Value::from(text.as_str())
    } else if let Field::Group(row) = field {
        let fields = row
            .get_column_iter()
            .map(|(name, field)| (name.clone(), json_of(field)));
        Value::Object(fields.collect())
    } else if let Field::ListInternal(list) = field {
        Value::Array(list.elements().iter().map(json_of).collect())
    } else if let Field::MapInternal(map) = field {
        let entries = map.entries().iter().map(|(name, value)| {
            let name = json_of(name);
            (name.as_str().unwrap_or_default().to_owned(), json_of(value))
        });
        Value::Object(entries.collect())
    } else {
        Value::Null
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::Origin;

    fn log(protocol: &str, metadata: &str, field: &str) -> Log {
        let schema = format!("{{\"type\":\"struct\",\"fields\":[{field}]}}");
        let mut metadata: Value = serde_json::from_str(metadata).unwrap();
        metadata["schemaString"] = schema.into();
        let lines = format!("{{\"protocol\":{protocol}}}\n{{\"metaData\":{metadata}}}\n{{\"add\":{{}}}}\n");
        let mut log = Log::default();
        log.commit(0, lines.as_bytes()).unwrap();
        log
    }

    #[test]
    fn tables_of_which_a_rule_would_be_broken_are_refused() {
        let old = r#"{"minReaderVersion":1,"minWriterVersion":2}"#;
        let new = |feature: &str| {
            format!(
                r#"{{"minReaderVersion":3,"minWriterVersion":7,"writerFeatures":["appendOnly","{feature}"]}}"#
            )
        };
        let plain = r#"{"configuration":{},"partitionColumns":[]}"#;
        let n = r#"{"name":"n","type":"long","nullable":true,"metadata":{}}"#;
        let column = Column::new("n", Kind::Bigint, Origin::Rest);
        let columns = [column];
        for (protocol, metadata, field, why) in [
            (old, plain, n, ""),
            (&*new("deletionVectors"), plain, n, ""),
            (&*new("rowTracking"), plain, n, "the feature \"rowTracking\""),
            (r#"{"minWriterVersion":8}"#, plain, n, "writers of version 8"),
            (
                old,
                r#"{"partitionColumns":["d"]}"#,
                n,
                "the table has partitions",
            ),
            (
                old,
                r#"{"configuration":{"delta.columnMapping.mode":"name"}}"#,
                n,
                "maps its columns (name)",
            ),
            (
                old,
                r#"{"configuration":{"delta.constraints.c":"n > 0"}}"#,
                n,
                "constraint delta.constraints.c",
            ),
            (
                old,
                plain,
                r#"{"name":"n","type":"integer","nullable":true}"#,
                "is \"integer\" in the table",
            ),
            (
                old,
                plain,
                r#"{"name":"n","type":"long","nullable":false}"#,
                "is required: null = false",
            ),
            (
                old,
                plain,
                r#"{"name":"m","type":"long","nullable":true}"#,
                "ADD COLUMNS (n long)",
            ),
            (
                old,
                plain,
                r#"{"name":"n","type":"long","nullable":true,"metadata":{"delta.generationExpression":"1"}}"#,
                "has delta.generationExpression",
            ),
        ] {
            let checked = log(protocol, metadata, field).check(&columns);
            let text = checked.err().map(|why| why.to_string()).unwrap_or_default();
            assert!(
                text.contains(why) && text.is_empty() == why.is_empty(),
                "{text} is not {why}"
            );
        }
    }
}
