//! Appends with an id or an owner: their options in a test, and the state remembered of them.

use std::fmt::Write;
use std::rc::Rc;

use stafett_journal::{OwnerEpoch, PlacedBatch, RequestId};
use stafett_model::{Durability, LogId};

/// State space in which the journal remembers ids.
pub const SPACE: u16 = u16::MAX;

/// Options of an append.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked {
    pub level: Option<Durability>,
    pub id: Option<u8>,
    pub owner: Option<u64>,
}

impl Asked {
    pub fn named(id: u8) -> Self {
        Self {
            id: Some(id),
            ..Self::default()
        }
    }

    pub fn by(self, owner: u64) -> Self {
        Self {
            owner: Some(owner),
            ..self
        }
    }

    pub fn at(self, level: Durability) -> Self {
        Self {
            level: Some(level),
            ..self
        }
    }

    pub fn request(&self) -> Option<RequestId> {
        self.id.map(|id| RequestId([id; 16]))
    }

    pub fn epoch(&self) -> Option<OwnerEpoch> {
        self.owner.map(OwnerEpoch)
    }
}

/// Returns the key of an id among all state.
pub fn key(id: u8) -> (u16, String) {
    (SPACE, id.to_string())
}

/// Formats the places of an append's batches as text.
pub fn places(places: impl IntoIterator<Item = (LogId, u64)>) -> Rc<str> {
    let mut text = String::new();
    for (log, base) in places {
        write!(text, "{log} {base};").unwrap();
    }
    text.into()
}

pub fn places_of(placed: &[PlacedBatch]) -> Rc<str> {
    places(placed.iter().map(|placed| (placed.log, placed.base.0)))
}

/// Decodes a remembered row: its key, and the places of the append's batches.
pub fn row(key: &[u8], value: &[u8]) -> ((u16, String), Rc<str>) {
    let [id, rest @ ..] = key else {
        panic!("an id has 16 bytes")
    };
    assert_eq!(rest, [*id; 15], "an id that nobody gave");
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let (_, rows) = value.split_at(8);
    let rows = rows.chunks_exact(16).map(|row| row.split_at(8));
    let rows = rows.map(|(log, base)| (LogId(number(log)), number(base)));
    (self::key(*id), places(rows))
}
