//! The events of a body: one object, a list, or one per line; with fields that a client cannot set itself.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use stafett_http::{Code, Problem};
use stafett_topics::NewRecord;

use crate::filter::{Filter, Verdict};
use crate::schema::{Misfit, Schema};

/// Events of a body, at most.
const EVENTS_MAX: usize = 10_000;

/// Fields that are set, as JSON texts.
pub(crate) type Additions = Vec<(String, String)>;

/// Fields of an event that its schema does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unknown {
    #[default]
    Keep,
    Drop,
    Refuse,
}

/// Rules of an endpoint for events.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rules<'a> {
    pub(crate) key_field: Option<&'a str>,
    /// Field that names one of the topics; none: there is one topic.
    pub(crate) topic_field: Option<(&'a str, &'a [String])>,
    pub(crate) filter: Option<&'a Filter>,
    pub(crate) schema: Option<&'a Schema>,
    pub(crate) unknown: Unknown,
}

impl Rules<'_> {
    /// Returns the number of the topic that a field of an event names.
    fn topic(&self, line: usize, of_field: impl Fn(&str) -> Option<Bytes>) -> Result<usize, Problem> {
        let Some((name, topics)) = self.topic_field else {
            return Ok(0);
        };
        let wanted = of_field(name);
        let is_wanted = |topic: &String| wanted.as_deref() == Some(topic.as_bytes());
        topics.iter().position(is_wanted).ok_or_else(|| {
            let expected = format!("one of {}", topics.join(", "));
            let why = format!("line {line}: the field {name} is not {expected}");
            let problem = Problem::new(Code::Schema, why).with("line", line);
            problem
                .with("path", format!("/{name}"))
                .with("expected", expected)
        })
    }
}

/// Records of a body.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) records: Vec<Event>,
    /// Events that the filter leaves out, and those of them for which it failed.
    pub(crate) left_out: u64,
    pub(crate) failed: u64,
}

/// A record of a body.
#[derive(Debug)]
pub(crate) struct Event {
    /// Number of its event in the body, from 1.
    pub(crate) line: usize,
    /// Number of its topic.
    pub(crate) topic: usize,
    pub(crate) record: NewRecord,
}

/// Returns the records of a body.
pub(crate) fn records(
    body: &Bytes,
    is_lines: bool,
    rules: Rules<'_>,
    additions: &Additions,
) -> Result<Events, Problem> {
    let text = std::str::from_utf8(body).map_err(|_| Problem::bad_request("the body is not UTF-8"))?;
    let mut documents: Vec<&RawValue> = Vec::new();
    if is_lines {
        for (at, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
        {
            let document = serde_json::from_str(line).map_err(|why| not_json(at + 1, &why))?;
            documents.push(document);
        }
    } else if text.trim_start().starts_with('[') {
        documents = serde_json::from_str(text).map_err(|why| not_json(why.line(), &why))?;
    } else {
        documents.push(serde_json::from_str(text).map_err(|why| not_json(why.line(), &why))?);
    }
    if documents.len() > EVENTS_MAX {
        return Err(Problem::bad_request(format!(
            "a body has {EVENTS_MAX} events at most"
        )));
    }
    let mut events = Events::default();
    for (at, document) in documents.into_iter().enumerate() {
        let event = event(body, at + 1, document, rules, additions)?;
        let value = event.record.value.as_deref().unwrap_or_default();
        let verdict = rules.filter.map_or(Verdict::Stored, |filter| filter.judge(value));
        if verdict == Verdict::Stored {
            events.records.push(event);
            continue;
        }
        events.left_out += 1;
        events.failed += u64::from(verdict == Verdict::Failed);
    }
    Ok(events)
}

fn not_json(line: usize, why: &serde_json::Error) -> Problem {
    Problem::bad_request(format!("line {line}: not JSON: {why}")).with("line", line)
}

fn event(
    body: &Bytes,
    line: usize,
    document: &RawValue,
    rules: Rules<'_>,
    additions: &Additions,
) -> Result<Event, Problem> {
    let mut fields: Fields<'_> = serde_json::from_str(document.get()).map_err(|_| {
        Problem::bad_request(format!("line {line}: an event is a JSON object")).with("line", line)
    })?;
    let added = |name: &str| additions.iter().any(|(added, _)| added == name);
    let of_field = |name: &str| {
        let mut own = fields.0.iter().rev();
        let own = own.find(|(field, _)| field == name).map(|(_, json)| json.get());
        let mut set = additions.iter();
        let set = set.find(|(field, _)| field == name).map(|(_, json)| &**json);
        set.or(own).and_then(key_of)
    };
    let key = match rules.key_field {
        None => None,
        Some(name) => Some(of_field(name).ok_or_else(|| {
            let why = format!("line {line}: the field {name} is missing, or neither a text nor a number");
            Problem::new(Code::NoKey, why)
                .with("line", line)
                .with("path", name)
        })?),
    };
    let topic = rules.topic(line, of_field)?;
    let count = fields.0.len();
    if let Some(schema) = rules.schema {
        fit(schema, line, document)?;
        let is_known = |name: &str| schema.names(name) || added(name);
        match rules.unknown {
            Unknown::Keep => {}
            Unknown::Drop => fields.0.retain(|(name, _)| is_known(name)),
            Unknown::Refuse => {
                if let Some((name, _)) = fields.0.iter().find(|(name, _)| !is_known(name)) {
                    let why = format!("line {line}: the schema names no field {name:?}");
                    let problem = Problem::new(Code::Schema, why).with("line", line);
                    return Err(problem.with("path", format!("/{name}")));
                }
            }
        }
    }
    let value = if additions.is_empty() && fields.0.len() == count {
        // A slice of the body, byte for byte.
        body.slice_ref(document.get().as_bytes())
    } else {
        let own = fields.0.iter().filter(|(name, _)| !added(name));
        let own = own.map(|(name, json)| (&**name, json.get()));
        object(own.chain(additions.iter().map(|(name, json)| (&**name, &**json))))
    };
    Ok(Event {
        line,
        topic,
        record: NewRecord {
            key,
            value: Some(value),
            ..NewRecord::default()
        },
    })
}

