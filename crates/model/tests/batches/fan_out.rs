//! Batches rebuilt with a part of another one's records, against a filtered list.

use proptest::prelude::*;
use stafett_model::{
    BatchError, BatchHeader, Codec, Numbering, Offset, Selection, select, validate_produced, with_append_time,
};

use crate::naive::{BYTES_MAX, CODECS, Plain, built, plain_records, read_all, some_records};

fn expected(records: &[Plain], selection: &Selection<'_>, numbering: Numbering, base: i64) -> Vec<Plain> {
    let selected = (0..)
        .zip(records)
        .filter(|(index, _)| selection.contains(*index))
        .map(|(_, record)| record);
    let numbered = (0..).zip(selected.cloned());
    numbered
        .map(|(nth, record)| {
            let delta = if numbering == Numbering::Renumber {
                nth
            } else {
                record.offset
            };
            Plain {
                offset: base + delta,
                ..record
            }
        })
        .collect()
}

proptest! {
    #[test]
    fn exactly_the_selected_records_are_kept(
        records in plain_records(40), bits in proptest::collection::vec(any::<u8>(), 0..6),
        codec in 0..CODECS.len(), keep: bool, base in 0..1_000_000_u64,
    ) {
        let source = built(CODECS[codec], &records);
        let selection = Selection::Bitmap(&bits);
        let numbering = if keep { Numbering::Keep } else { Numbering::Renumber };
        let expected = expected(&records, &selection, numbering, base.cast_signed());
        let part = select(&source, &selection, numbering, Offset(base), BYTES_MAX);
        if expected.is_empty() {
            let nothing = matches!(part, Err(BatchError::Counts { records: 0, .. }));
            prop_assert!(nothing);
            return Ok(());
        }
        let part = part.unwrap();
        let header = BatchHeader::verify(&part).unwrap();
        prop_assert_eq!(header.codec(), Ok(CODECS[codec]));
        prop_assert_eq!(header.max_timestamp, expected.iter().map(|r| r.timestamp).max().unwrap());
        let span = if keep { records.len() } else { expected.len() };
        prop_assert_eq!(header.span(), span as u64);
        prop_assert_eq!(read_all(&part), expected);
    }
}

#[test]
fn a_range_keeps_its_records_and_ends_with_the_batch() {
    let records = some_records(10);
    let source = built(Codec::Gzip, &records);
    for (range, numbering) in [
        (3..7, Numbering::Renumber),
        (8..99, Numbering::Keep),
        (0..10, Numbering::Keep),
    ] {
        let selection = Selection::Range(range);
        let part = select(&source, &selection, numbering, Offset(500), BYTES_MAX).unwrap();
        assert_eq!(read_all(&part), expected(&records, &selection, numbering, 500));
    }
}

#[test]
fn all_records_of_an_uncompressed_batch_at_its_own_offset_are_that_batch() {
    let source = built(Codec::None, &some_records(10));
    let whole = select(
        &source,
        &Selection::Range(0..10),
        Numbering::Renumber,
        Offset::ZERO,
        0,
    )
    .unwrap();
    assert_eq!(whole, source);
}

#[test]
fn a_part_with_renumbered_records_would_pass_as_produced() {
    let source = built(Codec::Zstd, &some_records(10));
    let part = select(
        &source,
        &Selection::Range(4..6),
        Numbering::Renumber,
        Offset::ZERO,
        BYTES_MAX,
    )
    .unwrap();
    assert!(
        validate_produced(
            &part,
            &stafett_model::ProduceLimits {
                deep: true,
                ..Default::default()
            }
        )
        .is_ok()
    );
}

#[test]
fn a_part_of_a_batch_with_append_time_keeps_that_time() {
    let source = with_append_time(&built(Codec::None, &some_records(10)), 77)
        .unwrap()
        .join();
    let part = select(
        &source,
        &Selection::Range(2..3),
        Numbering::Keep,
        Offset(10),
        BYTES_MAX,
    )
    .unwrap();
    let header = BatchHeader::verify(&part).unwrap();
    assert!(header.is_append_time());
    assert_eq!(header.max_timestamp, 77);
    let read = read_all(&part);
    assert_eq!((read[0].offset, read[0].timestamp), (12, 77));
}
