//! Texts and numbers of stored definitions.
//!
//! The *compact* form of bytes has their length as a number of seven bits per byte, else it is a u32.

use crate::{read_number, write_number};

pub fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(bytes.len()).expect("definitions are small");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes);
}

pub fn put_text(text: &str, out: &mut Vec<u8>) {
    put_bytes(text.as_bytes(), out);
}

pub fn get<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (front, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*front)
}

pub fn get_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(u32::from_le_bytes(get(rest)?)).ok()?;
    let (front, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(front)
}

pub fn get_text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(get_bytes(rest)?).ok()
}

pub fn put_compact(bytes: &[u8], out: &mut Vec<u8>) {
    write_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

pub fn get_number(rest: &mut &[u8]) -> Option<u64> {
    let (value, behind) = read_number(rest)?;
    *rest = behind;
    Some(value)
}

pub fn get_compact<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(get_number(rest)?).ok()?;
    let (front, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(front)
}

pub fn get_compact_text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(get_compact(rest)?).ok()
}
