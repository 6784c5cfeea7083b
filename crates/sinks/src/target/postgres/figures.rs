//! Figures of a roll-up: all that a table has at one time, and all of them replaced.

use tokio_postgres::Client;

use super::errors::stopped;
use super::{Postgres, copy, partition, signed};
use crate::columns::{Column, Kind};
use crate::rows::Rows;
use crate::target::{Place, TargetError};

/// Rows of a roll-up at one time, with the positions at that time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// Places with the offset of the first record that was summed up, and the one behind the last.
    pub places: Vec<(Place, u64, u64)>,
    /// Cells as text: those of the key, and those of the values.
    pub rows: Vec<Vec<Option<String>>>,
}

impl Postgres {
    /// Returns the rows and the positions of the same moment.
    pub async fn figures(&mut self) -> Result<Figures, TargetError> {
        let (sink, columns, tables) = (self.sink.clone(), self.columns.clone(), self.tables.clone());
        let client = self.client().await?;
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";
        client.batch_execute(begin).await.map_err(|why| stopped(&why))?;
        let read = async {
            let statement = format!(
                "SELECT topic, partition, (SELECT min(first) FROM {} flushes WHERE flushes.sink = there.sink \
                 AND flushes.topic = there.topic AND flushes.partition = there.partition), next \
                 FROM {} there WHERE sink = $1 ORDER BY topic, partition",
                tables.flushes(),
                tables.positions()
            );
            let mut found = Figures::default();
            for row in client.query(&statement, &[&sink]).await? {
                let number =
                    |at: usize| u64::try_from(row.get::<_, Option<i64>>(at).unwrap_or(0)).unwrap_or(0);
                let place = Place {
                    topic: row.get(0),
                    partition: u32::try_from(row.get::<_, i32>(1)).unwrap_or(0),
                };
                let next = number(3);
                let first = row.get::<_, Option<i64>>(2).map_or(next, |_| number(2));
                found.places.push((place, first, next));
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

    /// Replaces all rows by others, if all positions are still those of `figures`. Writers that are at work
    /// go on behind them.
    pub async fn replace_figures(&mut self, figures: &Figures, rows: &Rows) -> Result<(), TargetError> {
        let (sink, columns, tables) = (self.sink.clone(), self.columns.clone(), self.tables.clone());
        let client = self.client().await?;
        client.batch_execute("BEGIN").await.map_err(|why| stopped(&why))?;
        let replaced = async {
            for (place, _, next) in &figures.places {
                take_over(client, &tables.positions(), &sink, place, *next).await?;
            }
            for table in [Some(tables.table()), tables.members()].into_iter().flatten() {
                let deleted = client.batch_execute(&format!("DELETE FROM {table}")).await;
                deleted.map_err(|why| stopped(&why))?;
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

/// Fences the writer of a place, which has to be where it was.
async fn take_over(
    client: &Client,
    positions: &str,
    sink: &str,
    place: &Place,
    next: u64,
) -> Result<(), TargetError> {
    let statement = format!(
        "UPDATE {positions} SET epoch = epoch + 1 WHERE sink = $1 AND topic = $2 AND partition = $3 AND next = $4"
    );
    let (partition, next) = (partition(place)?, signed(next)?);
    let taken = client
        .execute(&statement, &[&sink, &place.topic, &partition, &next])
        .await;
    if taken.map_err(|why| stopped(&why))? == 0 {
        let why = format!("{place} has moved on meanwhile: pause the sink first");
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
