//! Variable-length integers of records: zigzag, seven bits per byte, low bits first.
//!
//! Longer encodings than necessary are accepted (some producers reserve fixed widths), up to 5 bytes for 32
//! bits and 10 for 64, but no bits beyond the type's width.

/// Reads a 32-bit value and returns it with the bytes behind it.
#[inline]
pub(crate) fn read_i32(bytes: &[u8]) -> Option<(i32, &[u8])> {
    match bytes {
        [a, rest @ ..] if *a < 0x80 => Some((unzigzag_32(u32::from(*a)), rest)),
        [a, b, rest @ ..] if *b < 0x80 => {
            Some((unzigzag_32(u32::from(*a & 0x7f) | u32::from(*b) << 7), rest))
        }
        _ => {
            let (raw, rest) = read_long(bytes, 5)?;
            Some((unzigzag_32(u32::try_from(raw).ok()?), rest))
        }
    }
}

/// Reads a 64-bit value and returns it with the bytes behind it.
#[inline]
pub(crate) fn read_i64(bytes: &[u8]) -> Option<(i64, &[u8])> {
    match bytes {
        [a, rest @ ..] if *a < 0x80 => Some((unzigzag_64(u64::from(*a)), rest)),
        [a, b, rest @ ..] if *b < 0x80 => {
            Some((unzigzag_64(u64::from(*a & 0x7f) | u64::from(*b) << 7), rest))
        }
        _ => {
            let (raw, rest) = read_long(bytes, 10)?;
            Some((unzigzag_64(raw), rest))
        }
    }
}

pub(crate) fn write_i32(value: i32, out: &mut Vec<u8>) {
    write_long(zigzag_64(i64::from(value)), out);
}

pub(crate) fn write_i64(value: i64, out: &mut Vec<u8>) {
    write_long(zigzag_64(value), out);
}

/// Returns the encoded length of `value`.
pub(crate) fn len_i64(value: i64) -> usize {
    let bits = 64 - zigzag_64(value).leading_zeros() as usize;
    bits.max(1).div_ceil(7)
}

/// Reads an unsigned number, not zigzag, and returns it with the bytes behind it.
#[inline]
pub fn read_number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    match bytes {
        [a, rest @ ..] if *a < 0x80 => Some((u64::from(*a), rest)),
        _ => read_long(bytes, 10),
    }
}

/// Writes an unsigned number, not zigzag.
#[inline]
pub fn write_number(value: u64, out: &mut Vec<u8>) {
    with_number(value, |bytes| out.extend_from_slice(bytes));
}

/// Calls `write` with the bytes of an unsigned number, not zigzag.
#[inline]
pub(crate) fn with_number<R>(mut value: u64, write: impl FnOnce(&[u8]) -> R) -> R {
    let mut bytes = [0; 10];
    let mut len = 0;
    for slot in &mut bytes {
        len += 1;
        *slot = value.to_le_bytes()[0] & 0x7f;
        value >>= 7;
        if value == 0 {
            break;
        }
        *slot |= 0x80;
    }
    write(bytes.get(..len).unwrap_or_default())
}

#[cold]
fn read_long(bytes: &[u8], len_max: u32) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    let mut rest = bytes;
    for place in 0..len_max {
        let (byte, behind) = rest.split_first()?;
        rest = behind;
        let bits = u64::from(byte & 0x7f);
        let shifted = bits << (7 * place);
        if shifted >> (7 * place) != bits {
            return None;
        }
        value |= shifted;
        if *byte < 0x80 {
            return Some((value, rest));
        }
    }
    None
}

fn write_long(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

#[inline]
fn unzigzag_32(raw: u32) -> i32 {
    (raw >> 1).cast_signed() ^ -(raw & 1).cast_signed()
}

#[inline]
fn unzigzag_64(raw: u64) -> i64 {
    (raw >> 1).cast_signed() ^ -(raw & 1).cast_signed()
}

#[inline]
fn zigzag_64(value: i64) -> u64 {
    (value << 1).cast_unsigned() ^ (value >> 63).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_at_the_edges_read_back_and_take_the_length_foretold() {
        for value in [
            0,
            -1,
            1,
            63,
            64,
            -64,
            -65,
            8191,
            8192,
            i64::from(i32::MAX),
            i64::MAX,
            i64::MIN,
        ] {
            let mut bytes = Vec::new();
            write_i64(value, &mut bytes);
            assert_eq!(bytes.len(), len_i64(value), "{value}");
            assert_eq!(read_i64(&bytes), Some((value, &[][..])));
        }
        for value in [0, -1, 63, 64, 8192, i32::MAX, i32::MIN] {
            let mut bytes = Vec::new();
            write_i32(value, &mut bytes);
            assert_eq!(read_i32(&bytes), Some((value, &[][..])));
        }
    }

    #[test]
    fn an_encoding_longer_than_needed_is_read() {
        assert_eq!(read_i32(&[0x82, 0x80, 0x00, 9]), Some((1, &[9][..])));
        assert_eq!(read_i64(&[0x81, 0x00]), Some((-1, &[][..])));
    }

    #[test]
    fn too_many_bytes_bits_beyond_the_type_and_a_missing_end_are_refused() {
        assert_eq!(read_i32(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]), None);
        assert_eq!(read_i32(&[0xff, 0xff, 0xff, 0xff, 0x10]), None);
        assert_eq!(
            read_i32(&[0xff, 0xff, 0xff, 0xff, 0x0f]),
            Some((i32::MIN, &[][..]))
        );
        assert_eq!(read_i64(&[0xff; 11]), None);
        assert_eq!(
            read_i64(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]),
            None
        );
        assert_eq!(read_i32(&[0x80]), None);
        assert_eq!(read_i32(&[]), None);
    }
}
