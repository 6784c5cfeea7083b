//! Snappy, in the framing of snappy-java's output stream ("xerial"), or as one raw block.
//!
//! ```text
//! 8  magic 82 'SNAPPY' 00
//! 4  version, 4  oldest version that can read it: both big-endian, 1
//!    then blocks: 4 bytes length, big-endian, and one raw snappy block
//! ```
//!
//! Another stream may follow: snappy-java reads concatenated streams.

use snap::raw::{Decoder, Encoder, decompress_len};

use super::Failure;
use crate::batch::Codec;

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const VERSIONS: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];
const BLOCK_BYTES: usize = 32 * 1024;

pub(super) fn compress(records: &[u8], out: &mut Vec<u8>) -> Option<()> {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSIONS);
    let mut encoder = Encoder::new();
    for piece in records.chunks(BLOCK_BYTES) {
        let block = encoder.compress_vec(piece).ok()?;
        out.extend_from_slice(&u32::try_from(block.len()).ok()?.to_be_bytes());
        out.extend_from_slice(&block);
    }
    Some(())
}

pub(super) fn decompress(block: &[u8], bytes_max: usize) -> Result<Vec<u8>, Failure> {
    let mut out = Vec::new();
    if !block.starts_with(&MAGIC) {
        decode_raw(block, bytes_max, &mut out)?;
        return Ok(out);
    }
    let mut rest = block;
    while !rest.is_empty() {
        if let Some(stream) = rest.strip_prefix(&MAGIC) {
            rest = stream.get(VERSIONS.len()..).ok_or(Failure::Malformed)?;
            continue;
        }
        let (length, behind) = rest.split_first_chunk().ok_or(Failure::Malformed)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| Failure::Malformed)?;
        let (raw, behind) = behind.split_at_checked(length).ok_or(Failure::Malformed)?;
        decode_raw(raw, bytes_max, &mut out)?;
        rest = behind;
    }
    Ok(out)
}

/// Decompresses `raw` and appends the result. Memory is allocated only if the stated length is one that the
/// input can expand to.
fn decode_raw(raw: &[u8], bytes_max: usize, out: &mut Vec<u8>) -> Result<(), Failure> {
    let length = decompress_len(raw).map_err(|_| Failure::Malformed)?;
    let start = out.len();
    if length > bytes_max.saturating_sub(start) {
        return Err(Failure::TooLarge);
    }
    if length > raw.len().saturating_mul(super::ratio_max(Codec::Snappy)) {
        return Err(Failure::Malformed);
    }
    out.resize(start + length, 0);
    let target = out.get_mut(start..).unwrap_or_default();
    let written = Decoder::new()
        .decompress(raw, target)
        .map_err(|_| Failure::Malformed)?;
    if written == length {
        Ok(())
    } else {
        Err(Failure::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_raw_block_is_read_as_well() {
        let raw = Encoder::new()
            .compress_vec(b"a raw block, as librdkafka sends it")
            .unwrap();
        assert_eq!(
            decompress(&raw, 100).ok().unwrap(),
            b"a raw block, as librdkafka sends it"
        );
    }

    #[test]
    fn streams_one_behind_the_other_are_read() {
        let mut block = Vec::new();
        compress(b"one ", &mut block).unwrap();
        compress(b"two", &mut block).unwrap();
        assert_eq!(decompress(&block, 100).ok().unwrap(), b"one two");
    }

    #[test]
    fn a_claimed_length_takes_no_memory() {
        let claim = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0];
        assert!(matches!(decompress(&claim, usize::MAX), Err(Failure::Malformed)));
    }
}
