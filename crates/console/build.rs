//! Compresses the built files of the console, and writes the table of them.

#![expect(clippy::expect_used, reason = "a build fails by panicking")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

include!("src/content_type.rs");

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console/dist");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    println!("cargo:rerun-if-changed={}", root.display());
    println!("cargo:rerun-if-changed=build.rs");
    let mut table = String::from("&[\n");
    for path in [root.clone(), root.join("assets")]
        .iter()
        .flat_map(|folder| files(folder))
    {
        let name = path
            .strip_prefix(&root)
            .expect("a file below it")
            .to_str()
            .expect("a plain name");
        let Some(content_type) = content_type(name) else {
            continue;
        };
        let packed = out.join(format!("{}.gz", name.replace('/', "_")));
        let bytes = std::fs::read(&path).expect("a readable file");
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&bytes).expect("memory takes bytes");
        std::fs::write(&packed, encoder.finish().expect("memory takes bytes")).expect("a writable folder");
        let path = std::path::absolute(&path).expect("a path");
        let (path, packed) = (path.display().to_string(), packed.display().to_string());
        writeln!(
            table,
            "File {{ name: {name:?}, content_type: {content_type:?}, plain: include_bytes!({path:?}), gzip: include_bytes!({packed:?}) }},"
        )
        .expect("memory takes text");
    }
    table.push(']');
    std::fs::write(out.join("files.rs"), table).expect("a writable folder");
}

/// Returns the files of a folder, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the built console is in console/dist");
    let mut found: Vec<_> = entries
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    found
}