/// Refuses an event that does not fit.
fn fit(schema: &Schema, line: usize, document: &RawValue) -> Result<(), Problem> {
    // Readers take different ones of two fields with one name; only one of them would be checked.
    let Distinct = serde_json::from_str(document.get()).map_err(|why| not_json(line, &why))?;
    let event: Value = serde_json::from_str(document.get()).map_err(|why| not_json(line, &why))?;
    schema.check(&event).map_err(|Misfit { path, expected }| {
        let place = if path.is_empty() { "the event" } else { &*path };
        let why = format!("line {line}: {place} is not {expected}");
        let problem = Problem::new(Code::Schema, why).with("line", line);
        problem.with("path", path).with("expected", expected)
    })
}

/// Returns a text or a number as a key.
fn key_of(json: &str) -> Option<Bytes> {
    match serde_json::from_str(json).ok()? {
        Value::String(text) => Some(text.into()),
        Value::Number(_) => Some(Bytes::copy_from_slice(json.as_bytes())),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Writes an object of fields whose values are JSON texts.
pub(crate) fn object<'a>(fields: impl Iterator<Item = (&'a str, &'a str)>) -> Bytes {
    let mut out = vec![b'{'];
    for (place, (name, json)) in fields.enumerate() {
        if place > 0 {
            out.push(b',');
        }
        // Writing to a vector does not fail.
        let _ = serde_json::to_writer(&mut out, name);
        out.push(b':');
        out.extend_from_slice(json.as_bytes());
    }
    out.push(b'}');
    out.into()
}

/// JSON without an object that has a name twice.
struct Distinct;

impl<'de> Deserialize<'de> for Distinct {
    fn deserialize<D: serde::Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_any(Self)
    }
}

impl<'de> serde::de::Visitor<'de> for Distinct {
    type Value = Self;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut names = BTreeSet::new();
        while let Some((name, Self)) = map.next_entry::<String, Self>()? {
            if names.contains(&name) {
                return Err(serde::de::Error::custom(format!(
                    "the field {name:?} is there twice"
                )));
            }
            names.insert(name);
        }
        Ok(self)
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Self, A::Error> {
        while let Some(Self) = list.next_element()? {}
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }
}

