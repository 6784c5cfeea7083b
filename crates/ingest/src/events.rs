//! The events of a body: one object, a list, or one per line; with fields that a client cannot set itself.

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;
use stafett_http::{Code, Problem};
use stafett_topics::NewRecord;

/// Events of a body, at most.
const EVENTS_MAX: usize = 10_000;

/// Fields that are set, as JSON texts.
pub(crate) type Additions = Vec<(String, String)>;

/// Returns the records of a body.
pub(crate) fn records(
    body: &Bytes,
    is_lines: bool,
    key_field: Option<&str>,
    additions: &Additions,
) -> Result<Vec<NewRecord>, Problem> {
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
    let records = documents.iter().enumerate();
    records
        .map(|(at, document)| record(body, at + 1, document, key_field, additions))
        .collect()
}

fn not_json(line: usize, why: &serde_json::Error) -> Problem {
    Problem::bad_request(format!("line {line}: not JSON: {why}")).with("line", line)
}

fn record(
    body: &Bytes,
    line: usize,
    document: &RawValue,
    key_field: Option<&str>,
    additions: &Additions,
) -> Result<NewRecord, Problem> {
    let fields: Fields<'_> = serde_json::from_str(document.get()).map_err(|_| {
        Problem::bad_request(format!("line {line}: an event is a JSON object")).with("line", line)
    })?;
    let added = |name: &str| additions.iter().any(|(added, _)| added == name);
    let value = if additions.is_empty() {
        // A slice of the body, byte for byte.
        body.slice_ref(document.get().as_bytes())
    } else {
        let own = fields.0.iter().filter(|(name, _)| !added(name));
        let own = own.map(|(name, json)| (&**name, json.get()));
        object(own.chain(additions.iter().map(|(name, json)| (&**name, &**json))))
    };
    let key = match key_field {
        None => None,
        Some(name) => {
            let own = fields
                .0
                .iter()
                .rev()
                .find(|(field, _)| field == name)
                .map(|(_, json)| json.get());
            let set = additions
                .iter()
                .find(|(field, _)| field == name)
                .map(|(_, json)| &**json);
            let key = set.or(own).and_then(key_of);
            Some(key.ok_or_else(|| {
                let why = format!("line {line}: the field {name} is missing, or neither a text nor a number");
                Problem::new(Code::NoKey, why)
                    .with("line", line)
                    .with("path", name)
            })?)
        }
    };
    Ok(NewRecord {
        key,
        value: Some(value),
        ..NewRecord::default()
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

/// Fields of an object in order, each with its text.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> serde::Deserialize<'de> for Fields<'de> {
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

    fn values(body: &'static str, is_lines: bool, additions: &Additions) -> Vec<String> {
        let body = Bytes::from_static(body.as_bytes());
        let records = records(&body, is_lines, None, additions).unwrap();
        let text = |record: NewRecord| String::from_utf8(record.value.unwrap().to_vec()).unwrap();
        records.into_iter().map(text).collect()
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
        let keys: Vec<_> = records(&body, false, Some("k"), &Additions::new()).unwrap();
        let keys: Vec<_> = keys.into_iter().map(|record| record.key.unwrap()).collect();
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
                records(&body, false, Some("k"), &Additions::new()).is_err(),
                "{body:?}"
            );
        }
    }
}
