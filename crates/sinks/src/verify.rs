//! A roll-up computed again from the log, up to the positions that its store has: compared with the store, or
//! put in its place.

mod files;

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::DateTime;
use stafett_kafka_client::{Client, ClientError, Str};

use crate::convert::{Converted, Converter, write_plain};
use crate::definition::{Begin, Definition, OnGap, TargetSpec};
use crate::positions::places;
use crate::reader::{Reader, begin};
use crate::rollup::{Every, Groups, MEMBER_BYTES, Rollup};
use crate::rows::{Cell, Rows};
use crate::target::postgres::{Figures, Postgres, Summed};
use crate::target::{Place, Steps, TargetError};
use crate::trial::TrialError;
use files::fold_files;

/// Reason why a roll-up cannot be computed again.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("{0} is no roll-up")]
    NoRollup(String),
    #[error("the sink {0} writes no files with columns")]
    NoFiles(String),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Records(#[from] TrialError),
    #[error("records {from} to {to} of {place} were summed up, and are no longer in the topic")]
    Gone { place: Place, from: u64, to: u64 },
    #[error(
        "{place}: the files begin at the record {files}, and the figures at {figures}: those between are in one of \
         them alone"
    )]
    Begins { place: Place, files: u64, figures: u64 },
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
pub type Row = Vec<Option<String>>;

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

/// A part of the time, without its end. The buckets around it count as a whole, each granularity by itself,
/// in the zone of each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub from: Timestamp,
    pub to: Timestamp,
}

impl Default for Window {
    /// All times.
    fn default() -> Self {
        Self {
            from: Timestamp::MIN,
            to: Timestamp::MAX,
        }
    }
}

impl Window {
    /// True if the bucket of a row has a part of it. A row whose bucket is unknown counts.
    fn has(&self, row: &[Option<String>]) -> bool {
        *self == Self::default() || self.overlaps(row).unwrap_or(true)
    }

    fn overlaps(&self, row: &[Option<String>]) -> Option<bool> {
        let [Some(every), Some(bucket), Some(zone), ..] = row else {
            return None;
        };
        let (_, every) = Every::ALL.iter().find(|(word, _)| word == every)?;
        let zone = stafett_expr::zone(zone).ok()?;
        let start: DateTime = bucket.parse().ok()?;
        let at = |local| zone.to_timestamp(local).ok();
        Some(at(start)? < self.to && at(every.end(start)?)? > self.from)
    }
}

