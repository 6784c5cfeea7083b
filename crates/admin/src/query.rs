//! Query of a request: percent-encoded keys and values. An unknown key is refused, because ignoring it would
//! lose its effect.

use axum::http::StatusCode;
use stafett_model::Namespace;

use crate::{Refusal, refuse};

/// Prefix of keys that name a message header.
const HEADER: &str = "header.";

/// Key-value pairs of a query.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query whose keys must be `known`. If `header.` is among these, keys that begin with it are
    /// accepted.
    pub(crate) fn read(text: Option<String>, known: &[&str]) -> Result<Self, Refusal> {
        let mut pairs = Vec::new();
        let text = text.unwrap_or_default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(key), Some(value)) = (decoded(key), decoded(value)) else {
                return Err(bad(format!("{pair} is not percent-encoded UTF-8")));
            };
            let is_known = |known: &&str| *known == key || (*known == HEADER && key.starts_with(HEADER));
            if !known.iter().any(is_known) {
                return Err(bad(format!("{key} is not known; expected {}", known.join(", "))));
            }
            if pairs.iter().any(|(before, _)| *before == key) {
                return Err(bad(format!("{key} is said twice")));
            }
            pairs.push((key, value));
        }
        Ok(Self(pairs))
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == key);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn wanted(&self, key: &str) -> Result<&str, Refusal> {
        self.get(key)
            .filter(|value| !value.is_empty())
            .ok_or_else(|| bad(format!("{key}=… is missing")))
    }

    /// Returns the given namespace, or the default one.
    pub(crate) fn namespace(&self) -> Namespace {
        self.get("namespace")
            .map_or_else(Namespace::default, Namespace::new)
    }

    /// Returns the given number, at most `max`. `None` if the key is absent.
    pub(crate) fn number(&self, key: &str, max: u64) -> Result<Option<u64>, Refusal> {
        let Some(text) = self.get(key) else {
            return Ok(None);
        };
        match text.parse() {
            Ok(number) if number <= max => Ok(Some(number)),
            _ => Err(bad(format!("{key} is a number of at most {max}, not {text:?}"))),
        }
    }

    pub(crate) fn flag(&self, key: &str) -> Result<bool, Refusal> {
        match self.get(key) {
            None | Some("false") => Ok(false),
            Some("true" | "") => Ok(true),
            Some(other) => Err(bad(format!("{key} is true or false, not {other:?}"))),
        }
    }

    /// Returns the names and values of headers that messages must have.
    pub(crate) fn headers(&self) -> Vec<(String, String)> {
        let pairs = self.0.iter();
        let of_headers = pairs.filter_map(|(key, value)| Some((key.strip_prefix(HEADER)?, value)));
        of_headers
            .map(|(name, value)| (name.to_owned(), value.clone()))
            .collect()
    }
}

fn bad(why: String) -> Refusal {
    refuse(StatusCode::BAD_REQUEST, why)
}

/// Undoes percent-encoding. `None` if it is malformed.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
                u8::try_from(high * 16 + low).ok()?
            }
            plain => plain,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Query, String> {
        let known = ["namespace", "queue", "count", "if_empty", HEADER];
        Query::read(Some(text.to_owned()), &known).map_err(|(_, why)| why)
    }

    #[test]
    fn what_is_said_is_read_and_what_makes_no_sense_is_named() {
        let query = read("namespace=a%2Fb&queue=my+queue&count=7&header.user-id=me&if_empty").unwrap();
        assert_eq!(query.namespace().as_str(), "a/b");
        assert_eq!(query.wanted("queue").unwrap(), "my queue");
        assert_eq!(query.number("count", 7), Ok(Some(7)));
        assert!(query.number("count", 6).is_err() && query.flag("queue").is_err());
        assert!(query.flag("if_empty").unwrap() && !query.flag("if_unused").unwrap());
        assert_eq!(query.headers(), [("user-id".to_owned(), "me".to_owned())]);
        assert_eq!(read("").unwrap().namespace().as_str(), "/");
        for bad in ["queue=%", "queue=%ff", "queu=q", "queue=a&queue=b"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(read("queue=").unwrap().wanted("queue").is_err());
    }
}
