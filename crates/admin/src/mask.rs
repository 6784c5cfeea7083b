//! Masked parts of messages that are only looked at: JSON fields and headers named by the setting
//! `http.mask`, for callers without the right to operate the broker.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use stafett_access::{Action, Resource};
use stafett_broker::Broker;

use crate::access;

/// Text in the place of a masked value.
pub(crate) const MASK: &str = "•••";

/// Names of JSON fields, at any depth, and of headers. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Masks(Arc<[String]>);

impl Masks {
    /// Reads names with commas between them.
    #[must_use]
    pub fn of(setting: &str) -> Self {
        let names = setting.split(',').map(str::trim).filter(|name| !name.is_empty());
        Self(names.map(str::to_owned).collect())
    }

    /// Returns the masks for the caller of this request: none for one who may operate the broker.
    pub(crate) fn for_caller(&self, broker: &Broker) -> Self {
        if self.0.is_empty() || access::may(broker, Action::Operate, &Resource::CLUSTER) {
            return Self::default();
        }
        self.clone()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn covers(&self, name: &str) -> bool {
        self.0.iter().any(|masked| masked.eq_ignore_ascii_case(name))
    }

    /// Masks shown content. `cut` is true if it is only the beginning: JSON is then masked as a whole.
    pub(crate) fn mask(
        &self,
        content: &mut Option<Box<RawValue>>,
        content_base64: &mut Option<String>,
        cut: bool,
    ) {
        if self.0.is_empty() {
            return;
        }
        if let Some(masked) = content.as_deref().and_then(|shown| self.masked_json(shown, cut)) {
            *content = Some(masked);
        }
        let bytes = content_base64
            .as_deref()
            .and_then(|text| STANDARD.decode(text).ok());
        // Bytes that are no text have no beginning of JSON less.
        let text = bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if let Some(masked) = text.and_then(|text| self.masked_text(&text, cut, DEPTH_MAX)) {
            *content_base64 = Some(STANDARD.encode(masked));
        }
    }

    /// Masks a shown value: JSON, or a text that may be JSON. `None` if nothing is to be masked.
    fn masked_json(&self, shown: &RawValue, cut: bool) -> Option<Box<RawValue>> {
        if let Ok(text) = serde_json::from_str::<String>(shown.get()) {
            return to_raw_value(&self.masked_text(&text, cut, DEPTH_MAX)?).ok();
        }
        if shown.get().starts_with('"') {
            // A text that cannot be read, such as with half of a surrogate pair.
            return to_raw_value(MASK).ok();
        }
        let masked = self.masked_text(shown.get(), cut, DEPTH_MAX)?;
        // A text that is masked as a whole is no JSON.
        let shown = RawValue::from_string(masked);
        shown.or_else(|_| to_raw_value(MASK)).ok()
    }

    /// Masks a text that begins like JSON: as a whole if it is cut or cannot be read, such as several
    /// documents, since nothing is known of its fields then. All but the masked values stays byte for byte.
    /// `depth` is the nesting that may be left, through texts within it too.
    fn masked_text(&self, text: &str, cut: bool, depth: usize) -> Option<String> {
        let begun = text.trim_start_matches('\u{feff}').trim_start();
        if !begun.starts_with(['{', '[']) {
            return None;
        }
        let mut edits = Vec::new();
        if cut || self.find(begun, begun, depth, &mut edits).is_err() {
            return Some(MASK.to_owned());
        }
        let (front, _) = text.split_at_checked(text.len() - begun.len())?;
        (!edits.is_empty()).then(|| front.to_owned() + &edited(begun, edits))
    }

    fn is_named_in(&self, text: &str) -> bool {
        let text = text.to_ascii_lowercase();
        let mut names = self.0.iter();
        names.any(|name| text.contains(&name.to_ascii_lowercase()))
    }

    /// Finds the parts of a JSON value to be replaced. `value` is a part of `whole`.
    fn find<'a>(
        &self,
        whole: &'a str,
        value: &'a str,
        depth: usize,
        edits: &mut Vec<Edit>,
    ) -> Result<(), Unreadable> {
        let depth = depth.checked_sub(1).ok_or(Unreadable)?;
        match value.trim_start().as_bytes().first() {
            Some(b'{') => {
                let Fields(fields) = serde_json::from_str(value).map_err(|_| Unreadable)?;
                for (name, field) in fields {
                    if self.covers(&name) {
                        edits.push(Edit::of(whole, field.get(), MASK));
                    } else {
                        self.find(whole, field.get(), depth, edits)?;
                    }
                }
            }
            Some(b'[') => {
                let values: Vec<&RawValue> = serde_json::from_str(value).map_err(|_| Unreadable)?;
                for one in values {
                    self.find(whole, one.get(), depth, edits)?;
                }
            }
            Some(b'"') => {
                let text: String = serde_json::from_str(value).map_err(|_| Unreadable)?;
                // A text that only begins like JSON is none, unless it has one of the names.
                let is_json = serde_json::from_str::<&RawValue>(&text).is_ok() || self.is_named_in(&text);
                let masked = self.masked_text(&text, false, depth).filter(|_| is_json);
                edits.extend(masked.map(|masked| Edit::of(whole, value, &masked)));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Nesting of JSON that is looked into.
const DEPTH_MAX: usize = 128;

/// Error of a text that is no JSON, or nested too deeply.
struct Unreadable;

/// Replacement of a part of a text.
struct Edit {
    start: usize,
    end: usize,
    text: String,
}

impl Edit {
    /// Replaces a part of a text by a JSON string.
    fn of(whole: &str, part: &str, by: &str) -> Self {
        let start = part.as_ptr().addr().saturating_sub(whole.as_ptr().addr());
        Self {
            start,
            end: start + part.len(),
            text: Value::from(by).to_string(),
        }
    }
}

/// Carries out edits, which are in the order of their parts.
fn edited(whole: &str, edits: Vec<Edit>) -> String {
    let (mut text, mut at) = (String::with_capacity(whole.len()), 0);
    for edit in edits {
        text.push_str(whole.get(at..edit.start).unwrap_or_default());
        text.push_str(&edit.text);
        at = edit.end;
    }
    text.push_str(whole.get(at..).unwrap_or_default());
    text
}

/// Fields of a JSON object, in their order.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_map(Fields(Vec::new()))
    }
}

impl<'de> Visitor<'de> for Fields<'de> {
    type Value = Self;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<Self, A::Error> {
        while let Some(field) = fields.next_entry()? {
            self.0.push(field);
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(content: &str, cut: bool) -> String {
        let masks = Masks::of("password, iban");
        let mut content = Some(RawValue::from_string(content.to_owned()).unwrap());
        masks.mask(&mut content, &mut None, cut);
        content.unwrap().get().to_owned()
    }

    #[test]
    fn named_fields_are_masked_at_any_depth_and_others_stay_byte_for_byte() {
        for (content, shown) in [
            (r#"{"user": "ann",  "n": 1.50}"#, r#"{"user": "ann",  "n": 1.50}"#),
            (r#"{"a":[{"Password":"x"}]}"#, r#"{"a":[{"Password":"•••"}]}"#),
            (r#"{"iban":{"deep":1}}"#, r#"{"iban":"•••"}"#),
            (r#""{\"iban\":7}""#, r#""{\"iban\":\"•••\"}""#),
            (r#""a text with password""#, r#""a text with password""#),
            ("17", "17"),
            (r#"{"a":"{\"iban\":7}"}"#, r#"{"a":"{\"iban\":\"•••\"}"}"#),
            (r#""{\"iban\":7}\n{\"iban\":8}""#, r#""•••""#),
            (r#""{\"iban\":1e999}""#, r#""{\"iban\":\"•••\"}""#),
            (
                r#"{"z": 1.50, "iban" : [1, 2] , "a":1e400, "z": 9007199254740993}"#,
                r#"{"z": 1.50, "iban" : "•••" , "a":1e400, "z": 9007199254740993}"#,
            ),
            (r#"{"iban":7,"x":1e999}"#, r#"{"iban":"•••","x":1e999}"#),
            (r#"{"iban": 1, "iban": 2}"#, r#"{"iban": "•••", "iban": "•••"}"#),
            (
                r#"[{"\u0069ban": 1}, {"x": "\u00fc"}]"#,
                r#"[{"\u0069ban": "•••"}, {"x": "\u00fc"}]"#,
            ),
            (r#"{"a":"[a text"}"#, r#"{"a":"[a text"}"#),
            (r#"{"a":"{\"iban\":7}\n{\"iban\":8}"}"#, r#"{"a":"•••"}"#),
            (r#""{\"iban\":7} \ud800""#, r#""•••""#),
        ] {
            assert_eq!(masked(content, false), shown);
        }
        assert_eq!(
            masked(r#""{\"iban\":7, \"cu""#, true),
            r#""•••""#,
            "no part of JSON"
        );
        assert_eq!(masked(r#""a long text""#, true), r#""a long text""#);
    }

    #[test]
    fn json_that_is_nested_too_deeply_is_masked_as_a_whole() {
        let nested = |depth: usize| format!("{}7{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(masked(&nested(100), false), nested(100));
        for depth in [DEPTH_MAX + 1, 100_000] {
            assert_eq!(masked(&nested(depth), false), r#""•••""#);
        }
        // Texts within JSON do not begin to count anew.
        let within = |depth: usize, text: &str| {
            let text = serde_json::to_string(text).unwrap();
            format!("{}{text}{}", "[".repeat(depth), "]".repeat(depth))
        };
        let shallow = within(50, &nested(50));
        assert_eq!(masked(&shallow, false), shallow);
        assert_eq!(masked(&within(100, &nested(100)), false), within(100, MASK));
    }

    #[test]
    fn bytes_that_are_json_are_masked_too() {
        let mut encoded = Some(STANDARD.encode(r#"{"iban":7}"#));
        Masks::of("iban").mask(&mut None, &mut encoded, false);
        assert_eq!(encoded, Some(STANDARD.encode(r#"{"iban":"•••"}"#)));
        let latin = Some(STANDARD.encode(b"{\"iban\": \"M\xfcller\"}"));
        let mut encoded = latin.clone();
        Masks::of("iban").mask(&mut None, &mut encoded, false);
        assert_ne!(encoded, latin);
        let mut encoded = latin.clone();
        Masks::of("").mask(&mut None, &mut encoded, true);
        assert_eq!(encoded, latin);
    }
}
