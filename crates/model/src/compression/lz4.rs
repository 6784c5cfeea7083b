//! LZ4, in its standard frame. The broken header checksum of older message formats is not read: no batch of
//! this layout was ever written with it.

use std::io::Write as _;

use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use super::Failure;

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];

pub(super) fn compress(records: &[u8], out: &mut Vec<u8>) -> Option<()> {
    // Settings that Kafka's Java client reads: independent blocks, no dictionary.
    let info = FrameInfo::new()
        .block_mode(BlockMode::Independent)
        .block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(info, out);
    encoder.write_all(records).ok()?;
    encoder.finish().ok()?;
    Some(())
}

pub(super) fn decompress(block: &[u8], bytes_max: usize) -> Result<Vec<u8>, Failure> {
    // The library also reads legacy and skippable frames; Kafka's clients do not.
    if !block.starts_with(&MAGIC) {
        return Err(Failure::Malformed);
    }
    super::read_bounded(FrameDecoder::new(block), bytes_max, block.len() * 3)
}
