//! Bytes that are not a batch, or only a part of one: errors, never a panic, never more memory than allowed.

use bytes::Bytes;
use proptest::prelude::*;
use stafett_model::{
    BatchError, BatchHeader, Numbering, Offset, ProduceLimits, Selection, compression, max_timestamp_record,
    offset_for_timestamp, records, select, sole_batch, validate_deep, validate_produced, with_append_time,
};

use crate::naive::{CODECS, built, reseal, some_records};

const DECOMPRESSED_MAX: usize = 1 << 16;

/// Calls every function that takes the bytes of a batch.
fn try_all(bytes: &Bytes) {
    let limits = ProduceLimits {
        decompressed_bytes_max: DECOMPRESSED_MAX,
        ..ProduceLimits::default()
    };
    let _ = BatchHeader::verify(bytes);
    let _ = validate_produced(bytes, &limits);
    let _ = validate_deep(bytes, &limits);
    let _ = sole_batch(bytes, &limits);
    if let Ok(read) = records(bytes, DECOMPRESSED_MAX) {
        let _ = read.clone().seek(Offset(5));
        assert!(read.count() <= DECOMPRESSED_MAX / 7 + bytes.len() / 7 + 1);
    }
    let _ = offset_for_timestamp(bytes, 0, Offset::ZERO, DECOMPRESSED_MAX);
    let _ = max_timestamp_record(bytes, DECOMPRESSED_MAX);
    let _ = with_append_time(bytes, 1);
    for numbering in [Numbering::Keep, Numbering::Renumber] {
        let _ = select(
            bytes,
            &Selection::Range(0..9),
            numbering,
            Offset(u64::MAX),
            DECOMPRESSED_MAX,
        );
    }
}

#[test]
fn a_batch_cut_anywhere_is_refused() {
    for codec in CODECS {
        let batch = built(codec, &some_records(20));
        for len in 0..batch.len() {
            let cut = batch.slice(..len);
            let expected = if len < 61 { 61 } else { batch.len() };
            let refused = Err(BatchError::Truncated {
                given: len,
                wanted: expected,
            });
            assert_eq!(validate_produced(&cut, &ProduceLimits::default()), refused);
            assert!(records(&cut, DECOMPRESSED_MAX).is_err());
            try_all(&cut);
        }
    }
}

#[test]
fn records_cut_anywhere_behind_a_right_header_are_refused() {
    for codec in CODECS {
        let batch = built(codec, &some_records(20));
        for len in 61..batch.len() {
            let mut cut = batch[..len].to_vec();
            cut[8..12].copy_from_slice(&u32::try_from(len - 12).unwrap().to_be_bytes());
            reseal(&mut cut);
            let cut = Bytes::from(cut);
            assert!(BatchHeader::verify(&cut).is_ok());
            let lost_only_padding = validate_deep(&cut, &ProduceLimits::default()).is_ok();
            // An LZ4 frame may lack its end mark, and gzip decoders do not all insist on the trailer.
            assert!(
                !lost_only_padding || len + 8 >= batch.len(),
                "{codec:?} cut to {len} of {}",
                batch.len()
            );
            try_all(&cut);
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        try_all(&bytes.into());
    }

    #[test]
    fn arbitrary_records_behind_a_right_header_never_panic(
        body in proptest::collection::vec(any::<u8>(), 0..300), codec in 0..CODECS.len(), count in 1..1000_i32,
    ) {
        let mut bytes = built(CODECS[codec], &some_records(1))[..61].to_vec();
        bytes.extend(body);
        let length = u32::try_from(bytes.len() - 12).unwrap();
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[23..27].copy_from_slice(&(count - 1).to_be_bytes());
        bytes[57..61].copy_from_slice(&count.to_be_bytes());
        reseal(&mut bytes);
        try_all(&bytes.into());
    }

    #[test]
    fn a_changed_block_decompresses_within_its_bound_or_not_at_all(
        codec in 1..CODECS.len(), at: prop::sample::Index, with: u8,
    ) {
        let mut block = Vec::new();
        compression::compress(CODECS[codec], &[7; 9000], &mut block).unwrap();
        let at = at.index(block.len());
        block[at] = with;
        if let Ok(out) = compression::decompress(CODECS[codec], &block, DECOMPRESSED_MAX) {
            prop_assert!(out.len() <= DECOMPRESSED_MAX);
        }
    }
}
