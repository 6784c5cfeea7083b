//! Steps between a record and its row. One step has one verb; a step that cannot be done makes the record
//! poison.

use std::borrow::Cow;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use stafett_expr::{Expression, PlacedRecord};

use crate::cells::{civil, decimal, string};
use crate::columns::Kind;
use crate::computed::{self, TwoTimes, View};
use crate::document::{Document, Field, cited};
use crate::lookup::Lookup;
use crate::personal::{HashKey, Mask};
use crate::query::Query;
use crate::secret::SecretError;
use crate::versions::Versions;

/// A path of fields; `*` is every field of one level.
pub type Path = Vec<String>;

/// A change to a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Keep(Vec<Path>),
    Drop(Vec<Path>),
    /// Old and new names.
    Rename(Vec<(String, String)>),
    Cast(Vec<(String, Cast)>),
    Flatten(Flatten),
    /// Fields whose values become hashes.
    Hash(Vec<Path>, HashKey),
    /// A field of which a part stays.
    Mask(Path, Mask),
    /// Condition of records that stay.
    Where(Expression),
    /// Names and values of fields.
    Set(Vec<(String, Expression)>),
    Time(TwoTimes),
    Lookup(Lookup),
    Query(Query),
    /// The first step, if there is one.
    Versions(Versions),
}

/// Result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Keep,
    /// The record gets no row: its condition is false, or has failed.
    Drop {
        has_failed: bool,
    },
    /// The row of a database has to be asked for first.
    Wait,
}

/// Meaning of a cast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cast {
    Kind(Kind),
    /// A date as the start of that day, UTC.
    Midnight,
    /// A text that holds JSON, as that.
    Json,
}

/// An object into fields `FIELD_a_b`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flatten {
    pub field: String,
    pub separator: String,
    pub depth: usize,
    /// Elements of an array that become fields `FIELD_0`; `None`: arrays stay as they are.
    pub index_max: Option<usize>,
    /// True: of fields with one name the last counts. False: they are poison.
    pub last_wins: bool,
}

impl Step {
    pub(crate) fn apply(
        &self,
        document: &mut Document<'_>,
        source: PlacedRecord<'_>,
    ) -> Result<Verdict, String> {
        match self {
            Self::Keep(paths) => keep(document, &paths.iter().map(Vec::as_slice).collect::<Vec<_>>()),
            Self::Drop(paths) => paths.iter().for_each(|path| drop_path(document, path)),
            Self::Rename(names) => {
                for (old, new) in names {
                    rename(document, old, new)?;
                }
            }
            Self::Cast(casts) => {
                for (name, kind) in casts {
                    let Some(json) = document.get(name) else {
                        continue;
                    };
                    let changed = cast(json, *kind);
                    let changed = changed.ok_or_else(|| format!("{name}: {} cannot be cast", cited(json)))?;
                    document.set(name, changed);
                }
            }
            Self::Flatten(rules) => flatten(document, rules)?,
            Self::Hash(paths, key) => {
                for path in paths {
                    change_at(document, path, &|_, plain| Ok(key.hash(plain)))?;
                }
            }
            Self::Mask(path, mask) => change_at(document, path, &|name, plain| {
                let left = mask.of(plain);
                // The value itself is not told: the mask hides it.
                left.ok_or_else(|| format!("{name} is no IP address"))
            })?,
            Self::Where(condition) => return Ok(judge(condition, &View { document, source })),
            Self::Set(fields) => computed::set(document, source, fields)?,
            Self::Time(times) => times.apply(document)?,
            Self::Lookup(lookup) => lookup.apply(document, source, true)?,
            Self::Query(query) => return query.apply(document, source, true),
            Self::Versions(versions) => return versions.apply(document, source),
        }
        Ok(Verdict::Keep)
    }

