//! Escapes on the command line: `\n`, `\r`, `\t`, `\0`, `\\` and `\xHH`.

/// Returns the bytes that `text` stands for.
pub(crate) fn read(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('\\') {
        bytes.extend_from_slice(before.as_bytes());
        let mut letters = behind.chars();
        bytes.push(match letters.next() {
            Some('n') => b'\n',
            Some('r') => b'\r',
            Some('t') => b'\t',
            Some('0') => 0,
            Some('\\') => b'\\',
            Some('x') => {
                let digits = letters.as_str().get(..2);
                let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                letters.nth(1);
                byte.ok_or("expected two hexadecimal digits behind \\x")?
            }
            other => {
                let other = other.map_or_else(|| "its end".to_owned(), |letter| format!("{letter:?}"));
                return Err(format!(
                    "expected \\n, \\r, \\t, \\0, \\\\ or \\xHH, not \\ and {other}"
                ));
            }
        });
        rest = letters.as_str();
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_become_bytes() {
        assert_eq!(read(r"a\tb\n\\\x1F\0é").unwrap(), b"a\tb\n\\\x1f\0\xc3\xa9");
        for bad in [r"\", r"\q", r"\x", r"\x1", r"\xzz", r"\xé1"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
