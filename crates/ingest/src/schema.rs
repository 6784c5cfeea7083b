//! The part of JSON Schema 2020-12 by which events are checked. A keyword that is not part of it is refused
//! when the schema is read, and never ignored.
//!
//! ```text
//! type enum const · minimum maximum exclusiveMinimum exclusiveMaximum multipleOf · minLength maxLength pattern
//! properties required additionalProperties · items minItems maxItems · anyOf · $ref within the document
//! ```
//!
//! Patterns are regular expressions of Rust's `regex`, which take linear time.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Number, Value};

/// Bytes of a compiled pattern, at most.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// Schemas of a document, at most.
const NODES_MAX: usize = 10_000;
/// Schemas within each other, at most, as an event is checked.
const DEPTH_MAX: usize = 200;
/// Schemas that are looked at for one event, at most.
const WORK_MAX: u32 = 100_000;
/// Whole numbers below this are exact as doubles.
const WHOLE_MAX: f64 = 9e15;
/// Characters of values in an error.
const CITED_CHARS: usize = 60;
/// Keywords that say nothing about values.
const NOTES: [&str; 9] = [
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "title",
    "description",
    "examples",
    "default",
    "deprecated",
];

/// A schema, ready to check events.
#[derive(Debug, Clone)]
pub struct Schema {
    /// The first one is that of the document.
    nodes: Vec<Node>,
}

/// Place of a value that does not fit, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// JSON pointer: `/a/0`; empty for the event itself.
    pub(crate) path: String,
    pub(crate) expected: String,
}

#[derive(Debug, Clone, Default)]
struct Node {
    /// True for the schema `false`, which nothing fits.
    is_never: bool,
    types: Option<Vec<Kind>>,
    /// Values, and the words for them.
    allowed: Option<(Vec<Value>, String)>,
    minimum: Option<f64>,
    maximum: Option<f64>,
    above: Option<f64>,
    below: Option<f64>,
    step: Option<f64>,
    /// Bounds of characters, items and so on.
    length: (usize, Option<usize>),
    items_count: (usize, Option<usize>),
    pattern: Option<Regex>,
    properties: BTreeMap<String, usize>,
    required: Vec<String>,
    additional: Option<usize>,
    items: Option<usize>,
    any_of: Vec<usize>,
    same_as: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

const KINDS: [(&str, Kind); 7] = [
    ("null", Kind::Null),
    ("boolean", Kind::Boolean),
    ("integer", Kind::Integer),
    ("number", Kind::Number),
    ("string", Kind::String),
    ("array", Kind::Array),
    ("object", Kind::Object),
];

impl Kind {
    fn is_of(self, value: &Value) -> bool {
        match self {
            Self::Null => value.is_null(),
            Self::Boolean => value.is_boolean(),
            Self::Integer => value.as_f64().is_some_and(|number| number.fract() == 0.0),
            Self::Number => value.is_number(),
            Self::String => value.is_string(),
            Self::Array => value.is_array(),
            Self::Object => value.is_object(),
        }
    }
}

impl Schema {
    /// Reads a schema. The error names the place and the keyword.
    pub fn parse(text: &str) -> Result<Self, String> {
        let document: Value = serde_json::from_str(text).map_err(|why| format!("not JSON: {why}"))?;
        let mut reader = Reader {
            document: &document,
            nodes: Vec::new(),
            known: HashMap::new(),
        };
        reader.node("", &document)?;
        Ok(Self { nodes: reader.nodes })
    }

    /// Returns true if the schema names a field of the event.
    pub(crate) fn names(&self, field: &str) -> bool {
        let (mut ahead, mut seen) = (vec![0], BTreeSet::new());
        while let Some(number) = ahead.pop() {
            let Some(node) = self.nodes.get(number).filter(|_| seen.insert(number)) else {
                continue;
            };
            if node.properties.contains_key(field) {
                return true;
            }
            ahead.extend(node.same_as.into_iter().chain(node.any_of.iter().copied()));
        }
        false
    }

