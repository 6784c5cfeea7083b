//! Clients that generators make of `docs/openapi.json`: each is made, compiled where it has types, and run.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::broker::{Broker, is_stafett, root};
use crate::peer;

const DOCUMENT: &str = "docs/openapi.json";

/// A folder that is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("stafett-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn copy(&self, from: &Path, names: &[&str]) {
        for name in names {
            fs::copy(from.join(name), self.0.join(name)).unwrap();
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn the_client_for_python_that_is_made_of_the_document_does_what_programs_do_in_a_day() {
    if !is_stafett() {
        return;
    }
    let Some(python) = peer::python_generator() else {
        return;
    };
    let broker = Broker::start_at("os");
    let folder = Folder::new("generated-python");
    let mut smoke = peer::command(&python);
    smoke
        .arg(root().join("tests/clients/generated/smoke.py"))
        .arg(broker.http())
        .arg(root().join(DOCUMENT))
        .arg(&folder.0);
    assert_eq!(peer::run_text(&mut smoke).trim(), "ok");
}

#[test]
fn the_types_for_typescript_that_are_made_of_the_document_fit_what_programs_do_in_a_day() {
    if !is_stafett() {
        return;
    }
    let Some((node, modules)) = peer::typescript_generator() else {
        return;
    };
    let folder = Folder::new("generated-typescript");
    symlink(&modules, folder.0.join("node_modules")).unwrap();
    let sources = root().join("tests/clients/generated");
    folder.copy(&sources, &["package.json", "smoke.ts", "tsconfig.json"]);
    let run = |script: &str, arguments: &[&str]| {
        let mut command = peer::command(&node);
        command.current_dir(&folder.0).arg(script).args(arguments);
        peer::run_text(&mut command)
    };
    let document = root().join(DOCUMENT);
    // Fields with a default can be left out of bodies.
    let options = ["--default-non-nullable=false", "-o", "stafett.d.ts"];
    let arguments = [&[document.to_str().unwrap()], &options[..]].concat();
    run("node_modules/openapi-typescript/bin/cli.js", &arguments);
    run("node_modules/typescript/bin/tsc", &["-p", "."]);
    let broker = Broker::start_at("os");
    assert_eq!(run("compiled/smoke.js", &[broker.http()]).trim(), "ok");
}
