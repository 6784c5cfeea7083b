//! Batches from the builder are read by the reader; both are compared with the naive ones.

use bytes::Bytes;
use proptest::prelude::*;
use stafett_model::{
    BatchBuilder, BatchError, BatchHeader, Codec, Offset, ProduceLimits, ProducerId, Record, records,
    sole_batch, validate_deep, validate_produced,
};

use crate::naive::{
    BYTES_MAX, CODECS, built, naive_batch, naive_read, plain_records, read_all, some_records,
};

proptest! {
    #[test]
    fn the_builder_writes_what_the_naive_writer_writes(records in plain_records(40)) {
        prop_assert_eq!(&built(Codec::None, &records)[..], &naive_batch(&records)[..]);
    }

    #[test]
    fn the_naive_reader_reads_what_the_builder_writes(records in plain_records(40)) {
        prop_assert_eq!(naive_read(&built(Codec::None, &records)), records);
    }

    #[test]
    fn records_read_back_whatever_the_codec(records in plain_records(40), codec in 0..CODECS.len()) {
        let batch = built(CODECS[codec], &records);
        prop_assert_eq!(read_all(&batch), records);
        let limits = ProduceLimits::default();
        prop_assert!(validate_produced(&batch, &limits).is_ok());
        prop_assert!(validate_deep(&batch, &limits).is_ok());
        let (sole, header) = sole_batch(&batch, &limits).unwrap();
        prop_assert_eq!(header.bytes, batch.len());
        prop_assert_eq!(sole.as_ptr(), batch.as_ptr(), "a sound batch is passed through uncopied");
    }
}

#[test]
fn uncompressed_keys_and_values_are_slices_of_the_batch() {
    let batch = built(Codec::None, &some_records(20));
    let inside = batch.as_ptr_range();
    for record in records(&batch, 0).unwrap() {
        for part in [record.as_ref().unwrap().key.clone(), record.unwrap().value]
            .into_iter()
            .flatten()
        {
            assert!(inside.contains(&part.as_ptr()));
        }
    }
}

#[test]
fn the_header_says_what_the_builder_was_told() {
    let mut builder = BatchBuilder::new(Codec::None)
        .producer(ProducerId(7), 3, 90)
        .transactional();
    for timestamp in [50, 70, 60] {
        builder
            .push(&Record {
                timestamp,
                ..Record::default()
            })
            .unwrap();
    }
    assert_eq!((builder.len(), builder.bytes()), (3, 61 + 3 * 7));
    let header = BatchHeader::verify(&builder.finish().unwrap()).unwrap();
    assert_eq!(
        (header.producer(), header.producer_epoch, header.base_sequence),
        (Some(ProducerId(7)), 3, 90)
    );
    assert_eq!((header.base_timestamp, header.max_timestamp), (50, 70));
    assert_eq!((header.base_offset, header.leader_epoch), (0, -1));
    assert_eq!((header.record_count, header.last_offset_delta), (3, 2));
    assert!(header.is_transactional() && !header.is_control() && !header.is_append_time());
}

#[test]
fn a_header_encodes_to_the_bytes_it_was_read_from() {
    for codec in CODECS {
        let batch = built(codec, &some_records(3));
        assert_eq!(BatchHeader::parse(&batch).unwrap().encode()[..], batch[..61]);
    }
}

#[test]
fn a_batch_without_records_is_not_built() {
    let empty = BatchBuilder::new(Codec::Lz4).finish();
    assert_eq!(
        empty,
        Err(BatchError::Counts {
            records: 0,
            last_offset_delta: -1
        })
    );
}

#[test]
fn a_record_that_does_not_fit_leaves_the_batch_as_it_was() {
    let mut builder = BatchBuilder::new(Codec::None);
    builder
        .push(&Record {
            timestamp: 5,
            ..Record::default()
        })
        .unwrap();
    let before = builder.bytes();
    let refused = builder.push(&Record {
        timestamp: i64::MIN,
        ..Record::default()
    });
    let max = i64::MIN;
    assert_eq!(refused, Err(BatchError::Timestamps { base: 5, max }));
    assert_eq!((builder.len(), builder.bytes()), (1, before));
    assert_eq!(read_all(&builder.finish().unwrap()).len(), 1);
}

#[test]
fn a_batch_is_read_out_of_bytes_that_go_on() {
    let batch = built(Codec::Snappy, &some_records(4));
    let two = Bytes::from([&batch[..], &batch[..]].concat());
    assert_eq!(read_all(&two), some_records(4));
}

#[test]
fn reading_goes_on_from_the_offset_sought() {
    for codec in CODECS {
        let batch = built(codec, &some_records(30));
        for (wanted, first) in [(0, Some(0)), (17, Some(17)), (29, Some(29)), (30, None)] {
            let mut read = records(&batch, BYTES_MAX).unwrap();
            read.seek(Offset(wanted)).unwrap();
            assert_eq!(
                read.next().map(|record| record.unwrap().offset),
                first.map(Offset)
            );
        }
        let mut read = records(&batch, BYTES_MAX).unwrap();
        assert_eq!(read.by_ref().take(10).count(), 10);
        read.seek(Offset(3)).unwrap();
        assert_eq!(read.next().unwrap().unwrap().offset, Offset(10));
    }
}

#[test]
fn headers_are_found_by_their_last_occurrence() {
    let headers: [stafett_model::Header<'_>; 3] = [(b"a", Some(b"1")), (b"b", None), (b"a", Some(b"2"))];
    let mut builder = BatchBuilder::new(Codec::None);
    builder
        .push(&Record {
            headers: &headers,
            ..Record::default()
        })
        .unwrap();
    let record = records(&builder.finish().unwrap(), BYTES_MAX)
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    assert_eq!((record.headers.len(), record.headers.is_empty()), (3, false));
    assert_eq!(record.headers.last(b"a"), Some(Some(&b"2"[..])));
    assert_eq!(record.headers.last(b"b"), Some(None));
    assert_eq!(record.headers.last(b"c"), None);
}

#[test]
fn records_bigger_than_the_bound_are_not_decompressed() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let batch = built(codec, &some_records(1000));
        assert_eq!(
            records(&batch, 1000).unwrap_err(),
            BatchError::TooLarge { limit: 1000 }
        );
    }
}
