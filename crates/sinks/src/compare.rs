//! Two stores compared row by row: hours by counts and sums of hashes, and those that differ down to their
//! rows.
//!
//! A row is a canonical text and a hash of it (`canonical`). Sums of hashes do not depend on the order, and
//! see a row that is there twice. PostgreSQL computes its own, so that little travels; of files, one is in
//! memory at a time. `spans` has the bounds.

use std::collections::BTreeMap;

use crate::canonical::{DIGITS, hash, shown, write_canonical};
use crate::columns::{Column, Kind, Origin};
use crate::definition::{Definition, TargetSpec};
use crate::rows::Cell;
use crate::spans::{Listed, SPANS_MAX, Span, Sums, Wanted, add, different, equal};
use crate::target::files::{Counting, Files};
use crate::target::postgres::Postgres;
use crate::target::{Place, Steps, Target, TargetError};

/// Lengths of spans, in µs: hours, minutes, seconds.
const WIDTHS: [i64; 3] = [3_600_000_000, 60_000_000, 1_000_000];

/// Reason why two stores cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    #[error("{0}: only tables of PostgreSQL and files can be compared, and they need columns")]
    Kind(String),
    #[error("the sinks have no column in common that can be compared")]
    NoColumns,
    #[error("the sinks have no timestamptz or timestamp in common: rows are found by it")]
    NoTime,
    #[error("{0} is no timestamptz and no timestamp of both sinks")]
    NoSuchTime(String),
    #[error("column {name} is {one} in one sink, and {other} in the other")]
    Types { name: String, one: Kind, other: Kind },
    #[error("{sink}: {why}")]
    Target { sink: String, why: TargetError },
}

/// Rows to compare.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Column of the times; `None` is the first one of both.
    pub by: Option<String>,
    /// Microseconds since 1970: the first, and the one behind the last.
    pub from: Option<i64>,
    pub to: Option<i64>,
}

/// A row that only one of the stores has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Only {
    /// 0 or 1: the store that has it.
    pub store: usize,
    /// Cells in the order of the columns.
    pub row: Vec<Option<String>>,
    /// Number of its copies that the other store lacks.
    pub copies: u64,
}

/// Result of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Compared {
    /// Columns that were compared.
    pub columns: Vec<String>,
    /// Columns of one or both that were not.
    pub left_out: Vec<String>,
    /// Column of the times.
    pub by: String,
    pub rows: [u64; 2],
    pub hours: u64,
    /// Hours that differ.
    pub different: u64,
    pub only: Vec<Only>,
    /// Spans that differ, and whose rows are not in `only`: they have too many.
    pub unlisted: u64,
    /// Partitions at which the stores are not equally far.
    pub apart: Vec<String>,
}

/// One of the stores.
enum Store {
    Table(Box<Postgres>),
    Files {
        target: Box<Files>,
        files: Vec<Counting>,
        columns: Vec<Column>,
    },
}

impl Store {
    async fn open(sink: &Definition) -> Result<Self, CompareError> {
        let has_columns = sink.columns.iter().all(|column| column.origin != Origin::Whole);
        let failed = failed(sink);
        match &sink.target {
            TargetSpec::Postgres(spec) => {
                let (columns, mode) = (&sink.columns, &sink.mode);
                let target = Postgres::new(&sink.name, spec, columns, mode, Steps::default());
                Ok(Self::Table(Box::new(target)))
            }
            TargetSpec::Files(spec) if has_columns => {
                let mut target = Files::new(&sink.name, spec, &sink.columns, || 0, Steps::default());
                let files = target.counting().await.map_err(failed)?.files;
                Ok(Self::Files {
                    target: Box::new(target),
                    files,
                    columns: sink.columns.clone(),
                })
            }
            TargetSpec::Files(_)
            | TargetSpec::Topic(_)
            | TargetSpec::Amqp(_)
            | TargetSpec::Webhook(_)
            | TargetSpec::Ducklake(_)
            | TargetSpec::Delta(_)
            | TargetSpec::Mongodb(_)
            | TargetSpec::Clickhouse(_) => Err(CompareError::Kind(sink.name.clone())),
        }
    }

    async fn positions(&mut self) -> Result<Vec<(Place, u64)>, TargetError> {
        match self {
            Self::Table(target) => target.positions().await,
            Self::Files { target, .. } => target.positions().await,
        }
    }

