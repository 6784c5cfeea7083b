//! Figures of a roll-up: all that a table has at one time, and all of them replaced.

use std::collections::BTreeSet;

use tokio_postgres::Client;
use uuid::Uuid;

use super::errors::stopped;
use super::{Postgres, copy, partition, signed};
use crate::columns::{Column, Kind};
use crate::rows::Rows;
use crate::target::{Place, TargetError};

/// Rows of a roll-up at one time, with the positions at that time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    pub places: Vec<Summed>,
    /// Cells as text: those of the key, and those of the values.
    pub rows: Vec<Vec<Option<String>>>,
}

/// Records of a place that were summed up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summed {
    pub place: Place,
    /// Offset of the first one; `None` if no flush is known.
    pub first: Option<u64>,
    /// Offset behind the last one: the position.
    pub next: u64,
    pub topic: Option<Uuid>,
    /// True if the flushes that are known are all of this topic, and leave out no record up to the position.
    pub is_whole: bool,
}

impl Postgres {
    /// Returns the rows and the positions of the same moment.
    pub async fn figures(&mut self) -> Result<Figures, TargetError> {
        let (sink, columns, tables) = (self.sink.clone(), self.columns.clone(), self.tables.clone());
        let client = self.client().await?;
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";
        client.batch_execute(begin).await.map_err(|why| stopped(&why))?;
        let read = async {
            let statement = summed(&tables.positions(), &tables.flushes());
            let mut found = Figures::default();
            for row in client.query(&statement, &[&sink]).await? {
                let number = |at: usize| {
                    let number = row.get::<_, Option<i64>>(at);
                    number.and_then(|number| u64::try_from(number).ok())
                };
                let topic = row.get::<_, Option<String>>(4);
                found.places.push(Summed {
                    place: Place {
                        topic: row.get(0),
                        partition: u32::try_from(row.get::<_, i32>(1)).unwrap_or(0),
                    },
                    first: number(2),
                    next: number(3).unwrap_or(0),
                    topic: topic.and_then(|id| id.parse().ok()),
                    is_whole: row.get(5),
                });
            }
            let texts: Vec<String> = columns.iter().map(text_of).collect();
            let statement = format!("SELECT {} FROM {}", texts.join(", "), tables.table());
            for row in client.query(&statement, &[]).await? {
                found
                    .rows
                    .push((0..columns.len()).map(|at| row.get(at)).collect());
            }
            Ok(found)
        };
        let found = read.await.map_err(|why: tokio_postgres::Error| stopped(&why));
        let ended = client
            .batch_execute("ROLLBACK")
            .await
            .map_err(|why| stopped(&why));
        let found = found?;
        ended?;
        Ok(found)
    }

    /// Replaces rows by others, if all positions are still those of `figures`: all rows, or the buckets of
    /// those that `figures` has. Writers that are at work go on behind them.
    pub async fn replace_figures(
        &mut self,
        figures: &Figures,
        rows: &Rows,
        is_part: bool,
    ) -> Result<(), TargetError> {
        let (sink, columns, tables) = (self.sink.clone(), self.columns.clone(), self.tables.clone());
        let client = self.client().await?;
        client.batch_execute("BEGIN").await.map_err(|why| stopped(&why))?;
        let replaced = async {
            check_positions(client, &tables.positions(), &sink, figures).await?;
            for table in [Some(tables.table()), tables.members()].into_iter().flatten() {
                delete(client, &table, figures, is_part).await?;
            }
            let staged = client.batch_execute(&tables.make_staging()).await;
            staged.map_err(|why| stopped(&why))?;
            copy(client, &tables.copy(), &columns, &rows.all(), true).await?;
            let merged = client.batch_execute(&tables.merge()).await;
            merged.map_err(|why| stopped(&why))?;
            client.batch_execute("COMMIT").await.map_err(|why| stopped(&why))
        };
        let replaced = replaced.await;
        if replaced.is_err() {
            // If that fails too, the server rolls back by itself.
            self.connection = None;
        }
        replaced
    }
}

