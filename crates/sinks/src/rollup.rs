//! Roll-ups: records summed up by buckets of time and by attributes.
//!
//! A batch is folded in memory into one row per bucket and group. The store adds these to its own, in the
//! transaction that moves the position: so each record counts once, whenever it comes. Sums are exact and do
//! not depend on the order: whole numbers, and decimals of a declared scale, in 128 bits.

mod figures;
mod leaves;

use std::collections::HashMap;
use std::ops::Range;

use jiff::Timestamp;
use jiff::civil::{DateTime, Time, Weekday};
use jiff::tz::TimeZone;
use smallvec::SmallVec;

use crate::cells::unscaled;
use crate::columns::{Column, Kind, Origin};
use crate::computed::{TwoTimes, Unit};
use crate::convert::Reason;
use crate::document::Document;
use crate::rows::{Cell, Cells, Rows};
pub use figures::Figure;
pub(crate) use figures::MEMBER_BYTES;
use figures::{MEMBER_COST, Share, Total, attribute, first, join, share};
pub(crate) use leaves::Leaves;

/// Bytes of all attributes of a record and the name of a set, at most: PostgreSQL's indexes have keys of
/// about 2,700 bytes, with those of zone and hash.
const KEY_BYTES_MAX: usize = 2_400;
/// First year of a bucket: PostgreSQL has times since 4713 BC.
const YEAR_MIN: i16 = -4711;
/// Length of a bucket of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Every {
    Hour,
    Day,
    /// From Monday, as in ISO 8601.
    Week,
    Month,
}

impl Every {
    pub(crate) const ALL: [(&'static str, Self); 4] = [
        ("hour", Self::Hour),
        ("day", Self::Day),
        ("week", Self::Week),
        ("month", Self::Month),
    ];

    /// Returns the end of the bucket that begins at a local time.
    pub(crate) fn end(self, start: DateTime) -> Option<DateTime> {
        let span = jiff::Span::new();
        let span = match self {
            Self::Hour => span.try_hours(1),
            Self::Day => span.try_days(1),
            Self::Week => span.try_weeks(1),
            Self::Month => span.try_months(1),
        };
        start.checked_add(span.ok()?).ok()
    }

    fn word(self) -> &'static str {
        let word = Self::ALL.iter().find(|(_, every)| *every == self);
        word.map_or("", |(word, _)| word)
    }

    /// Returns the start of the bucket of a local time.
    fn start(self, at: DateTime) -> Option<DateTime> {
        let date = at.date();
        Some(match self {
            Self::Hour => date.to_datetime(Time::new(at.hour(), 0, 0, 0).ok()?),
            Self::Day => date.to_datetime(Time::midnight()),
            Self::Week => {
                let back = date.weekday().since(Weekday::Monday);
                let monday = date.checked_sub(jiff::Span::new().try_days(back).ok()?).ok()?;
                monday.to_datetime(Time::midnight())
            }
            Self::Month => date.first_of_month().to_datetime(Time::midnight()),
        })
    }
}

/// Starts of buckets, one of each granularity.
type Starts = SmallVec<[Timestamp; Every::ALL.len()]>;

/// A roll-up, as its sink declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollup {
    /// Time of a record: `utc` and `local` are none.
    pub time: TwoTimes,
    pub every: Vec<Every>,
    /// Names and paths of attributes.
    pub attributes: Vec<(String, Vec<String>)>,
    /// Sets of attributes, by their places.
    pub by: Vec<Vec<usize>>,
    /// Names of sets, for the rows.
    pub by_names: Vec<String>,
    /// Columns of figures.
    pub figures: Vec<(String, Figure)>,
    /// Column of a distinct count, and the least of it that a row has to have to be shown.
    pub threshold: Option<(String, u64)>,
}

/// Columns of a row's key, before those of the attributes.
const KEY: [(&str, Kind); 4] = [
    ("every", Kind::Text),
    ("bucket", Kind::Timestamp),
    ("zone", Kind::Text),
    ("by", Kind::Text),
];

impl Rollup {
    /// Returns the columns of its rows.
    pub(crate) fn columns(&self) -> Vec<Column> {
        let keys = KEY.iter().map(|(name, kind)| (*name, *kind, false));
        let attributes = self
            .attributes
            .iter()
            .map(|(name, _)| (&**name, Kind::Text, false));
        let figures = self.figures.iter().map(|(name, figure)| {
            let nullable = matches!(figure, Figure::Min { .. } | Figure::Max { .. });
            (&**name, figure.kind(), nullable)
        });
        let all = keys.chain(attributes).chain(figures);
        all.map(|(name, kind, nullable)| {
            let mut column = Column::new(name, kind, Origin::Path(vec![name.to_owned()]));
            column.nullable = nullable;
            column
        })
        .collect()
    }

