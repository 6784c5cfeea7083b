//! The table: its statement, and its window of tokens.

use serde::Deserialize;

use crate::columns::{Column, Kind};
use crate::definition::ClickhouseSpec;
use crate::target::TargetError;

/// Inserts that a table knows again, where the sink makes it.
const WINDOW: u64 = 10_000;
const SETTING: &str = "non_replicated_deduplication_window";

/// A table as `system.tables` has it.
#[derive(Debug, Deserialize)]
struct Found {
    engine: String,
    engine_full: String,
}

/// Returns the statement that looks for the table.
pub(super) fn look(spec: &ClickhouseSpec) -> String {
    format!(
        "SELECT engine, engine_full FROM system.tables WHERE database = {} AND name = {} FORMAT JSONEachRow",
        text(&spec.database),
        text(&spec.table)
    )
}

/// Returns the statement of a missing table. One that does not know inserts again is refused.
pub(super) fn missing(
    spec: &ClickhouseSpec,
    columns: &[Column],
    found: &[u8],
) -> Result<Vec<String>, TargetError> {
    let found = found.trim_ascii();
    if found.is_empty() {
        return Ok(vec![make(spec, columns)]);
    }
    let found: Found = serde_json::from_slice(found).map_err(|why| {
        TargetError::Stop(format!(
            "ClickHouse's answer about the table cannot be read: {why}"
        ))
    })?;
    if has_window(&found) {
        return Ok(Vec::new());
    }
    let name = name(spec);
    Err(TargetError::Stop(format!(
        "the table {name} ({}) does not know an insert that comes again. A table of the family MergeTree does, with \
         ALTER TABLE {name} MODIFY SETTING {SETTING} = {WINDOW}",
        found.engine
    )))
}

/// True if the table knows tokens. Those that are replicated do, unless the setting for them is 0.
fn has_window(found: &Found) -> bool {
    let setting = |name: &str| {
        let (_, rest) = found.engine_full.split_once(&format!("{name} = "))?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().ok()
    };
    if !found.engine.ends_with("MergeTree") {
        return false;
    }
    if found.engine.starts_with("Replicated") || found.engine.starts_with("Shared") {
        return found
            .engine_full
            .split_once("SETTINGS")
            .is_none_or(|(_, settings)| !settings.contains(" replicated_deduplication_window = 0"));
    }
    setting(SETTING).is_some_and(|window| window > 0)
}

fn make(spec: &ClickhouseSpec, columns: &[Column]) -> String {
    let columns: Vec<_> = columns
        .iter()
        .map(|column| format!("{} {}", quoted(&column.name), kind(column)))
        .collect();
    format!(
        "CREATE TABLE IF NOT EXISTS {} ({}) ENGINE = MergeTree ORDER BY tuple() SETTINGS {SETTING} = {WINDOW}",
        name(spec),
        columns.join(", ")
    )
}

fn kind(column: &Column) -> String {
    let kind = match column.kind {
        Kind::Text | Kind::Bytea | Kind::Jsonb => "String".to_owned(),
        Kind::Boolean => "Bool".to_owned(),
        Kind::Bigint => "Int64".to_owned(),
        Kind::Double => "Float64".to_owned(),
        Kind::Numeric { precision, scale } => format!("Decimal({precision}, {scale})"),
        Kind::Timestamptz | Kind::Timestamp => "DateTime64(6, 'UTC')".to_owned(),
        Kind::Date => "Date32".to_owned(),
        Kind::Uuid => "UUID".to_owned(),
    };
    if column.nullable {
        format!("Nullable({kind})")
    } else {
        kind
    }
}

/// Returns the statement of an insert.
pub(super) fn insert(spec: &ClickhouseSpec, columns: &[Column]) -> String {
    let columns: Vec<_> = columns.iter().map(|column| quoted(&column.name)).collect();
    format!(
        "INSERT INTO {} ({}) FORMAT JSONEachRow",
        name(spec),
        columns.join(", ")
    )
}

fn name(spec: &ClickhouseSpec) -> String {
    format!("{}.{}", quoted(&spec.database), quoted(&spec.table))
}

/// A name in backquotes.
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('\\', "\\\\").replace('`', "\\`"))
}

fn text(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_with_a_window_are_known() {
        let found = |engine: &str, rest: &str| Found {
            engine: engine.to_owned(),
            engine_full: format!("{engine} {rest}"),
        };
        for (engine, rest, expected) in [
            (
                "MergeTree",
                "ORDER BY tuple() SETTINGS index_granularity = 8192",
                false,
            ),
            (
                "MergeTree",
                "ORDER BY a SETTINGS non_replicated_deduplication_window = 100",
                true,
            ),
            (
                "MergeTree",
                "ORDER BY a SETTINGS non_replicated_deduplication_window = 0",
                false,
            ),
            (
                "ReplicatedMergeTree",
                "('/a', 'b') ORDER BY a SETTINGS index_granularity = 8192",
                true,
            ),
            (
                "ReplicatedMergeTree",
                "ORDER BY a SETTINGS replicated_deduplication_window = 0",
                false,
            ),
            ("Log", "", false),
        ] {
            assert_eq!(has_window(&found(engine, rest)), expected, "{engine} {rest}");
        }
    }

    #[test]
    fn names_cannot_become_commands() {
        assert_eq!(quoted("a`; DROP TABLE b\\"), "`a\\`; DROP TABLE b\\\\`");
        assert_eq!(text("it's"), "'it\\'s'");
    }
}
