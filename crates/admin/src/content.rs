//! Content of messages, in requests and in answers.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use stafett_http::Problem;

/// Content type of JSON.
pub(crate) const JSON: &str = "application/json";

/// Bytes in an answer: a text where they are UTF-8.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Text")]
pub(crate) enum Text<T = String> {
    Text(T),
    Other { base64: String },
}

impl Text {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        match Text::borrowed(bytes) {
            Text::Text(text) => Self::Text(text.to_owned()),
            Text::Other { base64 } => Self::Other { base64 },
        }
    }
}

impl<'a> Text<&'a str> {
    pub(crate) fn borrowed(bytes: &'a [u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(_) => Self::Other {
                base64: STANDARD.encode(bytes),
            },
        }
    }
}

/// Form of content in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Form {
    /// JSON if the content type says so, else text if it is UTF-8, else base64.
    #[default]
    Auto,
    Text,
    Json,
    Base64,
}

impl Form {
    pub(crate) fn of(word: Option<&str>) -> Result<Self, Problem> {
        match word {
            None | Some("auto") => Ok(Self::Auto),
            Some("text") => Ok(Self::Text),
            Some("json") => Ok(Self::Json),
            Some("base64") => Ok(Self::Base64),
            Some(other) => Err(Problem::bad_request(format!(
                "as is auto, text, json or base64, not {other:?}"
            ))),
        }
    }

    /// Returns `content` and `content_base64` of an answer, one of which is null.
    pub(crate) fn show(
        self,
        bytes: &[u8],
        content_type: Option<&str>,
    ) -> (Option<Box<RawValue>>, Option<String>) {
        let text = std::str::from_utf8(bytes).ok();
        let is_json = match self {
            Self::Auto => content_type.is_some_and(|it| it.split(';').next() == Some(JSON)),
            Self::Json => true,
            Self::Text | Self::Base64 => false,
        };
        // JSON as it was stored, byte for byte.
        let json = text
            .filter(|_| is_json)
            .and_then(|text| serde_json::from_str(text).ok());
        let shown = json.or_else(|| serde_json::value::to_raw_value(text?).ok());
        match shown.filter(|_| self != Self::Base64) {
            Some(content) => (Some(content), None),
            None => (None, Some(STANDARD.encode(bytes))),
        }
    }
}

/// Value of a header in a request: numbers and truth values are stored as texts.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum HeaderValue {
    Text(String),
    Flag(bool),
    Number(serde_json::Number),
}

impl HeaderValue {
    fn into_bytes(self) -> Bytes {
        match self {
            Self::Text(text) => text.into(),
            Self::Flag(flag) => flag.to_string().into(),
            Self::Number(number) => number.to_string().into(),
        }
    }
}

/// Headers of a request. A null value is a header without a value.
pub(crate) type Headers = BTreeMap<String, Option<HeaderValue>>;

/// Converts headers. Names that begin with `stafett.` are reserved.
pub(crate) fn headers(given: Headers) -> Result<Vec<(String, Option<Bytes>)>, Problem> {
    let convert = |(name, value): (String, Option<HeaderValue>)| {
        if name.is_empty() || name.starts_with("stafett.") {
            let why = format!("headers: {name:?} is reserved; other names are the sender's");
            return Err(Problem::bad_request(why));
        }
        Ok((name, value.map(HeaderValue::into_bytes)))
    };
    given.into_iter().map(convert).collect()
}

/// Reads the content of a request: its bytes, and true if they are JSON.
pub(crate) fn read(
    content: Option<&RawValue>,
    content_base64: Option<&str>,
) -> Result<(Bytes, bool), Problem> {
    match (content, content_base64) {
        (Some(_), Some(_)) => Err(Problem::bad_request("content and content_base64 are both given")),
        (None, None) => Ok((Bytes::new(), false)),
        (None, Some(text)) => match STANDARD.decode(text) {
            Ok(bytes) => Ok((bytes.into(), false)),
            Err(why) => Err(Problem::bad_request(format!("content_base64: {why}"))),
        },
        (Some(json), None) => match serde_json::from_str::<String>(json.get()) {
            Ok(text) => Ok((text.into(), false)),
            Err(_) => Ok((Bytes::copy_from_slice(json.get().as_bytes()), true)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_text_is_stored_as_its_bytes_and_json_as_it_was_written() {
        for (json, bytes, is_json) in [
            (r#""a\n\"b""#, "a\n\"b", false),
            (r#"{"b": 1.50,  "a": 2}"#, r#"{"b": 1.50,  "a": 2}"#, true),
            ("17", "17", true),
        ] {
            let read = read(Some(&raw(json)), None).unwrap();
            assert_eq!(read, (Bytes::from(bytes), is_json), "{json}");
        }
        assert_eq!(read(None, Some("/w==")).unwrap().0.as_ref(), [0xff]);
        assert_eq!(read(None, None).unwrap().0.len(), 0);
        assert!(read(Some(&raw("1")), Some("")).is_err() && read(None, Some("?")).is_err());
    }

    #[test]
    fn an_answer_has_text_json_or_base64() {
        let show = |form: Form, bytes: &[u8], kind| {
            let (content, base64) = form.show(bytes, kind);
            content.map_or_else(|| base64.unwrap_or_default(), |content| content.get().to_owned())
        };
        let json = Some("application/json; charset=utf-8");
        for (form, bytes, kind, expected) in [
            (Form::Auto, b"a\"b".as_slice(), None, r#""a\"b""#),
            (Form::Auto, b"{\"a\": 1.50}", json, r#"{"a": 1.50}"#),
            (Form::Auto, b"{\"a\"", json, r#""{\"a\"""#),
            (Form::Text, b"7", json, r#""7""#),
            (Form::Json, b"7", None, "7"),
            (Form::Auto, b"\xff", json, "/w=="),
            (Form::Base64, b"7", None, "Nw=="),
        ] {
            assert_eq!(show(form, bytes, kind), expected);
        }
    }

    #[test]
    fn headers_are_texts_and_reserved_names_are_refused() {
        let read = |json: &str| headers(serde_json::from_str(json).unwrap());
        let all = read(r#"{"a": "x", "b": 1.5, "c": true, "d": null}"#).unwrap();
        let texts: Vec<_> = all.iter().map(|(_, value)| value.as_deref()).collect();
        assert_eq!(texts, [Some(b"x".as_slice()), Some(b"1.5"), Some(b"true"), None]);
        assert!(read(r#"{"stafett.message": "x"}"#).is_err());
    }
}
