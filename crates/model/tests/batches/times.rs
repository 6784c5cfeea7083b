//! Records found by timestamp, and append time.

use bytes::Bytes;
use proptest::prelude::*;
use stafett_model::batch::placement;
use stafett_model::{
    BatchHeader, Codec, Epoch, Offset, max_timestamp_record, offset_for_timestamp, with_append_time,
};

use crate::naive::{BYTES_MAX, CODECS, built, plain_records, read_all, some_records};

/// Returns `batch` as stored at `base`.
fn stored(batch: &Bytes, base: u64) -> Bytes {
    let head = placement(Offset(base), Epoch(1), batch.len());
    [&head[..], &batch[16..]].concat().into()
}

proptest! {
    #[test]
    fn the_first_record_late_enough_is_found(
        records in plain_records(20), codec in 0..CODECS.len(), pick: prop::sample::Index, beyond in -2..3_i64,
        from in 0..25_u64,
    ) {
        let batch = stored(&built(CODECS[codec], &records), 100);
        let wanted = records[pick.index(records.len())].timestamp + beyond;
        let late = |r: &&crate::naive::Plain| r.timestamp >= wanted && r.offset.cast_unsigned() >= from;
        let expected = records.iter().find(late).map(|r| (Offset(r.offset.cast_unsigned() + 100), r.timestamp));
        let found = offset_for_timestamp(&batch, wanted, Offset(100 + from), BYTES_MAX).unwrap();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn the_first_of_the_latest_records_is_found(records in plain_records(20), codec in 0..CODECS.len()) {
        let batch = stored(&built(CODECS[codec], &records), 100);
        let latest = records.iter().map(|r| r.timestamp).max().unwrap();
        let first = records.iter().find(|r| r.timestamp == latest).unwrap();
        let expected = Some((Offset(first.offset.cast_unsigned() + 100), latest));
        prop_assert_eq!(max_timestamp_record(&batch, BYTES_MAX).unwrap(), expected);
    }
}

#[test]
fn a_batch_with_append_time_is_sound_and_its_records_have_that_time() {
    for codec in CODECS {
        let source = built(codec, &some_records(5));
        let split = with_append_time(&source, 99).unwrap();
        assert_eq!(
            split.body.as_ptr(),
            source[61..].as_ptr(),
            "the records are shared"
        );
        let batch = split.join();
        let header = BatchHeader::verify(&batch).unwrap();
        assert!(header.is_append_time());
        assert_eq!(
            (header.max_timestamp, header.base_timestamp),
            (99, 1_700_000_000_000)
        );
        assert!(read_all(&batch).iter().all(|record| record.timestamp == 99));
    }
}

#[test]
fn with_append_time_the_first_record_is_the_one_found() {
    let batch = with_append_time(&stored(&built(Codec::Lz4, &some_records(5)), 40), 99)
        .unwrap()
        .join();
    let find = |wanted| offset_for_timestamp(&batch, wanted, Offset::ZERO, BYTES_MAX).unwrap();
    assert_eq!(find(100), None);
    assert_eq!(find(99), Some((Offset(40), 99)));
    assert_eq!(
        max_timestamp_record(&batch, BYTES_MAX).unwrap(),
        Some((Offset(40), 99))
    );
}

#[test]
fn append_time_of_a_batch_that_goes_on_covers_that_batch_alone() {
    let batch = built(Codec::None, &some_records(2));
    let more = Bytes::from([&batch[..], b"more"].concat());
    assert_eq!(with_append_time(&more, 1), with_append_time(&batch, 1));
}
