//! Records of any bytes, built into a batch, read back, rebuilt and read back again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stafett_model::{
    BatchBuilder, Codec, Numbering, Offset, ProduceLimits, Record, Selection, records, select, validate_deep,
};

const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
const BYTES_MAX: usize = 1 << 24;

fuzz_target!(|data: &[u8]| {
    let Some(([choice, size, times], rest)) = data.split_first_chunk::<3>() else {
        return;
    };
    let mut builder = BatchBuilder::new(CODECS[usize::from(choice % 5)]);
    // Repeated, so that blocks get as long as those that codecs split.
    for _ in 0..=(times % 32) {
        for piece in rest.chunks(usize::from(*size) * 16 + 1) {
            let (key, value) = piece.split_at(piece.len() / 3);
            let timestamp = piece.iter().map(|byte| i64::from(*byte)).sum();
            let record = Record {
                key: Some(key),
                value: Some(value),
                headers: &[(key, None)],
                timestamp,
            };
            builder.push(&record).unwrap();
        }
    }
    let count = builder.len();
    let Ok(batch) = builder.finish() else { return };
    let limits = ProduceLimits {
        batch_bytes_max: BYTES_MAX,
        records_max: u32::MAX,
        deep: true,
        decompressed_bytes_max: BYTES_MAX,
    };
    assert!(validate_deep(&batch, &limits).is_ok());
    let read: Vec<_> = records(&batch, BYTES_MAX).unwrap().map(Result::unwrap).collect();
    assert_eq!(read.len(), count);
    let mut expected = rest.chunks(usize::from(*size) * 16 + 1).cycle();
    for record in &read {
        let piece = expected.next().unwrap();
        let (key, value) = (record.key.as_ref().unwrap(), record.value.as_ref().unwrap());
        assert_eq!([&key[..], &value[..]].concat(), piece);
    }
    let odd = select(
        &batch,
        &Selection::Bitmap(&[0xaa; 16]),
        Numbering::Keep,
        Offset::ZERO,
        BYTES_MAX,
    );
    if let Ok(odd) = odd {
        for record in records(&odd, BYTES_MAX).unwrap() {
            let record = record.unwrap();
            assert_eq!(record, read[record.offset.0 as usize]);
        }
    }
});
