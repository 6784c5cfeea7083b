//! Lists in pages: `{"items": […], "next": "…" or null, "matched": 812, "total": 100000}`.
//!
//! | key | meaning |
//! |---|---|
//! | `q`, `prefix`, `pattern` | part of the name, without regard to case; its beginning; `*` and `?` |
//! | `sort` | a field of the list, `-` in front for descending order; by name if it is absent |
//! | `count` | entries of a page: 50, at most 1,000 |
//! | `after` | `next` of the page before |
//! | `columns` | names of fields, with commas: only these are in the answer |
//! | `cursors` | adds `cursors`: for each entry, the value of `after` for the page behind it |
//!
//! Entries of the same sort value stand by scope (such as a namespace) and name. An entry whose value stays
//! is in exactly one page.

use std::cmp::Ordering;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use wildmatch::WildMatch;

use crate::api::{Kind, Parameter};
use crate::code::Code;
use crate::problem::Problem;
use crate::query::Query;

/// Entries of a page, if the request does not say.
pub const COUNT: usize = 50;
const COUNT_MAX: usize = 1000;

/// Number that a list can be sorted by: its name, and its value in an entry.
pub type SortField<T> = (&'static str, fn(&T) -> u64);

/// A kind of entries, of type `T`, and their shape in an answer.
#[derive(Debug)]
pub struct List<T: 'static, E> {
    /// Returns scope and name, which together are unique.
    pub name: fn(&T) -> (&str, &str),
    /// Numbers that the list can be sorted by.
    pub sorts: &'static [SortField<T>],
    pub shown: fn(&T) -> E,
}

/// A page of a list.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{E}List")]
pub struct Page<E> {
    /// Entries; where the request has `columns`, with these fields alone.
    pub items: Vec<E>,
    /// Value of `after` for the next page; null on the last one.
    pub next: Option<String>,
    /// Entries that the request chooses, on all pages.
    pub matched: usize,
    /// Entries that there are.
    pub total: usize,
    /// With `cursors` in the request: for each entry the value of `after` for the page behind it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cursors: Vec<String>,
    /// Cells of the cluster whose entries are missing: they do not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub away: Vec<u32>,
}

/// Returns the keys of a list that can be sorted by these fields.
pub(crate) fn parameters<T>(sorts: &'static [SortField<T>]) -> Vec<Parameter> {
    let mut names = vec!["name"];
    names.extend(sorts.iter().map(|(name, _)| *name));
    let sort = Parameter {
        name: "sort",
        about: "Field to sort by, - in front for descending order; the name if it is absent.",
        kind: Kind::Sort(names),
    };
    let mut all = vec![sort];
    all.extend(CHOICES);
    all
}

const CHOICES: [Parameter; 7] = [
    Parameter::number(
        "count",
        COUNT_MAX as u64,
        "Entries of a page; 50 if it is absent.",
    ),
    Parameter::text("after", "The `next` of the page before."),
    Parameter::text("q", "Part of the name, without regard to case."),
    Parameter::text("prefix", "Beginning of the name."),
    Parameter::text("pattern", "The name, with * for any letters and ? for one."),
    Parameter::text(
        "columns",
        "Fields of the entries, with commas: the others are left out.",
    ),
    Parameter::flag(
        "cursors",
        "Adds `cursors`: for each entry the value of `after` for the page behind it.",
    ),
];

/// A page by names alone, which an ordered index answers without a look at the other entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameOrder {
    pub prefix: String,
    /// Scope and name behind which the page begins.
    pub after: Option<(String, String)>,
    pub descends: bool,
    pub count: usize,
}

/// A page by one number, which its owner finds in one pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberOrder {
    pub field: &'static str,
    pub descends: bool,
    /// Number and name behind which the page begins.
    pub after: Option<(u64, String)>,
    pub count: usize,
}

/// Entries of a page, from an ordered index.
#[derive(Debug)]
pub struct Ordered<T> {
    pub entries: Vec<T>,
    pub has_more: bool,
    pub matched: usize,
    pub total: usize,
}

