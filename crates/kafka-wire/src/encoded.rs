//! A finished frame, as chunks for a vectored write.

use std::io::IoSlice;

use bytes::{Buf, Bytes};
use smallvec::SmallVec;

/// Finished bytes in one or more chunks: an iterator over chunks, or a [`Buf`] that supports vectored writes.
#[derive(Debug, Clone)]
pub struct Encoded {
    /// First chunk; may be empty.
    head: Bytes,
    rest: SmallVec<[Bytes; 3]>,
    /// Index of the first chunk of `rest` that is not consumed.
    next: usize,
    bytes: usize,
}

impl Encoded {
    pub(crate) fn new(head: Bytes, rest: SmallVec<[Bytes; 3]>, bytes: usize) -> Self {
        Self {
            head,
            rest,
            next: 0,
            bytes,
        }
    }

    /// Returns bytes that are encoded already.
    pub fn of(bytes: Bytes) -> Self {
        let count = bytes.len();
        Self::new(bytes, SmallVec::new(), count)
    }

    /// Returns the number of bytes left in all chunks.
    pub fn len(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Iterates over the remaining chunks, none of them empty.
    pub fn chunks(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.head)
            .chain(self.rest.iter().skip(self.next))
            .filter(|chunk| !chunk.is_empty())
    }

    /// Returns all bytes in one piece; copies only if there is more than one chunk.
    pub fn into_bytes(mut self) -> Bytes {
        self.copy_to_bytes(self.bytes)
    }
}

impl IntoIterator for Encoded {
    type Item = Bytes;
    type IntoIter = std::iter::Filter<
        std::iter::Chain<std::iter::Once<Bytes>, std::iter::Skip<smallvec::IntoIter<[Bytes; 3]>>>,
        fn(&Bytes) -> bool,
    >;

    fn into_iter(self) -> Self::IntoIter {
        let is_filled: fn(&Bytes) -> bool = |chunk| !chunk.is_empty();
        std::iter::once(self.head)
            .chain(self.rest.into_iter().skip(self.next))
            .filter(is_filled)
    }
}

impl Buf for Encoded {
    fn remaining(&self) -> usize {
        self.bytes
    }

    fn chunk(&self) -> &[u8] {
        self.chunks().next().map_or(&[], |chunk| chunk)
    }

    fn chunks_vectored<'a>(&'a self, dst: &mut [IoSlice<'a>]) -> usize {
        let mut filled = 0;
        for (slot, chunk) in dst.iter_mut().zip(self.chunks()) {
            *slot = IoSlice::new(chunk);
            filled += 1;
        }
        filled
    }

    fn advance(&mut self, count: usize) {
        assert!(count <= self.bytes, "advanced by {count} of {} bytes", self.bytes);
        self.bytes -= count;
        let mut left = count;
        while left > 0 {
            if self.head.is_empty() {
                self.head = self
                    .rest
                    .get_mut(self.next)
                    .map(std::mem::take)
                    .unwrap_or_default();
                self.next += 1;
            }
            let step = left.min(self.head.len());
            self.head.advance(step);
            left -= step;
        }
    }

    fn copy_to_bytes(&mut self, count: usize) -> Bytes {
        assert!(count <= self.bytes, "{count} of {} bytes asked for", self.bytes);
        if self.head.is_empty() && self.next < self.rest.len() {
            self.head = self
                .rest
                .get_mut(self.next)
                .map(std::mem::take)
                .unwrap_or_default();
            self.next += 1;
        }
        if count <= self.head.len() {
            self.bytes -= count;
            return self.head.split_to(count);
        }
        let mut joined = Vec::with_capacity(count);
        while joined.len() < count {
            let chunk = self.chunk();
            let step = chunk.len().min(count - joined.len());
            joined.extend_from_slice(chunk.get(..step).unwrap_or_default());
            self.advance(step);
        }
        joined.into()
    }
}
