//! Little-endian numbers in byte slices, for all formats of the journal.

/// Reads numbers from the front of a slice; `None` if it is too short.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*front)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    pub(crate) fn bytes16(&mut self) -> Option<[u8; 16]> {
        self.array()
    }
}

/// Writes `value` over existing bytes from `at` on.
pub(crate) fn patch(buffer: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = buffer.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

/// Converts a count or length that is known to fit 32 bits.
pub(crate) fn u32_of(n: usize) -> u32 {
    u32::try_from(n).expect("lengths inside a segment fit 32 bits")
}

/// Converts a 32-bit length to `usize`.
pub(crate) fn usize_of(n: u32) -> usize {
    usize::try_from(n).expect("this program needs an address space of 32 bits or more")
}