    /// Returns the names of the columns that are the key of a row.
    pub(crate) fn key(&self) -> Vec<String> {
        let keys = KEY.iter().map(|(name, _)| (*name).to_owned());
        keys.chain(self.attributes.iter().map(|(name, _)| name.clone()))
            .collect()
    }

    /// Returns the start of a time's bucket of each granularity, by the clocks of a zone.
    fn starts(&self, time: Timestamp, zone: &TimeZone) -> Result<Starts, String> {
        let local = zone.to_datetime(time);
        let starts = self.every.iter().map(|every| {
            let start = every.start(local).filter(|start| start.year() >= YEAR_MIN);
            let start = start.and_then(|start| TimeZone::UTC.to_timestamp(start).ok());
            start.ok_or_else(|| format!("{time} has no {} here", every.word()))
        });
        starts.collect()
    }

    /// Returns how the store adds a figure to the one that it has, by column.
    pub(crate) fn merges(&self) -> Vec<(String, Merge)> {
        let merge = |figure: &Figure| match figure {
            Figure::Count | Figure::Sum { .. } | Figure::CountOf { .. } => Merge::Add,
            Figure::Min { .. } => Merge::Least,
            Figure::Max { .. } => Merge::Greatest,
            Figure::Distinct { .. } => Merge::Members,
        };
        let figures = self.figures.iter();
        figures
            .map(|(name, figure)| (name.clone(), merge(figure)))
            .collect()
    }
}

/// Way in which a figure meets the one that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    Add,
    Least,
    Greatest,
    /// Hashes that are not in the table of members yet are put there, and counted.
    Members,
}

/// Groups of a batch, each with its figures.
#[derive(Debug, Default)]
pub struct Groups {
    by_key: HashMap<Box<[u8]>, Box<[Total]>>,
    bytes: usize,
    /// Memory that is used again.
    key: Vec<u8>,
    values: Vec<Share>,
    attributes: Vec<String>,
    /// Times of the records that count, without the end; `None` is all.
    within: Option<Range<Timestamp>>,
}

impl Groups {
    /// Groups of the records of a time, and of no others.
    pub(crate) fn within(times: Range<Timestamp>) -> Self {
        Self {
            within: Some(times),
            ..Self::default()
        }
    }

    /// Returns the times of the records that count.
    pub(crate) fn times(&self) -> Option<Range<Timestamp>> {
        self.within.clone()
    }

    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Returns the memory of the groups, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a record to its groups, or to none of them.
    pub(crate) fn add(&mut self, rollup: &Rollup, document: &Document<'_>) -> Result<(), Reason> {
        let poison = |text| Reason {
            class: "rollup",
            text,
        };
        let (time, zone) = rollup.time.read(document).map_err(poison)?;
        if self.within.as_ref().is_some_and(|times| !times.contains(&time)) {
            return Ok(());
        }
        self.read_attributes(rollup, document).map_err(poison)?;
        self.read_values(rollup, document).map_err(poison)?;
        let starts = rollup.starts(time, &zone).map_err(poison)?;
        let name = zone_name(&zone);
        self.each_key(rollup, (&starts, &name), |groups| groups.fold(rollup))
            .map_err(poison)
    }

