//! Rows of keyed state in bytes, as the fuzzer changes them.
//!
//! ```text
//! row    space u8 | kind u8: 0 value, 1 delta | key bytes u8 | value bytes u16 (little-endian) | key | value
//! input  row …
//! ```

use bytes::Bytes;
use stafett_journal::{Change, StateChange, StateSpace};

/// Spaces of state that the broker reads at its start, one behind the other.
pub const SPACES: u8 = 18;
const DELTA: u8 = 1;

/// Adds a row to an input. A row that is too long for the format is left out.
pub fn write_row(out: &mut Vec<u8>, space: u8, is_delta: bool, key: &[u8], value: &[u8]) {
    let (Ok(key_bytes), Ok(value_bytes)) = (u8::try_from(key.len()), u16::try_from(value.len())) else {
        return;
    };
    out.extend([space - 1, u8::from(is_delta), key_bytes]);
    out.extend(value_bytes.to_le_bytes());
    out.extend(key);
    out.extend(value);
}

/// Reads the rows of an input, up to the first that is cut.
pub fn rows(mut input: &[u8]) -> Vec<StateChange> {
    let mut rows = Vec::new();
    while let Some((&[space, kind, key_bytes, low, high], rest)) = input.split_first_chunk() {
        let value_bytes = usize::from(u16::from_le_bytes([low, high]));
        let Some((key, rest)) = rest.split_at_checked(usize::from(key_bytes)) else {
            break;
        };
        let Some((value, rest)) = rest.split_at_checked(value_bytes) else {
            break;
        };
        let value = Bytes::copy_from_slice(value);
        rows.push(StateChange {
            space: StateSpace(u16::from(space % SPACES) + 1),
            key: Bytes::copy_from_slice(key),
            change: if kind % 2 == DELTA {
                Change::Delta(value)
            } else {
                Change::Put(value)
            },
        });
        input = rest;
    }
    rows
}