/// Order of entries.
struct Sort<T> {
    number: Option<fn(&T) -> u64>,
    descends: bool,
}

/// Place of an entry: sort value, scope and name.
type Place = (u64, String, String);

impl<T: 'static, E: Serialize> List<T, E> {
    /// Returns the page of `all` that a query asks for.
    pub fn page(&self, query: &Query, all: Vec<T>) -> Result<Page<Value>, Problem> {
        self.page_of(query, all, false)
    }

    /// Returns the page of `all`, which are in the order of scopes and names, that a query asks for.
    pub fn page_of_sorted(&self, query: &Query, all: Vec<T>) -> Result<Page<Value>, Problem> {
        self.page_of(query, all, true)
    }

    fn page_of(&self, query: &Query, all: Vec<T>, is_sorted: bool) -> Result<Page<Value>, Problem> {
        let (sort, count) = (self.sort(query)?, count(query)?);
        let after = query.get("after").map(place).transpose()?;
        let total = all.len();
        let chooses = ["q", "prefix", "pattern"]
            .iter()
            .any(|key| query.get(key).is_some());
        let is_chosen = choice(query);
        // Each value is read once: one that moves meanwhile would have no place in the order.
        let mut found: Vec<(u64, T)> = all
            .into_iter()
            .filter(|entry| !chooses || is_chosen((self.name)(entry).1))
            .map(|entry| (sort.value(&entry), entry))
            .collect();
        let matched = found.len();
        if let Some((number, scope, name)) = &after {
            found.retain(|(value, entry)| {
                let order = sort.compare_values(*value, *number);
                let order = order.then_with(|| sort.compare_names((self.name)(entry), (scope, name)));
                order == Ordering::Greater
            });
        }
        let is_last = found.len() <= count;
        if !is_last {
            sort.keep_first(&mut found, count);
        }
        let by_name = |one: &T, other: &T| sort.compare_names((self.name)(one), (self.name)(other));
        if is_sorted {
            if sort.number.is_some() {
                // Equal entries stay in order.
                found.sort_by(|one, other| sort.compare_values(one.0, other.0));
            } else if sort.descends {
                found.reverse();
            }
        } else {
            let order = |one: &(u64, T), other: &(u64, T)| {
                let order = sort.compare_values(one.0, other.0);
                order.then_with(|| by_name(&one.1, &other.1))
            };
            if found.len() > count {
                found.select_nth_unstable_by(count, order);
                found.truncate(count);
            }
            found.sort_unstable_by(order);
        }
        found.truncate(count);
        let place = |(value, entry): &(u64, T)| self.cursor(*value, entry);
        Ok(Page {
            items: self.items(query, found.iter().map(|(_, entry)| entry))?,
            next: found.last().filter(|_| !is_last).map(place),
            matched,
            total,
            cursors: if query.flag("cursors")? {
                found.iter().map(place).collect()
            } else {
                Vec::new()
            },
            away: Vec::new(),
        })
    }

    /// Returns the page that a query asks for, if it sorts and chooses by beginnings of names alone.
    pub fn name_order(&self, query: &Query) -> Result<Option<NameOrder>, Problem> {
        let (sort, count) = (self.sort(query)?, count(query)?);
        if sort.number.is_some() || ["q", "pattern"].iter().any(|key| query.get(key).is_some()) {
            return Ok(None);
        }
        let after = query.get("after").map(place).transpose()?;
        Ok(Some(NameOrder {
            prefix: query.get("prefix").unwrap_or_default().to_owned(),
            after: after.map(|(_, scope, name)| (scope, name)),
            descends: sort.descends,
            count,
        }))
    }

    /// Returns the page that a query asks for, if it sorts by a number and chooses by no name.
    pub fn number_order(&self, query: &Query) -> Result<Option<NumberOrder>, Problem> {
        let (sort, count) = (self.sort(query)?, count(query)?);
        let text = query.get("sort").unwrap_or_default();
        let name = text.strip_prefix('-').unwrap_or(text);
        let Some((field, _)) = self.sorts.iter().find(|(field, _)| *field == name) else {
            return Ok(None);
        };
        if ["q", "prefix", "pattern"]
            .iter()
            .any(|key| query.get(key).is_some())
        {
            return Ok(None);
        }
        let after = query.get("after").map(place).transpose()?;
        Ok(Some(NumberOrder {
            field,
            descends: sort.descends,
            after: after.map(|(number, _, name)| (number, name)),
            count,
        }))
    }

    /// Returns a page of entries in the order of [`Self::name_order`] or [`Self::number_order`].
    pub fn ordered_page(&self, query: &Query, found: &Ordered<T>) -> Result<Page<Value>, Problem> {
        let last = found.entries.last().filter(|_| found.has_more);
        let sort = self.sort(query)?;
        let place = |entry: &T| self.cursor(sort.value(entry), entry);
        Ok(Page {
            items: self.items(query, found.entries.iter())?,
            next: last.map(place),
            matched: found.matched,
            total: found.total,
            cursors: if query.flag("cursors")? {
                found.entries.iter().map(place).collect()
            } else {
                Vec::new()
            },
            away: Vec::new(),
        })
    }

    fn cursor(&self, value: u64, entry: &T) -> String {
        let (scope, name) = (self.name)(entry);
        let place: Place = (value, scope.to_owned(), name.to_owned());
        URL_SAFE_NO_PAD.encode(json!(place).to_string())
    }

    fn items<'a>(&self, query: &Query, entries: impl Iterator<Item = &'a T>) -> Result<Vec<Value>, Problem>
    where
        T: 'a,
    {
        let shown = entries.map(|entry| columns(query, json!((self.shown)(entry))));
        shown.collect()
    }

    fn sort(&self, query: &Query) -> Result<Sort<T>, Problem> {
        let text = query.get("sort").unwrap_or("name");
        let (field, descends) = direction(text);
        let known = self.sorts.iter().find(|(name, _)| *name == field);
        if known.is_none() && field != "name" {
            let names: Vec<&str> = self.sorts.iter().map(|(name, _)| *name).collect();
            let why = format!("sort is name or one of {}, not {field:?}", names.join(", "));
            return Err(Problem::bad_request(why));
        }
        Ok(Sort {
            number: known.map(|(_, number)| *number),
            descends,
        })
    }
}

