//! Batches from a producer with one error at a time.

use bytes::Bytes;
use proptest::prelude::*;
use stafett_model::{
    BatchBuilder, BatchError, BatchHeader, Codec, ProduceLimits, ProducerId, Record, sole_batch,
    validate_deep, validate_produced,
};

use crate::naive::{CODECS, built, plain_records, reseal, some_records};

const LIMITS: ProduceLimits = ProduceLimits {
    batch_bytes_max: 1 << 20,
    records_max: 1000,
    deep: false,
    decompressed_bytes_max: 1 << 20,
};

/// Builds a valid batch of three records with `bytes` written at `at` and a corrected checksum.
fn edited(at: usize, bytes: &[u8]) -> Bytes {
    edit(&built(Codec::None, &some_records(3)), at, bytes)
}

fn edit(batch: &[u8], at: usize, bytes: &[u8]) -> Bytes {
    let mut out = batch.to_vec();
    out[at..at + bytes.len()].copy_from_slice(bytes);
    reseal(&mut out);
    out.into()
}

fn refusal(batch: &[u8]) -> BatchError {
    validate_produced(batch, &LIMITS).unwrap_err()
}

#[test]
fn header_fields_that_a_producer_may_not_send_are_refused() {
    let base = 1_700_000_000_000;
    for (batch, expected) in [
        (edited(0, &5_i64.to_be_bytes()), BatchError::BaseOffset(5)),
        (edited(16, &[1]), BatchError::Magic(1)),
        (edited(16, &[0]), BatchError::Magic(0)),
        (edited(16, &[3]), BatchError::Magic(3)),
        (edited(21, &[0, 5]), BatchError::Codec(5)),
        (edited(21, &[0, 1 << 3]), BatchError::AppendTime),
        (edited(21, &[0, 1 << 5]), BatchError::Control),
        (
            edited(21, &[0, 1 << 4]),
            BatchError::Producer {
                id: -1,
                epoch: -1,
                sequence: -1,
            },
        ),
        (
            edited(23, &3_i32.to_be_bytes()),
            BatchError::Counts {
                records: 3,
                last_offset_delta: 3,
            },
        ),
        (
            edited(57, &0_i32.to_be_bytes()),
            BatchError::Counts {
                records: 0,
                last_offset_delta: 2,
            },
        ),
        (
            edited(57, &(-1_i32).to_be_bytes()),
            BatchError::Counts {
                records: -1,
                last_offset_delta: 2,
            },
        ),
        (
            edited(35, &5_i64.to_be_bytes()),
            BatchError::Timestamps { base, max: 5 },
        ),
        (
            edited(35, &(-2_i64).to_be_bytes()),
            BatchError::Timestamps { base, max: -2 },
        ),
        (
            edited(43, &(-2_i64).to_be_bytes()),
            BatchError::Producer {
                id: -2,
                epoch: -1,
                sequence: -1,
            },
        ),
        (
            edited(43, &4_i64.to_be_bytes()),
            BatchError::Producer {
                id: 4,
                epoch: -1,
                sequence: -1,
            },
        ),
        (edited(8, &20_i32.to_be_bytes()), BatchError::Length(20)),
        (edited(8, &(-1_i32).to_be_bytes()), BatchError::Length(-1)),
    ] {
        assert_eq!(refusal(&batch), expected);
    }
}

#[test]
fn counts_that_are_off_by_one_name_the_record() {
    let counted = |count: i32| {
        let mut batch = built(Codec::None, &some_records(3)).to_vec();
        batch[23..27].copy_from_slice(&(count - 1).to_be_bytes());
        edit(&batch, 57, &count.to_be_bytes())
    };
    assert_eq!(refusal(&counted(2)), BatchError::Record { index: 2 });
    assert_eq!(refusal(&counted(4)), BatchError::Record { index: 3 });
    assert!(validate_produced(&counted(3), &LIMITS).is_ok());
}

#[test]
fn offset_deltas_that_skip_or_repeat_are_refused() {
    let mut records = some_records(3);
    records[1].offset = 2;
    let batch = crate::naive::naive_batch(&records);
    assert_eq!(refusal(&batch), BatchError::Record { index: 1 });
    records[1].offset = 0;
    assert_eq!(
        refusal(&crate::naive::naive_batch(&records)),
        BatchError::Record { index: 1 }
    );
}

