//! The report in Chromium: no empty figure, nothing in the console, nothing wider than a phone.
//!
//! `tests/browser/report.cjs` looks at it. Where Chromium or playwright-core is not there, the tests pass as
//! skipped, say so, and leave a line in `target/clients/skipped`, as the tests with other programs do.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use stafett_lab::report::{compare, report};
use stafett_lab::results::Folder;
use tempfile::TempDir;

use crate::{Reported, experiments, fixture};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn skip(reason: &str, install: &str) {
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    let line = format!("skipped: {test}: {reason} (install with: {install})\n");
    io::stderr().write_all(line.as_bytes()).unwrap();
    let folder = root().join("target/clients");
    std::fs::create_dir_all(&folder).unwrap();
    let mut file = File::options()
        .create(true)
        .append(true)
        .open(folder.join("skipped"))
        .unwrap();
    file.write_all(line.as_bytes()).unwrap();
}

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join("chromium"))
        .find(|program| program.exists());
    if found.is_none() {
        skip("Chromium is not there", "apt-get install chromium");
    }
    found
}

/// Looks at pages; `None` if there is nothing to look with.
fn look(pages: &[&Path]) -> Option<Output> {
    let chromium = chromium()?;
    let modules = root().join("target/browser/node_modules");
    if !modules.join("playwright-core").exists() {
        skip("playwright-core is not there", "scripts/setup");
        return None;
    }
    let output = Command::new("timeout")
        .args(["-k", "5", "1500", "node"])
        .arg(root().join("tests/browser/report.cjs"))
        .arg(chromium)
        .args(pages)
        .env("NODE_PATH", modules)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Some(output)
}

#[track_caller]
fn is_well(output: &Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn report_and_comparison_are_shown_well_on_desktop_phone_and_paper() {
    let reported = Reported::new();
    let later = TempDir::new().unwrap();
    fixture::write(&later.path().join("batch"), "batch", experiments::BATCH, 9);
    let sides = [reported.path().to_owned(), later.path().to_owned()];
    let compared = compare(&sides, later.path()).unwrap();
    if let Some(output) = look(&[&reported.file("report.html"), &compared.html]) {
        is_well(&output);
    }
}

#[test]
fn empty_figures_errors_and_overflow_are_found() {
    let folder = TempDir::new().unwrap();
    fixture::write(folder.path(), "levels", experiments::LEVELS, 1);
    let html = std::fs::read_to_string(report(folder.path(), folder.path()).unwrap().html).unwrap();
    let broken = |name: &str, html: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, html).unwrap();
        path
    };
    // The first chart of each width loses its content.
    let (head, rest) = html.split_once("<svg class=\"chart wide\"").unwrap();
    let (_, tail) = rest.split_once("<p class=\"notes\">").unwrap();
    let empty = format!(
        "{head}<svg class=\"chart wide\" viewBox=\"0 0 760 340\"></svg></div><p class=\"notes\">{tail}"
    );
    let without = TempDir::new().unwrap();
    fixture::write(without.path(), "without", experiments::FACTORS, 1);
    let stored = Folder::new(without.path());
    for mut point in stored.read_points(&stored.read_run().unwrap()).unwrap() {
        // As a figure that asks for what the roles do not give.
        point.metrics.remove("delivery_p50_us");
        point.metrics.remove("consume_rate");
        stored.write_point(&point).unwrap();
    }
    let cases = [
        (broken("empty.html", empty), "empty figure"),
        (
            report(without.path(), without.path()).unwrap().html,
            "\"Effects\": empty figure: points were measured, and none has it",
        ),
        (
            broken(
                "wide.html",
                html.replacen("<h1>", "<h1 style=\"width:2000px\">", 1),
            ),
            "wider than the window",
        ),
        (
            broken(
                "loading.html",
                html.replacen("<h1>", "<img src=\"https://example.invalid/x.png\"><h1>", 1),
            ),
            "console",
        ),
    ];
    for (page, problem) in cases {
        let Some(output) = look(&[&page]) else { return };
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success(), "{}: {said}", page.display());
        assert!(said.contains(problem), "{problem}: {said}");
    }
}