impl Page<Value> {
    /// Makes one page of those that several brokers gave to the same query, with `cursors`. `sort` and
    /// `count` are those of the query.
    ///
    /// # Errors
    ///
    /// If a page has no cursors.
    pub fn merged(sort: &str, count: usize, pages: Vec<Self>) -> Result<Self, Problem> {
        let (field, descends) = direction(sort);
        let sort = Sort::<()> {
            number: (!matches!(field, "" | "name")).then_some(|(): &()| 0),
            descends,
        };
        let mut merged = Self {
            items: Vec::new(),
            next: None,
            matched: 0,
            total: 0,
            cursors: Vec::new(),
            away: Vec::new(),
        };
        let (mut found, mut has_more) = (Vec::new(), false);
        for page in pages {
            merged.matched += page.matched;
            merged.total += page.total;
            has_more |= page.next.is_some();
            let mut cursors = page.cursors.into_iter();
            for item in page.items {
                let cursor = cursors.next().unwrap_or_default();
                found.push((place(&cursor)?, cursor, item));
            }
        }
        found.sort_by(|(one, ..), (other, ..)| {
            let names = sort.compare_names((&one.1, &one.2), (&other.1, &other.2));
            sort.compare_values(one.0, other.0).then(names)
        });
        has_more |= found.len() > count;
        found.truncate(count);
        for (_, cursor, item) in found {
            merged.items.push(item);
            merged.cursors.push(cursor);
        }
        merged.next = merged.cursors.last().cloned().filter(|_| has_more);
        Ok(merged)
    }
}

