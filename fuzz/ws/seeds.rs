//! Writes the first input of the fuzz target under `corpus/`.

use std::fs;
use std::path::Path;

/// The size of reads, then an empty text, a text in two fragments with a ping between, and a close, as a
/// client sends them.
const FRAMES: &[u8] =
    b"\x03\x81\x80\0\0\0\0\x01\x81\0\0\0\0a\x89\x80\0\0\0\0\x80\x81\0\0\0\0b\x88\x82\0\0\0\0\x03\xe8";

fn main() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/frames");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("seed-0"), FRAMES)
}
