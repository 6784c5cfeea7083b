//! CRC-32C (Castagnoli), the one checksum of every format here.

use crc_fast::{CrcAlgorithm, Digest};

/// Computes the CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    narrow(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes))
}

/// CRC-32C computed piece by piece.
#[derive(Debug)]
pub struct Crc32c(Digest);

impl Crc32c {
    pub fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(&self) -> u32 {
        narrow(self.0.finalize())
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a 32-bit checksum in the library's common 64-bit type"
)]
fn narrow(sum: u64) -> u32 {
    sum as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_catalogue() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn pieces_sum_like_the_whole() {
        let mut pieces = Crc32c::new();
        pieces.update(b"1234");
        pieces.update(b"56789");
        assert_eq!(pieces.finish(), crc32c(b"123456789"));
    }
}