impl<T> Sort<T> {
    fn value(&self, entry: &T) -> u64 {
        self.number.map_or(0, |number| number(entry))
    }

    fn compare_values(&self, one: u64, other: u64) -> Ordering {
        if self.descends {
            other.cmp(&one)
        } else {
            one.cmp(&other)
        }
    }

    /// Entries with the same number are always in ascending order.
    fn compare_names(&self, one: (&str, &str), other: (&str, &str)) -> Ordering {
        if self.descends && self.number.is_none() {
            other.cmp(&one)
        } else {
            one.cmp(&other)
        }
    }

    /// Removes the entries behind the first `count` by value alone, without a look at the names.
    /// Entries with the last value all stay.
    fn keep_first(&self, found: &mut Vec<(u64, T)>, count: usize) {
        if self.number.is_none() || count == 0 || found.len() <= count {
            return;
        }
        let mut values: Vec<u64> = found.iter().map(|(value, _)| *value).collect();
        let order = |one: &u64, other: &u64| self.compare_values(*one, *other);
        let (_, last, _) = values.select_nth_unstable_by(count - 1, order);
        let last = *last;
        found.retain(|(value, _)| self.compare_values(*value, last) != Ordering::Greater);
    }
}

/// Returns the field of a sort, and true if its order is descending.
fn direction(sort: &str) -> (&str, bool) {
    match sort.strip_prefix('-') {
        Some(field) => (field, true),
        None => (sort, false),
    }
}

fn count(query: &Query) -> Result<usize, Problem> {
    let count = query.number("count", COUNT_MAX as u64)?;
    let count = count.and_then(|count| usize::try_from(count).ok());
    Ok(count.unwrap_or(COUNT))
}

/// Returns true if a name has a part, which is in lower case, without regard to case.
fn has_part(name: &str, part: &str) -> bool {
    if !name.is_ascii() {
        return name.to_lowercase().contains(part);
    }
    let mut places = name.as_bytes().windows(part.len().max(1));
    part.is_empty() || places.any(|place| place.eq_ignore_ascii_case(part.as_bytes()))
}

/// Returns the choice of names that a query makes.
pub fn choice(query: &Query) -> impl Fn(&str) -> bool {
    let part = query.get("q").map(str::to_lowercase);
    let prefix = query.get("prefix").unwrap_or_default();
    let pattern = query.get("pattern").map(WildMatch::new);
    move |name| {
        part.as_ref().is_none_or(|part| has_part(name, part))
            && name.starts_with(prefix)
            && pattern.as_ref().is_none_or(|pattern| pattern.matches(name))
    }
}

fn place(cursor: &str) -> Result<Place, Problem> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok();
    bytes
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .ok_or_else(|| Problem::bad_request("after is the `next` of the page before, as it was"))
}

