//! Parses a line: key, value, headers, partition and timestamp.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem;
use serde_json::Value;

use crate::client::position;

/// Timestamp of a record without a time.
const NO_TIMESTAMP: i64 = -1;

/// Format of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Line,
    Base64,
    Json,
}

/// A header given as text.
pub(super) type TextHeader = (String, String);

/// Rules for making a record from a line.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) format: Format,
    pub(super) key: Option<Vec<u8>>,
    pub(super) key_separator: Option<Vec<u8>>,
    pub(super) headers: Vec<TextHeader>,
    pub(super) headers_separator: Option<Vec<u8>>,
    pub(super) null: Option<Vec<u8>>,
}

/// Key and value of a header.
pub(super) type Header<'a> = (Cow<'a, [u8]>, Option<Cow<'a, [u8]>>);

/// A parsed record. Bytes are copied only if they have to be decoded.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parsed<'a> {
    pub(super) key: Option<Cow<'a, [u8]>>,
    pub(super) value: Option<Cow<'a, [u8]>>,
    pub(super) headers: Vec<Header<'a>>,
    pub(super) partition: Option<i32>,
    pub(super) timestamp: Option<i64>,
}

/// Parses `KEY=VALUE`.
pub(super) fn read_header(text: &str) -> Result<TextHeader, String> {
    text.split_once('=')
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .ok_or_else(|| "expected KEY=VALUE".to_owned())
}

impl Shape {
    /// Parses a line. The error says why it is invalid.
    pub(super) fn parse<'a>(&'a self, line: &'a [u8]) -> Result<Parsed<'a>, String> {
        let mut parsed = match self.format {
            Format::Json => parse_json(line)?,
            Format::Line | Format::Base64 => self.parse_parts(line)?,
        };
        if parsed.key.is_none() {
            parsed.key = self.key.as_deref().map(Cow::Borrowed);
        }
        for (key, value) in &self.headers {
            parsed.headers.push((
                Cow::Borrowed(key.as_bytes()),
                Some(Cow::Borrowed(value.as_bytes())),
            ));
        }
        Ok(parsed)
    }

    fn parse_parts<'a>(&'a self, line: &'a [u8]) -> Result<Parsed<'a>, String> {
        let mut parsed = Parsed::default();
        let mut rest = line;
        if let Some(separator) = &self.headers_separator {
            let (headers, behind) = cut(rest, separator).ok_or("there is no separator behind the headers")?;
            parsed.headers = parse_headers(headers)?;
            rest = behind;
        }
        if let Some(separator) = &self.key_separator {
            let (key, value) = cut(rest, separator).ok_or("there is no separator between key and value")?;
            parsed.key = self.content(key)?;
            rest = value;
        }
        parsed.value = self.content(rest)?;
        Ok(parsed)
    }

    fn content<'a>(&self, text: &'a [u8]) -> Result<Option<Cow<'a, [u8]>>, String> {
        if self.null.as_deref() == Some(text) {
            return Ok(None);
        }
        Ok(Some(if self.format == Format::Base64 {
            Cow::Owned(decode(text)?)
        } else {
            Cow::Borrowed(text)
        }))
    }
}

fn cut<'a>(line: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = memmem::find(line, separator)?;
    Some((line.get(..at)?, line.get(at + separator.len()..)?))
}

fn parse_headers(text: &[u8]) -> Result<Vec<Header<'_>>, String> {
    let parts = text.split(|byte| *byte == b',').filter(|part| !part.is_empty());
    let header = |part| {
        let (key, value) = cut(part, b"=").ok_or("a header is not KEY=VALUE")?;
        Ok((Cow::Borrowed(key), Some(Cow::Borrowed(value))))
    };
    parts.map(header).collect()
}

fn decode(text: &[u8]) -> Result<Vec<u8>, String> {
    STANDARD
        .decode(text)
        .map_err(|error| format!("it is not Base64: {error}"))
}

fn parse_json(line: &[u8]) -> Result<Parsed<'static>, String> {
    let value: Value = serde_json::from_slice(line).map_err(|error| format!("it is not JSON: {error}"))?;
    let Value::Object(mut object) = value else {
        return Err("it is not a JSON object".to_owned());
    };
    // Any other object would silently become an empty record.
    if !["key", "value", "key_base64", "value_base64"]
        .iter()
        .any(|name| object.contains_key(*name))
    {
        return Err("it has neither key nor value: expected {\"key\":…,\"value\":…}".to_owned());
    }
    let mut parsed = Parsed {
        key: json_content(object.remove("key"), object.remove("key_base64"))?,
        value: json_content(object.remove("value"), object.remove("value_base64"))?,
        ..Parsed::default()
    };
    if let Some(partition) = object.remove("partition") {
        let number = partition.as_i64().and_then(|number| i32::try_from(number).ok());
        parsed.partition = Some(number.ok_or("its partition is not a number")?);
    }
    parsed.timestamp = match object.remove("timestamp") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => {
            let time = position::time(&text, position::now());
            Some(time.ok_or("its timestamp is not a time")?)
        }
        // `consume` prints it for a record without a time.
        Some(other) if other.as_i64() == Some(NO_TIMESTAMP) => None,
        Some(other) => Some(other.as_i64().ok_or("its timestamp is not a time")?),
    };
    parsed.headers = match object.remove("headers") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Object(map)) => {
            let header = |(key, value): (String, Value)| Ok((own(key), json_content(Some(value), None)?));
            map.into_iter().map(header).collect::<Result<_, String>>()?
        }
        Some(Value::Array(list)) => list.into_iter().map(json_header).collect::<Result<_, String>>()?,
        Some(_) => return Err("its headers are neither a list nor an object".to_owned()),
    };
    Ok(parsed)
}

