//! Batches with a right checksum and anything else in them, for all that reads or rebuilds stored batches.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stafett_model::checksum::crc32c;
use stafett_model::{
    BatchHeader, Numbering, Offset, Selection, max_timestamp_record, offset_for_timestamp, records, select,
    with_append_time,
};

const BYTES_MAX: usize = 1 << 18;

fuzz_target!(|data: &[u8]| {
    let mut sealed = data.to_vec();
    if sealed.len() > 61 {
        let length = u32::try_from(sealed.len() - 12).unwrap();
        sealed[8..12].copy_from_slice(&length.to_be_bytes());
        sealed[16] = 2;
        let sum = crc32c(&sealed[21..]);
        sealed[17..21].copy_from_slice(&sum.to_be_bytes());
    }
    let batch = Bytes::from(sealed);
    let mut all_sound = false;
    if let Ok(read) = records(&batch, BYTES_MAX) {
        let read: Vec<_> = read.collect();
        assert!(read.len() <= BYTES_MAX.max(data.len()) / 7 + 1);
        all_sound = !read.is_empty() && read.iter().all(Result::is_ok);
        for record in read.into_iter().flatten() {
            assert_eq!(record.headers.iter().count(), record.headers.len());
        }
    }
    let _ = offset_for_timestamp(&batch, 1_000, Offset(3), BYTES_MAX);
    let latest = max_timestamp_record(&batch, BYTES_MAX);
    assert!(!all_sound || latest.is_ok());
    if let Ok(split) = with_append_time(&batch, 9) {
        assert!(BatchHeader::verify(&split.join()).is_ok() || BatchHeader::verify(&batch).is_err());
    }
    for numbering in [Numbering::Keep, Numbering::Renumber] {
        for selection in [
            Selection::Range(0..u32::MAX),
            Selection::Bitmap(&[0b1010_0101, 0xff]),
        ] {
            let part = select(&batch, &selection, numbering, Offset::ZERO, BYTES_MAX);
            if let Ok(part) = part {
                assert!(BatchHeader::verify(&part).is_ok());
                let read: Result<Vec<_>, _> = records(&part, BYTES_MAX + (1 << 17)).unwrap().collect();
                assert!(!read.expect("a rebuilt batch can be read").is_empty());
            }
        }
    }
});
