//! BSON: documents written from cells and JSON texts, and answers read.
//!
//! ```text
//! document   length i32 · elements · 0
//! element    kind u8 · name, ends with 0 · value
//! ```

use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

pub(super) const DOUBLE: u8 = 0x01;
const TEXT: u8 = 0x02;
pub(super) const DOCUMENT: u8 = 0x03;
const ARRAY: u8 = 0x04;
const BINARY: u8 = 0x05;
pub(super) const BOOLEAN: u8 = 0x08;
const DATE: u8 = 0x09;
pub(super) const NULL: u8 = 0x0a;
const INT: u8 = 0x10;
const LONG: u8 = 0x12;
const DECIMAL: u8 = 0x13;
pub(super) const GENERIC: u8 = 0;
pub(super) const UUID: u8 = 4;
/// Levels of a document, as servers take them.
const DEPTH_MAX: usize = 100;
/// Exponent 0 of a decimal.
const BIAS: u64 = 6176;

/// Elements of a document that is being written.
#[derive(Debug)]
pub(super) struct Fields<'a>(pub(super) &'a mut Vec<u8>);

/// Writes a document.
pub(super) fn document<E>(
    out: &mut Vec<u8>,
    fill: impl FnOnce(&mut Fields<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let at = open(out);
    fill(&mut Fields(out))?;
    close(out, at);
    Ok(())
}

fn open(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[0; 4]);
    out.len() - 4
}

fn close(out: &mut Vec<u8>, at: usize) {
    out.push(0);
    patch_length(out, at);
}

/// Writes the length of the bytes from a place on, at that place.
pub(super) fn patch_length(out: &mut [u8], at: usize) {
    let length = i32::try_from(out.len() - at).unwrap_or(i32::MAX);
    if let Some(place) = out.get_mut(at..at + 4) {
        place.copy_from_slice(&length.to_le_bytes());
    }
}

impl Fields<'_> {
    fn begin(&mut self, kind: u8, name: &str) -> &mut Vec<u8> {
        self.0.push(kind);
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(0);
        self.0
    }

    pub(super) fn null(&mut self, name: &str) {
        self.begin(NULL, name);
    }

    pub(super) fn boolean(&mut self, name: &str, it: bool) {
        self.begin(BOOLEAN, name).push(it.into());
    }

    pub(super) fn long(&mut self, name: &str, it: i64) {
        self.begin(LONG, name).extend_from_slice(&it.to_le_bytes());
    }

    pub(super) fn int(&mut self, name: &str, it: i32) {
        self.begin(INT, name).extend_from_slice(&it.to_le_bytes());
    }

    pub(super) fn double(&mut self, name: &str, it: f64) {
        self.begin(DOUBLE, name).extend_from_slice(&it.to_le_bytes());
    }

    /// Milliseconds since 1970.
    pub(super) fn date(&mut self, name: &str, it: i64) {
        self.begin(DATE, name).extend_from_slice(&it.to_le_bytes());
    }

    pub(super) fn text(&mut self, name: &str, text: &str) {
        write_text(self.begin(TEXT, name), text);
    }

    pub(super) fn binary(&mut self, name: &str, subtype: u8, bytes: &[u8]) {
        let out = self.begin(BINARY, name);
        let length = i32::try_from(bytes.len()).unwrap_or(i32::MAX);
        out.extend_from_slice(&length.to_le_bytes());
        out.push(subtype);
        out.extend_from_slice(bytes);
    }

    /// Writes a decimal text of at most 34 digits.
    pub(super) fn decimal(&mut self, name: &str, text: &str) -> Result<(), String> {
        let bytes = decimal(text).ok_or_else(|| format!("{text} has too many digits"))?;
        self.begin(DECIMAL, name).extend_from_slice(&bytes);
        Ok(())
    }

    pub(super) fn document<E>(
        &mut self,
        name: &str,
        fill: impl FnOnce(&mut Fields<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        document(self.begin(DOCUMENT, name), fill)
    }

    /// Writes a JSON text.
    pub(super) fn json(&mut self, name: &str, json: &str) -> Result<(), String> {
        let kind_at = self.0.len();
        self.begin(NULL, name);
        let mut reader = serde_json::Deserializer::from_str(json);
        let value = Value {
            out: self.0,
            kind_at,
            depth: 1,
        };
        value.deserialize(&mut reader).map_err(|why| why.to_string())
    }

    /// Writes the fields of a JSON object, all but one that is the sink's own.
    pub(super) fn inline(&mut self, json: &str, own: &str) -> Result<(), String> {
        let mut reader = serde_json::Deserializer::from_str(json);
        let read = reader.deserialize_map(Inline { out: self.0, own });
        read.map_err(|why| why.to_string())
    }
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    let length = i32::try_from(text.len() + 1).unwrap_or(i32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

/// Returns a decimal of 16 bytes: sign, exponent in 14 bits, digits in 113.
fn decimal(text: &str) -> Option<[u8; 16]> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (1_u64, rest),
        None => (0, text),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    if digits >= 10_u128.pow(34) {
        return None;
    }
    let exponent = BIAS.checked_sub(u64::try_from(fraction.len()).ok()?)?;
    let head = u128::from(sign << 63 | exponent << 49) << 64;
    Some((head | digits).to_le_bytes())
}

/// A JSON value that is being written, behind its kind and name.
struct Value<'a> {
    out: &'a mut Vec<u8>,
    kind_at: usize,
    depth: usize,
}

