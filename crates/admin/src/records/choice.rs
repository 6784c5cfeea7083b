//! Choice of records by a query.

use bytes::Bytes;
use serde_json::Value;
use stafett_http::{Parameter, Problem, Query};
use stafett_model::StoredRecord;

/// Conditions on records, all of which hold.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    key: Option<String>,
    key_prefix: Option<String>,
    contains: Option<String>,
    headers: Vec<(String, String)>,
    /// Fields of a JSON value: names from the outermost one, and the text of the value.
    fields: Vec<(Vec<String>, String)>,
}

impl Choice {
    /// Keys of queries.
    pub(super) const KEYS: [Parameter; 5] = [
        Parameter::text("key", "Only records with this key."),
        Parameter::text("key_prefix", "Only records whose key begins with this."),
        Parameter::text("contains", "Only records whose value has this text in it."),
        Parameter::text("header.", "Only records with this value of the header."),
        Parameter::text(
            "field.",
            "Only records with this value of a field of their JSON; field.a.b for a field in a field.",
        ),
    ];

    pub(super) fn of(query: &Query) -> Result<Self, Problem> {
        let text = |name| query.get(name).map(str::to_owned);
        let mut choice = Self {
            key: text("key"),
            key_prefix: text("key_prefix"),
            contains: text("contains"),
            ..Self::default()
        };
        for (name, value) in query.pairs() {
            if let Some(header) = name.strip_prefix("header.") {
                choice.headers.push((header.to_owned(), value.to_owned()));
            } else if let Some(path) = name.strip_prefix("field.") {
                let names: Vec<String> = path.split('.').map(str::to_owned).collect();
                if names.iter().any(String::is_empty) {
                    let why = format!("{name}: a field is a name, or names with dots between them");
                    return Err(Problem::bad_request(why));
                }
                choice.fields.push((names, value.to_owned()));
            }
        }
        Ok(choice)
    }

    pub(super) fn wants(&self, record: &StoredRecord) -> bool {
        let key = record.key.as_deref();
        let value = record.value.as_deref().unwrap_or_default();
        let is_key = |wanted: &String| key == Some(wanted.as_bytes());
        let begins = |prefix: &String| key.is_some_and(|key| key.starts_with(prefix.as_bytes()));
        self.key.as_ref().is_none_or(is_key)
            && self.key_prefix.as_ref().is_none_or(begins)
            && self
                .headers
                .iter()
                .all(|(name, wanted)| record.headers.last(name.as_bytes()) == Some(Some(wanted.as_bytes())))
            && self
                .contains
                .as_ref()
                .is_none_or(|part| has(value, part.as_bytes()))
            && (self.fields.is_empty() || self.has_fields(record.value.as_ref()))
    }

    fn has_fields(&self, value: Option<&Bytes>) -> bool {
        let Some(json) = value.and_then(|value| serde_json::from_slice::<Value>(value).ok()) else {
            return false;
        };
        self.fields.iter().all(|(path, wanted)| {
            let field = path.iter().try_fold(&json, |json, name| json.get(name));
            field.is_some_and(|field| match field.as_str() {
                Some(text) => text == wanted,
                None => serde_json::from_str::<Value>(wanted).is_ok_and(|wanted| *field == wanted),
            })
        })
    }
}

/// Returns true if a text is somewhere in the bytes.
fn has(bytes: &[u8], part: &[u8]) -> bool {
    let Some(first) = part.first() else { return true };
    let starts = bytes.iter().enumerate().filter(|(_, byte)| *byte == first);
    let mut rests = starts.filter_map(|(at, _)| bytes.get(at..));
    rests.any(|rest| rest.starts_with(part))
}

#[cfg(test)]
mod tests {
    use stafett_model::{BatchBuilder, Codec, Record, records};

    use super::*;

    fn record(key: &str, value: &str) -> StoredRecord {
        let headers: [(&[u8], Option<&[u8]>); 3] = [(b"a", Some(b"0")), (b"a", Some(b"1")), (b"b", None)];
        let record = Record {
            key: Some(key.as_bytes()),
            value: Some(value.as_bytes()),
            headers: &headers,
            timestamp: 0,
        };
        let mut batch = BatchBuilder::new(Codec::None);
        batch.push(&record).unwrap();
        let batch = batch.finish().unwrap();
        records(&batch, 1000).unwrap().next().unwrap().unwrap()
    }

    #[test]
    fn all_conditions_hold() {
        let record = record("order-7", r#"{"a": {"b": "x"}, "n": 7, "t": "needle"}"#);
        for (query, expected) in [
            ("", true),
            ("key=order-7", true),
            ("key=order", false),
            ("key_prefix=order", true),
            ("key_prefix=x", false),
            ("contains=nee", true),
            ("contains=needles", false),
            ("contains=", true),
            ("header.a=1", true),
            ("header.a=0", false),
            ("header.b=", false),
            ("field.a.b=x", true),
            ("field.n=7", true),
            ("field.n=8", false),
            ("field.a.c=x", false),
            ("field.n=7&key=order-7&contains=zzz", false),
        ] {
            let names = ["key", "key_prefix", "contains", "header.", "field."];
            let query_read = Query::strict(Some(query), &names).unwrap();
            assert_eq!(
                Choice::of(&query_read).unwrap().wants(&record),
                expected,
                "{query}"
            );
        }
        let bad = Query::strict(Some("field.a..b=1"), &["field."]).unwrap();
        assert!(Choice::of(&bad).is_err());
    }
}
