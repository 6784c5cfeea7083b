//! Statements about the tables of a sink, and those that make missing ones.

use tokio_postgres::Client;

use super::errors::stopped;
use crate::columns::{Column, Kind};
use crate::definition::{Mode, PostgresSpec};
use crate::rollup::{MEMBER_BYTES, Merge};
use crate::target::TargetError;

/// Temporary table of an upsert, and its column of the order.
const STAGING: &str = "stafett_staging";
const ORDER: &str = "stafett_order";

/// Names and columns of a sink's tables.
#[derive(Debug, Clone)]
pub(super) struct Tables {
    schema: String,
    name: String,
    columns: Vec<Column>,
    key: Vec<String>,
    /// Columns that are added to, in a roll-up.
    merges: Vec<(String, Merge)>,
    threshold: Option<(String, u64)>,
}

/// Returns an identifier in quotes.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(quoted).collect::<Vec<_>>().join(", ")
}

impl Tables {
    pub(super) fn new(spec: &PostgresSpec, columns: &[Column], mode: &Mode) -> Self {
        Self {
            schema: spec.schema.clone(),
            name: spec.table.clone(),
            columns: columns.to_vec(),
            key: match mode {
                Mode::Append => Vec::new(),
                Mode::Upsert { key } | Mode::Rollup { key, .. } => key.clone(),
            },
            merges: match mode {
                Mode::Append | Mode::Upsert { .. } => Vec::new(),
                Mode::Rollup { merges, .. } => merges.clone(),
            },
            threshold: match mode {
                Mode::Append | Mode::Upsert { .. } => None,
                Mode::Rollup { threshold, .. } => threshold.clone(),
            },
        }
    }