    async fn sums(&mut self, wanted: &Wanted, width: i64) -> Result<Sums, TargetError> {
        match self {
            Self::Table(target) => target.sums(wanted, width, DIGITS).await,
            Self::Files { .. } => {
                let mut sums = Sums::new();
                self.each(wanted, |at, text| {
                    let begin = at.map(|at| at.div_euclid(width).saturating_mul(width));
                    add(&mut sums, begin, (1, hash(text).into()), SPANS_MAX)
                })
                .await?;
                Ok(sums)
            }
        }
    }

    /// Returns the canonical texts of rows, with their numbers.
    async fn texts(&mut self, wanted: &Wanted) -> Result<BTreeMap<String, u64>, TargetError> {
        let mut texts = BTreeMap::new();
        match self {
            Self::Table(target) => {
                for text in target.texts(wanted).await? {
                    *texts.entry(text).or_default() += 1;
                }
            }
            Self::Files { .. } => {
                self.each(wanted, |_, text| {
                    *texts.entry(text.to_owned()).or_default() += 1;
                    Ok(())
                })
                .await?;
            }
        }
        Ok(texts)
    }

    /// Reads the rows of all files, with their times.
    async fn each(
        &mut self,
        wanted: &Wanted,
        mut take: impl FnMut(Option<i64>, &str) -> Result<(), TargetError>,
    ) -> Result<(), TargetError> {
        let Self::Files {
            target,
            files,
            columns,
        } = self
        else {
            return Ok(());
        };
        let place_of = |wanted: &Column| columns.iter().position(|column| column.name == wanted.name);
        let places: Vec<usize> = wanted.columns.iter().filter_map(place_of).collect();
        let by = place_of(&wanted.by);
        let mut text = String::new();
        for file in files.iter() {
            let rows = target.rows_of(file).await?;
            for (_, cells) in rows.all().iter() {
                let at = if let Some(Cell::Instant(at) | Cell::Local(at)) = by.and_then(|by| cells.get(by)) {
                    Some(*at)
                } else {
                    None
                };
                if wanted.has(at) {
                    text.clear();
                    for place in &places {
                        write_canonical(&mut text, &rows, cells.get(*place).copied().unwrap_or(Cell::Null));
                    }
                    take(at, &text)?;
                }
            }
        }
        Ok(())
    }
}

fn failed(sink: &Definition) -> impl Fn(TargetError) -> CompareError {
    let sink = sink.name.clone();
    move |why| CompareError::Target {
        sink: sink.clone(),
        why,
    }
}

/// Compares the stores of two sinks.
pub async fn compare(sinks: [&Definition; 2], selection: &Selection) -> Result<Compared, CompareError> {
    let (columns, left_out) = common(sinks)?;
    let by = time_of(&columns, selection.by.as_deref())?;
    let mut stores = [Store::open(sinks[0]).await?, Store::open(sinks[1]).await?];
    let mut compared = Compared {
        columns: columns.iter().map(|column| column.name.clone()).collect(),
        left_out,
        by: by.name.clone(),
        ..Compared::default()
    };
    let bounds = Span {
        from: selection.from.unwrap_or(i64::MIN),
        to: selection.to.unwrap_or(i64::MAX),
    };
    let mut wanted = Wanted {
        columns,
        by,
        spans: vec![bounds],
        with_timeless: selection.from.is_none() && selection.to.is_none(),
    };
    compared.apart = apart(sinks, &mut stores).await?;
    let mut listed = Listed::of(&wanted);
    for (level, width) in WIDTHS.into_iter().enumerate() {
        if wanted.spans.is_empty() && !wanted.with_timeless {
            break;
        }
        let mut sums = [Sums::new(), Sums::new()];
        for ((sums, store), sink) in sums.iter_mut().zip(&mut stores).zip(sinks) {
            *sums = store.sums(&wanted, width).await.map_err(failed(sink))?;
        }
        let different = different(&sums);
        if level == 0 {
            let [one, other] = &sums;
            let total = |sums: &Sums| sums.values().map(|(count, _)| count).sum::<u64>();
            compared.rows = [total(one), total(other)];
            compared.different = different.len() as u64;
            compared.hours = compared.different + equal(&sums);
        }
        wanted.with_timeless = false;
        wanted.spans = listed.divide(different, bounds, width, level + 1 == WIDTHS.len());
    }
    compared.unlisted = listed.passed;
    compared.only = only(sinks, &mut stores, &listed.wanted()).await?;
    Ok(compared)
}

