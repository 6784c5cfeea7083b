//! Writes the first inputs of every fuzz target under `corpus/`.

use std::fs;
use std::path::Path;

use stafett_model::{BatchBuilder, BatchHeader, Codec, Record, with_append_time};

const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut batches = Vec::new();
    for entry in fs::read_dir(root.join("../../crates/model/tests/data"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|kind| kind == "batch") {
            let mut stored = fs::read(path)?;
            stored[..8].fill(0);
            batches.push(stored);
        }
    }
    for codec in CODECS {
        for count in [1, 3, 40] {
            let mut builder = BatchBuilder::new(codec);
            for nth in 0..count {
                let value = vec![b'v'; nth * 7];
                let headers: &[stafett_model::Header<'_>] = &[(b"h", None), (b"i", Some(b"j"))];
                let record = Record {
                    key: (nth % 2 == 0).then_some(b"key"),
                    value: (nth % 3 != 2).then_some(&value),
                    headers: &headers[..nth % 3],
                    timestamp: 1_000 + nth as i64,
                };
                builder.push(&record).expect("a sound record");
            }
            let batch = builder.finish().expect("a batch");
            batches.push(
                with_append_time(&batch, 5_000)
                    .expect("a sound batch")
                    .join()
                    .to_vec(),
            );
            batches.push(batch.to_vec());
        }
    }
    for (nth, batch) in batches.iter().enumerate() {
        let header = BatchHeader::parse(batch).expect("a batch");
        let codec = (header.attributes & 7) as u8;
        let block = &batch[61..header.bytes];
        for (target, input) in [
            ("validate", batch.clone()),
            ("records", batch.clone()),
            ("decompress", [&[codec], block].concat()),
            ("builder", [&[codec], block].concat()),
        ] {
            let corpus = root.join("corpus").join(target);
            fs::create_dir_all(&corpus)?;
            fs::write(corpus.join(format!("seed-{nth}")), input)?;
        }
    }
    Ok(())
}
