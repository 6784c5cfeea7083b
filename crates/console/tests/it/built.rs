//! The committed build: of the sources that are there, small, and the same when it is built again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

/// Limit on the scripts that a first visit of a page loads, in bytes, compressed.
const SCRIPT_BYTES_MAX: usize = 200_000;
/// Files and folders that a build is made of.
const SOURCES: [&str; 7] = [
    "index.html",
    "lab.html",
    "package-lock.json",
    "package.json",
    "src",
    "tsconfig.json",
    "vite.config.ts",
];

fn console() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console")
}

/// Adds the files below a path, by their names relative to `root`.
fn files(root: &Path, path: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            files(root, &entry.unwrap().path(), found);
        }
        return;
    }
    let name = path.strip_prefix(root).unwrap().to_str().unwrap();
    found.insert(name.to_owned(), fs::read(path).unwrap());
}

fn built(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    files(folder, folder, &mut found);
    found
}

#[test]
fn the_committed_build_is_of_the_sources_that_are_there() {
    let root = console();
    let mut sources = BTreeMap::new();
    for source in SOURCES {
        files(&root, &root.join(source), &mut sources);
    }
    let mut expected = String::new();
    for (name, bytes) in sources {
        let hash = Sha256::digest(&bytes)
            .iter()
            .fold(String::new(), |mut text, byte| {
                write!(text, "{byte:02x}").unwrap();
                text
            });
        writeln!(expected, "{hash}  {name}").unwrap();
    }
    let listed = fs::read_to_string(root.join("dist/sources.sha256")).unwrap();
    let differs = expected.lines().filter(|line| !listed.contains(line));
    let differs: Vec<&str> = differs.collect();
    assert!(
        differs.is_empty() && listed.lines().count() == expected.lines().count(),
        "console/dist is out of date: npm run build in console/, and commit it. Changed: {differs:#?}"
    );
}

#[test]
fn scripts_are_small() {
    let files = built(&console().join("dist"));
    for page in ["index.html", "lab.html"] {
        let text = std::str::from_utf8(&files[page]).unwrap();
        let is_loaded = |name: &str| name.strip_suffix(".js").is_some() && text.contains(name);
        let sizes = files
            .iter()
            .filter(|(name, _)| is_loaded(name))
            .map(|(_, bytes)| {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap().len()
            });
        let all: usize = sizes.sum();
        assert!((50_000..=SCRIPT_BYTES_MAX).contains(&all), "{page}: {all} bytes");
    }
}

#[test]
fn another_build_has_the_same_bytes() {
    let vite = console().join("node_modules/vite/bin/vite.js");
    if !vite.exists() {
        let line =
            "skipped: another_build_has_the_same_bytes: Vite is not there (install with: scripts/setup)\n";
        io::stderr().write_all(line.as_bytes()).unwrap();
        let folder = console().join("../target/clients");
        fs::create_dir_all(&folder).unwrap();
        let mut options = File::options();
        let file = options.create(true).append(true).open(folder.join("skipped"));
        file.unwrap().write_all(line.as_bytes()).unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("timeout")
        .args(["-k", "5", "300", "node"])
        .arg(vite)
        .args(["build", "--emptyOutDir", "--outDir"])
        .arg(folder.path())
        .current_dir(console())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let (fresh, committed) = (built(folder.path()), built(&console().join("dist")));
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&fresh), names(&committed));
    for (name, bytes) in fresh {
        assert!(
            committed.get(&name) == Some(&bytes),
            "{name} differs: npm run build in console/"
        );
    }
}
