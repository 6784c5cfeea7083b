//! Gzip (RFC 1952).

use std::io::Write as _;

use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::Failure;

pub(super) fn compress(records: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut encoder = GzEncoder::new(out, Compression::default());
    encoder.write_all(records).ok()?;
    encoder.finish().ok()?;
    Some(())
}

pub(super) fn decompress(block: &[u8], bytes_max: usize) -> Result<Vec<u8>, Failure> {
    super::read_bounded(MultiGzDecoder::new(block), bytes_max, block.len() * 4)
}