    /// Applies the step to a copy of a record that is looked at ahead of time: no look-up counts.
    pub(crate) fn look(
        &self,
        document: &mut Document<'_>,
        source: PlacedRecord<'_>,
    ) -> Result<Verdict, String> {
        match self {
            Self::Lookup(lookup) => lookup.apply(document, source, false).map(|()| Verdict::Keep),
            Self::Query(query) => query.apply(document, source, false),
            Self::Keep(_)
            | Self::Drop(_)
            | Self::Rename(_)
            | Self::Cast(_)
            | Self::Flatten(_)
            | Self::Hash(..)
            | Self::Mask(..)
            | Self::Where(_)
            | Self::Set(_)
            | Self::Time(_)
            | Self::Versions(_) => self.apply(document, source),
        }
    }

    pub(crate) fn query(&self) -> Option<&Query> {
        if let Self::Query(query) = self {
            Some(query)
        } else {
            None
        }
    }

    pub(crate) fn lookup(&self) -> Option<&Lookup> {
        if let Self::Lookup(lookup) = self {
            Some(lookup)
        } else {
            None
        }
    }

    /// Reads the secrets of the step.
    pub(crate) fn read_keys(&mut self) -> Result<(), SecretError> {
        match self {
            Self::Hash(_, key) => key.read(),
            Self::Keep(_)
            | Self::Drop(_)
            | Self::Rename(_)
            | Self::Cast(_)
            | Self::Flatten(_)
            | Self::Mask(..)
            | Self::Where(_)
            | Self::Set(_)
            | Self::Time(_)
            | Self::Lookup(_)
            | Self::Query(_)
            | Self::Versions(_) => Ok(()),
        }
    }
}

/// Keeps a record for which the condition is true.
fn judge(condition: &Expression, view: &View<'_>) -> Verdict {
    let result = condition.is_true(view);
    match result {
        Ok(true) => Verdict::Keep,
        Ok(false) => Verdict::Drop { has_failed: false },
        Err(_) => Verdict::Drop { has_failed: true },
    }
}

/// Replaces texts and numbers at a path. Null and absent fields stay as they are; objects and lists are
/// refused, as they may hold anything, and so is a value on the way that is no object.
fn change_at(
    document: &mut Document<'_>,
    path: &[String],
    change: &dyn Fn(&str, &str) -> Result<String, String>,
) -> Result<(), String> {
    let Some((first, rest)) = path.split_first() else {
        return Ok(());
    };
    for field in document
        .fields
        .iter_mut()
        .filter(|field| is_it(first, &field.name))
    {
        if !rest.is_empty() {
            let mut changed = Ok(());
            let is_object = within(field, |inner| changed = change_at(inner, rest, change));
            changed?;
            if !is_object && may_hold(first, &field.json) {
                return Err(format!("{} is no object", field.name));
            }
            continue;
        }
        if field.json == "null" {
            continue;
        }
        if field.json.starts_with(['{', '[']) {
            return Err(format!("{} is no text and no number", field.name));
        }
        let text = string(&field.json);
        let changed = change(&field.name, text.as_deref().unwrap_or(&field.json))?;
        field.json = Cow::Owned(serde_json::to_string(&changed).unwrap_or_default());
    }
    Ok(())
}

fn is_it(segment: &str, name: &str) -> bool {
    segment == "*" || segment == name
}

/// Returns true if a value that is no object may hold the field of a path: any value in place of a named
/// object, and behind `*` a list of objects.
fn may_hold(segment: &str, json: &str) -> bool {
    match segment {
        "*" => json.starts_with('[') && json.contains('{'),
        _ => json != "null",
    }
}

/// Changes the object within a field. Returns false if it is none.
fn within(field: &mut Field<'_>, change: impl FnOnce(&mut Document<'_>)) -> bool {
    if !field.json.starts_with('{') {
        return false;
    }
    let Ok(mut inner) = Document::parse(&field.json) else {
        return false;
    };
    change(&mut inner);
    let mut out = Vec::with_capacity(field.json.len());
    inner.write(&mut out);
    let out = String::from_utf8(out).unwrap_or_default();
    field.json = Cow::Owned(out);
    true
}