    /// Adds the sums of records with the same buckets, zone and attributes.
    fn add_leaf<'a>(
        &mut self,
        rollup: &Rollup,
        buckets: (&[Timestamp], &str),
        attributes: impl Iterator<Item = &'a str>,
        totals: &[Total],
    ) -> Result<(), String> {
        self.attributes.clear();
        self.attributes.extend(attributes.map(str::to_owned));
        self.each_key(rollup, buckets, |groups| groups.put(rollup, totals))
    }

    /// Adds other groups of the same roll-up. The error is a sum that is too large.
    pub(crate) fn merge(&mut self, rollup: &Rollup, other: Self) -> Result<(), String> {
        for (key, totals) in other.by_key {
            self.key = key.into_vec();
            self.put(rollup, &totals)?;
        }
        Ok(())
    }

    /// Writes the key of each granularity and set, one after the other.
    fn each_key(
        &mut self,
        rollup: &Rollup,
        (starts, zone): (&[Timestamp], &str),
        mut each: impl FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        for (every, start) in starts.iter().enumerate() {
            for by in 0..rollup.by.len() {
                self.write_key(rollup, (every, by), *start, zone);
                each(self)?;
            }
        }
        Ok(())
    }

    fn read_attributes(&mut self, rollup: &Rollup, document: &Document<'_>) -> Result<(), String> {
        self.attributes.clear();
        for (name, path) in &rollup.attributes {
            self.attributes
                .push(attribute(name, document.at(path).as_deref())?);
        }
        let names = rollup.by_names.iter().map(String::len).max().unwrap_or(0);
        if names + self.attributes.iter().map(String::len).sum::<usize>() > KEY_BYTES_MAX {
            return Err(format!(
                "all attributes have more than {KEY_BYTES_MAX} bytes, with their names"
            ));
        }
        Ok(())
    }

    fn read_values(&mut self, rollup: &Rollup, document: &Document<'_>) -> Result<(), String> {
        self.values.clear();
        for (name, figure) in &rollup.figures {
            let json = figure.path().and_then(|path| document.at(path));
            self.values.push(share(name, figure, json.as_deref())?);
        }
        Ok(())
    }

    /// Writes the key of a group: places of bucket and set, start in µs, zone, and the set's attributes.
    fn write_key(&mut self, rollup: &Rollup, (every, by): (usize, usize), start: Timestamp, zone: &str) {
        let key = &mut self.key;
        key.clear();
        let small = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
        key.extend_from_slice(&[small(every), small(by)]);
        key.extend_from_slice(&start.as_microsecond().to_be_bytes());
        let mut put = |text: &str| {
            key.push(small(text.len()));
            key.extend_from_slice(text.as_bytes());
        };
        put(zone);
        let set = rollup.by.get(by).map(Vec::as_slice).unwrap_or_default();
        for (place, text) in self.attributes.iter().enumerate() {
            put(if set.contains(&place) { text } else { "" });
        }
    }

    fn fold(&mut self, rollup: &Rollup) -> Result<(), String> {
        if let Some(figures) = self.by_key.get_mut(&self.key[..]) {
            for ((there, value), (name, figure)) in figures.iter_mut().zip(&self.values).zip(&rollup.figures)
            {
                let more = join(figure, there, *value).ok_or_else(|| format!("{name}: too large a sum"))?;
                self.bytes += more;
            }
            return Ok(());
        }
        let figures = rollup.figures.iter().zip(&self.values);
        let figures: Box<[_]> = figures
            .map(|((_, figure), value)| first(figure, *value))
            .collect();
        self.begin(figures);
        Ok(())
    }

    /// Adds figures to those of the group with the written key.
    fn put(&mut self, rollup: &Rollup, totals: &[Total]) -> Result<(), String> {
        let Some(there) = self.by_key.get_mut(&self.key[..]) else {
            self.begin(totals.into());
            return Ok(());
        };
        for ((there, total), (name, figure)) in there.iter_mut().zip(totals).zip(&rollup.figures) {
            let mut add = |share| {
                let more = join(figure, there, share).ok_or_else(|| format!("{name}: too large a sum"))?;
                self.bytes += more;
                Ok::<_, String>(())
            };
            match total {
                Total::Number(number) => add(number.map_or(Share::None, Share::Number))?,
                Total::Members(members) => members
                    .iter()
                    .try_for_each(|member| add(Share::Member(*member)))?,
            }
        }
        Ok(())
    }

    /// Begins the group with the written key.
    fn begin(&mut self, figures: Box<[Total]>) {
        let members = figures.iter().map(|total| match total {
            Total::Members(members) => members.len(),
            Total::Number(_) => 0,
        });
        let members = members.sum::<usize>() * MEMBER_COST;
        self.bytes += self.key.len() + size_of_val(&*figures) + 64 + members;
        self.by_key.insert(self.key.as_slice().into(), figures);
    }

    /// Moves the groups into rows, in the order of their keys.
    pub(crate) fn drain(&mut self, rollup: &Rollup, offset: u64, rows: &mut Rows) {
        let mut all: Vec<_> = self.by_key.drain().collect();
        all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        self.bytes = 0;
        for (key, figures) in all {
            // Writing cells does not fail.
            let _: Result<(), std::convert::Infallible> = rows.push(offset, |row| {
                write_row(rollup, &key, &figures, row);
                Ok(())
            });
        }
    }
}

