//! Questions to the database of a look-up, and its answers.
//!
//! A text that the encoding of the database does not have, or whose bytes are no UTF-8, is a matter of its
//! key: a question that fails for it is asked again in halves, down to that key.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, Statement};

use super::{Query, ROW_BYTES_MAX, Row};
use crate::document::write_line;
use crate::target::TargetError;
use crate::target::postgres::{connect, quoted, stopped};

/// Time for an answer.
const ANSWER: Duration = Duration::from_secs(30);
const SESSION: &str = "SET TimeZone = 'UTC'; SET default_transaction_read_only = on; \
                       SET statement_timeout = '30s'; SET client_min_messages = 'error'";

/// A connection, and its question.
#[derive(Debug)]
pub(super) struct Connected {
    client: Client,
    statement: Statement,
    kind: KeyKind,
    /// Ends with this.
    _task: JoinSet<()>,
}

/// Type of the column with the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyKind {
    Text,
    Whole,
    Uuid,
}

impl KeyKind {
    fn of(name: &str) -> Option<Self> {
        match name {
            "text" | "character varying" => Some(Self::Text),
            "smallint" | "integer" | "bigint" => Some(Self::Whole),
            "uuid" => Some(Self::Uuid),
            _ => None,
        }
    }

    /// Returns the type of the keys in a question.
    fn word(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Whole => "bigint",
            Self::Uuid => "uuid",
        }
    }

    /// Returns a key as the database shows it. `None` if no row can have it.
    fn normal(self, key: &str) -> Option<String> {
        match self {
            Self::Text => (!key.contains('\0')).then(|| key.to_owned()),
            Self::Whole => key.parse::<i64>().ok().map(|number| number.to_string()),
            Self::Uuid => uuid::Uuid::try_parse(key).ok().map(|id| id.to_string()),
        }
    }
}

impl Query {
    /// Asks for the rows of keys.
    pub(super) async fn ask(
        &self,
        connection: &mut Option<Connected>,
        keys: &[String],
    ) -> Result<HashMap<String, Row>, TargetError> {
        if connection.as_ref().is_none_or(|it| it.client.is_closed()) {
            *connection = Some(timed(self.connect()).await??);
        }
        let gone = || TargetError::Retry("the connection ended".to_owned());
        let connected = connection.as_ref().ok_or_else(gone)?;
        let normal: Vec<String> = keys.iter().filter_map(|key| connected.kind.normal(key)).collect();
        let mut rows = HashMap::new();
        let mut open = vec![&*normal];
        while let Some(part) = open.pop() {
            let terms: [&(dyn tokio_postgres::types::ToSql + Sync); 1] = [&part];
            match timed(connected.client.query(&connected.statement, &terms)).await? {
                Ok(found) => {
                    for row in found {
                        self.add(&mut rows, &row)?;
                    }
                }
                Err(why) if is_of_text(&why) => {
                    if let [key] = part {
                        let row = connected.odd(key, &why).await?;
                        rows.insert(key.clone(), row);
                    } else {
                        let (one, other) = part.split_at(part.len() / 2);
                        open.extend([other, one]);
                    }
                }
                Err(why) => return Err(stopped(&why)),
            }
        }
        // Two keys may be those of one row.
        let row_of = |key: &String| {
            let normal = connected.kind.normal(key);
            normal
                .and_then(|normal| rows.get(&normal).cloned())
                .unwrap_or(Row::Absent)
        };
        Ok(keys.iter().map(|key| (key.clone(), row_of(key))).collect())
    }

    /// Adds a row of an answer by its key.
    fn add(&self, rows: &mut HashMap<String, Row>, row: &tokio_postgres::Row) -> Result<(), TargetError> {
        let key: String = row.try_get(0).map_err(|why| stopped(&why))?;
        let found = match self.values(row) {
            Ok(values) => Row::Found(values),
            Err(why) => Row::Unreadable(why.into()),
        };
        if let Row::Found(values) = &found {
            let bytes: usize = values.iter().map(|json| json.len()).sum();
            if bytes > ROW_BYTES_MAX {
                let why =
                    format!("the fields of a row have {bytes} bytes, and at most {ROW_BYTES_MAX} are kept");
                return Err(TargetError::Stop(why));
            }
        }
        if rows.insert(key, found).is_some() {
            let why = format!(
                "several rows have the same {}: keys have to be unique",
                self.column
            );
            return Err(TargetError::Stop(why));
        }
        Ok(())
    }