fn own(text: String) -> Cow<'static, [u8]> {
    Cow::Owned(text.into_bytes())
}

fn json_header(header: Value) -> Result<Header<'static>, String> {
    let Value::Object(mut header) = header else {
        return Err("a header is not an object with key and value".to_owned());
    };
    let key = json_content(header.remove("key"), header.remove("key_base64"))?;
    let value = json_content(header.remove("value"), header.remove("value_base64"))?;
    Ok((key.ok_or("a header has no key")?, value))
}

/// Returns text unchanged, and other values as JSON.
fn json_content(plain: Option<Value>, base64: Option<Value>) -> Result<Option<Cow<'static, [u8]>>, String> {
    if let Some(Value::String(text)) = base64 {
        return Ok(Some(Cow::Owned(decode(text.as_bytes())?)));
    }
    Ok(match plain {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(own(text)),
        Some(other) => Some(own(other.to_string())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(format: Format) -> Shape {
        Shape {
            format,
            key: None,
            key_separator: None,
            headers: Vec::new(),
            headers_separator: None,
            null: None,
        }
    }

    fn shown(parsed: &Parsed<'_>) -> String {
        let text = |part: &Option<Cow<'_, [u8]>>| {
            part.as_ref().map_or_else(
                || "-".to_owned(),
                |bytes| String::from_utf8_lossy(bytes).into_owned(),
            )
        };
        let headers: Vec<_> = parsed
            .headers
            .iter()
            .map(|(key, value)| format!("{}={}", String::from_utf8_lossy(key), text(value)))
            .collect();
        format!(
            "{}|{}|{}",
            text(&parsed.key),
            text(&parsed.value),
            headers.join(",")
        )
    }

    #[test]
    fn a_line_is_cut_at_its_first_separators() {
        let shape = Shape {
            key_separator: Some(b":".to_vec()),
            headers_separator: Some(b"\t".to_vec()),
            headers: vec![("app".into(), "x".into())],
            null: Some(b"NULL".to_vec()),
            ..shape(Format::Line)
        };
        let parse = |line: &'static str| shape.parse(line.as_bytes()).map(|parsed| shown(&parsed));
        assert_eq!(parse("a=1,b=2=3\tk:v:w\t").unwrap(), "k|v:w\t|a=1,b=2=3,app=x");
        assert_eq!(parse("\tNULL:NULL").unwrap(), "-|-|app=x");
        assert_eq!(
            parse("k:v").unwrap_err(),
            "there is no separator behind the headers"
        );
        assert_eq!(
            parse("\tkv").unwrap_err(),
            "there is no separator between key and value"
        );
        assert_eq!(parse("a\tk:v").unwrap_err(), "a header is not KEY=VALUE");
    }

    #[test]
    fn a_key_of_all_records_is_taken_where_the_line_has_none() {
        let shape = Shape {
            key: Some(b"all".to_vec()),
            ..shape(Format::Base64)
        };
        assert_eq!(shown(&shape.parse(b"aGVsbG8=").unwrap()), "all|hello|");
        assert!(
            shape
                .parse(b"hello!")
                .unwrap_err()
                .starts_with("it is not Base64")
        );
    }

    #[test]
    fn json_is_what_consume_prints() {
        let shape = shape(Format::Json);
        let line = br#"{"topic":"t","partition":2,"offset":9,"timestamp":5,"key":null,"value_base64":"/w==",
            "headers":[{"key":"a","value":"b"},{"key":"n","value":null}]}"#;
        let parsed = shape.parse(line).unwrap();
        assert_eq!(
            (parsed.partition, parsed.timestamp, parsed.value.as_deref()),
            (Some(2), Some(5), Some(&[0xff][..]))
        );
        assert_eq!(parsed.headers.len(), 2);
        for (time, read) in [
            ("-1", None),
            ("-2", Some(-2)),
            ("null", None),
            ("\"1969-12-31\"", Some(-86_400_000)),
        ] {
            let line = format!("{{\"value\":\"v\",\"timestamp\":{time}}}");
            assert_eq!(shape.parse(line.as_bytes()).unwrap().timestamp, read, "{time}");
        }
        let parsed = shape.parse(br#"{"value":{"n":1},"headers":{"a":"b"}}"#).unwrap();
        assert_eq!(shown(&parsed), "-|{\"n\":1}|a=b");
        for bad in [
            "",
            "[]",
            "{\"a\":1}",
            "{\"partition\":\"x\"}",
            "{\"value\":\"v\",\"timestamp\":1.5}",
            "{\"headers\":7}",
            "{\"headers\":[1]}",
            "{\"headers\":[{}]}",
            "{\"key_base64\":\"?\"}",
        ] {
            assert!(shape.parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
