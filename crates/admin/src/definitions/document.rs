//! A document as it comes: its things stay text until their turn, so that it takes little more memory than
//! its bytes.

use std::fmt;

use schemars::JsonSchema;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::kinds::Kind;

/// Bound on the things of a document.
pub(super) const ITEMS_MAX: usize = 200_000;
/// Bound on lists of unknown kinds.
const UNKNOWN_MAX: usize = 100;

/// A document to import.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "DefinitionsToImport")]
#[expect(dead_code, reason = "described here, and read as `Wanted`")]
pub(super) struct Described {
    /// `stafett definitions 1`.
    form: String,
    /// A list per kind, as in the document that is shown; 200,000 things at most.
    #[serde(flatten)]
    lists: Map<String, Value>,
}

/// A document as it comes.
#[derive(Debug, Default)]
pub(super) struct Wanted<'a> {
    pub(super) form: String,
    pub(super) lists: Vec<(&'static Kind, Vec<&'a RawValue>)>,
    pub(super) unknown: Vec<String>,
    /// True for a document of RabbitMQ.
    pub(super) is_foreign: bool,
}

impl<'de> Deserialize<'de> for Wanted<'de> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_map(WantedVisitor)
    }
}

struct WantedVisitor;

impl<'de> Visitor<'de> for WantedVisitor {
    type Value = Wanted<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Wanted<'de>, A::Error> {
        let mut wanted = Wanted::default();
        let mut form = None;
        let mut left = ITEMS_MAX;
        while let Some(name) = fields.next_key::<String>()? {
            if let Some(kind) = Kind::named(&name) {
                if wanted.lists.iter().any(|(known, _)| known.name == kind.name) {
                    return Err(A::Error::custom(format_args!("{name} is there twice")));
                }
                let list = fields.next_value_seed(Things { left })?;
                left = left.saturating_sub(list.len());
                wanted.lists.push((kind, list));
                continue;
            }
            match name.as_str() {
                "form" => form = Some(fields.next_value()?),
                "left_out" => drop(fields.next_value::<IgnoredAny>()?),
                _ => {
                    fields.next_value::<IgnoredAny>()?;
                    wanted.is_foreign |= name == "rabbit_version" || name == "rabbitmq_version";
                    if wanted.unknown.len() == UNKNOWN_MAX {
                        return Err(A::Error::custom("too many lists of unknown kinds"));
                    }
                    wanted.unknown.push(name);
                }
            }
        }
        wanted.form = match form {
            Some(form) => form,
            None if wanted.is_foreign => String::new(),
            None => return Err(A::Error::missing_field("form")),
        };
        Ok(wanted)
    }
}

/// Reader of a list.
struct Things {
    /// Number of things that there may be.
    left: usize,
}

impl<'de> DeserializeSeed<'de> for Things {
    type Value = Vec<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Things {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut things = Vec::new();
        while let Some(thing) = list.next_element::<&RawValue>()? {
            if !thing.get().starts_with('{') {
                return Err(A::Error::custom("expected an object in the list"));
            }
            if things.len() == self.left {
                return Err(A::Error::custom(format_args!(
                    "a document has {ITEMS_MAX} things at most: import it in parts"
                )));
            }
            things.push(thing);
        }
        Ok(things)
    }
}
