//! Writes the first inputs of every fuzz target under `corpus/`, taken from journals that were really
//! written.

use std::fs;
use std::path::Path;

use stafett_fuzz_journal::Image;
use stafett_journal::disk::fuzzing::{self, SEGMENT_FIELDS_BYTES, SEGMENT_HEADER_BYTES};

/// Inputs larger than this slow the fuzzer down more than they help it.
const BYTES_MAX: usize = 6000;

fn main() -> std::io::Result<()> {
    let mut seeds: Vec<(&str, Vec<u8>)> = Vec::new();
    for choice in 0..Image::COUNT {
        let image = Image::choose(choice);
        let disk = image.disk();
        let storage = disk.storage();
        for name in image.names() {
            let file = storage.open(name)?;
            let bytes = disk.contents(name).unwrap_or_default();
            if name.ends_with(".idx") {
                let (fields, rows) = fuzzing::fields_of_sidecar(&bytes);
                let mut fields = fields;
                // The target asks for segment 7.
                fields[12..16].copy_from_slice(&7_u32.to_le_bytes());
                let rows = u8::try_from(rows + 1).expect("few logs");
                seeds.push(("sidecar", [&[rows], fields.as_slice()].concat()));
                continue;
            }
            let parts = fuzzing::parts(&*file)?;
            seeds.extend(parts.groups.into_iter().map(|head| ("group", sealed(&head))));
            seeds.extend(parts.frames.into_iter().map(|frame| ("frame", sealed(&frame))));
            seeds.extend(parts.controls.into_iter().map(|body| ("control", body)));
            let end = parts.bytes.min(SEGMENT_HEADER_BYTES + BYTES_MAX);
            let groups = &bytes[SEGMENT_HEADER_BYTES..end];
            seeds.push(("segment", [&[1], &bytes[..SEGMENT_FIELDS_BYTES], groups].concat()));
            seeds.push((
                "salvage",
                [&[1, 0, 0, 0], &bytes[..SEGMENT_FIELDS_BYTES], groups].concat(),
            ));
        }
        let rows = fuzzing::checkpoint_rows(&storage);
        seeds.extend(rows.into_iter().map(|row| ("checkpoint", row)));
        for what in 0..8 {
            for deep in [0, 0x80] {
                let edits = [
                    choice | deep,
                    what * 5,
                    what * 3,
                    9,
                    what,
                    20,
                    30,
                    what,
                    8,
                    0,
                    4,
                    3,
                    1,
                ];
                seeds.push(("recover", edits.to_vec()));
                seeds.push(("recover_sealed", edits.to_vec()));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (nth, (target, input)) in seeds.iter().enumerate() {
        let corpus = root.join(target);
        fs::create_dir_all(&corpus)?;
        if input.len() <= BYTES_MAX + 100 {
            fs::write(corpus.join(format!("seed-{nth}")), input)?;
        }
    }
    Ok(())
}

fn sealed(bytes: &[u8]) -> Vec<u8> {
    [&[1], bytes].concat()
}