/// Deletes all rows of a table, or the buckets of some.
async fn delete(client: &Client, table: &str, figures: &Figures, is_part: bool) -> Result<(), TargetError> {
    let statement = format!("DELETE FROM {table}");
    if !is_part {
        let deleted = client.batch_execute(&statement).await;
        return deleted.map_err(|why| stopped(&why));
    }
    let column = |place: usize| {
        let cells = figures.rows.iter().map(|row| row.get(place).cloned().flatten());
        cells.collect::<Vec<Option<String>>>()
    };
    let (every, bucket, zone) = (column(0), column(1), column(2));
    let statement = format!(
        "{statement} WHERE (every, bucket, zone) IN \
         (SELECT * FROM unnest($1::text[], $2::text[]::timestamp[], $3::text[]))"
    );
    let deleted = client.execute(&statement, &[&every, &bucket, &zone]).await;
    deleted.map_err(|why| stopped(&why)).map(|_| ())
}

/// Returns the statement about positions and the flushes up to them.
fn summed(positions: &str, flushes: &str) -> String {
    format!(
        "SELECT topic, partition, first, next, topic_id::text, coalesce(is_whole AND reached >= next, true) \
         FROM {positions} there LEFT JOIN LATERAL (\
             SELECT min(line.first) AS first, max(line.next) AS reached, \
             bool_and(line.topic_id IS NOT NULL AND line.topic_id = there.topic_id \
                 AND (line.first <= line.before OR line.before >= there.next)) AS is_whole \
             FROM (SELECT *, coalesce(max(flushes.next) OVER (ORDER BY flushes.first, flushes.next \
                 ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), flushes.first) AS before \
                 FROM {flushes} flushes WHERE flushes.sink = there.sink AND flushes.topic = there.topic \
                 AND flushes.partition = there.partition) line\
         ) lines ON true WHERE sink = $1 ORDER BY topic, partition"
    )
}

/// Locks all positions, fences their writers, and checks that none has moved, come or gone.
async fn check_positions(
    client: &Client,
    positions: &str,
    sink: &str,
    figures: &Figures,
) -> Result<(), TargetError> {
    // Nor can a position be added until the transaction ends.
    let locked = client
        .batch_execute(&format!("LOCK TABLE {positions} IN SHARE ROW EXCLUSIVE MODE"))
        .await;
    locked.map_err(|why| stopped(&why))?;
    let statement = format!(
        "UPDATE {positions} SET epoch = epoch + 1 WHERE sink = $1 RETURNING topic, partition, next, topic_id::text"
    );
    let rows = client.query(&statement, &[&sink]).await;
    let rows = rows.map_err(|why| stopped(&why))?;
    let mut there = BTreeSet::new();
    for row in &rows {
        let topic = row.get::<_, String>(0);
        there.insert((topic, row.get::<_, i32>(1), row.get::<_, i64>(2), row.get(3)));
    }
    let mut expected = BTreeSet::new();
    for Summed {
        place, next, topic, ..
    } in &figures.places
    {
        let id: Option<String> = topic.map(|id| id.to_string());
        expected.insert((place.topic.clone(), partition(place)?, signed(*next)?, id));
    }
    if let Some((topic, partition, ..)) = expected.symmetric_difference(&there).next() {
        let why = format!("{topic}-{partition} has moved on meanwhile: pause the sink first");
        return Err(TargetError::Stop(why));
    }
    Ok(())
}

/// Returns the expression of a column as text, in the form of [`crate::convert`].
fn text_of(column: &Column) -> String {
    let name = super::tables::quoted(&column.name);
    if column.kind == Kind::Timestamp {
        return format!("to_char({name}, 'YYYY-MM-DD\"T\"HH24:MI:SS')");
    }
    format!("{name}::text")
}
