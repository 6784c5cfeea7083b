//! Fields of a record's value, each as the JSON text that came: nothing is parsed that no column asks for.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use stafett_expr::Name;

/// Top-level fields of a JSON object, in order. Of fields with one name the last counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Document<'a> {
    pub(crate) fields: Vec<Field<'a>>,
}

/// Name and JSON text.
#[derive(Debug, Clone)]
pub(crate) struct Field<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) json: Cow<'a, str>,
}

/// Maximum bytes of JSON that an error cites.
const CITED_BYTES: usize = 60;

impl<'a> Document<'a> {
    /// Reads an object. The error says why it is none.
    pub(crate) fn parse(text: &'a str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|why| {
            if why.is_data() {
                format!("{} is no JSON object", cited(text))
            } else {
                format!("not JSON: {why}")
            }
        })
    }

    /// Returns the JSON text of a field.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let field = self.fields.iter().rev().find(|field| field.name == name)?;
        Some(&field.json)
    }

    /// Returns the JSON text at a path.
    pub(crate) fn at(&self, path: &[String]) -> Option<Cow<'_, str>> {
        let (first, rest) = path.split_first()?;
        let json = self.get(first)?;
        if rest.is_empty() {
            return Some(Cow::Borrowed(json));
        }
        let inner = Document::parse(json).ok()?;
        inner.at(rest).map(|found| Cow::Owned(found.into_owned()))
    }

    /// Replaces a field, or adds it at the end.
    pub(crate) fn set(&mut self, name: impl Into<String>, json: String) {
        self.put(Field {
            name: Cow::Owned(name.into()),
            json: Cow::Owned(json),
        });
    }

    /// Adds a field at the end, in place of those of its name.
    pub(crate) fn put(&mut self, field: Field<'a>) {
        self.fields.retain(|one| one.name != field.name);
        self.fields.push(field);
    }

    /// Writes the document as one line of JSON.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        write_object(out, self.fields.iter().map(|field| (&*field.name, &*field.json)));
    }
}

/// Writes an object of fields whose values are JSON texts, in one line.
pub(crate) fn write_object<'a>(out: &mut Vec<u8>, fields: impl Iterator<Item = (&'a str, &'a str)>) {
    out.push(b'{');
    for (place, (name, json)) in fields.enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write_string(out, name);
        out.push(b':');
        write_line(out, json);
    }
    out.push(b'}');
}

/// Writes a text as a JSON string.
pub(crate) fn write_string(out: &mut Vec<u8>, text: &str) {
    // Writing to a vector does not fail.
    let _ = serde_json::to_writer(&mut *out, text);
}

/// Writes JSON text without line ends; between tokens, they mean nothing, and within strings there are none.
pub(crate) fn write_line(out: &mut Vec<u8>, json: &str) {
    if json.bytes().any(|byte| byte == b'\n' || byte == b'\r') {
        out.extend(json.bytes().map(|byte| match byte {
            b'\n' | b'\r' => b' ',
            other => other,
        }));
    } else {
        out.extend_from_slice(json.as_bytes());
    }
}

/// Returns the beginning of a text, for errors.
pub(crate) fn cited(text: &str) -> String {
    if text.len() <= CITED_BYTES {
        return text.to_owned();
    }
    let end = (0..=CITED_BYTES)
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(0);
    format!("{}…", text.get(..end).unwrap_or_default())
}

impl<'de> Deserialize<'de> for Document<'de> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_map(DocumentVisitor)
    }
}

struct DocumentVisitor;

impl<'de> Visitor<'de> for DocumentVisitor {
    type Value = Document<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::with_capacity(16);
        while let Some((Name(name), json)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
            let json = Cow::Borrowed(json.get());
            fields.push(Field { name, json });
        }
        Ok(Document { fields })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_the_text_that_came() {
        let document =
            Document::parse(r#" {"a": 1.50, "b":{"c" : [1, {}]}, "d\n":null, "a": 2e3} "#).unwrap();
        let fields: Vec<_> = document
            .fields
            .iter()
            .map(|field| (&*field.name, &*field.json))
            .collect();
        let expected = [
            ("a", "1.50"),
            ("b", r#"{"c" : [1, {}]}"#),
            ("d\n", "null"),
            ("a", "2e3"),
        ];
        assert_eq!(fields, expected);
        assert_eq!(document.get("a"), Some("2e3"), "the last one counts");
        let path = ["b".to_owned(), "c".to_owned()];
        assert_eq!(document.at(&path).as_deref(), Some("[1, {}]"));
        assert_eq!(document.at(&["b".to_owned(), "x".to_owned()]), None);
    }

    #[test]
    fn other_values_and_broken_ones_are_told_apart() {
        for (text, why) in [
            ("[1]", "[1] is no JSON object"),
            ("3", "3 is no JSON object"),
            (
                "{\"a\":",
                "not JSON: EOF while parsing a value at line 1 column 5",
            ),
            ("{\"a\":NaN}", "not JSON: expected value at line 1 column 6"),
        ] {
            assert_eq!(Document::parse(text).unwrap_err(), why, "{text}");
        }
    }

    #[test]
    fn depth_is_no_danger() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(Document::parse(&deep).unwrap().fields.len(), 1);
    }

    #[test]
    fn a_line_has_no_line_ends() {
        let document = Document::parse("{\n  \"a\": [\r\n 1],\n \"b\": \"x\\ny\"\n}").unwrap();
        let mut line = Vec::new();
        document.write(&mut line);
        assert_eq!(line, br#"{"a":[   1],"b":"x\ny"}"#);
    }
}