    fn qualified(&self, name: &str) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(name))
    }

    pub(super) fn table(&self) -> String {
        self.qualified(&self.name)
    }

    pub(super) fn positions(&self) -> String {
        self.qualified("stafett_positions")
    }

    pub(super) fn flushes(&self) -> String {
        self.qualified("stafett_flushes")
    }

    fn columns(&self) -> String {
        list(self.columns.iter().map(|column| &*column.name))
    }

    pub(super) fn copy(&self) -> String {
        if self.key.is_empty() {
            return format!(
                "COPY {} ({}) FROM STDIN (FORMAT binary)",
                self.table(),
                self.columns()
            );
        }
        let columns = self.columns();
        format!("COPY {STAGING} ({columns}, {ORDER}) FROM STDIN (FORMAT binary)")
    }

    pub(super) fn make_staging(&self) -> String {
        let is_members = |name: &str| self.members_columns().any(|known| known == name);
        let column = |column: &Column| {
            let name = quoted(&column.name);
            if is_members(&column.name) {
                format!("''::bytea AS {name}")
            } else {
                name
            }
        };
        let columns: Vec<_> = self.columns.iter().map(column).collect();
        format!(
            "CREATE TEMPORARY TABLE {STAGING} ON COMMIT DROP AS SELECT {}, 0::bigint AS {ORDER} FROM {} LIMIT 0",
            columns.join(", "),
            self.table()
        )
    }

    /// Returns the columns that count distinct values.
    fn members_columns(&self) -> impl Iterator<Item = &str> {
        let members = self.merges.iter().filter(|(_, merge)| *merge == Merge::Members);
        members.map(|(name, _)| name.as_str())
    }

    /// Returns the table of the distinct values that were counted.
    pub(super) fn members(&self) -> Option<String> {
        self.members_columns().next()?;
        Some(self.qualified(&format!("{}_members", self.name)))
    }

    fn key_list(&self) -> String {
        list(self.key.iter().map(|name| &**name))
    }

    /// Returns the statement's parts that keep new distinct values, and the expressions of their counts.
    ///
    /// Values and rows are taken in order, so that two writers cannot wait for each other.
    fn count_members(&self) -> (String, Vec<(String, String)>) {
        let Some(members) = self.members() else {
            return (String::new(), Vec::new());
        };
        let key = self.key_list();
        let values = self.members_columns().map(|name| {
            format!(
                "SELECT {key}, '{text}' AS stafett_value, substring({column} FROM 1 + {MEMBER_BYTES} * stafett_place FOR {MEMBER_BYTES}) \
                 AS stafett_member FROM {STAGING}, generate_series(0, length({column}) / {MEMBER_BYTES} - 1) stafett_place",
                text = name.replace('\'', "''"),
                column = quoted(name)
            )
        });
        let values = values.collect::<Vec<_>>().join(" UNION ALL ");
        let with = format!(
            "WITH stafett_new AS (INSERT INTO {members} ({key}, stafett_value, stafett_member) SELECT * FROM ({values}) wanted \
             ORDER BY {key}, stafett_value, stafett_member ON CONFLICT DO NOTHING RETURNING {key}, stafett_value) "
        );
        let same: Vec<_> = self
            .key
            .iter()
            .map(|name| format!("stafett_new.{0} = {STAGING}.{0}", quoted(name)))
            .collect();
        let counts = self.members_columns().map(|name| {
            let count = format!(
                "(SELECT count(*) FROM stafett_new WHERE {} AND stafett_value = '{}')",
                same.join(" AND "),
                name.replace('\'', "''")
            );
            (name.to_owned(), count)
        });
        (with, counts.collect())
    }

    /// Figures are added to those that are there.
    fn add_figures(&self) -> String {
        let (columns, key) = (self.columns(), self.key_list());
        let (with, counts) = self.count_members();
        let set = |(name, merge): &(String, Merge)| {
            let name = quoted(name);
            match merge {
                Merge::Add | Merge::Members => format!("{name} = there.{name} + excluded.{name}"),
                Merge::Least => format!("{name} = LEAST(there.{name}, excluded.{name})"),
                Merge::Greatest => format!("{name} = GREATEST(there.{name}, excluded.{name})"),
            }
        };
        let sets: Vec<_> = self.merges.iter().map(set).collect();
        let value = |column: &Column| {
            let count = counts.iter().find(|(name, _)| *name == column.name);
            count.map_or_else(|| quoted(&column.name), |(_, count)| count.clone())
        };
        let values: Vec<_> = self.columns.iter().map(value).collect();
        format!(
            "{with}INSERT INTO {} AS there ({columns}) SELECT {} FROM {STAGING} ORDER BY {key} \
             ON CONFLICT ({key}) DO UPDATE SET {}",
            self.table(),
            values.join(", "),
            sets.join(", ")
        )
    }

    /// Returns the statements that make table and view beside the table of a roll-up.
    fn beside(&self) -> Vec<String> {
        let mut made = Vec::new();
        if let Some(members) = self.members() {
            let key: Vec<_> = self
                .columns
                .iter()
                .filter(|column| self.key.contains(&column.name))
                .map(declared)
                .collect();
            made.push(format!(
                "CREATE TABLE IF NOT EXISTS {members} ({}, stafett_value text, stafett_member bytea, \
                 PRIMARY KEY ({}, stafett_value, stafett_member));",
                key.join(", "),
                self.key_list()
            ));
        }
        if let Some((name, least)) = &self.threshold {
            made.push(format!(
                "CREATE OR REPLACE VIEW {} AS SELECT * FROM {} WHERE {} >= {least};",
                self.qualified(&format!("{}_shown", self.name)),
                self.table(),
                quoted(name)
            ));
        }
        made
    }

    /// Of the rows with one key, the last wins: a statement may touch a row once only.
    pub(super) fn merge(&self) -> String {
        if !self.merges.is_empty() {
            return self.add_figures();
        }
        let (columns, key) = (self.columns(), list(self.key.iter().map(|name| &**name)));
        let others = self
            .columns
            .iter()
            .filter(|column| !self.key.contains(&column.name));
        let sets: Vec<_> = others
            .map(|column| format!("{0} = excluded.{0}", quoted(&column.name)))
            .collect();
        let action = if sets.is_empty() {
            "NOTHING".to_owned()
        } else {
            format!("UPDATE SET {}", sets.join(", "))
        };
        format!(
            "INSERT INTO {table} ({columns}) \
             SELECT {columns} FROM (SELECT DISTINCT ON ({key}) * FROM {STAGING} ORDER BY {key}, {ORDER} DESC) AS last \
             ON CONFLICT ({key}) DO {action}",
            table = self.table()
        )
    }

    /// Adds the column that positions of an earlier version lack.
    pub(super) async fn upgrade(&self, client: &Client) -> Result<(), TargetError> {
        let there = self.types(client, "stafett_positions").await?;
        let Some(statement) = self.lacking(&there) else {
            return Ok(());
        };
        client
            .batch_execute(&statement)
            .await
            .map_err(|why| match stopped(&why) {
                TargetError::Stop(why) => {
                    TargetError::Stop(format!("the database lacks: {statement} ({why})"))
                }
                other @ (TargetError::Retry(_)
                | TargetError::Poison { .. }
                | TargetError::Fenced(_)
                | TargetError::MadeAgain(_)) => other,
            })
    }

    /// Returns the statement for the column that a table of positions lacks, if there is one.
    fn lacking(&self, there: &[(String, String)]) -> Option<String> {
        let lacks = !there.is_empty() && there.iter().all(|(name, _)| name != "topic_id");
        lacks.then(|| {
            let table = self.positions();
            format!("ALTER TABLE {table} ADD COLUMN IF NOT EXISTS topic_id uuid;")
        })
    }

    /// Returns the statements for missing tables of positions and flushes.
    pub(super) async fn missing_positions(&self, client: &Client) -> Result<Vec<String>, TargetError> {
        let mut missing = Vec::new();
        let positions = self.types(client, "stafett_positions").await?;
        missing.extend(self.lacking(&positions));
        if positions.is_empty() {
            missing.push(format!(
                "CREATE TABLE IF NOT EXISTS {} (sink text, topic text, partition int, next bigint NOT NULL, \
                 epoch bigint NOT NULL, worker text, changed timestamptz NOT NULL DEFAULT now(), topic_id uuid, \
                 PRIMARY KEY (sink, topic, partition));",
                self.positions()
            ));
        }
        if self.types(client, "stafett_flushes").await?.is_empty() {
            missing.push(format!(
                "CREATE TABLE IF NOT EXISTS {} (sink text NOT NULL, topic text NOT NULL, partition int NOT NULL, \
                 first bigint NOT NULL, next bigint NOT NULL, epoch bigint NOT NULL, records bigint NOT NULL, \
                 rows bigint NOT NULL, stored timestamptz NOT NULL DEFAULT now());",
                self.flushes()
            ));
        }
        Ok(missing)
    }

    /// Returns the statements for the table, or its missing columns. A column of another type than declared
    /// stops the sink.
    pub(super) async fn missing(&self, client: &Client) -> Result<Vec<String>, TargetError> {
        let there = self.types(client, &self.name).await?;
        if there.is_empty() {
            let mut missing = vec![self.create()];
            missing.extend(self.beside());
            return Ok(missing);
        }
        let mut missing = Vec::new();
        for column in &self.columns {
            match there.iter().find(|(name, _)| *name == column.name) {
                None => missing.push(format!(
                    "ALTER TABLE {} ADD COLUMN {};",
                    self.table(),
                    declared(column)
                )),
                Some((_, kind)) if fits(column.kind, kind) => {}
                Some((name, kind)) => {
                    return Err(TargetError::Stop(format!(
                        "column {name} of {} is {kind}, and the sink declares {}",
                        self.table(),
                        column.kind
                    )));
                }
            }
        }
        Ok(missing)
    }

    fn create(&self) -> String {
        let mut parts: Vec<_> = self.columns.iter().map(declared).collect();
        if !self.key.is_empty() {
            let key = list(self.key.iter().map(|name| &**name));
            parts.push(format!("PRIMARY KEY ({key})"));
        }
        format!(
            "CREATE TABLE IF NOT EXISTS {} ({});",
            self.table(),
            parts.join(", ")
        )
    }

    /// Returns the columns of a table with their types, and nothing if there is no such table.
    async fn types(&self, client: &Client, table: &str) -> Result<Vec<(String, String)>, TargetError> {
        let statement = "SELECT a.attname::text, t.typname::text FROM pg_attribute a \
             JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace \
             JOIN pg_type t ON t.oid = a.atttypid \
             WHERE n.nspname = $1::text AND c.relname = $2::text AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped";
        let rows = client.query(statement, &[&self.schema, &table]).await;
        let rows = rows.map_err(|why| stopped(&why))?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }
}

