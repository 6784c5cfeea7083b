//! A roll-up computed again from the log, up to the positions that its store has: compared with the store, or
//! put in its place.

use std::collections::BTreeMap;

use stafett_kafka_client::{Client, ClientError, Str};

use crate::convert::{Converter, write_plain};
use crate::definition::{Begin, Definition, OnGap, TargetSpec};
use crate::reader::{Reader, begin};
use crate::rollup::{Groups, MEMBER_BYTES, Rollup};
use crate::rows::{Cell, Rows};
use crate::target::postgres::{Figures, Postgres, Summed};
use crate::target::{Place, Steps, TargetError};
use crate::trial::TrialError;

/// Reason why a roll-up cannot be computed again.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("{0} is no roll-up")]
    NoRollup(String),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Records(#[from] TrialError),
    #[error("records {from} to {to} of {place} were summed up, and are no longer in the topic")]
    Gone { place: Place, from: u64, to: u64 },
    /// It is not certain which records the figures are of.
    #[error("{place}: {why}")]
    Uncertain { place: Place, why: &'static str },
}

impl From<ClientError> for VerifyError {
    fn from(why: ClientError) -> Self {
        Self::Records(why.into())
    }
}

/// Cells of a row as text.
type Row = Vec<Option<String>>;

/// A row that is not the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub key: Row,
    /// Values in the store, and as computed; `None` if there is no such row.
    pub stored: Option<Row>,
    pub computed: Option<Row>,
}

/// Result of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Records that were read.
    pub records: u64,
    /// Rows of the store.
    pub rows: usize,
    /// In the order of their keys.
    pub differences: Vec<Difference>,
}

/// A roll-up computed again.
struct Computed {
    figures: Figures,
    rows: Rows,
    records: u64,
}

/// Compares the store of a roll-up with its log. The tables are those of the broker `own`; `client` is one of
/// the broker that has the log.
pub async fn verify(own: &Client, client: &Client, sink: &Definition) -> Result<Verified, VerifyError> {
    let (computed, _) = compute(own, client, sink).await?;
    let texts = computed.rows.all();
    let texts = texts.iter().map(|(_, cells)| {
        let text = |cell: &Cell| (*cell != Cell::Null).then(|| text_of(&computed.rows, *cell));
        cells.iter().map(text).collect::<Row>()
    });
    let keys = sink.rollup.as_ref().map_or(0, |rollup| rollup.key().len());
    let differences = compare(&computed.figures.rows, texts, keys);
    Ok(Verified {
        records: computed.records,
        rows: computed.figures.rows.len(),
        differences,
    })
}

/// Replaces the rows of a roll-up by those of its log. Returns their number. The clients are those of
/// [`verify`].
pub async fn recompute(own: &Client, client: &Client, sink: &Definition) -> Result<usize, VerifyError> {
    let (computed, mut target) = compute(own, client, sink).await?;
    target.replace_figures(&computed.figures, &computed.rows).await?;
    Ok(computed.rows.len())
}

/// Returns a cell as the store has it as text: hashes of distinct values as their number.
fn text_of(rows: &Rows, cell: Cell) -> String {
    if let Cell::Bytes(members) = cell {
        return (rows.piece(members).len() / MEMBER_BYTES).to_string();
    }
    let mut out = Vec::new();
    write_plain(&mut out, rows, cell);
    String::from_utf8(out).unwrap_or_default()
}

/// Returns the rows that differ; the first `keys` cells of a row are its key.
fn compare(stored: &[Row], computed: impl Iterator<Item = Row>, keys: usize) -> Vec<Difference> {
    let mut all: BTreeMap<Row, (Option<Row>, Option<Row>)> = BTreeMap::new();
    for row in stored {
        let (key, values) = row.split_at(keys.min(row.len()));
        all.entry(key.to_vec()).or_default().0 = Some(values.to_vec());
    }
    for mut row in computed {
        let values = row.split_off(keys.min(row.len()));
        all.entry(row).or_default().1 = Some(values);
    }
    all.retain(|_, (stored, computed)| stored != computed);
    let difference = |(key, (stored, computed))| Difference {
        key,
        stored,
        computed,
    };
    all.into_iter().map(difference).collect()
}

