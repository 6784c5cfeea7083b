//! Fields of commands in the query of a request: the same values as in JSON, without the quotes of texts.

use serde_json::Value;
use serde_json::value::RawValue;
use stafett_http::Query;
use stafett_live_topics::{ClientName, StartFrom};

use crate::command::{self, Bounds, PageWanted, PresenceOf};
use crate::fault::Fault;

/// Reads the client. An id is a number if it looks like one and is not in quotes.
pub(crate) fn client(query: &Query) -> Result<ClientName, Fault> {
    let text = query.get("client_id").ok_or(Fault::Missing("client_id"))?;
    command::client_of(&number_or_text(text)?)
}

pub(crate) fn from(query: &Query) -> Result<StartFrom, Fault> {
    match query.get("from") {
        Some(text) => command::from_of(&number_or_text(text)?),
        None => Ok(StartFrom::default()),
    }
}

pub(crate) fn page(query: &Query) -> Result<PageWanted, Fault> {
    PageWanted::new(query.get("from"), query.get("count"))
}

pub(crate) fn presence_of(query: &Query, bounds: Bounds) -> Result<PresenceOf<'_>, Fault> {
    let text = |key| query.get(key).map(Into::into);
    PresenceOf::new(text("topic"), text("pattern"), query.get("of"), bounds)
}

/// Returns JSON numbers and JSON texts unchanged, and anything else as a JSON text.
fn number_or_text(value: &str) -> Result<Box<RawValue>, Fault> {
    let begins_so = |json: &str| json.starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit());
    let json = match serde_json::from_str::<&RawValue>(value) {
        Ok(raw) if begins_so(raw.get()) => raw.get().to_owned(),
        _ => Value::from(value).to_string(),
    };
    RawValue::from_string(json).map_err(|error| Fault::NotJson(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &[&str] = &["client_id", "topic", "pattern", "of", "from", "count"];
    const BOUNDS: Bounds = Bounds {
        topic_bytes_max: 10,
        outbox_bytes_max: 0,
    };

    fn read(text: &str) -> Query {
        Query::lenient(Some(text), KEYS).unwrap()
    }

    #[test]
    fn a_query_has_the_values_of_a_command() {
        let query = read("topic=a%20b&from=7&other=1&count=2");
        let page = page(&query).unwrap();
        assert_eq!((page.from, page.count), (7, 2));
        let of = presence_of(&query, BOUNDS).unwrap();
        assert!(matches!(of, PresenceOf::Topic(topic) if topic == "a b"));
        assert_eq!(client(&query).unwrap_err(), Fault::Missing("client_id"));
    }

    #[test]
    fn a_value_that_makes_no_sense_is_named() {
        for (text, key) in [
            ("topic=a&of=topics", "'topic' and 'of'"),
            ("of=all", "Key 'of'"),
            ("topic=12345678901", "Key 'topic'"),
            ("pattern=%5C", "Key 'pattern'"),
        ] {
            let fault = presence_of(&read(text), BOUNDS).unwrap_err().to_string();
            assert!(fault.contains(key), "{fault}");
        }
        for text in ["count=0", "count=10001", "count=x", "from=-1"] {
            assert!(page(&read(text)).is_err(), "{text}");
        }
        let malformed = Query::lenient(Some("client_id=%ff"), KEYS)
            .map_err(Fault::from)
            .unwrap_err();
        assert_eq!(
            (malformed.kind(), malformed.to_string().contains("client_id")),
            ("bad_state", true)
        );
    }

    #[test]
    fn numbers_stay_as_they_are_written() {
        for (value, expected) in [
            ("7", "7"),
            ("\"7\"", "\"7\""),
            ("me", "\"me\""),
            ("1.0", "1.0"),
            ("true", "\"true\""),
            ("[1]", "\"[1]\""),
            ("99999999999999999999", "99999999999999999999"),
        ] {
            assert_eq!(number_or_text(value).unwrap().get(), expected);
        }
    }
}
