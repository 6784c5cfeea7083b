//! `notes.json` in the folder of a run: remarks that people made.

use std::fs;
use std::io;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const FILE: &str = "notes.json";

/// Remarks about a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Notes {
    pub(super) title: Option<String>,
    pub(super) labels: Vec<String>,
    pub(super) text: String,
    pub(super) archived: bool,
    /// Revision whose broker it runs; that of the page if it is absent.
    pub(super) build: Option<String>,
    /// Reason why the program that was to run it ended without a result.
    pub(super) refused: Option<String>,
}

impl Notes {
    /// Reads those of a run; without a file, or with a broken one, they are empty.
    pub(super) fn read(folder: &Path) -> Self {
        let text = fs::read(folder.join(FILE)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        put(&folder.join(FILE), &serde_json::to_vec_pretty(self)?)
    }
}

/// Writes a file whole or not at all.
pub(super) fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let making = path.with_file_name(name);
    fs::write(&making, bytes)?;
    fs::rename(&making, path)
}
