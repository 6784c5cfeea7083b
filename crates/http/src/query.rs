//! Query of a request: percent-encoded keys and values.

use std::fmt::Display;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::problem::Problem;

/// Bytes that are encoded: all but the unreserved ones of RFC 3986.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Key-value pairs of a query, in their order. A handler takes it as an argument: a route refuses keys that
/// it does not describe ([`crate::api`]).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query whose keys must be `known`, each at most once: ignoring others would lose their effect.
    /// A known key that ends with a dot stands for all keys that begin with it.
    pub fn strict(text: Option<&str>, known: &[&str]) -> Result<Self, Problem> {
        Self::strict_but(text, known, &[])
    }

    /// Reads a query like [`Self::strict`], in which some keys may be `repeated`.
    pub fn strict_but(text: Option<&str>, known: &[&str], repeated: &[&str]) -> Result<Self, Problem> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for (key, value) in split(text) {
            let key = key.ok_or_else(|| malformed("a key"))?;
            if !known.iter().any(|known| is_key(known, &key)) {
                return Err(Problem::unknown_field(&key, known));
            }
            let is_repeated = || pairs.iter().any(|(before, _)| *before == key);
            if !repeated.contains(&key.as_str()) && is_repeated() {
                return Err(Problem::bad_request(format!("{key} is said twice")));
            }
            let value = value.ok_or_else(|| malformed(&key))?;
            pairs.push((key, value));
        }
        Ok(Self(pairs))
    }

    /// Reads the `known` keys of a query, which may be repeated, and skips others.
    pub fn lenient(text: Option<&str>, known: &[&str]) -> Result<Self, Problem> {
        let pairs = split(text).filter_map(|(key, value)| {
            let key = key.filter(|key| known.iter().any(|known| is_key(known, key)))?;
            Some(value.ok_or_else(|| malformed(&key)).map(|value| (key, value)))
        });
        Ok(Self(pairs.collect::<Result<_, _>>()?))
    }

    /// Iterates over the pairs.
    pub fn pairs(&self) -> impl DoubleEndedIterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Returns the value of a key; the last one if it is repeated.
    pub fn get(&self, key: &str) -> Option<&str> {
        let mut pairs = self.pairs();
        pairs.rfind(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// Returns a value that must be present and not empty.
    pub fn wanted(&self, key: &str) -> Result<&str, Problem> {
        self.get(key)
            .filter(|value| !value.is_empty())
            .ok_or_else(|| Problem::bad_request(format!("{key}=… is missing")))
    }

    /// Returns the given number, at most `max`. `None` if the key is absent.
    pub fn number(&self, key: &str, max: u64) -> Result<Option<u64>, Problem> {
        let Some(text) = self.get(key) else {
            return Ok(None);
        };
        let number = text.parse().ok().filter(|number| *number <= max);
        let why = || format!("{key} is a number of at most {max}, not {text:?}");
        number.map(Some).ok_or_else(|| Problem::bad_request(why()))
    }

    /// Returns the given duration, at most `max`: `500ms`, `20s`, `5m`, `1h`, or a number of milliseconds.
    pub fn duration(&self, key: &str, max: Duration) -> Result<Option<Duration>, Problem> {
        let Some(text) = self.get(key) else {
            return Ok(None);
        };
        let why = || format!("{key} is a duration such as 20s, of at most {max:?}, not {text:?}");
        let duration = duration(text).filter(|duration| *duration <= max);
        duration.map(Some).ok_or_else(|| Problem::bad_request(why()))
    }

    pub fn flag(&self, key: &str) -> Result<bool, Problem> {
        match self.get(key) {
            None | Some("false") => Ok(false),
            Some("true" | "") => Ok(true),
            Some(other) => Err(Problem::bad_request(format!(
                "{key} is true or false, not {other:?}"
            ))),
        }
    }
}

/// Reads a duration: `500ms`, `20s`, `5m`, `1h`, or a number of milliseconds.
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    let end = text
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let factor = match unit {
        "" | "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(factor).map(Duration::from_millis)
}

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // A route without a description knows no keys.
        match parts.extensions.remove() {
            Some(query) => Ok(query),
            None => Self::strict(parts.uri.query(), &[]),
        }
    }
}

/// Splits a query into pairs and decodes them. `None` if a part is malformed.
fn split(text: Option<&str>) -> impl Iterator<Item = (Option<String>, Option<String>)> {
    let decoded = |text: &str| decoded(&text.replace('+', " "));
    let pairs = text
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty());
    pairs.map(move |pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(key), decoded(value))
    })
}

