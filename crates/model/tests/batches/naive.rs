//! A second writer and reader of batches, written directly from the format's description, slow and simple,
//! independent of the crate; and records for test batches.

use bytes::Bytes;
use proptest::prelude::*;
use stafett_model::{BatchBuilder, Codec, Header, Record, records};

pub(crate) const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
pub(crate) const BYTES_MAX: usize = 1 << 24;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plain {
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// Generates records with offsets from 0.
pub(crate) fn plain_records(count_max: usize) -> impl Strategy<Value = Vec<Plain>> {
    let blob = || proptest::option::of(proptest::collection::vec(any::<u8>(), 0..200));
    let header = (proptest::collection::vec(any::<u8>(), 0..9), blob());
    let record = (
        -1..4_000_000_000_000_i64,
        blob(),
        blob(),
        proptest::collection::vec(header, 0..4),
    );
    proptest::collection::vec(record, 1..count_max).prop_map(|records| {
        let numbered = (0..).zip(records);
        numbered
            .map(|(offset, (timestamp, key, value, headers))| Plain {
                offset,
                timestamp,
                key,
                value,
                headers,
            })
            .collect()
    })
}

/// Returns `count` similar records, one millisecond apart.
pub(crate) fn some_records(count: i64) -> Vec<Plain> {
    let record = |offset| Plain {
        offset,
        timestamp: 1_700_000_000_000 + offset,
        key: (offset % 3 != 0).then(|| format!("key {offset}").into_bytes()),
        value: (offset % 5 != 4).then(|| format!("value {offset}, and some more of it").into_bytes()),
        headers: (0..offset % 3)
            .map(|n| (format!("h{n}").into_bytes(), (n == 1).then(Vec::new)))
            .collect(),
    };
    (0..count).map(record).collect()
}

/// Builds a batch with the crate's builder.
pub(crate) fn built(codec: Codec, records: &[Plain]) -> Bytes {
    let mut builder = BatchBuilder::new(codec);
    for record in records {
        let headers: Vec<Header<'_>> = record
            .headers
            .iter()
            .map(|(k, v)| (&k[..], v.as_deref()))
            .collect();
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        builder
            .push(&Record {
                key,
                value,
                headers: &headers,
                timestamp: record.timestamp,
            })
            .unwrap();
    }
    builder.finish().unwrap()
}

/// Reads all records with the crate's reader.
pub(crate) fn read_all(batch: &Bytes) -> Vec<Plain> {
    let own = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.to_vec());
    let plain = |record: stafett_model::StoredRecord| Plain {
        offset: i64::try_from(record.offset.0).unwrap(),
        timestamp: record.timestamp,
        key: own(record.key),
        value: own(record.value),
        headers: record
            .headers
            .iter()
            .map(|(k, v)| (k.to_vec(), v.map(<[u8]>::to_vec)))
            .collect(),
    };
    records(batch, BYTES_MAX)
        .unwrap()
        .map(|record| plain(record.unwrap()))
        .collect()
}

/// Builds an uncompressed batch of `records` independently of the crate.
pub(crate) fn naive_batch(records: &[Plain]) -> Vec<u8> {
    let base = records[0].timestamp;
    let count = i32::try_from(records.len()).unwrap();
    let mut sealed = Vec::new();
    sealed.extend(0_i16.to_be_bytes());
    sealed.extend((count - 1).to_be_bytes());
    sealed.extend(base.to_be_bytes());
    sealed.extend(records.iter().map(|r| r.timestamp).max().unwrap().to_be_bytes());
    sealed.extend((-1_i64).to_be_bytes());
    sealed.extend((-1_i16).to_be_bytes());
    sealed.extend((-1_i32).to_be_bytes());
    sealed.extend(count.to_be_bytes());
    for record in records {
        let mut body = vec![0];
        body.extend(varint(record.timestamp - base));
        body.extend(varint(record.offset));
        body.extend(blob(record.key.as_ref()));
        body.extend(blob(record.value.as_ref()));
        body.extend(varint(i64::try_from(record.headers.len()).unwrap()));
        for (key, value) in &record.headers {
            body.extend(blob(Some(key)));
            body.extend(blob(value.as_ref()));
        }
        sealed.extend(varint(i64::try_from(body.len()).unwrap()));
        sealed.extend(body);
    }
    let mut out = Vec::new();
    out.extend(0_i64.to_be_bytes());
    out.extend(u32::try_from(sealed.len() + 9).unwrap().to_be_bytes());
    out.extend((-1_i32).to_be_bytes());
    out.push(2);
    out.extend(crc32c_bit_by_bit(&sealed).to_be_bytes());
    out.extend(sealed);
    out
}

/// Reads a valid uncompressed batch independently of the crate.
pub(crate) fn naive_read(batch: &[u8]) -> Vec<Plain> {
    let long = |at: usize| i64::from_be_bytes(batch[at..at + 8].try_into().unwrap());
    let mut rest = &batch[61..];
    let mut out = Vec::new();
    while !rest.is_empty() {
        take_varint(&mut rest);
        rest = &rest[1..];
        let timestamp = long(27) + take_varint(&mut rest);
        let offset = long(0) + take_varint(&mut rest);
        let (key, value) = (take_blob(&mut rest), take_blob(&mut rest));
        let headers = (0..take_varint(&mut rest))
            .map(|_| (take_blob(&mut rest).unwrap(), take_blob(&mut rest)))
            .collect();
        out.push(Plain {
            offset,
            timestamp,
            key,
            value,
            headers,
        });
    }
    out
}

pub(crate) fn crc32c_bit_by_bit(bytes: &[u8]) -> u32 {
    let step = |crc: u32| {
        if crc & 1 == 1 {
            (crc >> 1) ^ 0x82f6_3b78
        } else {
            crc >> 1
        }
    };
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc))
    })
}

/// Corrects the checksum of `batch`.
pub(crate) fn reseal(batch: &mut [u8]) {
    let crc = crc32c_bit_by_bit(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

fn varint(value: i64) -> Vec<u8> {
    let mut raw = if value < 0 {
        2 * (-(i128::from(value))) - 1
    } else {
        2 * i128::from(value)
    };
    let mut out = Vec::new();
    loop {
        let low = u8::try_from(raw % 128).unwrap();
        raw /= 128;
        if raw == 0 {
            out.push(low);
            return out;
        }
        out.push(low + 128);
    }
}

fn take_varint(rest: &mut &[u8]) -> i64 {
    let (mut raw, mut place) = (0_i128, 1_i128);
    loop {
        let byte = rest[0];
        *rest = &rest[1..];
        raw += i128::from(byte % 128) * place;
        place *= 128;
        if byte < 128 {
            let value = if raw % 2 == 0 { raw / 2 } else { -(raw + 1) / 2 };
            return i64::try_from(value).unwrap();
        }
    }
}

fn blob(value: Option<&Vec<u8>>) -> Vec<u8> {
    match value {
        None => varint(-1),
        Some(value) => [varint(i64::try_from(value.len()).unwrap()), value.clone()].concat(),
    }
}

fn take_blob(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let length = usize::try_from(take_varint(rest)).ok()?;
    let (value, behind) = rest.split_at(length);
    *rest = behind;
    Some(value.to_vec())
}
