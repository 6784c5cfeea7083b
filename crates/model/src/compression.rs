//! Compression and decompression of a batch's records block.
//!
//! Decompression expects hostile input: the output is bounded, and memory grows with the bytes decompressed,
//! not with the size that a header claims. The formats are those of Kafka's own clients:
//!
//! | codec | read | written |
//! |---|---|---|
//! | gzip | any number of members | one member |
//! | snappy | xerial framing of snappy-java, or one raw block (librdkafka) | xerial, 32 KiB blocks |
//! | lz4 | one LZ4 frame, blocks linked or independent | one frame, independent 64 KiB blocks |
//! | zstd | any number of frames, windows up to 128 MiB, no dictionary | one frame, fast level |
//!
//! Codecs are third-party code: a panic inside one is caught and returned as an error of the input.

mod gzip;
mod lz4;
mod snappy;
mod zstd;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::batch::{BatchError, Codec};

/// Compresses `records` and appends them to `out`. After an error `out` may hold a part of them.
pub fn compress(codec: Codec, records: &[u8], out: &mut Vec<u8>) -> Result<(), BatchError> {
    let mut encode = || match codec {
        Codec::None => {
            out.extend_from_slice(records);
            Some(())
        }
        Codec::Gzip => gzip::compress(records, out),
        Codec::Snappy => snappy::compress(records, out),
        Codec::Lz4 => lz4::compress(records, out),
        Codec::Zstd => {
            zstd::compress(records, out);
            Some(())
        }
    };
    // `out` may hold a part, as after any other error.
    catch_unwind(AssertUnwindSafe(&mut encode))
        .ok()
        .flatten()
        .ok_or(BatchError::Compression { codec })
}

/// Decompresses `block` to at most `bytes_max` bytes.
pub fn decompress(codec: Codec, block: &[u8], bytes_max: usize) -> Result<Vec<u8>, BatchError> {
    let decode = match codec {
        Codec::None if block.len() > bytes_max => return Err(BatchError::TooLarge { limit: bytes_max }),
        Codec::None => return Ok(block.to_vec()),
        Codec::Gzip => gzip::decompress,
        Codec::Snappy => snappy::decompress,
        Codec::Lz4 => lz4::decompress,
        Codec::Zstd => zstd::decompress,
    };
    // Unwind-safe: the closure only borrows the input and leaves no partial state.
    match catch_unwind(AssertUnwindSafe(|| decode(block, bytes_max))) {
        Ok(Ok(records)) => Ok(records),
        Ok(Err(Failure::TooLarge)) => Err(BatchError::TooLarge { limit: bytes_max }),
        Ok(Err(Failure::Malformed)) | Err(_) => Err(BatchError::Decompression { codec }),
    }
}

/// Returns the largest number of bytes that one compressed byte can stand for, rounded up.
///
/// Gzip: a 258-byte match in two bits. Snappy: a 64-byte copy in three bytes. LZ4: 255 more bytes of a match
/// in each byte of its length. Zstd: a block of 128 KiB in four bytes (header and run-length byte).
pub fn ratio_max(codec: Codec) -> usize {
    match codec {
        Codec::None => 1,
        Codec::Gzip => 1032,
        Codec::Snappy => 22,
        Codec::Lz4 => 255,
        Codec::Zstd => 32 * 1024,
    }
}

enum Failure {
    Malformed,
    TooLarge,
}

impl From<std::io::Error> for Failure {
    fn from(_: std::io::Error) -> Self {
        Self::Malformed
    }
}

/// Reads `decoder` to its end, or until one byte more than `bytes_max` is read.
fn read_bounded(decoder: impl std::io::Read, bytes_max: usize, hint: usize) -> Result<Vec<u8>, Failure> {
    use std::io::Read as _;
    let mut out = Vec::with_capacity(hint.min(bytes_max));
    let bound = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    decoder.take(bound).read_to_end(&mut out)?;
    if out.len() > bytes_max {
        Err(Failure::TooLarge)
    } else {
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    /// Returns bytes that compress moderately.
    fn sample(len: usize) -> Vec<u8> {
        let mut state = 7_u32;
        let mut text = std::iter::from_fn(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Some([b'a', b'b', state.to_be_bytes()[0]])
        });
        text.by_ref().flatten().take(len).collect()
    }

    #[test]
    fn what_is_compressed_decompresses_to_itself() {
        for codec in CODECS {
            for len in [0, 1, 61, 32 * 1024, 32 * 1024 + 1, 128 * 1024, 300_000] {
                let records = sample(len);
                let mut block = Vec::new();
                compress(codec, &records, &mut block).unwrap();
                assert!(
                    len < 1000 || codec == Codec::None || block.len() < len,
                    "{codec:?} {len}"
                );
                assert_eq!(
                    decompress(codec, &block, len).unwrap(),
                    records,
                    "{codec:?} {len}"
                );
            }
        }
    }

    #[test]
    fn output_beyond_the_bound_is_refused() {
        for codec in CODECS {
            let mut bomb = Vec::new();
            compress(codec, &vec![0; 8 << 20], &mut bomb).unwrap();
            for limit in [0, 1, 4096, (8 << 20) - 1] {
                assert_eq!(
                    decompress(codec, &bomb, limit),
                    Err(BatchError::TooLarge { limit }),
                    "{codec:?}"
                );
            }
        }
    }

    #[test]
    fn a_block_cut_short_is_never_taken_for_the_whole() {
        let records = sample(70_000);
        for codec in CODECS {
            let mut block = Vec::new();
            compress(codec, &records, &mut block).unwrap();
            for len in (0..block.len()).step_by(97) {
                let cut = decompress(codec, &block[..len], 1 << 20);
                assert!(
                    cut.is_err() || cut.unwrap().len() < records.len(),
                    "{codec:?} cut to {len}"
                );
            }
        }
    }

    #[test]
    fn ratios_hold_for_the_most_compressible_input() {
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let mut block = Vec::new();
            compress(codec, &vec![0; 16 << 20], &mut block).unwrap();
            assert!(block.len() * ratio_max(codec) >= 16 << 20, "{codec:?}");
        }
    }
}