fn is_key(known: &str, key: &str) -> bool {
    known == key || known.ends_with('.') && key.starts_with(known)
}

fn malformed(key: &str) -> Problem {
    Problem::bad_request(format!("{key}: expected percent-encoded UTF-8"))
}

/// Undoes percent-encoding (RFC 3986). `None` if it is malformed.
#[must_use]
pub fn decoded(text: &str) -> Option<String> {
    // The library leaves a malformed escape as it is.
    let is_escape = |rest: &str| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(is_escape) {
        return None;
    }
    let text = percent_decode_str(text).decode_utf8().ok()?;
    Some(text.into_owned())
}

/// Encodes a key or a value for a query.
pub fn encoded(text: &str) -> impl Display + '_ {
    utf8_percent_encode(text, ENCODED)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["queue", "count", "if_empty", "header."];

    fn strict(text: &str) -> Result<Query, &'static str> {
        Query::strict(Some(text), KNOWN).map_err(|problem| problem.code.word())
    }

    #[test]
    fn keys_and_values_are_decoded() {
        let query = strict("queue=my+%C3%A9%2Fqueue&count=7&header.user-id=me&if_empty").unwrap();
        assert_eq!(query.wanted("queue").unwrap(), "my é/queue");
        assert_eq!(query.number("count", 7), Ok(Some(7)));
        assert!(query.flag("if_empty").unwrap() && !query.flag("if_unused").unwrap());
        assert_eq!(query.get("header.user-id"), Some("me"));
        assert_eq!(query.pairs().count(), 4);
        assert_eq!(Query::strict(None, KNOWN).unwrap().get("queue"), None);
    }

    #[test]
    fn a_strict_query_names_the_key_that_makes_no_sense() {
        for (text, code, key) in [
            ("queue=%", "bad_request", "queue: "),
            ("queue=%ff", "bad_request", "queue: "),
            ("%ff=1", "bad_request", "a key: "),
            ("queue=a&queue=b", "bad_request", "queue is said twice"),
            ("queu=q", "unknown_field", "queu is not known"),
            ("header=q", "unknown_field", "header is not known"),
        ] {
            let problem = Query::strict(Some(text), KNOWN).unwrap_err();
            assert_eq!(problem.code.word(), code, "{text}");
            assert!(problem.detail.starts_with(key), "{}", problem.detail);
        }
        let query = strict("queue=&count=7&if_empty=7").unwrap();
        for problem in [
            query.wanted("queue").unwrap_err(),
            query.number("count", 6).unwrap_err(),
            query.flag("if_empty").unwrap_err(),
        ] {
            assert_eq!(problem.code.word(), "bad_request");
        }
    }

    #[test]
    fn durations_have_units_and_bounds() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1500", Some(1500)),
            ("500ms", Some(500)),
            ("20s", Some(20_000)),
            ("1m", Some(60_000)),
            ("61s", None),
            ("1h", None),
            ("1d", None),
            ("-1s", None),
            ("1.5s", None),
            ("s", None),
            ("", None),
            ("18446744073709551615h", None),
        ] {
            let query = Query::lenient(Some(&format!("wait={text}")), &["wait"]).unwrap();
            let read = query.duration("wait", Duration::from_mins(1));
            assert_eq!(
                read.ok(),
                expected.map(|ms| Some(Duration::from_millis(ms))),
                "{text}"
            );
        }
    }

    #[test]
    fn a_lenient_query_skips_other_keys_and_may_repeat_its_own() {
        let read = |text| Query::lenient(Some(text), &["topic"]);
        let query = read("topic=a&other=%&topic=b&topi=c&%=d").unwrap();
        let pairs: Vec<_> = query.pairs().collect();
        assert_eq!(pairs, [("topic", "a"), ("topic", "b")]);
        assert_eq!(query.get("topic"), Some("b"));
        let problem = read("topic=%zz").unwrap_err();
        assert_eq!(problem.detail, "topic: expected percent-encoded UTF-8");
    }

    #[test]
    fn percent_encoding_is_undone_or_refused() {
        assert_eq!(decoded("/a%20b+/%C3%A9").as_deref(), Some("/a b+/é"));
        for bad in ["%", "%2", "%zz", "%ff", "%+1", "%é"] {
            assert_eq!(decoded(bad), None, "{bad}");
        }
        for text in ["a/b c&d", "jürgen", "+%", "-._~"] {
            let encoded = encoded(text).to_string();
            assert_eq!(decoded(&encoded).as_deref(), Some(text), "{encoded}");
        }
        assert_eq!(encoded("a/b -._~").to_string(), "a%2Fb%20-._~");
    }
}
