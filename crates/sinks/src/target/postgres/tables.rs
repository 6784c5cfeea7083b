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

/// A column that a table has.
struct There {
    name: String,
    kind: String,
    modifier: i32,
    /// Its type as PostgreSQL shows it.
    shown: String,
}

/// Returns an identifier in quotes.
pub(crate) fn quoted(name: &str) -> String {
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

    /// Returns the statement's parts that keep new distinct values and count them by row, and the expressions
    /// of their counts.
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
             ORDER BY {key}, stafett_value, stafett_member ON CONFLICT DO NOTHING RETURNING {key}, stafett_value)"
        );
        let counts = self.members_columns().enumerate().map(|(place, name)| {
            let count = format!(
                "count(*) FILTER (WHERE stafett_value = '{}') AS stafett_count_{place}",
                name.replace('\'', "''")
            );
            (
                count,
                (name.to_owned(), format!("coalesce(stafett_count_{place}, 0)")),
            )
        });
        let (counts, values): (Vec<_>, Vec<_>) = counts.unzip();
        let with = format!(
            "{with}, stafett_counts AS (SELECT {key}, {} FROM stafett_new GROUP BY {key}) ",
            counts.join(", ")
        );
        (with, values)
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
        let from = if with.is_empty() {
            STAGING.to_owned()
        } else {
            format!("{STAGING} LEFT JOIN stafett_counts USING ({key})")
        };
        format!(
            "{with}INSERT INTO {} AS there ({columns}) SELECT {} FROM {from} ORDER BY {key} \
             ON CONFLICT ({key}) DO UPDATE SET {}",
            self.table(),
            values.join(", "),
            sets.join(", ")
        )
    }

    /// Returns the statements that make the missing parts beside a roll-up: the table of members,
    /// and the view with its condition.
    async fn beside(&self, client: &Client) -> Result<Vec<String>, TargetError> {
        let mut made = Vec::new();
        let there = self.types(client, &format!("{}_members", self.name)).await?;
        if let Some(members) = self.members().filter(|_| there.is_empty()) {
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
            let view = format!("{}_shown", self.name);
            let condition = format!("{} >= {least}", quoted(name));
            if self.remark(client, &view).await?.as_deref() != Some(&condition) {
                let (view, table) = (self.qualified(&view), self.table());
                // The remark says which condition the view was made with.
                made.push(format!(
                    "CREATE OR REPLACE VIEW {view} AS SELECT * FROM {table} WHERE {condition}; \
                     COMMENT ON VIEW {view} IS '{}';",
                    condition.replace('\'', "''")
                ));
            }
        }
        Ok(made)
    }

    /// Returns the comment on a view; `None` without one, or without a view.
    async fn remark(&self, client: &Client, view: &str) -> Result<Option<String>, TargetError> {
        let statement = "SELECT obj_description(c.oid, 'pg_class') FROM pg_class c \
             JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE n.nspname = $1::text AND c.relname = $2::text AND c.relkind = 'v'";
        let found = client.query_opt(statement, &[&self.schema, &view]).await;
        Ok(found.map_err(|why| stopped(&why))?.and_then(|row| row.get(0)))
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

    /// Adds the columns that positions and flushes of an earlier version lack.
    pub(super) async fn upgrade(&self, client: &Client) -> Result<(), TargetError> {
        for name in ["stafett_positions", "stafett_flushes"] {
            let there = self.types(client, name).await?;
            let Some(statement) = self.lacking(name, &there) else {
                continue;
            };
            let added = client.batch_execute(&statement).await;
            added.map_err(|why| match stopped(&why) {
                TargetError::Stop(why) => {
                    TargetError::Stop(format!("the database lacks: {statement} ({why})"))
                }
                other @ (TargetError::Retry(_)
                | TargetError::Poison { .. }
                | TargetError::Fenced(_)
                | TargetError::MadeAgain(_)) => other,
            })?;
        }
        Ok(())
    }

    /// Returns the statement for the column that a table of positions or flushes lacks, if there is one.
    fn lacking(&self, name: &str, there: &[There]) -> Option<String> {
        let lacks = !there.is_empty() && there.iter().all(|column| column.name != "topic_id");
        lacks.then(|| {
            let table = self.qualified(name);
            format!("ALTER TABLE {table} ADD COLUMN IF NOT EXISTS topic_id uuid;")
        })
    }

    /// Returns the statements for missing tables of positions and flushes.
    pub(super) async fn missing_positions(&self, client: &Client) -> Result<Vec<String>, TargetError> {
        let mut missing = Vec::new();
        let positions = self.types(client, "stafett_positions").await?;
        missing.extend(self.lacking("stafett_positions", &positions));
        if positions.is_empty() {
            missing.push(format!(
                "CREATE TABLE IF NOT EXISTS {} (sink text, topic text, partition int, next bigint NOT NULL, \
                 epoch bigint NOT NULL, worker text, changed timestamptz NOT NULL DEFAULT now(), topic_id uuid, \
                 PRIMARY KEY (sink, topic, partition));",
                self.positions()
            ));
        }
        let flushes = self.types(client, "stafett_flushes").await?;
        missing.extend(self.lacking("stafett_flushes", &flushes));
        if flushes.is_empty() {
            missing.push(format!(
                "CREATE TABLE IF NOT EXISTS {} (sink text NOT NULL, topic text NOT NULL, partition int NOT NULL, \
                 first bigint NOT NULL, next bigint NOT NULL, epoch bigint NOT NULL, records bigint NOT NULL, \
                 rows bigint NOT NULL, stored timestamptz NOT NULL DEFAULT now(), topic_id uuid);",
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
            missing.extend(self.beside(client).await?);
            return Ok(missing);
        }
        let mut missing = Vec::new();
        for column in &self.columns {
            match there.iter().find(|there| there.name == column.name) {
                None => missing.push(format!(
                    "ALTER TABLE {} ADD COLUMN {};",
                    self.table(),
                    declared(column)
                )),
                Some(there) if fits(column.kind, &there.kind, there.modifier) => {}
                Some(There { name, shown, .. }) => {
                    return Err(TargetError::Stop(format!(
                        "column {name} of {} is {shown}, and the sink declares {}",
                        self.table(),
                        column.kind
                    )));
                }
            }
        }
        missing.extend(self.beside(client).await?);
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
    async fn types(&self, client: &Client, table: &str) -> Result<Vec<There>, TargetError> {
        let statement = "SELECT a.attname::text, t.typname::text, a.atttypmod, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a \
             JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace \
             JOIN pg_type t ON t.oid = a.atttypid \
             WHERE n.nspname = $1::text AND c.relname = $2::text AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped";
        let rows = client.query(statement, &[&self.schema, &table]).await;
        let rows = rows.map_err(|why| stopped(&why))?;
        let column = |row: &tokio_postgres::Row| There {
            name: row.get(0),
            kind: row.get(1),
            modifier: row.get(2),
            shown: row.get(3),
        };
        Ok(rows.iter().map(column).collect())
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

/// True if values of a kind can be copied in binary into a column of PostgreSQL's type. Its modifier must not
/// round them: -1 is none; one of `numeric` is `(precision << 16 | scale) + 4`, one of a time its decimals.
fn fits(kind: Kind, there: &str, modifier: i32) -> bool {
    match kind {
        Kind::Text => ["text", "varchar", "bpchar"].contains(&there),
        Kind::Boolean => there == "bool",
        Kind::Bigint => there == "int8",
        Kind::Double => there == "float8",
        Kind::Numeric { precision, scale } => {
            let decimals = ((modifier - 4) & 0x7ff ^ 0x400) - 0x400;
            let whole = ((modifier - 4) >> 16) - decimals;
            let has_room = decimals >= i32::from(scale) && whole >= i32::from(precision - scale);
            there == "numeric" && (modifier < 0 || has_room)
        }
        Kind::Timestamptz => there == "timestamptz" && (modifier < 0 || modifier == 6),
        Kind::Timestamp => there == "timestamp" && (modifier < 0 || modifier == 6),
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
    fn a_column_that_would_round_does_not_fit() {
        let kind = Kind::Numeric {
            precision: 12,
            scale: 2,
        };
        let modifier = |precision: i32, scale: i32| (precision << 16 | scale & 0x7ff) + 4;
        for (there, expected) in [
            (-1, true),
            (modifier(12, 2), true),
            (modifier(14, 3), true),
            (modifier(12, 3), false),
            (modifier(20, 1), false),
            (modifier(20, -2), false),
        ] {
            assert_eq!(fits(kind, "numeric", there), expected, "{there}");
        }
        assert!(fits(Kind::Timestamptz, "timestamptz", -1) && !fits(Kind::Timestamptz, "timestamptz", 0));
    }

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
