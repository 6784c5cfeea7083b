//! Word of tests that are skipped, on stderr and in a file that the test runner shows at its end.

use std::fs::{self, File};
use std::io::{Write, stderr};
use std::path::Path;

/// Says that the calling test is skipped, as something is missing.
pub(crate) fn skip(missing: &str) {
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    let line = format!("skipped: {test}: no {missing} (install with: scripts/setup)\n");
    stderr().write_all(line.as_bytes()).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/clients");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("skipped");
    let mut file = File::options().create(true).append(true).open(path).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}
