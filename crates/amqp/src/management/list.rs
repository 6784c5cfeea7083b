//! Lists: pages, order and columns, as RabbitMQ has them.
//!
//! | key | meaning |
//! |---|---|
//! | `page`, `page_size` | a page of 100, at most 500; without `page` the list is one array |
//! | `name`, `use_regex` | part of the name or a regular expression, without regard to case; only with `page` |
//! | `sort`, `sort_reverse` | a field, with dots for nested ones |
//! | `columns` | fields, with commas between them and dots in nested ones |

use std::cmp::Ordering;

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value, json};
use stafett_http::answer;

use axum::http::StatusCode;

use super::call::{Call, ok};
use super::refusal::{Answered, Refusal};

const PAGE_SIZE: usize = 100;
const PAGE_SIZE_MAX: usize = 500;
/// Bounds on the program of a regular expression, in bytes.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// Answers with values that are there already.
pub(super) fn values(call: &Call, values: Vec<Value>) -> Answered {
    let name = |value: &Value| text_of(value, "name").to_owned();
    entries(call, values, name, Value::clone)
}

/// Answers with a list. The key `name` of the query is compared with `name`; `shown` is called for entries of
/// the answer alone, unless the order depends on it.
pub(super) fn entries<T>(
    call: &Call,
    mut all: Vec<T>,
    name: impl Fn(&T) -> String,
    shown: impl Fn(&T) -> Value,
) -> Answered {
    let page = Page::of(call)?;
    let total = all.len();
    if let Some(page) = &page {
        all.retain(|entry| page.wants(&name(entry)));
    }
    if let Some(field) = call.query("sort") {
        let mut keyed: Vec<(Value, T)> = all
            .into_iter()
            .map(|entry| (at(&shown(&entry), field), entry))
            .collect();
        keyed.sort_by(|(one, _), (other, _)| compare(one, other));
        all = keyed.into_iter().map(|(_, entry)| entry).collect();
    }
    if call.query("sort_reverse") == Some("true") {
        all.reverse();
    }
    let wanted = Columns::of(call);
    let Some(page) = page else {
        let texts: Vec<String> = all
            .iter()
            .map(|entry| wanted.of_value(shown(entry)).to_string())
            .collect();
        return Ok(answer::json(StatusCode::OK, format!("[{}]", texts.join(","))));
    };
    let count = all.len();
    let items = page.cut(&all)?;
    let items: Vec<Value> = items.iter().map(|entry| wanted.of_value(shown(entry))).collect();
    Ok(ok(&json!({
        "filtered_count": count,
        "item_count": items.len(),
        "items": items,
        "page": page.number,
        "page_count": count.div_ceil(page.size),
        "page_size": page.size,
        "total_count": total,
    })))
}

/// Answers with one object.
#[expect(clippy::unnecessary_wraps, reason = "all answers have one type")]
pub(super) fn object(call: &Call, value: Value) -> Answered {
    Ok(ok(&Columns::of(call).of_value(value)))
}

/// Returns a text field of an object.
pub(super) fn text_of<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

struct Page {
    number: usize,
    size: usize,
    part: Option<String>,
    pattern: Option<Regex>,
}

impl Page {
    fn of(call: &Call) -> Result<Option<Self>, Refusal> {
        let invalid = || Refusal::bad_request("Pagination parameters are invalid");
        let Some(given) = call.query("page") else {
            return Ok(None);
        };
        let number: i128 = given.parse().map_err(|_| invalid())?;
        let size: Option<i128> = match call.query("page_size") {
            Some(size) => Some(size.parse().map_err(|_| invalid())?),
            None => None,
        };
        let in_bounds =
            |number: i128, max: usize| usize::try_from(number).ok().filter(|it| (1..=max).contains(it));
        let both = (
            in_bounds(number, usize::MAX),
            size.map_or(Some(PAGE_SIZE), |size| in_bounds(size, PAGE_SIZE_MAX)),
        );
        let (Some(page), Some(page_size)) = both else {
            let size = size.map_or_else(|| "undefined".to_owned(), |size| size.to_string());
            let reason = format!("Invalid pagination parameters: page number {number}, page size {size}");
            return Err(Refusal::bad("invalid_pagination_parameters", reason));
        };
        let part = call.query("name").filter(|name| !name.is_empty());
        let pattern = match part {
            Some(text) if call.flag("use_regex") => {
                let mut pattern = RegexBuilder::new(text);
                pattern.case_insensitive(true).size_limit(REGEX_BYTES_MAX);
                Some(pattern.build().map_err(|_| invalid())?)
            }
            Some(_) | None => None,
        };
        Ok(Some(Self {
            number: page,
            size: page_size,
            part: part.map(str::to_lowercase),
            pattern,
        }))
    }