/// Fields of an object in order, each with its text.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        reader.deserialize_map(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(event: Event) -> String {
        String::from_utf8(event.record.value.unwrap().to_vec()).unwrap()
    }

    fn values(body: &'static str, is_lines: bool, additions: &Additions) -> Vec<String> {
        let body = Bytes::from_static(body.as_bytes());
        let records = records(&body, is_lines, Rules::default(), additions).unwrap();
        records.records.into_iter().map(text_of).collect()
    }

    #[test]
    fn a_body_is_an_object_a_list_or_lines() {
        let none = Additions::new();
        assert_eq!(values(r#" {"a": 1} "#, false, &none), [r#"{"a": 1}"#]);
        assert_eq!(
            values(r#"[{"a":1},{"b":2}]"#, false, &none),
            [r#"{"a":1}"#, r#"{"b":2}"#]
        );
        assert_eq!(
            values("{\"a\":1}\n\n{\"b\":2}\n", true, &none),
            [r#"{"a":1}"#, r#"{"b":2}"#]
        );
    }

    #[test]
    fn a_client_cannot_set_what_the_endpoint_adds() {
        let additions = vec![("app".to_owned(), "\"tv\"".to_owned())];
        let set = values(r#"{"app":"other","a":1,"app":"third"}"#, false, &additions);
        assert_eq!(set, [r#"{"a":1,"app":"tv"}"#]);
    }

    #[test]
    fn keys_are_texts_or_numbers() {
        let body = Bytes::from_static(br#"[{"k":"a"},{"k":7}]"#);
        let rules = Rules {
            key_field: Some("k"),
            ..Rules::default()
        };
        let keys = records(&body, false, rules, &Additions::new()).unwrap().records;
        let keys: Vec<_> = keys.into_iter().map(|event| event.record.key.unwrap()).collect();
        assert_eq!(keys, ["a", "7"]);
        for body in [
            r#"{"x":1}"#,
            r#"{"k":null}"#,
            r#"{"k":[1]}"#,
            "[1]",
            "3",
            "{",
            "",
            "{\"k\":\"a\"}x",
        ] {
            let body = Bytes::copy_from_slice(body.as_bytes());
            assert!(
                records(&body, false, rules, &Additions::new()).is_err(),
                "{body:?}"
            );
        }
    }

    #[test]
    fn a_field_chooses_the_topic_and_a_filter_leaves_events_out() {
        let topics = ["Plays".to_owned(), "Errors".to_owned()];
        let filter = Filter::compile("value.n > 1 && value.app == 'tv'").unwrap();
        let rules = Rules {
            topic_field: Some(("kind", &topics)),
            filter: Some(&filter),
            ..Rules::default()
        };
        let additions = vec![("app".to_owned(), "\"tv\"".to_owned())];
        let body =
            br#"[{"kind":"Errors","n":2},{"kind":"Plays","n":1},{"kind":"Plays","n":3},{"kind":"Plays"}]"#;
        let events = records(&Bytes::from_static(body), false, rules, &additions).unwrap();
        assert_eq!((events.left_out, events.failed), (2, 1));
        let places = events.records.iter().map(|event| (event.line, event.topic));
        assert_eq!(places.collect::<Vec<_>>(), [(1, 1), (3, 0)]);
        for other in ["{}", r#"{"kind":"Other"}"#, r#"{"kind":["Plays"]}"#] {
            let why = records(&other.into(), false, rules, &additions).unwrap_err();
            assert_eq!((why.code, &why.fields["path"]), (Code::Schema, &"/kind".into()));
            assert_eq!(why.fields["expected"], "one of Plays, Errors");
        }
    }

    #[test]
    fn a_schema_refuses_events_and_what_it_does_not_name_is_kept_dropped_or_refused() {
        let schema = r#"{"properties": {"a": {"type": "integer"}}, "required": ["a"]}"#;
        let schema = Schema::parse(schema).unwrap();
        let additions = vec![("app".to_owned(), "\"tv\"".to_owned())];
        let taken = |text: &'static str, unknown, additions: &Additions| {
            let rules = Rules {
                schema: Some(&schema),
                unknown,
                ..Rules::default()
            };
            let taken = records(&Bytes::from_static(text.as_bytes()), true, rules, additions)?;
            Ok(taken.records.into_iter().map(text_of).collect::<Vec<_>>())
        };
        let none = Additions::new();
        let both = "{\"a\": 1}\n{\"x\":2,\"a\":3}";
        let kept: Result<_, Problem> = taken(both, Unknown::Keep, &none);
        assert_eq!(kept.unwrap(), ["{\"a\": 1}", "{\"x\":2,\"a\":3}"]);
        let dropped = taken(both, Unknown::Drop, &none).unwrap();
        assert_eq!(dropped, ["{\"a\": 1}", "{\"a\":3}"]);
        let dropped = taken(both, Unknown::Drop, &additions).unwrap();
        assert_eq!(dropped[1], "{\"a\":3,\"app\":\"tv\"}");
        for (text, unknown, additions, line, path) in [
            (both, Unknown::Refuse, &none, 2, "/x"),
            ("{\"a\":1}\n\n{\"a\":\"1\"}", Unknown::Keep, &none, 2, "/a"),
            ("{\"x\":1}", Unknown::Drop, &additions, 1, "/a"),
        ] {
            let why = taken(text, unknown, additions).unwrap_err();
            assert_eq!(why.code, Code::Schema);
            assert_eq!(
                (&why.fields["line"], &why.fields["path"]),
                (&line.into(), &path.into())
            );
        }
        for twice in ["{\"a\":\"x\",\"a\":1}", "{\"a\":1,\"b\":[{\"c\":1,\"c\":2}]}"] {
            let why = taken(twice, Unknown::Keep, &none).unwrap_err();
            assert!(why.detail.contains("is there twice"), "{}", why.detail);
        }
        let app = taken("{\"a\":1,\"app\":\"own\"}", Unknown::Refuse, &additions).unwrap();
        assert_eq!(app, ["{\"a\":1,\"app\":\"tv\"}"], "what is added needs no name");
    }
}
