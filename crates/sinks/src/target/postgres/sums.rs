//! Sums of the hashes of rows, computed by the server, and the texts of rows: see `canonical`.

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::errors::stopped;
use super::tables::quoted;
use super::{Client, Postgres};
use crate::columns::{Column, Kind};
use crate::spans::{SPANS_MAX, Sums, Wanted, add};
use crate::target::TargetError;

impl Postgres {
    /// Returns counts and sums of hashes by spans of a width in µs. A hash has the first hexadecimal digits
    /// of MD5.
    pub(crate) async fn sums(
        &mut self,
        wanted: &Wanted,
        width: i64,
        digits: usize,
    ) -> Result<Sums, TargetError> {
        let (table, bits) = (self.tables.table(), digits * 4);
        let client = self.client().await?;
        let question = format!(
            "SELECT floor(stafett_at::numeric / {width})::bigint * {width}, count(*), \
             sum(('x' || substr(md5(convert_to(stafett_text, 'UTF8')), 1, {digits}))::bit({bits})::bigint)::text \
             FROM {} GROUP BY 1 LIMIT {SPANS_MAX} + 1",
            rows_of(&table, wanted)
        );
        let mut sums = Sums::new();
        for row in asked(client, &question, wanted).await? {
            let count = u64::try_from(row.get::<_, i64>(1)).unwrap_or(0);
            let sum: u128 = row.get::<_, String>(2).parse().unwrap_or(0);
            add(&mut sums, row.get(0), (count, sum), SPANS_MAX)?;
        }
        Ok(sums)
    }

    /// Returns the canonical texts of rows.
    pub(crate) async fn texts(&mut self, wanted: &Wanted) -> Result<Vec<String>, TargetError> {
        let table = self.tables.table();
        let client = self.client().await?;
        let question = format!("SELECT stafett_text FROM {}", rows_of(&table, wanted));
        let rows = asked(client, &question, wanted).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}

async fn asked(client: &Client, question: &str, wanted: &Wanted) -> Result<Vec<Row>, TargetError> {
    let from: Vec<i64> = wanted.spans.iter().map(|span| span.from).collect();
    let to: Vec<i64> = wanted.spans.iter().map(|span| span.to).collect();
    let terms: [&(dyn ToSql + Sync); 3] = [&from, &to, &wanted.with_timeless];
    client.query(question, &terms).await.map_err(|why| stopped(&why))
}

/// Returns a table of times, in µs, and canonical texts. The spans are its first two parameters; the third
/// says if rows without a time are wanted.
fn rows_of(table: &str, wanted: &Wanted) -> String {
    let cells: Vec<_> = wanted.columns.iter().map(canonical).collect();
    format!(
        "(SELECT {} AS stafett_at, {} AS stafett_text FROM {table}) there WHERE (stafett_at IS NULL AND $3::boolean) OR \
         EXISTS (SELECT FROM unnest($1::bigint[], $2::bigint[]) span(low, high) \
         WHERE stafett_at >= low AND stafett_at < high)",
        micros(&quoted(&wanted.by.name)),
        cells.join(" || ")
    )
}

fn micros(name: &str) -> String {
    format!("(extract(epoch FROM {name}) * 1000000)::bigint")
}

fn canonical(column: &Column) -> String {
    let name = quoted(&column.name);
    let text = match column.kind {
        Kind::Text | Kind::Boolean | Kind::Bigint | Kind::Uuid | Kind::Jsonb => format!("{name}::text"),
        Kind::Double => format!("encode(float8send({name}), 'hex')"),
        Kind::Numeric { .. } => format!("trim_scale({name})::text"),
        Kind::Timestamptz | Kind::Timestamp => format!("{}::text", micros(&name)),
        Kind::Date => format!("({name} - DATE '1970-01-01')::text"),
        Kind::Bytea => format!("encode({name}, 'hex')"),
    };
    format!("CASE WHEN {name} IS NULL THEN '-' ELSE char_length({text}) || ':' || {text} END")
}