    fn wants(&self, name: &str) -> bool {
        match (&self.pattern, &self.part) {
            (Some(pattern), _) => pattern.is_match(name),
            (None, Some(part)) => name.to_lowercase().contains(part),
            (None, None) => true,
        }
    }

    fn cut<'a, T>(&self, all: &'a [T]) -> Result<&'a [T], Refusal> {
        let start = (self.number - 1).saturating_mul(self.size);
        if start >= all.len() && self.number > 1 {
            let (page, size, len) = (self.number, self.size, all.len());
            let reason = format!("Page out of range, page: {page} page size: {size}, len: {len}");
            return Err(Refusal::bad("page_out_of_range", reason));
        }
        let end = start.saturating_add(self.size).min(all.len());
        Ok(all.get(start..end).unwrap_or_default())
    }
}

/// Fields of the answer.
struct Columns<'a>(Option<Vec<&'a str>>);

impl<'a> Columns<'a> {
    fn of(call: &'a Call) -> Self {
        Self(call.query("columns").map(|columns| columns.split(',').collect()))
    }

    /// Returns the wanted fields. None at all are an empty list, as in RabbitMQ.
    fn of_value(&self, value: Value) -> Value {
        let Some(columns) = &self.0 else {
            return value;
        };
        let mut kept = Map::new();
        for column in columns {
            keep(&value, column, &mut kept);
        }
        if kept.is_empty() {
            json!([])
        } else {
            Value::Object(kept)
        }
    }
}

/// Copies a field to the same place.
fn keep(from: &Value, path: &str, to: &mut Map<String, Value>) {
    let (field, rest) = path
        .split_once('.')
        .map_or((path, None), |(field, rest)| (field, Some(rest)));
    let Some(found) = from.get(field) else {
        return;
    };
    let Some(rest) = rest else {
        to.insert(field.to_owned(), found.clone());
        return;
    };
    let mut inner = match to.remove(field) {
        Some(Value::Object(inner)) => inner,
        Some(_) | None => Map::new(),
    };
    keep(found, rest, &mut inner);
    if !inner.is_empty() {
        to.insert(field.to_owned(), Value::Object(inner));
    }
}

fn at(value: &Value, path: &str) -> Value {
    let found = path.split('.').try_fold(value, |value, field| value.get(field));
    found.cloned().unwrap_or(Value::Null)
}

fn compare(one: &Value, other: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Null => 0,
        Value::Number(_) => 1,
        Value::Bool(_) => 2,
        Value::String(_) => 3,
        Value::Array(_) | Value::Object(_) => 4,
    };
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            let (one, other) = (
                one.as_f64().unwrap_or_default(),
                other.as_f64().unwrap_or_default(),
            );
            one.total_cmp(&other)
        }
        (Value::String(one), Value::String(other)) => one.cmp(other),
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        _ => rank(one).cmp(&rank(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_keep_nested_fields_where_they_are() {
        let value = json!({ "a": 1, "b": { "c": 2, "d": { "e": 3 } }, "f": 4 });
        for (columns, expected) in [
            ("a,f", json!({ "a": 1, "f": 4 })),
            ("b.c,b.d.e", json!({ "b": { "c": 2, "d": { "e": 3 } } })),
            ("b.x,x", json!([])),
            ("", json!([])),
        ] {
            let columns = Columns(Some(columns.split(',').collect()));
            assert_eq!(columns.of_value(value.clone()), expected);
        }
    }

    #[test]
    fn values_of_all_kinds_have_an_order() {
        let mut values = vec![
            json!("b"),
            json!(2),
            Value::Null,
            json!(true),
            json!("a"),
            json!(-1.5),
        ];
        values.sort_by(compare);
        assert_eq!(json!(values), json!([null, -1.5, 2, true, "a", "b"]));
    }
}
