//! Record batches of a response: opaque bytes in one or more pieces.

use bytes::Bytes;

/// A run of record batches. Its pieces are written without being joined; one piece costs no allocation.
///
/// Two runs are equal if their bytes are, however they are cut.
#[derive(Clone, Default)]
pub struct Records {
    first: Bytes,
    rest: Vec<Bytes>,
    bytes: usize,
}

impl Records {
    pub const fn new() -> Self {
        Self {
            first: Bytes::new(),
            rest: Vec::new(),
            bytes: 0,
        }
    }

    pub fn push(&mut self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        self.bytes += piece.len();
        if self.first.is_empty() && self.rest.is_empty() {
            self.first = piece;
        } else {
            self.rest.push(piece);
        }
    }

    /// Returns the number of bytes in all pieces.
    pub fn len(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        (!self.first.is_empty())
            .then_some(&self.first)
            .into_iter()
            .chain(&self.rest)
    }

    /// Returns all bytes in one piece; copies only if there is more than one.
    pub fn into_bytes(self) -> Bytes {
        if self.rest.is_empty() {
            return self.first;
        }
        let mut joined = Vec::with_capacity(self.bytes);
        self.pieces().for_each(|piece| joined.extend_from_slice(piece));
        joined.into()
    }
}

impl From<Bytes> for Records {
    fn from(piece: Bytes) -> Self {
        Self {
            bytes: piece.len(),
            first: piece,
            rest: Vec::new(),
        }
    }
}

impl From<Vec<Bytes>> for Records {
    /// Takes the pieces over without allocating.
    fn from(pieces: Vec<Bytes>) -> Self {
        Self {
            first: Bytes::new(),
            bytes: pieces.iter().map(Bytes::len).sum(),
            rest: pieces,
        }
    }
}

impl FromIterator<Bytes> for Records {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> Self {
        let mut records = Self::new();
        records.extend(pieces);
        records
    }
}

impl Extend<Bytes> for Records {
    fn extend<I: IntoIterator<Item = Bytes>>(&mut self, pieces: I) {
        pieces.into_iter().for_each(|piece| self.push(piece));
    }
}

impl PartialEq for Records {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.pieces().flatten().eq(other.pieces().flatten())
    }
}

impl Eq for Records {}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Records({} bytes in {} pieces)",
            self.bytes,
            self.pieces().count()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_equal_however_they_are_cut() {
        let whole = Records::from(Bytes::from_static(b"abcdef"));
        let cut: Records = ["ab", "", "cdef"]
            .map(|piece| Bytes::from_static(piece.as_bytes()))
            .into_iter()
            .collect();
        assert_eq!(whole, cut);
        let mut taken = Records::from(vec![Bytes::from_static(b"abc"), Bytes::from_static(b"de")]);
        taken.push(Bytes::from_static(b"f"));
        assert_eq!(whole, taken);
        assert_eq!(cut.pieces().count(), 2);
        assert_eq!(cut.len(), 6);
        assert_eq!(cut.into_bytes(), whole.into_bytes());
    }
}