fn declared(column: &Column) -> String {
    let kind = if column.kind == Kind::Double {
        "double precision".to_owned()
    } else {
        column.kind.to_string()
    };
    let null = if column.nullable { "" } else { " NOT NULL" };
    format!("{} {kind}{null}", quoted(&column.name))
}

/// True if values of a kind can be copied in binary into a column of PostgreSQL's type.
fn fits(kind: Kind, there: &str) -> bool {
    match kind {
        Kind::Text => ["text", "varchar", "bpchar"].contains(&there),
        Kind::Boolean => there == "bool",
        Kind::Bigint => there == "int8",
        Kind::Double => there == "float8",
        Kind::Numeric { .. } => there == "numeric",
        Kind::Timestamptz => there == "timestamptz",
        Kind::Timestamp => there == "timestamp",
        Kind::Date => there == "date",
        Kind::Uuid => there == "uuid",
        Kind::Bytea => there == "bytea",
        Kind::Jsonb => there == "jsonb",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{Definition, TargetSpec};

    #[test]
    fn names_cannot_be_taken_for_commands() {
        let text = "[sink.a]\nfrom = \"t\"\nto = \"postgres\"\nurl = \"env:U\"\ntable = 'x\"; DROP TABLE y; --'\n\
             mode = \"upsert\"\nkey = ['a\"b']\n[sink.a.columns]\n'a\"b' = { type = \"bigint\", null = false }\n";
        let sink = Definition::parse(text).unwrap().remove(0);
        let TargetSpec::Postgres(spec) = &sink.target else {
            panic!("a target of PostgreSQL");
        };
        let tables = Tables::new(spec, &sink.columns, &sink.mode);
        let create = "CREATE TABLE IF NOT EXISTS \"public\".\"x\"\"; DROP TABLE y; --\" (\"a\"\"b\" bigint NOT NULL, \
             PRIMARY KEY (\"a\"\"b\"));";
        assert_eq!(tables.create(), create);
        assert!(tables.merge().contains("ON CONFLICT (\"a\"\"b\") DO NOTHING"));
    }
}