impl Value<'_> {
    fn set(&mut self, kind: u8) {
        if let Some(place) = self.out.get_mut(self.kind_at) {
            *place = kind;
        }
    }

    fn put(mut self, kind: u8, bytes: &[u8]) {
        self.set(kind);
        self.out.extend_from_slice(bytes);
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.put(NULL, &[]);
        Ok(())
    }

    fn visit_bool<E>(self, it: bool) -> Result<(), E> {
        self.put(BOOLEAN, &[it.into()]);
        Ok(())
    }

    fn visit_i64<E>(self, it: i64) -> Result<(), E> {
        match i32::try_from(it) {
            Ok(it) => self.put(INT, &it.to_le_bytes()),
            Err(_) => self.put(LONG, &it.to_le_bytes()),
        }
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, it: u64) -> Result<(), E> {
        if let Ok(it) = i64::try_from(it) {
            return self.visit_i64(it);
        }
        self.put(DECIMAL, &decimal(&it.to_string()).unwrap_or_default());
        Ok(())
    }

    fn visit_f64<E>(self, it: f64) -> Result<(), E> {
        self.put(DOUBLE, &it.to_le_bytes());
        Ok(())
    }

    fn visit_str<E>(mut self, text: &str) -> Result<(), E> {
        self.set(TEXT);
        write_text(self.out, text);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.set(DOCUMENT);
        let depth = deeper(self.depth)?;
        let at = open(self.out);
        while write_field(self.out, &mut map, depth, None)? {}
        close(self.out, at);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        self.set(ARRAY);
        let depth = deeper(self.depth)?;
        let at = open(self.out);
        let mut name = String::new();
        for number in 0_usize.. {
            let kind_at = self.out.len();
            name.clear();
            // Writing to a string does not fail.
            let _ = write!(name, "{number}");
            Fields(self.out).null(&name);
            let value = Value {
                out: self.out,
                kind_at,
                depth,
            };
            if items.next_element_seed(value)?.is_none() {
                self.out.truncate(kind_at);
                break;
            }
        }
        close(self.out, at);
        Ok(())
    }
}

fn deeper<E: serde::de::Error>(depth: usize) -> Result<usize, E> {
    if depth >= DEPTH_MAX {
        return Err(E::custom("it is nested too deeply"));
    }
    Ok(depth + 1)
}

/// Writes the next field of an object. Returns false behind the last one.
fn write_field<'de, A: MapAccess<'de>>(
    out: &mut Vec<u8>,
    map: &mut A,
    depth: usize,
    own: Option<&str>,
) -> Result<bool, A::Error> {
    let Some(name) = map.next_key::<std::borrow::Cow<'_, str>>()? else {
        return Ok(false);
    };
    if name.contains('\0') {
        return Err(A::Error::custom("a name of a field has a zero byte"));
    }
    if own.is_some_and(|own| own == name) {
        return Err(A::Error::custom(format_args!(
            "the field {name} is that of the sink"
        )));
    }
    let kind_at = out.len();
    Fields(out).null(&name);
    map.next_value_seed(Value { out, kind_at, depth })?;
    Ok(true)
}

/// Fields of an object, within a document that is open.
struct Inline<'a> {
    out: &'a mut Vec<u8>,
    own: &'a str,
}

impl<'de> Visitor<'de> for Inline<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while write_field(self.out, &mut map, 1, Some(self.own))? {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        })
    }

    /// Documents of BSON's own corpus of examples.
    #[test]
    fn documents_are_written_as_the_specification_has_them() {
        for (json, expected) in [
            (
                r#"{"hello":"world"}"#,
                "160000000268656c6c6f0006000000776f726c640000",
            ),
            (
                r#"{"BSON":["awesome",5.05,1986]}"#,
                "310000000442534f4e002600000002300008000000617765736f6d65000131003333333333331440103200c20700000000",
            ),
            (
                r#"{"a":null,"b":true,"c":{}}"#,
                "140000000a610008620001036300050000000000",
            ),
            (r#"{"a":4294967296}"#, "10000000126100000000000100000000"),
        ] {
            let mut out = Vec::new();
            document(&mut out, |fields| fields.inline(json, "_id")).unwrap();
            assert_eq!(hex(&out), expected, "{json}");
        }
    }

    #[test]
    fn decimals_are_written_as_the_specification_has_them() {
        for (text, expected) in [
            ("0", "00000000000000000000000000004030"),
            ("1", "01000000000000000000000000004030"),
            ("-1", "010000000000000000000000000040b0"),
            ("0.1", "01000000000000000000000000003e30"),
            ("0.001234", "d2040000000000000000000000003430"),
            (
                "9999999999999999999999999999999999",
                "ffffffff638e8d37c087adbe09ed4130",
            ),
        ] {
            assert_eq!(hex(&decimal(text).unwrap()), expected, "{text}");
        }
        assert_eq!(decimal(&"9".repeat(35)), None);
    }

    #[test]
    fn values_that_no_document_takes_are_refused() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(100), "]".repeat(100));
        for json in [
            r#"{"_id":1}"#,
            r#"{"a\u0000":1}"#,
            "[1]",
            &deep,
            "{",
            r#"{"a":1e999}"#,
        ] {
            let mut out = Vec::new();
            assert!(
                document(&mut out, |fields| fields.inline(json, "_id")).is_err(),
                "{json}"
            );
        }
    }
}
