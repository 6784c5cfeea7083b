//! Fields of JSON text by path, read in one pass. Of fields with one name the last counts.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use smallvec::{SmallVec, smallvec};

use crate::value::Value;

/// A step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Segment {
    Field(Box<str>),
    Item(usize),
}

/// Writes a path for errors.
pub(crate) fn display(path: &[Segment]) -> String {
    let mut text = "value".to_owned();
    for segment in path {
        match segment {
            Segment::Field(name) => {
                text.push('.');
                text.push_str(name);
            }
            Segment::Item(place) => {
                text.push('[');
                text.push_str(&place.to_string());
                text.push(']');
            }
        }
    }
    text
}

/// The paths of an expression, as a tree.
#[derive(Debug, Clone, Default)]
pub struct Paths {
    /// Slot of the value here.
    slot: Option<usize>,
    /// By name.
    fields: Vec<(Box<str>, Self)>,
    items: Vec<(usize, Self)>,
}

/// Values that were found, by slot.
#[derive(Debug, Default)]
pub struct Found<'r> {
    values: SmallVec<[Option<Value<'r>>; 8]>,
    /// Bytes that were read, those of each level.
    pub(crate) bytes: usize,
}

/// A value that is not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoJson;

impl<'r> Found<'r> {
    pub(crate) fn with_slots(count: usize) -> Self {
        Self {
            values: smallvec![None; count],
            bytes: 0,
        }
    }

    pub(crate) fn get(&self, slot: usize) -> Option<&Value<'r>> {
        self.values.get(slot).and_then(Option::as_ref)
    }

    fn put(&mut self, slot: usize, value: Value<'r>) {
        if let Some(place) = self.values.get_mut(slot) {
            *place = Some(value);
        }
    }
}

type Captured<'r> = SmallVec<[Option<&'r RawValue>; 8]>;

impl Paths {
    pub(crate) fn insert(&mut self, path: &[Segment], slot: usize) {
        let Some((segment, rest)) = path.split_first() else {
            self.slot = Some(slot);
            return;
        };
        let below = match segment {
            Segment::Field(name) => {
                let known = self.fields.binary_search_by(|(known, _)| known.cmp(name));
                let place = known.unwrap_or_else(|place| {
                    self.fields.insert(place, (name.clone(), Self::default()));
                    place
                });
                self.fields.get_mut(place).map(|(_, below)| below)
            }
            Segment::Item(number) => {
                let known = self.items.binary_search_by(|(known, _)| known.cmp(number));
                let place = known.unwrap_or_else(|place| {
                    self.items.insert(place, (*number, Self::default()));
                    place
                });
                self.items.get_mut(place).map(|(_, below)| below)
            }
        };
        if let Some(below) = below {
            below.insert(rest, slot);
        }
    }

    /// True if the value as a whole is asked for.
    pub fn wants_whole(&self) -> bool {
        self.slot.is_some()
    }

    /// Reads the paths out of JSON text.
    pub fn read<'r>(&self, text: &'r str, found: &mut Found<'r>) -> Result<(), NoJson> {
        let raw: &RawValue = serde_json::from_str(text).map_err(|_| NoJson)?;
        self.read_sound(raw.get(), found)
    }

    /// Reads the paths out of an object whose fields are there already, as sound JSON. `whole` is the object
    /// itself.
    pub fn read_fields<'r>(
        &self,
        fields: impl Iterator<Item = (&'r str, &'r str)>,
        whole: impl FnOnce() -> String,
        found: &mut Found<'r>,
    ) -> Result<(), NoJson> {
        if let Some(slot) = self.slot {
            found.put(slot, Value::Json(Cow::Owned(whole())));
        }
        let mut last: SmallVec<[Option<&'r str>; 8]> = smallvec![None; self.fields.len()];
        for (name, json) in fields {
            if let Some(place) = self.field(name)
                && let Some(last) = last.get_mut(place)
            {
                *last = Some(json);
            }
        }
        for ((_, paths), json) in self.fields.iter().zip(last) {
            if let Some(json) = json {
                paths.read_sound(json, found)?;
            }
        }
        Ok(())
    }

    fn field(&self, name: &str) -> Option<usize> {
        self.fields
            .binary_search_by(|(known, _)| (**known).cmp(name))
            .ok()
    }

    /// Reads text that is known to be JSON, without space around it.
    fn read_sound<'r>(&self, text: &'r str, found: &mut Found<'r>) -> Result<(), NoJson> {
        if let Some(slot) = self.slot {
            found.put(slot, Value::of_json(text).ok_or(NoJson)?);
        }
        found.bytes += text.len();
        let mut reader = serde_json::Deserializer::from_str(text);
        match text.as_bytes().first() {
            Some(b'{') if !self.fields.is_empty() => {
                let captured = reader.deserialize_map(Fields(self)).map_err(|_| NoJson)?;
                let paths = self.fields.iter().map(|(_, paths)| paths);
                read_captured(paths, &captured, found)
            }
            Some(b'[') if !self.items.is_empty() => {
                let captured = reader.deserialize_seq(Items(self)).map_err(|_| NoJson)?;
                let paths = self.items.iter().map(|(_, paths)| paths);
                read_captured(paths, &captured, found)
            }
            _ => Ok(()),
        }
    }
}

