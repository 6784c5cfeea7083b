//! Stored format of subscriptions.
//!
//! ```text
//! space 9:  u32 client                              → u8 version = 1, u32 generation, name
//! space 11: u32 client, u32 generation, u32 row     → u8 version = 1, changes, in their order
//! name:     u8 1, i64 | u8 2, UTF-8 up to the end
//! change:   u8 (1 subscribe, 2 unsubscribe, 3 subscribe to a pattern, 4 unsubscribe from a pattern),
//!           varint bytes, UTF-8
//! ```
//!
//! Keys are big-endian, so that they are read in order; values are little-endian. Each stored change is a row
//! of its own, written once: the cost of a change does not depend on the number of the client's
//! subscriptions. Rows of another generation than their client's are left over from a rewrite.

use bytes::Bytes;
use stafett_journal::{Change, Frame};
use stafett_store::spaces;

use super::clients::{ClientName, ClientNumber};

const VERSION: u8 = 1;

/// Effect of a change on one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EditKind {
    Subscribe,
    Unsubscribe,
    SubscribePattern,
    UnsubscribePattern,
}

impl EditKind {
    fn byte(self) -> u8 {
        match self {
            Self::Subscribe => 1,
            Self::Unsubscribe => 2,
            Self::SubscribePattern => 3,
            Self::UnsubscribePattern => 4,
        }
    }

    fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Subscribe,
            2 => Self::Unsubscribe,
            3 => Self::SubscribePattern,
            4 => Self::UnsubscribePattern,
            _ => return None,
        })
    }
}

/// A row under construction.
#[derive(Debug, Default)]
pub(crate) struct RowBuilder(Vec<u8>);