/// Writes the cells of a group.
fn write_row(rollup: &Rollup, key: &[u8], figures: &[Total], row: &mut Cells<'_>) {
    let place = |at: usize| key.get(at).map_or(0, |place| usize::from(*place));
    let every = rollup.every.get(place(0)).map_or("", |every| every.word());
    let by = rollup.by_names.get(place(1)).map_or("", String::as_str);
    let start = key.get(2..10).and_then(|bytes| bytes.try_into().ok());
    let mut rest = key.get(10..).unwrap_or_default();
    let mut next = || {
        let (length, behind) = rest.split_first().unwrap_or((&0, &[]));
        let (text, behind) = behind.split_at_checked(usize::from(*length)).unwrap_or_default();
        rest = behind;
        text
    };
    let zone = next();
    let text = row.piece(every.as_bytes());
    row.push(Cell::Text(text));
    row.push(Cell::Local(start.map_or(0, i64::from_be_bytes)));
    let text = row.piece(zone);
    row.push(Cell::Text(text));
    let text = row.piece(by.as_bytes());
    row.push(Cell::Text(text));
    for _ in &rollup.attributes {
        let text = row.piece(next());
        row.push(Cell::Text(text));
    }
    for ((_, figure), value) in rollup.figures.iter().zip(figures) {
        let cell = match (figure.kind(), value) {
            (_, Total::Number(None)) => Cell::Null,
            (_, Total::Members(members)) => Cell::Bytes(row.written(|out| {
                for member in members {
                    out.extend_from_slice(member);
                }
            })),
            (Kind::Numeric { scale, .. }, Total::Number(Some(value))) => {
                Cell::Numeric(row.piece(unscaled(*value, scale).as_bytes()))
            }
            (_, Total::Number(Some(value))) => Cell::Integer(i64::try_from(*value).unwrap_or(i64::MAX)),
        };
        row.push(cell);
    }
}

/// Returns the name of a zone, as rows have it.
fn zone_name(zone: &TimeZone) -> String {
    match zone.iana_name() {
        Some(name) => name.to_owned(),
        None => zone
            .to_fixed_offset()
            .map_or_else(|_| "UTC".to_owned(), |offset| offset.to_string()),
    }
}

impl TwoTimes {
    /// Returns the time of a record that is summed up, and the zone of its buckets.
    fn read(&self, document: &Document<'_>) -> Result<(Timestamp, TimeZone), String> {
        let json = document.get(&self.field).filter(|json| *json != "null");
        let json = json.ok_or_else(|| format!("there is no {}", self.field))?;
        let time = self.time_of(json)?;
        Ok((time, self.zone_of(document)?))
    }
}