/// Returns the rows that only one of the stores has.
async fn only(
    sinks: [&Definition; 2],
    stores: &mut [Store; 2],
    listed: &Wanted,
) -> Result<Vec<Only>, CompareError> {
    if listed.spans.is_empty() && !listed.with_timeless {
        return Ok(Vec::new());
    }
    let mut texts = [BTreeMap::new(), BTreeMap::new()];
    for ((texts, store), sink) in texts.iter_mut().zip(stores).zip(sinks) {
        *texts = store.texts(listed).await.map_err(failed(sink))?;
    }
    let [one, other] = &texts;
    let mut found = Vec::new();
    for (store, (own, others)) in [(one, other), (other, one)].into_iter().enumerate() {
        for (text, count) in own {
            let copies = count.saturating_sub(others.get(text).copied().unwrap_or(0));
            if copies > 0 {
                let row = shown(text, &listed.columns);
                found.push(Only { store, row, copies });
            }
        }
    }
    Ok(found)
}

/// Returns the columns of both sinks, and the names of those that cannot be compared.
fn common([one, other]: [&Definition; 2]) -> Result<(Vec<Column>, Vec<String>), CompareError> {
    let (mut columns, mut left_out) = (Vec::new(), Vec::new());
    for column in &one.columns {
        let twin = other.columns.iter().find(|twin| twin.name == column.name);
        match twin {
            None => left_out.push(column.name.clone()),
            Some(_) if column.kind == Kind::Jsonb => left_out.push(column.name.clone()),
            Some(twin) if is_alike(column.kind, twin.kind) => columns.push(column.clone()),
            Some(twin) => {
                return Err(CompareError::Types {
                    name: column.name.clone(),
                    one: column.kind,
                    other: twin.kind,
                });
            }
        }
    }
    let is_new = |column: &&Column| one.columns.iter().all(|twin| twin.name != column.name);
    left_out.extend(
        other
            .columns
            .iter()
            .filter(is_new)
            .map(|column| column.name.clone()),
    );
    if columns.is_empty() {
        return Err(CompareError::NoColumns);
    }
    Ok((columns, left_out))
}

fn is_alike(one: Kind, other: Kind) -> bool {
    let is_decimal = |kind| matches!(kind, Kind::Numeric { .. });
    one == other || is_decimal(one) && is_decimal(other)
}

fn time_of(columns: &[Column], named: Option<&str>) -> Result<Column, CompareError> {
    let is_time = |column: &&Column| matches!(column.kind, Kind::Timestamptz | Kind::Timestamp);
    let mut times = columns.iter().filter(is_time);
    match named {
        Some(name) => {
            let found = times.find(|column| column.name == name).cloned();
            found.ok_or_else(|| CompareError::NoSuchTime(name.to_owned()))
        }
        None => times.next().cloned().ok_or(CompareError::NoTime),
    }
}

/// Returns the partitions at which the stores are not equally far, if they have the same topics.
async fn apart(
    [one, other]: [&Definition; 2],
    [first, second]: &mut [Store; 2],
) -> Result<Vec<String>, CompareError> {
    if one.from != other.from || one.source != other.source {
        return Ok(Vec::new());
    }
    let positions = first.positions().await.map_err(failed(one))?;
    let positions: BTreeMap<_, _> = positions.into_iter().collect();
    let others = second.positions().await.map_err(failed(other))?;
    let others: BTreeMap<_, _> = others.into_iter().collect();
    let mut places: Vec<_> = positions.keys().chain(others.keys()).collect();
    places.sort_unstable();
    places.dedup();
    let mut apart = Vec::new();
    for place in places {
        let (one, other) = (positions.get(place), others.get(place));
        if one != other {
            let text = |next: Option<&u64>| next.map_or_else(|| "-".to_owned(), u64::to_string);
            apart.push(format!("{place}: {} and {}", text(one), text(other)));
        }
    }
    Ok(apart)
}