fn read_captured<'p, 'r>(
    paths: impl Iterator<Item = &'p Paths>,
    captured: &Captured<'r>,
    found: &mut Found<'r>,
) -> Result<(), NoJson> {
    for (paths, raw) in paths.zip(captured) {
        if let Some(raw) = raw {
            paths.read_sound(raw.get(), found)?;
        }
    }
    Ok(())
}

/// A field's name, without a copy unless it has escapes.
#[derive(Debug)]
pub struct Name<'a>(pub Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_str(NameVisitor)
    }
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = Name<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Name(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Name(Cow::Owned(text.to_owned())))
    }
}

/// Captures the fields of an object that are asked for.
struct Fields<'p>(&'p Paths);

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = Captured<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut captured: Captured<'de> = smallvec![None; self.0.fields.len()];
        while let Some(Name(name)) = map.next_key::<Name<'de>>()? {
            match self.0.field(&name).and_then(|place| captured.get_mut(place)) {
                Some(last) => *last = Some(map.next_value::<&'de RawValue>()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(captured)
    }
}

/// Captures the items of a list that are asked for.
struct Items<'p>(&'p Paths);

impl<'de> Visitor<'de> for Items<'_> {
    type Value = Captured<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut captured: Captured<'de> = smallvec![None; self.0.items.len()];
        let mut wanted = self.0.items.iter().zip(&mut captured).peekable();
        let mut place = 0;
        while let Some(raw) = items.next_element::<&'de RawValue>()? {
            if let Some((_, slot)) = wanted.next_if(|((number, _), _)| *number == place) {
                *slot = Some(raw);
            }
            place += 1;
        }
        Ok(captured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<Segment> {
        let segments = text.split('.').filter(|part| !part.is_empty());
        let segment = |part: &str| match part.parse() {
            Ok(place) => Segment::Item(place),
            Err(_) => Segment::Field(part.into()),
        };
        segments.map(segment).collect()
    }

    fn read(paths: &[&str], text: &str) -> Result<Vec<Option<String>>, NoJson> {
        let mut tree = Paths::default();
        for (slot, text) in paths.iter().enumerate() {
            tree.insert(&path(text), slot);
        }
        let mut found = Found::with_slots(paths.len());
        tree.read(text, &mut found)?;
        let json = |slot| found.get(slot).and_then(Value::to_json);
        Ok((0..paths.len()).map(json).collect())
    }

    #[test]
    fn fields_are_found_at_any_depth_and_the_last_of_a_name_counts() {
        let text =
            r#" {"a": {"b": [1, {"c": "x\ny"}], "d": null}, "e\n": 2, "a ": 3, "z": 1, "z": {"q": 5}} "#;
        let paths = ["a.b.1.c", "a.d", "e\n", "none", "a.b", "z", "z.q", "a.b.7"];
        let expected = [
            Some(r#""x\ny""#),
            Some("null"),
            Some("2"),
            None,
            Some(r#"[1, {"c": "x\ny"}]"#),
            Some(r#"{"q": 5}"#),
            Some("5"),
            None,
        ];
        let expected = expected.map(|json| json.map(str::to_owned));
        assert_eq!(read(&paths, text).unwrap(), expected);
        let inner = read(&["z.q"], r#"{"z": {"q": 1}, "z": {}}"#);
        assert_eq!(inner.unwrap(), [None], "no field of an earlier object shows");
    }

    #[test]
    fn what_is_no_json_is_refused_also_behind_the_fields() {
        for text in ["", "{", r#"{"a": 1} x"#, r#"{"a": 1, "b": nonsense}"#, "abc"] {
            assert_eq!(read(&["a"], text), Err(NoJson), "{text}");
        }
        assert_eq!(read(&["a"], "[1]").unwrap(), [None]);
        assert_eq!(read(&[""], " 3 ").unwrap(), [Some("3".to_owned())]);
    }

    #[test]
    fn depth_is_no_danger() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(read(&["a.0.0"], &deep).unwrap()[0].is_some());
    }
}
