//! Rows of files, summed up.
//!
//! A row is added once, to a leaf: the records with the same buckets, zone and attributes. Leaves are added
//! to the groups of all granularities and sets at the end, or once there are many. Times, texts and hashes
//! that were seen before are not computed again.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::figures::{Figure, Member, Share, Total, VALUE_DIGITS, attribute, first, join, share};
use super::{Groups, KEY_BYTES_MAX, Rollup, Starts, zone_name};
use crate::columns::Column;
use crate::computed::TwoTimes;
use crate::convert::write_json_cell;
use crate::rows::{Cell, Rows};

/// Leaves, and values of a column that are remembered, at most.
const MANY: usize = 1 << 17;
/// Rows between two looks at these bounds.
const LOOK: usize = 1024;
/// Memory of leaves, at most.
const BYTES_MAX: usize = 64 << 20;
/// Seconds of a span that is remembered as a whole, if no bucket and no offset begins in it.
const QUARTER: i64 = 900;
/// Memory of a value that is remembered, beside its bytes.
const ENTRY_COST: usize = 64;
/// Bytes that no text has.
const NO_TEXT: &[u8] = &[0xff];
/// Number of a value that makes its row poison.
const POISON: u32 = u32::MAX;

type Bytes = Box<[u8]>;
type Map<K, V> = HashMap<K, V, ahash::RandomState>;

/// Sums of rows.
#[derive(Debug)]
pub(crate) struct Leaves {
    rollup: Arc<Rollup>,
    columns: Columns,
    zones: Map<Bytes, u32>,
    zones_by_number: Vec<(TimeZone, String)>,
    /// Buckets by zone and quarter of an hour, and those of the row before.
    quarters: Map<(u32, i64), u32>,
    last: Option<((u32, i64), u32)>,
    buckets: Map<Buckets, u32>,
    buckets_by_number: Vec<Buckets>,
    attributes: Vec<Map<Bytes, u32>>,
    attributes_by_number: Vec<String>,
    /// Hashes of each figure of distinct values.
    members: Vec<Map<Bytes, Option<Member>>>,
    /// Leaves by the numbers of their buckets and attributes.
    by_key: Map<Box<[u32]>, u32>,
    totals: Vec<Box<[Total]>>,
    bytes: usize,
    groups: Groups,
    /// Times of the records that count, without the end; `None` is all.
    within: Option<Range<Timestamp>>,
    /// Memory that is used again.
    key: Vec<u32>,
    values: Vec<Share>,
    json: Vec<u8>,
}

/// Number of a zone, and the start of the bucket of each granularity.
type Buckets = (u32, Starts);

/// Index of the cell of each field that a roll-up reads. `None` if the files have no such column.
#[derive(Debug, Clone)]
struct Columns {
    time: Option<usize>,
    zone: Option<usize>,
    attributes: Vec<Option<usize>>,
    figures: Vec<Option<usize>>,
}

impl Rollup {
    /// Returns the names of the fields that it reads. `None` if some are within others.
    pub(crate) fn fields(&self) -> Option<Vec<&str>> {
        let times = [Some(&self.time.field), self.time.zone_field.as_ref()];
        let attributes = self.attributes.iter().map(|(_, path)| &**path);
        let figures = self.figures.iter().filter_map(|(_, figure)| figure.path());
        let paths = attributes.chain(figures).map(|path| match path {
            [field] => Some(&**field),
            _ => None,
        });
        let times = times.into_iter().flatten().map(|field| Some(&**field));
        times.chain(paths).collect()
    }
}

impl Leaves {
    /// Sums of rows of these columns, all of whose fields are columns of their own.
    pub(crate) fn new(rollup: &Arc<Rollup>, columns: &[Column], within: Option<Range<Timestamp>>) -> Self {
        let place = |field: &str| columns.iter().position(|column| column.name == field);
        let of_path = |path: &[String]| path.first().and_then(|field| place(field));
        let figure = |(_, figure): &(String, Figure)| figure.path().and_then(of_path);
        let mut leaves = Self {
            columns: Columns {
                time: place(&rollup.time.field),
                zone: rollup.time.zone_field.as_deref().and_then(place),
                attributes: rollup.attributes.iter().map(|(_, path)| of_path(path)).collect(),
                figures: rollup.figures.iter().map(figure).collect(),
            },
            rollup: Arc::clone(rollup),
            zones: Map::default(),
            zones_by_number: Vec::new(),
            quarters: Map::default(),
            last: None,
            buckets: Map::default(),
            buckets_by_number: Vec::new(),
            attributes: vec![Map::default(); rollup.attributes.len()],
            attributes_by_number: Vec::new(),
            members: vec![Map::default(); rollup.figures.len()],
            by_key: Map::default(),
            totals: Vec::new(),
            bytes: 0,
            groups: Groups::default(),
            within,
            key: Vec::new(),
            values: Vec::new(),
            json: Vec::new(),
        };
        leaves.forget();
        leaves
    }

