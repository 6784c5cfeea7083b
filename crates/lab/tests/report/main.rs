//! Reports of made-up results: what stands in them, and how a browser shows them.
#![cfg(test)]

mod browser;
mod experiments;
mod fixture;
mod page;

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A folder with a run of every kind, and its report.
struct Reported {
    folder: TempDir,
}

impl Reported {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        fixture::write(&at("batch"), "batch", experiments::BATCH, 1);
        fixture::write(&at("peak"), "peak", experiments::PEAK, 2);
        fixture::write(&at("factors"), "factors", experiments::FACTORS, 3);
        fixture::write(
            &at("unreplicated"),
            "unreplicated",
            &experiments::unreplicated(),
            4,
        );
        fixture::write(&at("levels"), "levels", experiments::LEVELS, 6);
        fixture::write(&at("shares"), "shares", experiments::SHARES, 8);
        fixture::write(&at("skipped"), "skipped", experiments::SKIPPED, 5);
        stafett_lab::report::report(folder.path(), folder.path()).unwrap();
        Self { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap()
    }
}