async fn compute(
    own: &Client,
    client: &Client,
    sink: &Definition,
) -> Result<(Computed, Postgres), VerifyError> {
    let (Some(rollup), TargetSpec::Postgres(spec)) = (&sink.rollup, &sink.target) else {
        return Err(VerifyError::NoRollup(sink.name.clone()));
    };
    let ready = sink.ready(own).await;
    let (ready, _tables) = ready.map_err(|why| TrialError::Unreadable(why.to_string()))?;
    let mut target = Postgres::new(&sink.name, spec, &sink.columns, &sink.mode, Steps::default());
    let figures = target.figures().await?;
    let mut groups = Groups::default();
    let mut records = 0;
    for summed in &figures.places {
        let range = range_of(client, summed).await?;
        records += fold(client, &ready, rollup, summed, range, &mut groups).await?;
    }
    let mut rows = Rows::new(sink.columns.len());
    groups.drain(rollup, 0, &mut rows);
    let computed = Computed {
        figures,
        rows,
        records,
    };
    Ok((computed, target))
}

/// Returns the range of the records that the figures have of a place. An error unless it is certain, and the
/// place still has them all.
async fn range_of(client: &Client, summed: &Summed) -> Result<std::ops::Range<u64>, VerifyError> {
    let place = &summed.place;
    let uncertain = |why| VerifyError::Uncertain {
        place: place.clone(),
        why,
    };
    if !summed.is_whole {
        let why = "lines of stafett_flushes are missing, or are those of another topic of that name";
        return Err(uncertain(why));
    }
    let (start, _) = begin(client, place, Begin::Earliest).await?;
    let first = match summed.first {
        Some(first) => first,
        None if summed.next <= start.earliest => return Ok(summed.next..summed.next),
        None => return Err(uncertain("stafett_flushes has no line of it, and it has records")),
    };
    if summed.topic.is_none() || summed.topic != start.topic {
        return Err(uncertain("the figures are those of another topic of that name"));
    }
    if start.earliest > first && first < summed.next {
        return Err(VerifyError::Gone {
            place: place.clone(),
            from: first,
            to: start.earliest.min(summed.next),
        });
    }
    let topics = [Str::copy_from(&place.topic)];
    let settings = client.settings(&topics, Some(&["cleanup.policy"])).await?;
    let is_compacted = settings.iter().flatten().any(|setting| {
        let policy = setting.value.as_ref();
        policy.is_some_and(|policy| policy.contains("compact"))
    });
    if is_compacted {
        return Err(uncertain(
            "the topic is compacted: records that were summed up may be gone",
        ));
    }
    Ok(first.min(summed.next)..summed.next)
}

/// Sums up the records of a range. Returns their number. Poison is left out, as the sink left it out.
async fn fold(
    client: &Client,
    sink: &Definition,
    rollup: &Rollup,
    summed: &Summed,
    range: std::ops::Range<u64>,
    groups: &mut Groups,
) -> Result<u64, VerifyError> {
    let mut converter = Converter::new(sink.columns.clone(), sink.steps.clone(), sink.on_unknown);
    let mut records = 0;
    let mut next = range.start;
    let place = &summed.place;
    let mut reader = Reader::spawn(client, place.clone(), summed.topic, next, OnGap::Stop);
    while next < range.end {
        let ended = || TrialError::Unreadable(format!("{place}: reading ended before the position"));
        let piece = reader.next().await.ok_or_else(ended)?;
        let piece = piece.map_err(TrialError::from)?;
        for record in &piece.records {
            if range.contains(&record.offset.0) {
                records += 1;
                let _ = converter.fold(rollup, place, record, groups);
            }
        }
        next = piece.next;
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_other_missing_or_too_many_are_found() {
        let row = |texts: [&str; 3]| {
            texts
                .map(|text| (!text.is_empty()).then(|| text.to_owned()))
                .to_vec()
        };
        let stored = [row(["a", "x", "1"]), row(["a", "y", "2"]), row(["b", "x", ""])];
        let computed = [row(["b", "x", ""]), row(["a", "y", "3"]), row(["c", "x", "4"])];
        let found = compare(&stored, computed.into_iter(), 2);
        let shown: Vec<_> = found
            .iter()
            .map(|it| (it.key.clone(), it.stored.clone(), it.computed.clone()))
            .collect();
        let (key, value) = (
            |a: &str, b: &str| row([a, b, ""])[..2].to_vec(),
            |text: &str| Some(vec![Some(text.to_owned())]),
        );
        assert_eq!(
            shown,
            [
                (key("a", "x"), value("1"), None),
                (key("a", "y"), value("2"), value("3")),
                (key("c", "x"), None, value("4")),
            ]
        );
    }
}
