//! Zstandard (RFC 8878).

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::Failure;

/// Largest window, used by the highest levels; Kafka lets producers choose any level.
const WINDOW_BYTES_MAX: u64 = 128 << 20;
const SKIPPABLE_MAGIC: [u8; 3] = [0x2a, 0x4d, 0x18];

pub(super) fn compress(records: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&compress_to_vec(records, CompressionLevel::Fastest));
}

pub(super) fn decompress(block: &[u8], bytes_max: usize) -> Result<Vec<u8>, Failure> {
    let mut out = Vec::new();
    let mut rest = block;
    if rest.is_empty() {
        return Err(Failure::Malformed);
    }
    while !rest.is_empty() {
        rest = match skippable(rest) {
            Some(behind) => behind?,
            None => frame(rest, bytes_max, &mut out)?,
        };
    }
    Ok(out)
}

/// Decodes the frame at the front of `input` and returns the input behind it.
///
/// The decoder is asked for one byte more than allowed. It buffers its output, so that a large window does
/// not let it decode further unnoticed than one block (128 KiB).
fn frame<'a>(input: &'a [u8], bytes_max: usize, out: &mut Vec<u8>) -> Result<&'a [u8], Failure> {
    let mut rest = input;
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(WINDOW_BYTES_MAX);
    decoder.reset(&mut rest).map_err(|_| Failure::Malformed)?;
    let allowed = bytes_max.saturating_sub(out.len());
    let strategy = BlockDecodingStrategy::UptoBytes(allowed.saturating_add(1));
    let finished = decoder
        .decode_blocks(&mut rest, strategy)
        .map_err(|_| Failure::Malformed)?;
    if !finished || decoder.can_collect() > allowed {
        return Err(Failure::TooLarge);
    }
    decoder.collect_to_writer(&mut *out)?;
    // The checksum is complete only after all output is taken.
    if decoder
        .get_checksum_from_data()
        .is_some_and(|sum| decoder.get_calculated_checksum() != Some(sum))
    {
        return Err(Failure::Malformed);
    }
    Ok(rest)
}

/// Returns the input behind the skippable frame at the front of `input`; `None` if there is no such frame.
fn skippable(input: &[u8]) -> Option<Result<&[u8], Failure>> {
    let [kind, magic @ ..] = input.first_chunk::<4>()?;
    if *magic != SKIPPABLE_MAGIC || kind & 0xf0 != 0x50 {
        return None;
    }
    let behind = input.get(4..).and_then(|rest| {
        let (length, rest) = rest.split_first_chunk()?;
        rest.get(usize::try_from(u32::from_le_bytes(*length)).ok()?..)
    });
    Some(behind.ok_or(Failure::Malformed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_one_behind_the_other_and_skippable_ones_are_read() {
        let mut block = Vec::new();
        compress(b"one ", &mut block);
        block.extend_from_slice(&[0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 9, 9, 9]);
        compress(b"two", &mut block);
        assert_eq!(decompress(&block, 100).ok().unwrap(), b"one two");
        assert!(matches!(decompress(&block, 6), Err(Failure::TooLarge)));
    }

    /// Blocks of 128 KiB in four bytes each, and a window of 128 MiB that would let a decoder keep them all.
    #[test]
    fn a_large_window_does_not_hide_a_bomb() {
        let mut bomb = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 17 << 3];
        for _ in 0..99 {
            bomb.extend_from_slice(&[0x02, 0x00, 0x10, b'x']);
        }
        bomb.extend_from_slice(&[0x03, 0x00, 0x10, b'x']);
        let bytes = 100 * 128 * 1024;
        assert!(matches!(decompress(&bomb, bytes - 1), Err(Failure::TooLarge)));
        assert!(matches!(decompress(&bomb, 1000), Err(Failure::TooLarge)));
        assert_eq!(decompress(&bomb, bytes).ok().unwrap(), vec![b'x'; bytes]);
        assert!(bomb.len() * crate::compression::ratio_max(crate::batch::Codec::Zstd) >= bytes);
    }

    #[test]
    fn a_window_beyond_all_levels_is_refused() {
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 18 << 3, 0x03, 0x00, 0x10, b'x'];
        assert!(matches!(decompress(&frame, 1 << 20), Err(Failure::Malformed)));
    }

    #[test]
    fn a_wrong_content_checksum_is_found() {
        let mut block = Vec::new();
        compress(b"something to sum", &mut block);
        *block.last_mut().unwrap() ^= 1;
        assert!(matches!(decompress(&block, 100), Err(Failure::Malformed)));
    }
}
