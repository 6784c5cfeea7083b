//! Recompresses a batch, for topics that keep all their batches in one codec.

use bytes::Bytes;

use crate::batch::{BatchError, Codec, HEADER_BYTES};
use crate::batch_builder::{pack, seal};
use crate::records::{block, readable};

/// Returns the batch at the front of `batch` with its records compressed by `codec`; the same bytes if they
/// already are. `bytes_max` bounds the decompressed records.
pub fn recompress(batch: &Bytes, codec: Codec, bytes_max: usize) -> Result<Bytes, BatchError> {
    let header = readable(batch)?;
    if header.codec()? == codec {
        return Ok(batch.slice(..header.bytes));
    }
    let block = block(&header, batch, bytes_max)?;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + block.len());
    bytes.resize(HEADER_BYTES, 0);
    bytes.extend_from_slice(&block);
    let header = header.with_codec(codec);
    if codec == Codec::None {
        seal(header, bytes)
    } else {
        seal(header, pack(codec, &bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchBuilder, BatchHeader, ProducerId, Record, records};

    const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    #[test]
    fn only_the_compression_changes() {
        for from in CODECS {
            let mut builder = BatchBuilder::new(from).producer(ProducerId(7), 1, 20);
            for timestamp in 1000..1100 {
                let record = Record {
                    key: Some(b"key"),
                    value: Some(b"the same value each time"),
                    headers: &[],
                    timestamp,
                };
                builder.push(&record).unwrap();
            }
            let batch = builder.finish().unwrap();
            let all =
                |batch: &Bytes| -> Vec<_> { records(batch, 1 << 20).unwrap().map(Result::unwrap).collect() };
            for to in CODECS {
                let made = recompress(&batch, to, 1 << 20).unwrap();
                let header = BatchHeader::verify(&made).unwrap();
                assert_eq!(header.codec(), Ok(to));
                assert_eq!((header.producer_id, header.base_sequence), (7, 20));
                assert_eq!(all(&made), all(&batch), "{from:?} to {to:?}");
            }
        }
    }

    #[test]
    fn records_that_take_too_much_once_decompressed_are_refused() {
        let zeros = vec![0; 100_000];
        let mut builder = BatchBuilder::new(Codec::Gzip);
        let record = Record {
            key: None,
            value: Some(&zeros),
            headers: &[],
            timestamp: 1,
        };
        builder.push(&record).unwrap();
        let bomb = builder.finish().unwrap();
        let limit = 50_000;
        assert_eq!(
            recompress(&bomb, Codec::Lz4, limit),
            Err(BatchError::TooLarge { limit })
        );
    }
}
