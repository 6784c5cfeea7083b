//! Documents of a server's answers. Sizes and levels are checked: a server is not trusted.

/// A value, as far as answers have it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Bson {
    Number(f64),
    Integer(i64),
    Boolean(bool),
    Text(String),
    Bytes(Vec<u8>),
    Document(Answer),
    Array(Vec<Bson>),
    /// Null, and kinds that nothing asks for.
    Other,
}

/// Names and values.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Answer(Vec<(String, Bson)>);

const DEPTH_MAX: usize = 32;

impl Answer {
    /// Reads a document. `None` if it is none.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader { bytes };
        let document = reader.document(0)?;
        reader.bytes.is_empty().then_some(document)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Bson> {
        self.0
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value)
    }

    pub(super) fn integer(&self, name: &str) -> Option<i64> {
        self.get(name)?.integer()
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Bson::Text(text) => Some(text),
            Bson::Number(_)
            | Bson::Integer(_)
            | Bson::Boolean(_)
            | Bson::Bytes(_)
            | Bson::Document(_)
            | Bson::Array(_)
            | Bson::Other => None,
        }
    }

    pub(super) fn document(&self, name: &str) -> Option<&Self> {
        if let Bson::Document(document) = self.get(name)? {
            Some(document)
        } else {
            None
        }
    }

    /// Returns the documents of an array.
    pub(super) fn documents(&self, name: &str) -> impl Iterator<Item = &Self> {
        let items = match self.get(name) {
            Some(Bson::Array(items)) => items.as_slice(),
            _ => &[],
        };
        items.iter().filter_map(|item| {
            if let Bson::Document(document) = item {
                Some(document)
            } else {
                None
            }
        })
    }

    pub(super) fn is(&self, name: &str) -> bool {
        match self.get(name) {
            Some(Bson::Boolean(it)) => *it,
            Some(other) => other.integer().is_some_and(|number| number != 0),
            None => false,
        }
    }
}

impl Bson {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "servers answer some whole numbers as doubles"
    )]
    fn integer(&self) -> Option<i64> {
        if let Self::Integer(it) = self {
            Some(*it)
        } else if let Self::Number(it) = self {
            Some(*it as i64)
        } else {
            None
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn length(&mut self) -> Option<usize> {
        usize::try_from(i32::from_le_bytes(self.array()?)).ok()
    }

    fn name(&mut self) -> Option<String> {
        let end = self.bytes.iter().position(|byte| *byte == 0)?;
        let name = String::from_utf8(self.take(end)?.to_vec()).ok()?;
        self.take(1)?;
        Some(name)
    }

    fn text(&mut self) -> Option<String> {
        let length = self.length()?;
        let text = self.take(length)?.strip_suffix(&[0])?;
        String::from_utf8(text.to_vec()).ok()
    }

    fn document(&mut self, depth: usize) -> Option<Answer> {
        let length = self.length()?;
        let mut inner = Reader {
            bytes: self.take(length.checked_sub(4)?)?,
        };
        if depth >= DEPTH_MAX {
            return None;
        }
        let mut fields = Vec::new();
        loop {
            let [kind] = inner.array()?;
            if kind == 0 {
                break;
            }
            fields.push((inner.name()?, inner.value(kind, depth + 1)?));
        }
        inner.bytes.is_empty().then_some(Answer(fields))
    }

    fn value(&mut self, kind: u8, depth: usize) -> Option<Bson> {
        Some(match kind {
            0x01 => Bson::Number(f64::from_le_bytes(self.array()?)),
            0x02 | 0x0d | 0x0e => Bson::Text(self.text()?),
            0x03 => Bson::Document(self.document(depth)?),
            0x04 => {
                let items = self.document(depth)?.0.into_iter();
                Bson::Array(items.map(|(_, item)| item).collect())
            }
            0x05 => {
                let length = self.length()?;
                self.take(1)?;
                Bson::Bytes(self.take(length)?.to_vec())
            }
            0x08 => Bson::Boolean(self.take(1)? != [0]),
            0x10 => Bson::Integer(i32::from_le_bytes(self.array()?).into()),
            0x12 => Bson::Integer(i64::from_le_bytes(self.array()?)),
            0x0b => {
                self.name()?;
                self.name()?;
                Bson::Other
            }
            0x06 | 0x0a | 0x7f | 0xff => Bson::Other,
            0x07 => self.take(12).map(|_| Bson::Other)?,
            0x09 | 0x11 => self.take(8).map(|_| Bson::Other)?,
            0x13 => self.take(16).map(|_| Bson::Other)?,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::bson;
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut out = Vec::new();
        let json =
            r#"{"ok":1.0,"n":3,"big":4294967296,"yes":true,"inner":{"text":"é","items":[{"a":1},2,null]}}"#;
        bson::document(&mut out, |fields| {
            fields.date("at", 1);
            fields.binary("payload", bson::GENERIC, b"xyz");
            fields.inline(json, "_id")
        })
        .unwrap();
        let answer = Answer::parse(&out).unwrap();
        assert_eq!((answer.integer("ok"), answer.integer("n")), (Some(1), Some(3)));
        assert_eq!(
            (answer.integer("big"), answer.is("yes")),
            (Some(4_294_967_296), true)
        );
        assert_eq!(answer.get("payload"), Some(&Bson::Bytes(b"xyz".to_vec())));
        let inner = answer.document("inner").unwrap();
        assert_eq!(inner.text("text"), Some("é"));
        assert_eq!(inner.documents("items").count(), 1);
        // No part of it is taken for a whole one, and no byte makes the reader fail.
        for end in 0..out.len() {
            assert_eq!(Answer::parse(&out[..end]), None, "{end}");
        }
        for place in 0..out.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut changed = out.clone();
                changed[place] = byte;
                Answer::parse(&changed);
            }
        }
    }
}