fn drop_path(document: &mut Document<'_>, path: &[String]) {
    match path {
        [] => {}
        [last] => document.fields.retain(|field| !is_it(last, &field.name)),
        [first, rest @ ..] => document.fields.retain_mut(|field| {
            !is_it(first, &field.name)
                || within(field, |inner| drop_path(inner, rest))
                || !may_hold(first, &field.json)
        }),
    }
}

fn keep(document: &mut Document<'_>, paths: &[&[String]]) {
    document.fields.retain_mut(|field| {
        let mut inner = Vec::new();
        for path in paths {
            match path {
                [first, rest @ ..] if is_it(first, &field.name) => {
                    if rest.is_empty() {
                        return true;
                    }
                    inner.push(rest);
                }
                _ => {}
            }
        }
        if inner.is_empty() {
            return false;
        }
        within(field, |document| keep(document, &inner)) || field.json == "null"
    });
}

fn rename(document: &mut Document<'_>, old: &str, new: &str) -> Result<(), String> {
    if document.get(old).is_none() {
        return Ok(());
    }
    if document.get(new).is_some() {
        return Err(format!("{old} cannot be named {new}: there is such a field"));
    }
    for field in document.fields.iter_mut().filter(|field| field.name == old) {
        field.name = Cow::Owned(new.to_owned());
    }
    Ok(())
}

/// Returns a value as JSON of another type. `None` if it has no such form.
fn cast(json: &str, to: Cast) -> Option<String> {
    if json == "null" {
        return Some(json.to_owned());
    }
    let text = string(json);
    let plain = text.as_deref().unwrap_or(json);
    let quoted = |text: &str| serde_json::to_string(text).ok();
    match to {
        Cast::Json => {
            let text = text?;
            let value: &serde_json::value::RawValue = serde_json::from_str(&text).ok()?;
            Some(value.get().to_owned())
        }
        Cast::Midnight => {
            let date: Date = plain.parse().ok()?;
            quoted(
                &TimeZone::UTC
                    .to_zoned(date.at(0, 0, 0, 0))
                    .ok()?
                    .timestamp()
                    .to_string(),
            )
        }
        Cast::Kind(kind) => match kind {
            Kind::Text => text.is_some().then(|| json.to_owned()).or_else(|| quoted(json)),
            Kind::Boolean => match plain {
                "true" | "1" => Some("true".to_owned()),
                "false" | "0" => Some("false".to_owned()),
                _ => None,
            },
            Kind::Bigint => {
                let whole = decimal(plain, 19, 0)?;
                whole.parse::<i64>().ok().map(|_| whole)
            }
            Kind::Double => {
                let number: f64 = plain.parse().ok()?;
                number.is_finite().then(|| number.to_string())
            }
            Kind::Numeric { precision, scale } => decimal(plain, precision, scale),
            Kind::Timestamptz => {
                let beyond = || crate::cells::instant(plain).map(|micros| format!("{}Z", civil(micros)));
                quoted(&instant(json, plain).map(|at| at.to_string()).or_else(beyond)?)
            }
            Kind::Date => {
                let date = plain.parse::<Date>().ok().filter(|_| plain.len() <= 13);
                let of_time = || Some(instant(json, plain)?.to_zoned(TimeZone::UTC).date());
                quoted(&date.or_else(of_time)?.to_string())
            }
            Kind::Timestamp | Kind::Uuid | Kind::Bytea | Kind::Jsonb => None,
        },
    }
}

/// Reads a time: RFC 3339, or a number of milliseconds since 1970.
fn instant(json: &str, plain: &str) -> Option<Timestamp> {
    match json.parse::<i64>() {
        Ok(millis) => Timestamp::from_millisecond(millis).ok(),
        Err(_) => plain.parse().ok(),
    }
}