#[test]
fn timestamps_may_be_before_1970_and_not_beyond_all() {
    let mut records = some_records(3);
    for timestamp in [-1, -2, -20_000_000_000_000] {
        records[2].timestamp = timestamp;
        assert!(validate_produced(&crate::naive::naive_batch(&records), &LIMITS).is_ok());
    }
    let last = i64::MAX.to_be_bytes();
    let mut batch = built(Codec::None, &some_records(2)).to_vec();
    batch[27..35].copy_from_slice(&last);
    assert!(matches!(
        refusal(&edit(&batch, 35, &last)),
        BatchError::Timestamps { .. }
    ));
}

#[test]
fn limits_hold() {
    let batch = built(Codec::None, &some_records(3));
    let bytes = batch.len();
    let small = ProduceLimits {
        batch_bytes_max: bytes - 1,
        ..LIMITS
    };
    assert_eq!(
        validate_produced(&batch, &small),
        Err(BatchError::Oversized {
            bytes,
            limit: bytes - 1
        })
    );
    let few = ProduceLimits {
        records_max: 2,
        ..LIMITS
    };
    assert_eq!(
        validate_produced(&batch, &few),
        Err(BatchError::TooManyRecords { records: 3, limit: 2 })
    );
    let packed = built(Codec::Lz4, &some_records(100));
    let tight = ProduceLimits {
        decompressed_bytes_max: 100,
        ..LIMITS
    };
    assert!(validate_produced(&packed, &tight).is_ok());
    assert_eq!(
        validate_deep(&packed, &tight),
        Err(BatchError::TooLarge { limit: 100 })
    );
}

#[test]
fn a_compressed_batch_cannot_claim_more_records_than_could_be_in_it() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let batch = built(codec, &some_records(2));
        let claim = 100_000_000_i32;
        let mut claimed = batch.to_vec();
        claimed[23..27].copy_from_slice(&(claim - 1).to_be_bytes());
        let claimed = edit(&claimed, 57, &claim.to_be_bytes());
        let unlimited = ProduceLimits {
            records_max: u32::MAX,
            ..LIMITS
        };
        let bytes = batch.len() - 61;
        let expected = BatchError::Implausible {
            records: claim,
            bytes,
        };
        assert_eq!(
            validate_produced(&claimed, &unlimited),
            Err(expected),
            "{codec:?}"
        );
    }
}

#[test]
fn a_compressed_batch_is_walked_only_when_asked() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let mut off = built(codec, &some_records(9)).to_vec();
        off[23..27].copy_from_slice(&9_i32.to_be_bytes());
        let off = edit(&off, 57, &10_i32.to_be_bytes());
        assert!(validate_produced(&off, &LIMITS).is_ok());
        assert_eq!(validate_deep(&off, &LIMITS), Err(BatchError::Record { index: 9 }));
    }
}

#[test]
fn exactly_one_batch_is_taken() {
    let batch = built(Codec::None, &some_records(3));
    assert!(sole_batch(&batch, &LIMITS).is_ok());
    let two = Bytes::from([&batch[..], &batch[..]].concat());
    assert_eq!(
        sole_batch(&two, &LIMITS),
        Err(BatchError::Trailing { bytes: batch.len() })
    );
    assert!(validate_produced(&two, &LIMITS).is_ok());
    let more = Bytes::from([&batch[..], &[0]].concat());
    assert_eq!(sole_batch(&more, &LIMITS), Err(BatchError::Trailing { bytes: 1 }));
    assert_eq!(
        sole_batch(&Bytes::new(), &LIMITS),
        Err(BatchError::Truncated { given: 0, wanted: 61 })
    );
}