/// Returns the wanted fields of an entry.
fn columns(query: &Query, shown: Value) -> Result<Value, Problem> {
    let Some(wanted) = query.get("columns") else {
        return Ok(shown);
    };
    let Value::Object(mut all) = shown else {
        return Ok(shown);
    };
    let field = |name: &str| {
        let value = all.remove(name).ok_or_else(|| {
            let why = format!("columns: there is no field {name:?}, or it stands there twice");
            Problem::new(Code::UnknownField, why).with("field", name)
        })?;
        Ok((name.to_owned(), value))
    };
    Ok(Value::Object(
        wanted.split(',').map(field).collect::<Result<_, Problem>>()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: List<(&str, &str, u64), Value> = List {
        name: |entry| (entry.0, entry.1),
        sorts: &[("size", |entry| entry.2)],
        shown: |entry| json!({ "name": format!("{}.{}", entry.0, entry.1), "size": entry.2 }),
    };

    fn entries() -> Vec<(&'static str, &'static str, u64)> {
        vec![("b", "Ape", 7), ("a", "bee", 5), ("a", "ape", 5), ("a", "cat", 9)]
    }

    fn page(query: &str) -> Result<Value, Problem> {
        let known = parameters(LIST.sorts);
        let known: Vec<&str> = known.iter().map(|key| key.name).collect();
        let query = Query::strict(Some(query), &known).unwrap();
        let mut sorted = entries();
        sorted.sort_unstable();
        let page = LIST.page_of_sorted(&query, sorted).map(|page| json!(page));
        assert_eq!(
            LIST.page(&query, entries()).map(|page| json!(page)).ok(),
            page.as_ref().ok().cloned()
        );
        page
    }

    fn names(page: &Value) -> Vec<&str> {
        let items = page["items"].as_array().unwrap().iter();
        items.map(|item| item["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn each_entry_is_in_one_page_in_any_order() {
        for (sort, expected) in [
            ("name", ["a.ape", "a.bee", "a.cat", "b.Ape"]),
            ("-name", ["b.Ape", "a.cat", "a.bee", "a.ape"]),
            ("size", ["a.ape", "a.bee", "b.Ape", "a.cat"]),
            ("-size", ["a.cat", "b.Ape", "a.ape", "a.bee"]),
        ] {
            for count in 1..=4 {
                let (mut after, mut found) = (String::new(), Vec::new());
                loop {
                    let page = page(&format!("sort={sort}&count={count}{after}")).unwrap();
                    found.extend(names(&page).into_iter().map(str::to_owned));
                    let Some(next) = page["next"].as_str() else {
                        break;
                    };
                    after = format!("&after={next}");
                }
                assert_eq!(found, expected, "{sort} {count}");
            }
        }
    }

    #[test]
    fn pages_of_several_brokers_make_those_of_one() {
        let brokers: [Vec<_>; 3] = [
            entries().split_off(2),
            Vec::new(),
            entries().into_iter().take(2).collect(),
        ];
        let known = parameters(LIST.sorts);
        let known: Vec<&str> = known.iter().map(|key| key.name).collect();
        for sort in ["name", "-name", "size", "-size"] {
            for count in 1..=5 {
                let mut after = String::new();
                for _ in 0..5 {
                    let text = format!("sort={sort}&count={count}&cursors=true{after}");
                    let query = Query::strict(Some(&text), &known).unwrap();
                    let pages = brokers.iter().map(|own| LIST.page(&query, own.clone()).unwrap());
                    let merged = Page::merged(sort, count, pages.collect()).unwrap();
                    assert_eq!(json!(merged), page(&text).unwrap(), "{text}");
                    let Some(next) = merged.next else { break };
                    after = format!("&after={next}");
                }
            }
        }
    }

    #[test]
    fn names_are_chosen_by_a_part_a_beginning_or_a_pattern() {
        for (query, expected) in [
            ("q=AP", &["a.ape", "b.Ape"][..]),
            ("q=", &["a.ape", "a.bee", "a.cat", "b.Ape"]),
            ("prefix=A", &["b.Ape"]),
            ("pattern=*e", &["a.ape", "a.bee", "b.Ape"]),
            ("pattern=?a?", &["a.cat"]),
            ("pattern=*e*e", &["a.bee"]),
            ("pattern=", &[]),
        ] {
            let page = page(query).unwrap();
            assert_eq!(names(&page), expected, "{query}");
            assert_eq!(
                (&page["matched"], &page["total"]),
                (&json!(expected.len()), &json!(4))
            );
        }
    }

    #[test]
    fn columns_leave_the_other_fields_out() {
        let page = page("columns=size&prefix=c").unwrap();
        assert_eq!(page["items"], json!([{ "size": 9 }]));
    }

    #[test]
    fn a_wrong_cursor_sort_or_column_is_refused() {
        for (query, code) in [
            ("after=7", "bad_request"),
            ("after=WzEsMl0", "bad_request"),
            ("sort=age", "bad_request"),
            ("count=1001", "bad_request"),
            ("columns=age", "unknown_field"),
        ] {
            assert_eq!(page(query).unwrap_err().code.word(), code, "{query}");
        }
    }
}