impl Default for TwoTimes {
    fn default() -> Self {
        Self {
            field: String::new(),
            unit: Unit::Milliseconds,
            utc: None,
            local: None,
            zone_field: None,
            zone: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::write_json;
    use crate::definition::Definition;

    pub(crate) fn definition(rollup: &str) -> Definition {
        let text = format!(
            "[sink.usage]\nfrom = \"t\"\nto = \"postgres\"\nurl = \"env:U\"\ntable = \"usage\"\nmode = \"rollup\"\n{rollup}"
        );
        Definition::parse(&text).unwrap().remove(0)
    }

    const USAGE: &str = r#"
        [sink.usage.rollup]
        time = { field = "ts", zone_field = "zone", zone = "UTC" }
        every = ["day", "week", "month"]
        by = [[], ["app"], ["app", "country"]]

        [sink.usage.rollup.attributes]
        app = "applicationId"
        country = "context.country"

        [sink.usage.rollup.values]
        visits = { count = true }
        seconds = { sum = "retention", scale = 2 }
        shortest = { min = "retention", scale = 2 }
        longest = { max = "retention", scale = 2 }
        retention = { mean = "retention", scale = 2 }
        users = { distinct = "user" }
    "#;

    fn rows(sink: &Definition, records: &[&str]) -> Vec<String> {
        let rollup = sink.rollup.as_ref().unwrap();
        let mut groups = Groups::default();
        for record in records {
            groups.add(rollup, &Document::parse(record).unwrap()).unwrap();
        }
        let mut rows = Rows::new(sink.columns.len());
        groups.drain(rollup, 0, &mut rows);
        assert!(groups.is_empty() && groups.bytes() == 0);
        let json = |(_, cells)| {
            let mut out = Vec::new();
            write_json(&mut out, &sink.columns, &rows, cells);
            String::from_utf8(out).unwrap()
        };
        rows.all().iter().map(json).collect()
    }

    #[test]
    fn records_are_summed_up_by_bucket_and_set_of_attributes() {
        let sink = definition(USAGE);
        let found = rows(
            &sink,
            &[
                r#"{"ts":"2026-11-22T23:30:00Z","zone":"Europe/Stockholm","applicationId":"a","retention":1.25,"context":{"country":"SE"}}"#,
                r#"{"ts":"2026-11-23T12:00:00Z","zone":"Europe/Stockholm","applicationId":"a","retention":-3,"context":{"country":"NO"}}"#,
                r#"{"ts":"2026-11-23T12:00:00Z","zone":"Europe/Stockholm","applicationId":"a"}"#,
            ],
        );
        // By day 1 + 1 + 3 groups, since the first is on the 23rd in its zone, and as many by week and month.
        assert_eq!(found.len(), 15, "{found:#?}");
        assert_eq!(
            found[0],
            r#"{"every":"day","bucket":"2026-11-23T00:00:00","zone":"Europe/Stockholm","by":"","app":"","country":"","visits":3,"seconds":-1.75,"shortest":-3.00,"longest":1.25,"retention_sum":-1.75,"retention_count":2,"users":""}"#
        );
        let empty = r#"{"every":"month","bucket":"2026-11-01T00:00:00","zone":"Europe/Stockholm","by":"app,country","app":"a","country":"","visits":1,"seconds":0.00,"shortest":null,"longest":null,"retention_sum":0.00,"retention_count":0,"users":""}"#;
        assert!(found.contains(&empty.to_owned()), "{found:#?}");
    }

    #[test]
    fn distinct_values_are_counted_once() {
        let sink = definition(USAGE);
        let record = |user: &str| format!(r#"{{"ts":0,"user":{user}}}"#);
        let all = ["\"ann\"", "\"bob\"", "\"ann\"", "null", "7", "\"7\""].map(record);
        let found = rows(&sink, &all.each_ref().map(String::as_str));
        // Three hashes of 16 bytes: a number is the text of its digits.
        let (_, users) = found[0].split_once("\"users\":\"").unwrap();
        assert_eq!(users.len(), 64 + 2, "{users}");
    }

    #[test]
    fn buckets_begin_as_the_calendar_says() {
        let at = |text: &str| text.parse::<DateTime>().unwrap();
        for (every, time, start) in [
            (Every::Hour, "2026-03-29T03:59:59", "2026-03-29T03:00:00"),
            (Every::Day, "2024-02-29T23:59:59", "2024-02-29T00:00:00"),
            (Every::Week, "2027-01-03T12:00:00", "2026-12-28T00:00:00"),
            (Every::Week, "2027-01-04T00:00:00", "2027-01-04T00:00:00"),
            (Every::Month, "1969-12-31T23:00:00", "1969-12-01T00:00:00"),
        ] {
            assert_eq!(every.start(at(time)), Some(at(start)), "{every:?} {time}");
        }
    }

    #[test]
    fn what_cannot_be_summed_up_is_poison_and_changes_nothing() {
        let sink = definition(USAGE);
        let rollup = sink.rollup.as_ref().unwrap();
        let mut groups = Groups::default();
        let long = format!(r#"{{"ts":0,"applicationId":"{}"}}"#, "x".repeat(201));
        for (record, why) in [
            ("{}", "there is no ts"),
            (r#"{"ts":"soon"}"#, "ts: \"soon\" is no time"),
            (r#"{"ts":0,"zone":"Mars"}"#, "\"Mars\" is no time zone"),
            (r#"{"ts":0,"applicationId":[1]}"#, "app: [1] is no text"),
            (&long, "app: an attribute has at most 200 bytes, none of them 0"),
            (
                r#"{"ts":"-004712-06-01T00:00:00Z"}"#,
                "-004712-06-01T00:00:00Z has no day here",
            ),
            (
                r#"{"ts":0,"retention":1.234}"#,
                "seconds: 1.234 is no number with at most 2 decimals",
            ),
            (
                r#"{"ts":0,"retention":"1"}"#,
                "seconds: \"1\" is no number with at most 2 decimals",
            ),
            (
                r#"{"ts":0,"retention":1e30}"#,
                "seconds: 1e30 is no number with at most 2 decimals",
            ),
        ] {
            let refused = groups.add(rollup, &Document::parse(record).unwrap()).unwrap_err();
            assert_eq!((refused.class, &*refused.text), ("rollup", why), "{record}");
        }
        assert!(groups.is_empty());
        let mut many = rollup.as_ref().clone();
        many.attributes = vec![many.attributes[0].clone(); 13];
        let long = format!(r#"{{"ts":0,"applicationId":"{}"}}"#, "x".repeat(200));
        let refused = groups.add(&many, &Document::parse(&long).unwrap()).unwrap_err();
        assert_eq!(
            refused.text,
            "all attributes have more than 2400 bytes, with their names"
        );
    }
}