    /// Returns the JSON texts of the fields that are added.
    fn values(&self, row: &tokio_postgres::Row) -> Result<Arc<[Box<str>]>, String> {
        let mut values = Vec::with_capacity(self.add.len());
        for (place, name) in (1..).zip(&self.add) {
            let json: Option<String> = row
                .try_get(place)
                .map_err(|_| format!("{name} is no text in UTF-8"))?;
            let mut line = Vec::new();
            write_line(&mut line, json.as_deref().unwrap_or("null"));
            values.push(String::from_utf8(line).unwrap_or_default().into_boxed_str());
        }
        Ok(values.into())
    }

    async fn connect(&self) -> Result<Connected, TargetError> {
        let (client, task) = connect(&self.url, self.ca.as_deref()).await?;
        client.batch_execute(SESSION).await.map_err(|why| stopped(&why))?;
        let table = format!("{}.{}", quoted(&self.schema), quoted(&self.table));
        let kinds = "SELECT format_type(atttypid, NULL) FROM pg_attribute \
                     WHERE attrelid = $1::text::regclass AND attname = $2 AND attnum > 0 AND NOT attisdropped";
        let kind = client.query_opt(kinds, &[&table, &self.column]).await;
        let kind = kind.map_err(|why| stopped(&why))?;
        let kind: String = kind
            .ok_or_else(|| TargetError::Stop(format!("there is no column {}", self.column)))?
            .get(0);
        let kind = KeyKind::of(&kind).ok_or_else(|| {
            let column = &self.column;
            TargetError::Stop(format!(
                "the column {column} is {kind}, and keys are text, whole numbers or uuid"
            ))
        })?;
        let column = quoted(&self.column);
        let added = self
            .add
            .iter()
            .map(|name| format!(", to_json({})::text", quoted(name)));
        let question = format!(
            "SELECT {column}::text{} FROM {table} WHERE {column} = ANY ($1::text[]::{}[])",
            added.collect::<String>(),
            kind.word()
        );
        let statement = client.prepare(&question).await.map_err(|why| stopped(&why))?;
        Ok(Connected {
            client,
            statement,
            kind,
            _task: task,
        })
    }
}

impl Connected {
    /// Returns the row of a key for which the question fails. No row has a key that the database cannot hold.
    async fn odd(&self, key: &str, why: &Error) -> Result<Row, TargetError> {
        match timed(self.client.query_one("SELECT $1::text", &[&key])).await? {
            Ok(_) => {
                let why = why
                    .as_db_error()
                    .map_or_else(|| why.to_string(), |why| why.message().to_owned());
                Ok(Row::Unreadable(why.into()))
            }
            Err(why) if is_of_text(&why) => Ok(Row::Absent),
            Err(why) => Err(stopped(&why)),
        }
    }
}

/// True if a text has letters that an encoding does not have.
fn is_of_text(why: &Error) -> bool {
    let code = why.code();
    code == Some(&SqlState::UNTRANSLATABLE_CHARACTER) || code == Some(&SqlState::CHARACTER_NOT_IN_REPERTOIRE)
}

async fn timed<T>(work: impl Future<Output = T>) -> Result<T, TargetError> {
    let silent = |_| TargetError::Retry(format!("no answer for {} s", ANSWER.as_secs()));
    timeout(ANSWER, work).await.map_err(silent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_column() {
        for (name, key, expected) in [
            ("text", "a'b", Some("a'b")),
            ("text", "a\0", None),
            ("character varying", "7", Some("7")),
            ("integer", "007", Some("7")),
            ("bigint", "7.0", None),
            ("smallint", "99999999999999999999", None),
            (
                "uuid",
                "67E55044-10B1-426F-9247-BB680E5FE0C8",
                Some("67e55044-10b1-426f-9247-bb680e5fe0c8"),
            ),
            ("uuid", "x", None),
        ] {
            let kind = KeyKind::of(name).unwrap();
            assert_eq!(kind.normal(key).as_deref(), expected, "{name} {key}");
        }
        assert_eq!(KeyKind::of("jsonb"), None);
    }
}
