//! Batches that other producers sent to a Kafka broker and that it stored; see `tests/data/README.md`.

use bytes::Bytes;
use stafett_model::{BatchHeader, Codec, ProduceLimits, sole_batch, validate_deep};

use crate::naive::{Plain, naive_read, read_all};

const KCAT: [(&[u8], Codec); 5] = [
    (include_bytes!("../data/kcat-none.batch"), Codec::None),
    (include_bytes!("../data/kcat-gzip.batch"), Codec::Gzip),
    (include_bytes!("../data/kcat-snappy.batch"), Codec::Snappy),
    (include_bytes!("../data/kcat-lz4.batch"), Codec::Lz4),
    (include_bytes!("../data/kcat-zstd.batch"), Codec::Zstd),
];
const JAVA: [(&[u8], Codec); 5] = [
    (include_bytes!("../data/java-none.batch"), Codec::None),
    (include_bytes!("../data/java-gzip.batch"), Codec::Gzip),
    (include_bytes!("../data/java-snappy.batch"), Codec::Snappy),
    (include_bytes!("../data/java-lz4.batch"), Codec::Lz4),
    (include_bytes!("../data/java-zstd.batch"), Codec::Zstd),
];

fn batches(mut segment: &[u8]) -> Vec<Bytes> {
    let mut out = Vec::new();
    while !segment.is_empty() {
        let (batch, rest) = segment.split_at(BatchHeader::verify(segment).unwrap().bytes);
        out.push(Bytes::copy_from_slice(batch));
        segment = rest;
    }
    out
}

fn value(i: usize) -> Vec<u8> {
    let more = "long enough to compress ".repeat(i % 4);
    format!("value number {i} of the captured batch, {more}").into_bytes()
}

fn all(segment: &[u8], codec: Codec) -> Vec<Plain> {
    let batches = batches(segment);
    assert!(
        batches
            .iter()
            .any(|batch| BatchHeader::parse(batch).unwrap().codec() == Ok(codec))
    );
    batches.iter().flat_map(read_all).collect()
}

#[test]
fn every_codec_of_librdkafka_is_read() {
    for (segment, codec) in KCAT {
        let records = all(segment, codec);
        assert_eq!(records.len(), 40);
        for (i, record) in records.iter().enumerate() {
            assert_eq!(record.offset, i64::try_from(i).unwrap());
            assert_eq!(record.key, Some(format!("key-{}", i % 7).into_bytes()));
            assert_eq!(record.value, Some(value(i)), "{codec:?}");
            let origin = (b"origin".to_vec(), Some(b"kcat".to_vec()));
            assert_eq!(record.headers, [origin, (b"empty".to_vec(), Some(Vec::new()))]);
        }
    }
}

#[test]
fn every_codec_of_the_java_client_is_read() {
    let values: Vec<_> = (0..40).map(value).collect();
    for (segment, codec) in JAVA {
        let records = all(segment, codec);
        assert_eq!(records.len(), 60);
        assert!(
            records
                .iter()
                .all(|record| values.contains(record.value.as_ref().unwrap())),
            "{codec:?}"
        );
        assert!(
            batches(segment)
                .iter()
                .all(|batch| BatchHeader::parse(batch).unwrap().producer().is_some())
        );
    }
}

#[test]
fn uncompressed_captures_read_as_the_naive_reader_does() {
    for segment in [KCAT[0].0, JAVA[0].0] {
        for batch in batches(segment) {
            assert_eq!(read_all(&batch), naive_read(&batch));
        }
    }
}

#[test]
fn what_was_stored_passes_as_produced_once_its_offset_is_taken_off() {
    for (segment, codec) in KCAT.into_iter().chain(JAVA) {
        for batch in batches(segment) {
            let sent = Bytes::from([&[0; 8], &batch[8..]].concat());
            assert!(
                validate_deep(&sent, &ProduceLimits::default()).is_ok(),
                "{codec:?}"
            );
            let (passed, _) = sole_batch(&sent, &ProduceLimits::default()).unwrap();
            assert_eq!(passed, sent);
        }
    }
}
