//! Masked parts of messages that are only looked at: JSON fields and headers named by the setting
//! `http.mask`, for callers without the right to operate the broker.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
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
        if let Some(masked) = text.and_then(|text| self.masked_text(&text, cut)) {
            *content_base64 = Some(STANDARD.encode(masked));
        }
    }

    /// Masks a shown value: JSON, or a text that may be JSON. `None` if nothing is to be masked.
    fn masked_json(&self, shown: &RawValue, cut: bool) -> Option<Box<RawValue>> {
        if let Ok(text) = serde_json::from_str::<String>(shown.get()) {
            return to_raw_value(&self.masked_text(&text, cut)?).ok();
        }
        let masked = self.masked_text(shown.get(), cut)?;
        RawValue::from_string(masked).ok()
    }

    /// Masks a text that begins like JSON: as a whole if it is cut or cannot be read, such as several
    /// documents, since nothing is known of its fields then.
    fn masked_text(&self, text: &str, cut: bool) -> Option<String> {
        let begun = text.trim_start_matches('\u{feff}').trim_start();
        if !begun.starts_with(['{', '[']) {
            return None;
        }
        let read = serde_json::from_str::<Value>(begun).ok().filter(|_| !cut);
        let Some(mut value) = read else {
            return Some(MASK.to_owned());
        };
        self.mask_fields(&mut value).then(|| value.to_string())
    }

    /// Masks the fields of a value. Returns true if there were some.
    fn mask_fields(&self, value: &mut Value) -> bool {
        match value {
            Value::Object(fields) => fields.iter_mut().fold(false, |any, (name, value)| {
                if self.covers(name) {
                    *value = MASK.into();
                    return true;
                }
                self.mask_fields(value) | any
            }),
            Value::Array(values) => values
                .iter_mut()
                .fold(false, |any, value| self.mask_fields(value) | any),
            Value::String(text) => {
                let inner = serde_json::from_str::<Value>(text).ok();
                let is_json = inner.is_some_and(|inner| inner.is_object() || inner.is_array());
                let masked = self.masked_text(text, false).filter(|_| is_json);
                masked.map(|masked| *text = masked).is_some()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
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
            (r#""{\"iban\":1e999}""#, r#""•••""#),
            (r#"{"a":"[a text"}"#, r#"{"a":"[a text"}"#),
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