/// Origin of the records from which a roll-up is computed.
#[derive(Debug, Clone, Copy)]
pub enum Records<'a> {
    /// The log; the client is one of the broker that has it.
    Log(&'a Client),
    /// The files of a sink over the same topics. Rows are records whose fields are the columns.
    Files(&'a Definition),
}

/// Compares the store of a roll-up with its records. The tables are those of the broker `own`.
pub async fn verify(
    own: &Client,
    from: Records<'_>,
    sink: &Definition,
    window: Window,
) -> Result<Verified, VerifyError> {
    let (computed, _) = compute(own, from, sink, window).await?;
    let keys = sink.rollup.as_ref().map_or(0, |rollup| rollup.key().len());
    let differences = compare(&computed.figures.rows, texts(&computed.rows).into_iter(), keys);
    Ok(Verified {
        records: computed.records,
        rows: computed.figures.rows.len(),
        differences,
    })
}

/// Replaces the rows of a roll-up by those of its records: those of a window, and no others. Returns their
/// number.
pub async fn recompute(
    own: &Client,
    from: Records<'_>,
    sink: &Definition,
    window: Window,
) -> Result<usize, VerifyError> {
    let (computed, mut target) = compute(own, from, sink, window).await?;
    let is_part = window != Window::default();
    target
        .replace_figures(&computed.figures, &computed.rows, is_part)
        .await?;
    Ok(computed.rows.len())
}

/// Returns the rows of a roll-up as its records are now, whatever its store has. A strict window is that of
/// the records: buckets at its edges have a part of theirs.
pub async fn show(
    own: &Client,
    from: Records<'_>,
    sink: &Definition,
    window: Window,
    is_strict: bool,
) -> Result<Vec<Row>, VerifyError> {
    let Some(rollup) = &sink.rollup else {
        return Err(VerifyError::NoRollup(sink.name.clone()));
    };
    let ready = sink.ready(own).await;
    let (ready, _tables) = ready.map_err(|why| TrialError::Unreadable(why.to_string()))?;
    let mut groups = if is_strict {
        Groups::within(window.from..window.to)
    } else {
        Groups::default()
    };
    match from {
        Records::Log(client) => {
            for place in places(sink, client).await? {
                let (start, end) = begin(client, &place, Begin::Earliest).await?;
                let all = Summed {
                    place,
                    first: Some(start.earliest),
                    next: end,
                    topic: start.topic,
                    is_whole: true,
                };
                fold(client, &ready, rollup, &all, start.earliest..end, &mut groups).await?;
            }
        }
        Records::Files(files) => {
            fold_files(files, &ready, rollup, None, &mut groups).await?;
        }
    }
    let mut rows = Rows::new(sink.columns.len());
    groups.drain(rollup, 0, &mut rows);
    let mut texts = texts(&rows);
    texts.retain(|row| window.has(row));
    Ok(texts)
}

/// Returns rows as texts.
fn texts(rows: &Rows) -> Vec<Row> {
    let all = rows.all();
    all.iter().map(|(_, cells)| texts_of(rows, cells)).collect()
}

fn texts_of(rows: &Rows, cells: &[Cell]) -> Row {
    let text = |cell: &Cell| (*cell != Cell::Null).then(|| text_of(rows, *cell));
    cells.iter().map(text).collect()
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
    from: Records<'_>,
    sink: &Definition,
    window: Window,
) -> Result<(Computed, Postgres), VerifyError> {
    let (Some(rollup), TargetSpec::Postgres(spec)) = (&sink.rollup, &sink.target) else {
        return Err(VerifyError::NoRollup(sink.name.clone()));
    };
    let ready = sink.ready(own).await;
    let (ready, _tables) = ready.map_err(|why| TrialError::Unreadable(why.to_string()))?;
    let mut target = Postgres::new(&sink.name, spec, &sink.columns, &sink.mode, Steps::default());
    let mut figures = target.figures().await?;
    let mut groups = Groups::default();
    let mut records = 0;
    match from {
        Records::Log(client) => {
            for summed in &figures.places {
                let range = range_of(client, summed).await?;
                records += fold(client, &ready, rollup, summed, range, &mut groups).await?;
            }
        }
        Records::Files(files) => {
            records = fold_files(files, &ready, rollup, Some(&figures.places), &mut groups).await?;
        }
    }
    let mut rows = Rows::new(sink.columns.len());
    groups.drain(rollup, 0, &mut rows);
    figures.rows.retain(|row| window.has(row));
    rows.retain(|rows, cells| window.has(&texts_of(rows, cells)));
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
        for (at, record) in piece.records.iter().enumerate() {
            if range.contains(&record.offset.0) {
                records += 1;
                while converter.fold(rollup, place, record, groups) == Ok(Converted::Waits) {
                    converter.fetch(place, piece.records.iter().skip(at)).await?;
                }
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
    fn a_window_has_the_buckets_around_it_in_the_zone_of_each() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let window = Window {
            from: at("2026-03-29T00:30:00Z"),
            to: at("2026-03-29T01:00:00Z"),
        };
        for (every, bucket, zone, expected) in [
            ("hour", "2026-03-29T00:00:00", "UTC", true),
            ("hour", "2026-03-29T01:00:00", "UTC", false),
            // The hour from 2 on does not exist.
            ("hour", "2026-03-29T01:00:00", "Europe/Stockholm", true),
            ("hour", "2026-03-29T03:00:00", "Europe/Stockholm", false),
            ("day", "2026-03-28T00:00:00", "America/New_York", true),
            ("day", "2026-03-28T00:00:00", "UTC", false),
            ("week", "2026-03-23T00:00:00", "UTC", true),
            ("week", "2026-03-30T00:00:00", "Pacific/Kiritimati", false),
            ("month", "2026-03-01T00:00:00", "UTC", true),
            ("month", "2026-04-01T00:00:00", "UTC", false),
        ] {
            let row = [every, bucket, zone].map(|text| Some(text.to_owned()));
            assert_eq!(window.has(&row), expected, "{every} {bucket} {zone}");
            assert!(Window::default().has(&row));
        }
        let row = ["day", "soon", "UTC"].map(|text| Some(text.to_owned()));
        assert!(window.has(&row));
    }

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
