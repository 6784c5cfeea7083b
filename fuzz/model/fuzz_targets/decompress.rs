//! Compressed blocks, the first byte choosing the codec.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stafett_model::Codec;
use stafett_model::compression::decompress;

const CODECS: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

fuzz_target!(|data: &[u8]| {
    let Some((choice, block)) = data.split_first() else {
        return;
    };
    let codec = CODECS[usize::from(choice.wrapping_sub(1) % 4)];
    for bytes_max in [1 << 10, 1 << 20] {
        if let Ok(out) = decompress(codec, block, bytes_max) {
            assert!(out.len() <= bytes_max);
        }
    }
});
