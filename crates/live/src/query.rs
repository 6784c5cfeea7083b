//! Parameters after the `?` of a request: percent-encoded pairs of key and value.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::fault::Fault;

/// Undoes percent-encoding. `None` if it is malformed.
pub fn decoded(text: &str) -> Option<String> {
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

/// Visits the pairs with known keys; other pairs are ignored.
pub fn each(
    query: &str,
    known: &[&'static str],
    mut visit: impl FnMut(&'static str, String) -> Result<(), Fault>,
) -> Result<(), Fault> {
    for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        let Some(key) = known.iter().find(|known| **known == key).copied() else {
            continue;
        };
        let expected = "percent-encoded UTF-8";
        let value = decoded(value).ok_or(Fault::Value { key, expected })?;
        visit(key, value)?;
    }
    Ok(())
}

/// Returns JSON numbers and JSON texts unchanged, and anything else as a JSON text.
pub fn number_or_text(value: String) -> Result<Box<RawValue>, Fault> {
    let json = match serde_json::from_str::<&RawValue>(&value) {
        Ok(raw)
            if raw
                .get()
                .starts_with(|first: char| first == '"' || first == '-' || first.is_ascii_digit()) =>
        {
            raw.get().to_owned()
        }
        _ => Value::from(value).to_string(),
    };
    RawValue::from_string(json).map_err(|error| Fault::NotJson(error.to_string()))
}

/// Builds the JSON of a command from a query, so that there is one parser for both.
pub fn command(name: &str, query: &str) -> Result<String, Fault> {
    let mut fields: BTreeMap<&str, Box<RawValue>> = BTreeMap::new();
    fields.insert("command", text(name)?);
    if name == "presence" {
        // `presence` is the same for all clients.
        fields.insert("client_id", text("")?);
    }
    let known = ["client_id", "topic", "pattern", "of", "from", "count"];
    each(query, &known, |key, value| {
        let value = match key {
            "client_id" | "from" | "count" => number_or_text(value)?,
            _ => text(&value)?,
        };
        fields.insert(key, value);
        Ok(())
    })?;
    serde_json::to_string(&fields).map_err(|error| Fault::NotJson(error.to_string()))
}

fn text(value: &str) -> Result<Box<RawValue>, Fault> {
    RawValue::from_string(Value::from(value).to_string()).map_err(|error| Fault::NotJson(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_becomes_a_command() {
        let text = command("presence", "topic=a%20b&of=x&from=7&other=1&count=2").unwrap();
        let fields: Value = serde_json::from_str(&text).unwrap();
        let expected = serde_json::json!({
            "command": "presence", "client_id": "", "topic": "a b", "of": "x", "from": 7, "count": 2
        });
        assert_eq!(fields, expected);
        assert!(command("list", "client_id=%ff").is_err());
        assert!(!command("list", "").unwrap().contains("client_id"));
    }

    #[test]
    fn numbers_stay_as_they_are_written() {
        for (value, expected) in [
            ("7", "7"),
            ("%227%22", "\"7\""),
            ("me", "\"me\""),
            ("1.0", "1.0"),
            ("true", "\"true\""),
            ("[1]", "\"[1]\""),
            ("99999999999999999999", "99999999999999999999"),
        ] {
            let found = number_or_text(decoded(value).unwrap()).unwrap();
            assert_eq!(found.get(), expected);
        }
    }
}