#[test]
fn a_max_timestamp_that_was_never_set_is_put_right_in_a_copy() {
    for codec in CODECS {
        let sound = built(codec, &some_records(9));
        let unset = edit(&sound, 35, &(-1_i64).to_be_bytes());
        let (repaired, header) = sole_batch(&unset, &LIMITS).unwrap();
        assert_eq!(repaired, sound, "{codec:?}");
        assert_eq!(header, BatchHeader::verify(&sound).unwrap());
    }
    let later = edit(
        &built(Codec::None, &some_records(9)),
        35,
        &1_800_000_000_000_i64.to_be_bytes(),
    );
    assert!(matches!(refusal(&later), BatchError::Timestamps { .. }));
    assert_eq!(
        sole_batch(&later, &LIMITS).unwrap().0,
        built(Codec::None, &some_records(9))
    );
}

#[test]
fn a_max_timestamp_before_the_first_record_is_put_right_however_it_is_compressed() {
    for codec in CODECS {
        let sound = built(codec, &some_records(9));
        for earlier in [5_i64, -2, i64::MIN] {
            let wrong = edit(&sound, 35, &earlier.to_be_bytes());
            assert!(matches!(refusal(&wrong), BatchError::Timestamps { .. }));
            assert_eq!(sole_batch(&wrong, &LIMITS).unwrap().0, sound, "{codec:?}");
        }
    }
}

/// A batch that fuzzing found: its record is 17 ms before the base timestamp, and compressed.
const BEFORE_ITS_BASE: &str = "000000000000000000000051ffffffff02be441247000200000000000000000000ffffffffffffff2b03e8ffff\
    ffffffffffffffffffffffff0000000182534e415050590000000001000000010000000c0a2412002100066b65\
    790000";

#[test]
fn records_before_the_base_timestamp_are_kept_with_their_own_time() {
    let found: Vec<u8> = (0..BEFORE_ITS_BASE.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&BEFORE_ITS_BASE[at..at + 2], 16).unwrap())
        .collect();
    let (batch, header) = sole_batch(&edit(&found, 27, &65_535_i64.to_be_bytes()), &LIMITS).unwrap();
    assert_eq!(header.max_timestamp, 65_518);
    assert_eq!(validate_deep(&batch, &LIMITS), Ok(header));
    assert!(
        matches!(refusal(&batch), BatchError::Timestamps { .. }),
        "unless it is walked"
    );
}

#[test]
fn an_idempotent_producer_needs_epoch_and_sequence() {
    for (epoch, sequence, sound) in [(0, 0, true), (-1, 0, false), (0, -1, false), (9, i32::MAX, true)] {
        let mut builder = BatchBuilder::new(Codec::None)
            .producer(ProducerId(0), epoch, sequence)
            .transactional();
        builder.push(&Record::default()).unwrap();
        assert_eq!(
            validate_produced(&builder.finish().unwrap(), &LIMITS).is_ok(),
            sound
        );
    }
}

#[test]
fn records_without_timestamps_are_sound() {
    let mut builder = BatchBuilder::new(Codec::None);
    builder
        .push(&Record {
            timestamp: -1,
            ..Record::default()
        })
        .unwrap();
    assert_eq!(
        validate_produced(&builder.finish().unwrap(), &LIMITS)
            .unwrap()
            .max_timestamp,
        -1
    );
}

proptest! {
    #[test]
    fn any_flipped_bit_is_found(records in plain_records(8), codec in 0..CODECS.len(), at: prop::sample::Index) {
        let sound = built(CODECS[codec], &records);
        let bit = 16 * 8 + at.index((sound.len() - 16) * 8);
        let mut broken = sound.to_vec();
        broken[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(BatchHeader::verify(&broken).is_err());
        prop_assert!(validate_produced(&broken, &LIMITS).is_err());
    }

    /// The validation and the reader agree on valid records for any bytes with a valid checksum.
    #[test]
    fn what_the_check_lets_through_the_reader_reads(
        records in plain_records(8), at: prop::sample::Index, with: u8,
    ) {
        let sound = built(Codec::None, &records);
        let broken = edit(&sound, 61 + at.index(sound.len() - 61), &[with]);
        if let Ok(header) = validate_produced(&broken, &LIMITS) {
            let read = stafett_model::records(&broken, 0).unwrap().flatten().count();
            prop_assert_eq!(read, usize::try_from(header.record_count).unwrap());
        }
    }
}
