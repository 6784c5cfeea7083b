//! Headers of a record as the bytes of one cell.
//!
//! ```text
//! (name: bytes · has a value: u8 · value: bytes)*        bytes as in `stafett_model::codec`
//! ```

use stafett_model::codec::{get, get_bytes, put_bytes};

/// A header: name and value.
pub(crate) type Header<'a> = (&'a [u8], Option<&'a [u8]>);

pub(crate) fn write<'a>(out: &mut Vec<u8>, headers: impl Iterator<Item = Header<'a>>) {
    for (name, value) in headers {
        put_bytes(name, out);
        out.push(u8::from(value.is_some()));
        put_bytes(value.unwrap_or_default(), out);
    }
}

pub(crate) fn read(mut rest: &[u8]) -> impl Iterator<Item = Header<'_>> {
    std::iter::from_fn(move || {
        let name = get_bytes(&mut rest)?;
        let [has_value] = get(&mut rest)?;
        let value = get_bytes(&mut rest)?;
        Some((name, (has_value == 1).then_some(value)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_as_they_were() {
        let all: [Header<'_>; 3] = [(b"a", Some(b"1")), (b"", None), (b"\xff", Some(b""))];
        let mut bytes = Vec::new();
        write(&mut bytes, all.into_iter());
        assert_eq!(read(&bytes).collect::<Vec<_>>(), all);
        assert_eq!(read(&bytes[..bytes.len() - 1]).count(), 2);
    }
}