impl RowBuilder {
    pub(crate) fn push(&mut self, step: EditKind, name: &str) {
        if self.0.is_empty() {
            self.0.push(VERSION);
        }
        self.0.push(step.byte());
        let mut rest = name.len();
        while rest >= 0x80 {
            self.0.push(u8::try_from(rest & 0x7f).unwrap_or(0) | 0x80);
            rest >>= 7;
        }
        self.0.push(u8::try_from(rest).unwrap_or(0));
        self.0.extend_from_slice(name.as_bytes());
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Removes the steps pushed since the row had `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// Visits the steps pushed since the row had `len` bytes.
    pub(crate) fn read_from(&self, len: usize, visit: impl FnMut(EditKind, &str)) {
        read_steps(self.0.get(len.max(1)..).unwrap_or_default(), visit);
    }

    /// Returns a copy of the row, or `None` if it is empty.
    pub(crate) fn bytes(&self) -> Option<Bytes> {
        (self.0.len() > 1).then(|| Bytes::copy_from_slice(&self.0))
    }
}

/// Visits the steps of a row; false if this version does not know the format.
pub(crate) fn read_row(row: &[u8], visit: impl FnMut(EditKind, &str)) -> bool {
    match row.split_first() {
        Some((&VERSION, steps)) => read_steps(steps, visit),
        _ => false,
    }
}

fn read_steps(steps: &[u8], mut visit: impl FnMut(EditKind, &str)) -> bool {
    let mut rest = steps;
    while let Some((byte, behind)) = rest.split_first() {
        let Some((step, (name, after))) = EditKind::of(*byte).zip(read_name(behind)) else {
            return false;
        };
        visit(step, name);
        rest = after;
    }
    true
}

fn read_name(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (mut len, mut shift, mut rest) = (0_usize, 0, bytes);
    loop {
        let (byte, behind) = rest.split_first()?;
        rest = behind;
        len |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
        shift += 7;
        if shift > 28 {
            return None;
        }
    }
    let (name, after) = rest.split_at_checked(len)?;
    Some((std::str::from_utf8(name).ok()?, after))
}

pub(crate) fn client_frame(number: ClientNumber, client: Option<(&ClientName, u32)>) -> Frame {
    let change = match client {
        None => Change::Delete,
        Some((name, generation)) => {
            let mut value = vec![VERSION];
            value.extend_from_slice(&generation.to_le_bytes());
            match name {
                ClientName::Number(number) => {
                    value.push(1);
                    value.extend_from_slice(&number.to_le_bytes());
                }
                ClientName::Text(text) => {
                    value.push(2);
                    value.extend_from_slice(text.as_bytes());
                }
            }
            Change::Put(value.into())
        }
    };
    spaces::LIVE_CLIENTS.change(Bytes::copy_from_slice(&number.0.to_be_bytes()), change)
}

/// Decodes a stored client: its number, its name, its generation.
pub(crate) fn read_client(key: &[u8], value: &[u8]) -> Option<(ClientNumber, ClientName, u32)> {
    let number = u32::from_be_bytes(key.try_into().ok()?);
    let (&VERSION, rest) = value.split_first()? else {
        return None;
    };
    let (generation, rest) = rest.split_first_chunk::<4>()?;
    let name = match rest.split_first()? {
        (1, number) => ClientName::Number(i64::from_le_bytes(number.try_into().ok()?)),
        (2, text) => ClientName::Text(std::str::from_utf8(text).ok()?.into()),
        _ => return None,
    };
    Some((ClientNumber(number), name, u32::from_le_bytes(*generation)))
}

/// Key of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowKey {
    pub(crate) client: ClientNumber,
    pub(crate) generation: u32,
    pub(crate) row: u32,
}

impl RowKey {
    pub(crate) fn frame(self, row: Option<Bytes>) -> Frame {
        let mut key = Vec::with_capacity(12);
        for part in [self.client.0, self.generation, self.row] {
            key.extend_from_slice(&part.to_be_bytes());
        }
        spaces::LIVE_ROWS.change(key, row.map_or(Change::Delete, Change::Put))
    }

    pub(crate) fn read(key: &[u8]) -> Option<Self> {
        let (client, rest) = key.split_first_chunk::<4>()?;
        let (generation, row) = rest.split_first_chunk::<4>()?;
        Some(Self {
            client: ClientNumber(u32::from_be_bytes(*client)),
            generation: u32::from_be_bytes(*generation),
            row: u32::from_be_bytes(row.try_into().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(frame: Frame) -> (Bytes, Bytes) {
        let Frame::State(stafett_journal::StateChange {
            key,
            change: Change::Put(value),
            ..
        }) = frame
        else {
            panic!("a put")
        };
        (key, value)
    }

    #[test]
    fn clients_and_rows_read_back_and_cut_ones_do_not() {
        for name in [ClientName::Number(-5), ClientName::Text("é 1".into())] {
            let (key, stored) = value(client_frame(ClientNumber(7), Some((&name, 3))));
            assert_eq!(read_client(&key, &stored), Some((ClientNumber(7), name, 3)));
            assert_eq!(read_client(&key, &stored[..5]), None);
        }
        let names = ["a".to_owned(), String::new(), "é".repeat(200), "x".repeat(20_000)];
        let steps = [
            EditKind::Subscribe,
            EditKind::Unsubscribe,
            EditKind::SubscribePattern,
            EditKind::UnsubscribePattern,
        ];
        let mut row = RowBuilder::default();
        for (step, name) in steps.iter().zip(&names) {
            row.push(*step, name);
        }
        let key = RowKey {
            client: ClientNumber(1 << 31),
            generation: 2,
            row: 9,
        };
        let (stored_key, stored) = value(key.frame(row.bytes()));
        assert_eq!(RowKey::read(&stored_key), Some(key));
        let mut read = Vec::new();
        assert!(read_row(&stored, |step, name| read.push((step, name.to_owned()))));
        assert_eq!(read, steps.into_iter().zip(names).collect::<Vec<_>>());
        assert!(!read_row(&stored[..stored.len() - 1], |_, _| ()));
        assert!(!read_row(&[9], |_, _| ()));
        assert!(!read_row(&[], |_, _| ()));
    }
}