    /// Checks an event.
    pub(crate) fn check(&self, event: &Value) -> Result<(), Misfit> {
        let mut check = Check {
            nodes: &self.nodes,
            work: WORK_MAX,
            path: Vec::new(),
        };
        check.value(0, event, 0)
    }
}

/// Reads the schemas of a document, each place once.
struct Reader<'a> {
    document: &'a Value,
    nodes: Vec<Node>,
    known: HashMap<String, usize>,
}

impl<'a> Reader<'a> {
    /// Reads the schema at a place, given as a JSON pointer, and returns its number.
    fn node(&mut self, at: &str, schema: &'a Value) -> Result<usize, String> {
        if let Some(known) = self.known.get(at) {
            return Ok(*known);
        }
        let number = self.nodes.len();
        if number >= NODES_MAX {
            return Err(format!("it has more than {NODES_MAX} schemas"));
        }
        self.known.insert(at.to_owned(), number);
        self.nodes.push(Node::default());
        let node = match schema {
            Value::Bool(takes_all) => Node {
                is_never: !takes_all,
                ..Node::default()
            },
            Value::Object(keywords) => self.keywords(at, keywords)?,
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(format!("{}: a schema is an object, true or false", shown(at)));
            }
        };
        if let Some(slot) = self.nodes.get_mut(number) {
            *slot = node;
        }
        Ok(number)
    }

    fn keywords(&mut self, at: &str, keywords: &'a Map<String, Value>) -> Result<Node, String> {
        let mut node = Node::default();
        for (name, value) in keywords {
            let place = format!("{at}/{}", escaped(name));
            let read = self.keyword(&mut node, &place, name, value)?;
            if !read && !NOTES.contains(&name.as_str()) {
                return Err(format!("{}: the keyword {name} is not known here", shown(at)));
            }
        }
        Ok(node)
    }

    /// Reads a keyword. False if it is none of those that say something about values.
    fn keyword(&mut self, node: &mut Node, at: &str, name: &str, value: &'a Value) -> Result<bool, String> {
        if bound(node, at, name, value)? {
            return Ok(true);
        }
        let bad = |wanted: &str| format!("{}: it has to be {wanted}", shown(at));
        let names = || {
            let texts = value.as_array().ok_or_else(|| bad("a list of texts"))?.iter();
            let texts = texts.map(|text| text.as_str().map(str::to_owned));
            texts
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| bad("a list of texts"))
        };
        match name {
            "type" => {
                let names = if let Value::String(one) = value {
                    vec![one.clone()]
                } else {
                    names()?
                };
                let kind = |name: &String| {
                    KINDS
                        .iter()
                        .find(|(known, _)| known == name)
                        .map(|(_, kind)| *kind)
                };
                let kinds: Option<Vec<_>> = names.iter().map(kind).collect();
                node.types = Some(kinds.ok_or_else(|| bad("a type of JSON"))?);
            }
            "enum" | "const" => {
                if node.allowed.is_some() {
                    return Err(bad("the only one of enum and const"));
                }
                node.allowed = Some(allowed(name, value).ok_or_else(|| bad("a list"))?);
            }
            "pattern" => {
                let text = value.as_str().ok_or_else(|| bad("a text"))?;
                let pattern = RegexBuilder::new(text).size_limit(PATTERN_BYTES_MAX).build();
                node.pattern = Some(pattern.map_err(|why| format!("{}: {why}", shown(at)))?);
            }
            "required" => node.required = names()?,
            "properties" => {
                let all = value.as_object().ok_or_else(|| bad("an object"))?;
                for (field, schema) in all {
                    let number = self.node(&format!("{at}/{}", escaped(field)), schema)?;
                    node.properties.insert(field.clone(), number);
                }
            }
            "additionalProperties" => node.additional = Some(self.node(at, value)?),
            "items" => node.items = Some(self.node(at, value)?),
            "anyOf" => {
                let all = value.as_array().filter(|all| !all.is_empty());
                for (place, schema) in all.ok_or_else(|| bad("a list of schemas"))?.iter().enumerate() {
                    node.any_of.push(self.node(&format!("{at}/{place}"), schema)?);
                }
            }
            "$ref" => {
                let pointer = value.as_str().and_then(|text| text.strip_prefix('#'));
                let pointer = pointer.ok_or_else(|| bad("a place in this document, such as #/$defs/NAME"))?;
                let document = self.document;
                let found = document
                    .pointer(pointer)
                    .ok_or_else(|| bad("a place that is there"))?;
                node.same_as = Some(self.node(pointer, found)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Reads a keyword that bounds numbers, or the count of something. False if it is none.
fn bound(node: &mut Node, at: &str, name: &str, value: &Value) -> Result<bool, String> {
    let bad = |wanted: &str| format!("{}: it has to be {wanted}", shown(at));
    let number = || value.as_f64().ok_or_else(|| bad("a number"));
    let count = || {
        let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
        count.ok_or_else(|| bad("a whole number"))
    };
    match name {
        "minimum" => node.minimum = Some(number()?),
        "maximum" => node.maximum = Some(number()?),
        "exclusiveMinimum" => node.above = Some(number()?),
        "exclusiveMaximum" => node.below = Some(number()?),
        "multipleOf" => {
            let step = number()?;
            node.step = Some(step).filter(|step| *step > 0.0);
            node.step.ok_or_else(|| bad("a number above 0"))?;
        }
        "minLength" => node.length.0 = count()?,
        "maxLength" => node.length.1 = Some(count()?),
        "minItems" => node.items_count.0 = count()?,
        "maxItems" => node.items_count.1 = Some(count()?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Returns the values of `enum` or `const`, with the words for them.
fn allowed(keyword: &str, value: &Value) -> Option<(Vec<Value>, String)> {
    let values = if keyword == "enum" {
        value.as_array()?.clone()
    } else {
        vec![value.clone()]
    };
    let words = Value::Array(values.clone()).to_string();
    let words: String = words.chars().take(CITED_CHARS).collect();
    Some((values, format!("one of {words}")))
}

/// Returns a name as a part of a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn shown(at: &str) -> &str {
    if at.is_empty() { "the schema" } else { at }
}

/// A check of an event.
struct Check<'a> {
    nodes: &'a [Node],
    /// Schemas that may still be looked at.
    work: u32,
    path: Vec<String>,
}

impl Check<'_> {
    fn misfit(&self, expected: impl Into<String>) -> Misfit {
        let path = self.path.iter().map(|part| format!("/{}", escaped(part)));
        Misfit {
            path: path.collect(),
            expected: expected.into(),
        }
    }

    fn value(&mut self, number: usize, value: &Value, depth: usize) -> Result<(), Misfit> {
        if depth > DEPTH_MAX || self.work == 0 {
            return Err(self.misfit("a value that is checked in fewer steps"));
        }
        self.work -= 1;
        let nodes = self.nodes;
        let Some(node) = nodes.get(number) else {
            return Ok(());
        };
        if node.is_never {
            return Err(self.misfit("no value here"));
        }
        if let Some(other) = node.same_as {
            self.value(other, value, depth + 1)?;
        }
        if let Some(kinds) = &node.types
            && !kinds.iter().any(|kind| kind.is_of(value))
        {
            let those = KINDS.iter().filter(|(_, kind)| kinds.contains(kind));
            let names: Vec<_> = those.map(|(name, _)| *name).collect();
            return Err(self.misfit(names.join(" or ")));
        }
        if let Some((allowed, words)) = &node.allowed {
            let cost = u32::try_from(allowed.len()).unwrap_or(u32::MAX);
            self.work = self.work.saturating_sub(cost);
            if !allowed.iter().any(|one| is_same(one, value)) {
                return Err(self.misfit(words.clone()));
            }
        }
        match value {
            Value::Number(number) => self.number(node, number)?,
            Value::String(text) => self.text(node, text)?,
            Value::Array(items) => self.items(node, items, depth)?,
            Value::Object(fields) => self.fields(node, fields, depth)?,
            Value::Null | Value::Bool(_) => {}
        }
        let (mut last, length) = (None, self.path.len());
        for number in &node.any_of {
            match self.value(*number, value, depth + 1) {
                Ok(()) => return Ok(()),
                Err(why) => last = Some(why),
            }
            self.path.truncate(length);
        }
        last.map_or(Ok(()), Err)
    }

    #[expect(clippy::cast_possible_truncation, reason = "a whole number below WHOLE_MAX")]
    fn number(&self, node: &Node, value: &Number) -> Result<(), Misfit> {
        let number = value.as_f64().unwrap_or(0.0);
        let is_step = |step: f64| match value.as_i64() {
            Some(whole) if step.fract() == 0.0 && step < WHOLE_MAX => whole % (step as i64) == 0,
            Some(_) | None => {
                // 19.99 is a multiple of 0.01, though not in binary digits.
                let times = number / step;
                (times - times.round()).abs() <= times.abs().max(1.0) * 1e-9
            }
        };
        let bounds = [
            (node.minimum.filter(|min| number < *min), "at least"),
            (node.maximum.filter(|max| number > *max), "at most"),
            (node.above.filter(|min| number <= *min), "more than"),
            (node.below.filter(|max| number >= *max), "less than"),
            (node.step.filter(|step| !is_step(*step)), "a multiple of"),
        ];
        let broken = bounds
            .iter()
            .find_map(|(bound, words)| Some((bound.as_ref()?, words)));
        broken.map_or(Ok(()), |(bound, words)| {
            Err(self.misfit(format!("{words} {bound}")))
        })
    }

    fn text(&self, node: &Node, text: &str) -> Result<(), Misfit> {
        self.count(node.length, || text.chars().count(), "characters")?;
        match &node.pattern {
            Some(pattern) if !pattern.is_match(text) => {
                Err(self.misfit(format!("a text that {} matches", pattern.as_str())))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn count(
        &self,
        (min, max): (usize, Option<usize>),
        count: impl Fn() -> usize,
        of: &str,
    ) -> Result<(), Misfit> {
        if min > 0 && count() < min {
            return Err(self.misfit(format!("at least {min} {of}")));
        }
        match max {
            Some(max) if count() > max => Err(self.misfit(format!("at most {max} {of}"))),
            Some(_) | None => Ok(()),
        }
    }

    fn items(&mut self, node: &Node, items: &[Value], depth: usize) -> Result<(), Misfit> {
        self.count(node.items_count, || items.len(), "items")?;
        let Some(number) = node.items else {
            return Ok(());
        };
        for (place, item) in items.iter().enumerate() {
            self.path.push(place.to_string());
            self.value(number, item, depth + 1)?;
            self.path.pop();
        }
        Ok(())
    }

    fn fields(&mut self, node: &Node, fields: &Map<String, Value>, depth: usize) -> Result<(), Misfit> {
        if let Some(missing) = node.required.iter().find(|name| !fields.contains_key(*name)) {
            self.path.push(missing.clone());
            return Err(self.misfit("a value"));
        }
        for (name, value) in fields {
            let Some(number) = node.properties.get(name).copied().or(node.additional) else {
                continue;
            };
            self.path.push(name.clone());
            self.value(number, value, depth + 1)?;
            self.path.pop();
        }
        Ok(())
    }
}

/// Compares values as JSON Schema does: 1 and 1.0 are the same number.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            let is_real = one.is_f64() || other.is_f64();
            one == other || is_real && one.as_f64() == other.as_f64()
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let is_in = |(name, value)| other.get(name).is_some_and(|other| is_same(value, other));
            one.len() == other.len() && one.iter().all(is_in)
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests;