fn flatten(document: &mut Document<'_>, rules: &Flatten) -> Result<(), String> {
    let mut fields = document.fields.iter_mut();
    let Some(field) = fields.rfind(|field| field.name == rules.field) else {
        return Ok(());
    };
    let json = std::mem::take(&mut field.json);
    document.fields.retain(|field| field.name != rules.field);
    let mut flat = Vec::new();
    match &json {
        Cow::Borrowed(json) => flatten_into(&mut flat, rules.field.clone(), json, rules, rules.depth),
        Cow::Owned(json) => {
            let mut parts = Vec::new();
            flatten_into(&mut parts, rules.field.clone(), json, rules, rules.depth);
            let owned = |(name, json): (String, Cow<'_, str>)| (name, Cow::Owned(json.into_owned()));
            flat.extend(parts.into_iter().map(owned));
        }
    }
    for (name, json) in flat {
        if !rules.last_wins && document.get(&name).is_some() {
            return Err(format!("flattened, two fields are named {name}"));
        }
        let name = Cow::Owned(name);
        document.put(Field { name, json });
    }
    Ok(())
}

/// Adds the parts of a value, with their names.
fn flatten_into<'t>(
    flat: &mut Vec<(String, Cow<'t, str>)>,
    name: String,
    json: &'t str,
    rules: &Flatten,
    depth: usize,
) {
    let below = |part: &str| [&name, &*rules.separator, part].concat();
    // Most values are neither, and the error of a parser is slow to make.
    if depth > 0
        && json.starts_with('{')
        && let Ok(inner) = Document::parse(json)
        && (depth == rules.depth || !inner.fields.is_empty())
    {
        for field in &inner.fields {
            // A document that was read has the text that came.
            if let Cow::Borrowed(json) = field.json {
                flatten_into(flat, below(&field.name), json, rules, depth - 1);
            }
        }
        return;
    }
    if depth > 0
        && json.starts_with('[')
        && let Some(max) = rules.index_max
        && let Ok(items) = serde_json::from_str::<Vec<&serde_json::value::RawValue>>(json)
        && (depth == rules.depth || !items.is_empty())
    {
        for (place, item) in items.iter().take(max).enumerate() {
            flatten_into(flat, below(&place.to_string()), item.get(), rules, depth - 1);
        }
        return;
    }
    flat.push((name, Cow::Borrowed(json)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(step: &Step, json: &str) -> Result<String, String> {
        let mut document = Document::parse(json).unwrap();
        let (place, record) = computed::tests::place_and_record();
        let source = place.holding(&record);
        step.apply(&mut document, source)?;
        let mut out = Vec::new();
        document.write(&mut out);
        Ok(String::from_utf8(out).unwrap())
    }

    fn paths(paths: &[&str]) -> Vec<Path> {
        paths
            .iter()
            .map(|path| path.split('.').map(str::to_owned).collect())
            .collect()
    }

    #[test]
    fn fields_are_kept_dropped_and_renamed_by_path() {
        let record = r#"{"a":1,"b":{"c":2,"d":3},"e":[4]}"#;
        for (step, expected) in [
            (Step::Drop(paths(&["a", "b.c"])), r#"{"b":{"d":3},"e":[4]}"#),
            (Step::Drop(paths(&["b.*"])), r#"{"a":1,"b":{},"e":[4]}"#),
            (Step::Drop(paths(&["none", "*.x"])), record),
            (Step::Drop(paths(&["e.x", "a.x"])), r#"{"b":{"c":2,"d":3}}"#),
            (Step::Keep(paths(&["e.x", "b.x", "a"])), r#"{"a":1,"b":{}}"#),
            (Step::Keep(paths(&["b.d", "e"])), r#"{"b":{"d":3},"e":[4]}"#),
            (
                Step::Rename(vec![("a".into(), "z".into())]),
                r#"{"z":1,"b":{"c":2,"d":3},"e":[4]}"#,
            ),
        ] {
            assert_eq!(done(&step, record).as_deref(), Ok(expected), "{step:?}");
        }
        let taken = Step::Rename(vec![("a".into(), "b".into())]);
        assert!(done(&taken, record).is_err());
    }

    #[test]
    fn personal_data_of_another_form_than_the_path_is_refused() {
        let key = HashKey::new(crate::secret::Secret::parse("env:KEY"));
        let mask = Mask::Blank;
        for (path, record, is_done) in [
            ("u.mail", r#"{"u":{"mail":"m"}}"#, true),
            ("u.mail", r#"{"u":[{"mail":"m"}]}"#, false),
            ("u.mail", r#"{"u":"m"}"#, false),
            ("u.mail", r#"{"u":null,"v":1}"#, true),
            ("*.mail", r#"{"u":{"mail":"m"},"v":1,"w":["x"]}"#, true),
            ("*.mail", r#"{"u":[{"mail":"m"}]}"#, false),
        ] {
            let path = paths(&[path]).remove(0);
            let hashed = done(&Step::Hash(vec![path.clone()], key.clone()), record);
            assert_eq!(hashed.is_ok(), is_done, "{record}");
            assert!(!hashed.is_ok_and(|hashed| hashed.contains("\"m\"")), "{record}");
            let masked = done(&Step::Mask(path, mask), record);
            assert_eq!(masked.is_ok(), is_done, "{record}");
        }
    }

    #[test]
    fn casts_change_the_type_and_not_the_value() {
        let kind = |text| Cast::Kind(Kind::parse(text).unwrap());
        for (to, json, expected) in [
            (kind("bigint"), r#""12""#, Some("12")),
            (kind("bigint"), "12.0", Some("12")),
            (kind("bigint"), "12.5", None),
            (kind("text"), "12", Some(r#""12""#)),
            (kind("text"), r#""12""#, Some(r#""12""#)),
            (kind("boolean"), "0", Some("false")),
            (kind("boolean"), r#""yes""#, None),
            (kind("double"), r#""1.5""#, Some("1.5")),
            (kind("double"), r#""NaN""#, None),
            (kind("numeric(5,2)"), r#""1.50""#, Some("1.5")),
            (kind("timestamptz"), "0", Some(r#""1970-01-01T00:00:00Z""#)),
            (
                kind("date"),
                r#""2026-11-22T23:30:00-01:00""#,
                Some(r#""2026-11-23""#),
            ),
            (
                Cast::Midnight,
                r#""2026-11-22""#,
                Some(r#""2026-11-22T00:00:00Z""#),
            ),
            (Cast::Json, r#""{\"a\": 1}""#, Some(r#"{"a": 1}"#)),
            (Cast::Json, r#""{""#, None),
            (kind("date"), "null", Some("null")),
        ] {
            assert_eq!(cast(json, to).as_deref(), expected, "{to:?} {json}");
        }
    }

    #[test]
    fn objects_are_flattened_to_a_depth() {
        let rules = |depth, index_max| {
            Step::Flatten(Flatten {
                field: "c".into(),
                separator: "_".into(),
                depth,
                index_max,
                last_wins: false,
            })
        };
        let record = r#"{"c":{"a":{"b":1},"l":[{"x":2},3]},"k":0}"#;
        for (step, expected) in [
            (rules(1, None), r#"{"k":0,"c_a":{"b":1},"c_l":[{"x":2},3]}"#),
            (rules(3, None), r#"{"k":0,"c_a_b":1,"c_l":[{"x":2},3]}"#),
            (rules(3, Some(1)), r#"{"k":0,"c_a_b":1,"c_l_0_x":2}"#),
        ] {
            assert_eq!(done(&step, record).as_deref(), Ok(expected), "{step:?}");
        }
        let empty = done(&rules(3, Some(1)), r#"{"c":{"a":{},"l":[]},"k":0}"#);
        assert_eq!(empty.as_deref(), Ok(r#"{"k":0,"c_a":{},"c_l":[]}"#));
        let empty = done(&rules(3, Some(1)), r#"{"c":{},"k":0}"#);
        assert_eq!(empty.as_deref(), Ok(r#"{"k":0}"#));
        assert!(done(&rules(1, None), r#"{"c":{"a":1},"c_a":2}"#).is_err());
    }
}