    /// Adds rows. One that cannot be summed up is left out. The error is a sum that is too large.
    pub(crate) fn add(&mut self, rows: &Rows) -> Result<(), String> {
        for (at, (_, cells)) in rows.all().iter().enumerate() {
            let _ = self.add_row(rows, cells);
            if at.is_multiple_of(LOOK) && self.is_full() {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Returns the groups of all rows.
    pub(crate) fn finish(mut self) -> Result<Groups, String> {
        self.flush()?;
        Ok(self.groups)
    }

    /// `None` if the row is left out.
    fn add_row(&mut self, rows: &Rows, cells: &[Cell]) -> Option<()> {
        let cell = |place: Option<usize>| place.and_then(|place| cells.get(place)).copied();
        let cell = |place| cell(place).unwrap_or(Cell::Null);
        let zone = self.zone(rows, cell(self.columns.zone))?;
        let buckets = self.buckets_of(rows, cell(self.columns.time), zone)?;
        self.key.clear();
        self.key.push(buckets);
        for at in 0..self.attributes.len() {
            let place = self.columns.attributes.get(at).copied().flatten();
            let number = self.attribute(rows, cell(place), at)?;
            self.key.push(number);
        }
        self.values.clear();
        for at in 0..self.columns.figures.len() {
            let place = self.columns.figures.get(at).copied().flatten();
            let value = self.share(rows, cell(place), at)?;
            self.values.push(value);
        }
        let leaf = match self.by_key.get(&self.key[..]) {
            Some(leaf) => *leaf,
            None => return self.begin_leaf(),
        };
        let totals = self.totals.get_mut(leaf as usize)?;
        for ((total, value), (_, figure)) in totals.iter_mut().zip(&self.values).zip(&self.rollup.figures) {
            self.bytes += join(figure, total, *value)?;
        }
        Some(())
    }

    fn begin_leaf(&mut self) -> Option<()> {
        let names = self.rollup.by_names.iter().map(String::len).max().unwrap_or(0);
        let texts = texts(&self.attributes_by_number, &self.key);
        let is_poison = names + texts.map(str::len).sum::<usize>() > KEY_BYTES_MAX;
        let number = if is_poison {
            POISON
        } else {
            number(self.totals.len())
        };
        self.by_key.insert(self.key.as_slice().into(), number);
        if is_poison {
            return None;
        }
        let figures = self.rollup.figures.iter().zip(&self.values);
        let totals: Box<[_]> = figures
            .map(|((_, figure), value)| first(figure, *value))
            .collect();
        self.bytes += size_of_val(&*totals) + self.key.len() * 4 + 64;
        self.totals.push(totals);
        Some(())
    }

    /// Returns the number of a row's zone.
    fn zone(&mut self, rows: &Rows, cell: Cell) -> Option<u32> {
        if cell == Cell::Null {
            return self.rollup.time.zone.is_some().then_some(0);
        }
        let raw = raw(&mut self.json, rows, cell);
        if let Some(found) = self.zones.get(raw) {
            return (*found != POISON).then_some(*found);
        }
        let zone = TwoTimes::zone_named(&json_of(rows, cell)).ok();
        let found = zone.map(|zone| {
            let name = zone_name(&zone);
            self.zones_by_number.push((zone, name));
            number(self.zones_by_number.len() - 1)
        });
        self.bytes += raw.len() + ENTRY_COST;
        self.zones.insert(raw.into(), found.unwrap_or(POISON));
        found
    }

    /// Returns the number of a row's buckets.
    fn buckets_of(&mut self, rows: &Rows, cell: Cell, zone: u32) -> Option<u32> {
        let time = if let Cell::Instant(micros) = cell {
            Timestamp::from_microsecond(micros).ok()?
        } else if let Cell::Integer(number) = cell {
            self.rollup.time.unit.time(number)?
        } else if cell == Cell::Null {
            return None;
        } else {
            self.rollup.time.time_of(&json_of(rows, cell)).ok()?
        };
        if self.within.as_ref().is_some_and(|times| !times.contains(&time)) {
            return None;
        }
        // A time before 1970 has a fraction below zero.
        let second = time.as_second() - i64::from(time.subsec_nanosecond() < 0);
        let quarter = second.div_euclid(QUARTER);
        if let Some((last, found)) = self.last
            && last == (zone, quarter)
        {
            return Some(found);
        }
        if let Some(found) = self.quarters.get(&(zone, quarter)) {
            self.last = Some(((zone, quarter), *found));
            return Some(*found);
        }
        let (time_zone, _) = self.zones_by_number.get(zone as usize)?;
        let starts = self.rollup.starts(time, time_zone).ok()?;
        // Not where a bucket or another offset begins within.
        let edge = |second: i64| Timestamp::from_second(second).ok();
        let (from, to) = (edge(quarter * QUARTER), edge((quarter + 1) * QUARTER - 1));
        let is_even = from.zip(to).is_some_and(|(from, to)| {
            let changes = time_zone.following(from).next();
            let at = |time| self.rollup.starts(time, time_zone).ok();
            changes.is_none_or(|change| change.timestamp() > to)
                && at(from).as_ref() == Some(&starts)
                && at(to).as_ref() == Some(&starts)
        });
        let key = (zone, starts);
        let found = if let Some(found) = self.buckets.get(&key) {
            *found
        } else {
            let new = number(self.buckets_by_number.len());
            self.buckets_by_number.push(key.clone());
            self.buckets.insert(key, new);
            new
        };
        if is_even {
            self.quarters.insert((zone, quarter), found);
        }
        Some(found)
    }

    /// Returns the number of a row's value of an attribute.
    fn attribute(&mut self, rows: &Rows, cell: Cell, at: usize) -> Option<u32> {
        let (known, (name, _)) = (self.attributes.get_mut(at)?, self.rollup.attributes.get(at)?);
        let raw = raw(&mut self.json, rows, cell);
        if let Some(found) = known.get(raw) {
            return (*found != POISON).then_some(*found);
        }
        let text = attribute(name, Some(&json_of(rows, cell))).ok();
        let found = text.map(|text| {
            self.attributes_by_number.push(text);
            number(self.attributes_by_number.len() - 1)
        });
        self.bytes += raw.len() + ENTRY_COST;
        known.insert(raw.into(), found.unwrap_or(POISON));
        found
    }

    /// Returns a row's part in a figure.
    fn share(&mut self, rows: &Rows, cell: Cell, at: usize) -> Option<Share> {
        let (name, figure) = self.rollup.figures.get(at)?;
        if let Figure::Distinct { .. } = figure
            && cell != Cell::Null
        {
            let raw = raw(&mut self.json, rows, cell);
            let members = self.members.get_mut(at)?;
            let member = if let Some(member) = members.get(raw) {
                *member
            } else {
                let member = match share(name, figure, Some(&json_of(rows, cell))) {
                    Ok(Share::Member(member)) => Some(member),
                    Ok(Share::None | Share::Number(_)) | Err(_) => None,
                };
                self.bytes += raw.len() + ENTRY_COST;
                members.insert(raw.into(), member);
                member
            };
            return member.map(Share::Member);
        }
        match (figure.scale(), cell) {
            (_, Cell::Null) => share(name, figure, None).ok(),
            (Some(scale), Cell::Integer(value)) => {
                let is_short = value.unsigned_abs() < 10_u64.pow(VALUE_DIGITS.into());
                let is_count = matches!(figure, Figure::CountOf { .. });
                let units = i128::from(value) * 10_i128.pow(scale.into());
                is_short.then_some(Share::Number(if is_count { 1 } else { units }))
            }
            _ => share(name, figure, Some(&json_of(rows, cell))).ok(),
        }
    }

    fn is_full(&self) -> bool {
        self.bytes > BYTES_MAX
            || self.by_key.len() > MANY
            || self.attributes_by_number.len() > MANY
            || self.members.iter().map(Map::len).sum::<usize>() > MANY
            || self.quarters.len() > MANY
            || self.buckets_by_number.len() > MANY
            || self.zones.len() > MANY
    }

    /// Adds the leaves to their groups, and forgets all that was remembered.
    fn flush(&mut self) -> Result<(), String> {
        for (key, leaf) in std::mem::take(&mut self.by_key) {
            let buckets = key
                .first()
                .and_then(|at| self.buckets_by_number.get(*at as usize));
            let (Some(totals), Some((zone, starts))) = (self.totals.get(leaf as usize), buckets) else {
                continue;
            };
            let (_, zone) = self
                .zones_by_number
                .get(*zone as usize)
                .ok_or("a zone is missing")?;
            let texts = texts(&self.attributes_by_number, &key);
            self.groups
                .add_leaf(&self.rollup, (starts, zone), texts, totals)?;
        }
        self.forget();
        Ok(())
    }

    fn forget(&mut self) {
        self.zones.clear();
        let own = self.rollup.time.zone.clone();
        self.zones_by_number = own
            .into_iter()
            .map(|zone| (zone.clone(), zone_name(&zone)))
            .collect();
        self.quarters.clear();
        self.last = None;
        self.buckets.clear();
        self.buckets_by_number.clear();
        self.attributes.iter_mut().for_each(Map::clear);
        self.attributes_by_number.clear();
        self.members.iter_mut().for_each(Map::clear);
        self.by_key.clear();
        self.totals.clear();
        self.bytes = 0;
    }
}

/// Returns the texts of the attributes of a leaf.
fn texts<'a>(all: &'a [String], key: &'a [u32]) -> impl Iterator<Item = &'a str> {
    let numbers = key.iter().skip(1);
    numbers.filter_map(|number| all.get(*number as usize).map(String::as_str))
}

/// Returns a value's bytes: the same for the same values of a column.
fn raw<'a>(json: &'a mut Vec<u8>, rows: &'a Rows, cell: Cell) -> &'a [u8] {
    if let Cell::Text(piece) = cell {
        return rows.piece(piece);
    }
    if cell == Cell::Null {
        return NO_TEXT;
    }
    json.clear();
    write_json_cell(json, rows, cell);
    json
}

/// Returns a value as the JSON text that a record would have.
fn json_of(rows: &Rows, cell: Cell) -> String {
    let mut json = Vec::new();
    write_json_cell(&mut json, rows, cell);
    String::from_utf8(json).unwrap_or_default()
}

fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(POISON)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells;
    use crate::convert::write_json;
    use crate::definition::Definition;
    use crate::document::Document;

    fn sink(text: &str) -> Definition {
        let text = format!("[sink.s]\nfrom = \"t\"\n{text}");
        Definition::parse(&text).unwrap().remove(0)
    }

    fn rollup(time: &str) -> Definition {
        sink(&format!(
            r#"to = "postgres"
            url = "env:U"
            table = "usage"
            mode = "rollup"
            [sink.s.rollup]
            time = {time}
            every = ["hour", "day", "week", "month"]
            by = [[], ["app"], ["app", "score"], ["none"]]
            [sink.s.rollup.attributes]
            app = "app"
            score = "score"
            none = "none"
            [sink.s.rollup.values]
            visits = {{ count = true }}
            seconds = {{ sum = "seconds", scale = 2 }}
            price = {{ sum = "price", scale = 3 }}
            least = {{ min = "score", scale = 1 }}
            greatest = {{ max = "seconds" }}
            mean = {{ mean = "price", scale = 4 }}
            apps = {{ distinct = "app" }}
            scores = {{ distinct = "score" }}
            "#
        ))
    }

    fn columns(time: &str) -> Vec<Column> {
        let text = format!(
            r#"to = "files"
            path = "/none"
            [sink.s.columns]
            unused = {{ type = "text" }}
            at = {{ type = "{time}" }}
            zone = {{ type = "text" }}
            app = {{ type = "text" }}
            score = {{ type = "double" }}
            seconds = {{ type = "bigint" }}
            price = {{ type = "numeric(20,4)" }}
            "#
        );
        sink(&text).columns
    }

    /// Records around changes of offsets, at odd offsets, and such that are poison.
    fn records(time: impl Fn(Timestamp) -> String) -> Vec<String> {
        let zones = [
            "\"Europe/Stockholm\"",
            "\"Asia/Kathmandu\"",
            "\"Africa/Monrovia\"",
            "\"Australia/Lord_Howe\"",
            "null",
            "\"Mars\"",
        ];
        let starts = [
            "2026-03-29T00:00:00Z",
            "1972-01-07T00:30:00Z",
            "2026-10-03T15:00:00Z",
            // The sixth record is half a second before 1970.
            "1969-12-31T23:52:12.838Z",
        ];
        let long = format!("\"{}\"", "x".repeat(201));
        let apps = ["\"a\"", "\"b\\\"\\u00e9\"", "\"null\"", "null", "\"\"", &long];
        let (scores, prices) = (["1.5", "null", "-0.5", "1.25"], ["1.23", "-7", "null", "0.0001"]);
        let mut all = Vec::new();
        for start in starts {
            let start: Timestamp = start.parse().unwrap();
            for step in 0..400_usize {
                let number = i64::try_from(step).unwrap();
                let at = start + jiff::SignedDuration::from_millis(number * 77_777);
                let [zone, app] = [zones[step % 6], apps[step / 3 % 6]];
                let [score, price] = [scores[step % 7 % 4], prices[step % 11 % 4]];
                let seconds = ["3", "-4", "null", "1000000000000000"][step % 13 % 4];
                let at = if step % 29 == 0 {
                    "null".to_owned()
                } else {
                    time(at)
                };
                all.push(format!(
                    r#"{{"at":{at},"zone":{zone},"app":{app},"score":{score},"seconds":{seconds},"price":{price}}}"#
                ));
            }
        }
        all
    }

    fn rows(columns: &[Column], records: &[String]) -> Rows {
        let mut rows = Rows::new(columns.len());
        for record in records {
            let document = Document::parse(record).unwrap();
            rows.push(0, |row| {
                for column in columns {
                    cells::write(row, column.kind, document.get(&column.name).unwrap_or("null"))?;
                }
                Ok::<_, String>(())
            })
            .unwrap();
        }
        rows
    }

    fn shown(sink: &Definition, mut groups: Groups) -> Vec<String> {
        let mut rows = Rows::new(sink.columns.len());
        groups.drain(sink.rollup.as_ref().unwrap(), 0, &mut rows);
        let mut all = Vec::new();
        for (_, cells) in rows.all().iter() {
            let mut line = Vec::new();
            write_json(&mut line, &sink.columns, &rows, cells);
            all.push(String::from_utf8(line).unwrap());
        }
        all
    }

    #[test]
    fn rows_have_the_sums_of_the_records_that_they_are() {
        let text = |at: Timestamp| format!("\"{at}\"");
        let millis = |at: Timestamp| at.as_millisecond().to_string();
        let times: [(&str, &dyn Fn(Timestamp) -> String); 3] =
            [("timestamptz", &text), ("text", &text), ("bigint", &millis)];
        let with_zone = r#"{ field = "at", zone_field = "zone", zone = "Asia/Kathmandu" }"#;
        let without = r#"{ field = "at", zone_field = "zone" }"#;
        for (kind, time) in times {
            for (zones, within) in [
                (with_zone, None),
                (without, None),
                (
                    with_zone,
                    Some("2026-03-29T00:30:00Z".parse().unwrap()..Timestamp::MAX),
                ),
            ] {
                let (sink, columns) = (rollup(zones), columns(kind));
                let rollup = sink.rollup.as_ref().unwrap();
                let rows = rows(&columns, &records(time));
                let mut expected = within.clone().map_or_else(Groups::default, Groups::within);
                let mut taken = 0;
                for (_, cells) in rows.all().iter() {
                    let mut json = Vec::new();
                    write_json(&mut json, &columns, &rows, cells);
                    let json = String::from_utf8(json).unwrap();
                    let added = expected.add(rollup, &Document::parse(&json).unwrap());
                    taken += usize::from(added.is_ok());
                }
                let mut leaves = Leaves::new(rollup, &columns, within);
                // Over several flushes, and two readers of files.
                let mut other = Leaves::new(rollup, &columns, leaves.within.clone());
                let half = rows.len() / 2;
                for (at, (_, cells)) in rows.all().iter().enumerate() {
                    let reader = if at < half { &mut leaves } else { &mut other };
                    let _ = reader.add_row(&rows, cells);
                    if at % 100 == 0 {
                        reader.flush().unwrap();
                    }
                }
                let mut found = leaves.finish().unwrap();
                found.merge(rollup, other.finish().unwrap()).unwrap();
                assert!(taken > 200 && taken < rows.len() - 100, "{kind}: {taken}");
                assert_eq!(found.bytes(), expected.bytes(), "{kind}");
                assert_eq!(shown(&sink, found), shown(&sink, expected), "{kind} {zones}");
            }
        }
    }

    #[test]
    fn fields_within_others_are_no_columns() {
        let text = r#"to = "postgres"
            url = "env:U"
            table = "usage"
            mode = "rollup"
            [sink.s.rollup]
            time = { field = "at", zone = "UTC" }
            [sink.s.rollup.attributes]
            app = "context.app"
            [sink.s.rollup.values]
            visits = { count = true }
            "#;
        assert_eq!(sink(text).rollup.unwrap().fields(), None);
        let flat = sink(&text.replace("context.", "")).rollup.unwrap();
        assert_eq!(flat.fields(), Some(vec!["at", "app"]));
    }
}
