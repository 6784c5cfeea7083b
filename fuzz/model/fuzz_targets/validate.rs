//! Bytes as a producer may send them.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stafett_model::checksum::crc32c;
use stafett_model::{ProduceLimits, records, sole_batch, validate_deep, validate_produced};

const LIMITS: ProduceLimits = ProduceLimits {
    batch_bytes_max: 1 << 20,
    records_max: 1 << 20,
    deep: false,
    decompressed_bytes_max: 1 << 20,
};

fuzz_target!(|data: &[u8]| {
    let _ = validate_produced(data, &LIMITS);
    let mut sealed = data.to_vec();
    if sealed.len() > 61 {
        let length = u32::try_from(sealed.len() - 12).unwrap();
        sealed[8..12].copy_from_slice(&length.to_be_bytes());
        let sum = crc32c(&sealed[21..]);
        sealed[17..21].copy_from_slice(&sum.to_be_bytes());
    }
    let sealed = Bytes::from(sealed);
    let shallow = validate_produced(&sealed, &LIMITS);
    let deep = validate_deep(&sealed, &LIMITS);
    if let Ok(header) = deep {
        assert_eq!(shallow, Ok(header), "what passes the deep check passes the other");
        let read: Result<Vec<_>, _> = records(&sealed, 1 << 20).unwrap().collect();
        let read = read.expect("what passes can be read");
        assert_eq!(read.len(), header.record_count as usize);
        assert_eq!(
            read.iter().map(|record| record.timestamp).max(),
            Some(header.max_timestamp)
        );
    }
    if let Ok((batch, header)) = sole_batch(&sealed, &LIMITS) {
        // Records may all be before the base timestamp: only a walk tells that this is no mistake.
        let checked = validate_produced(&batch, &LIMITS).or_else(|_| validate_deep(&batch, &LIMITS));
        assert_eq!(checked, Ok(header), "what was put right is right");
    }
});
