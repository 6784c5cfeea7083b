//! The last statements of a flush: its line, and the position behind it. Both are prepared once for each
//! connection, and sent together.

use tokio_postgres::{Client, Statement};

use super::Numbers;
use super::errors::stopped;
use super::tables::Tables;
use crate::target::{Part, TargetError};

#[derive(Debug, Clone)]
pub(super) struct Closing {
    note: Statement,
    shift: Statement,
}

impl Closing {
    pub(super) async fn prepare(client: &Client, tables: &Tables) -> Result<Self, TargetError> {
        let note = format!(
            "INSERT INTO {} (sink, topic, partition, first, next, epoch, records, rows, topic_id) \
             SELECT $1, $2, $3, $4, $5, $6, $7, $8, \
             (SELECT topic_id FROM {} WHERE sink = $1 AND topic = $2 AND partition = $3)",
            tables.flushes(),
            tables.positions()
        );
        let shift = format!(
            "UPDATE {} SET next = $1, changed = now() \
             WHERE sink = $2 AND topic = $3 AND partition = $4 AND epoch = $5 AND next = $6",
            tables.positions()
        );
        Ok(Self {
            note: client.prepare(&note).await.map_err(|why| stopped(&why))?,
            shift: client.prepare(&shift).await.map_err(|why| stopped(&why))?,
        })
    }

    /// Adds the line of a flush, and moves the position, if it is where the part begins and no other writer
    /// has taken it over.
    pub(super) async fn run(
        &self,
        client: &Client,
        sink: &str,
        part: &Part<'_>,
        numbers: &Numbers,
    ) -> Result<(), TargetError> {
        let rows = i64::try_from(part.rows.len()).unwrap_or(i64::MAX);
        let records = i64::try_from(part.records).unwrap_or(i64::MAX);
        let Numbers {
            partition,
            from,
            next,
            epoch,
        } = numbers;
        let topic = &part.place.topic;
        let line: [&(dyn tokio_postgres::types::ToSql + Sync); 8] =
            [&sink, topic, partition, from, next, epoch, &records, &rows];
        let position: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [next, &sink, topic, partition, epoch, from];
        let (noted, moved) = tokio::join!(
            client.execute(&self.note, &line),
            client.execute(&self.shift, &position)
        );
        noted.map_err(|why| stopped(&why))?;
        if moved.map_err(|why| stopped(&why))? == 0 {
            return Err(TargetError::Fenced(part.place.clone()));
        }
        Ok(())
    }
}
