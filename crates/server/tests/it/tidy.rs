//! How the source reads: widths, lengths, words, and where a few things may stand.
//!
//! Looked at: `crates/*/src`, each file up to its `#[cfg(test)]` module, without generated code and without
//! modules that exist for tests or fuzzing only. A rule that the source does not meet yet has a ceiling: more
//! violations fail, and so do clearly fewer, so that ceilings fall and never rise.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::layering::crates;

const COMMENT_WIDTH: usize = 110;
const FILE_LINES: usize = 500;
const FUNCTION_LINES: usize = 70;
/// Violations that a ceiling may be too high by.
const SLACK: usize = 10;
/// Crates that speak no protocol and are not programs.
const CORE: &[&str] = &[
    "model",
    "access",
    "expr",
    "journal",
    "cluster",
    "queue",
    "routing",
    "store",
    "topics",
    "groups",
    "live-topics",
    "delivery",
    "messaging",
    "shares",
    "broker",
];
/// Words of no standard: each has a better one in `docs/glossary.md`.
const DIALECT: &[&str] = &[
    "nobody",
    "whoever",
    "so many",
    "somebody",
    "what became of",
    "anybody",
    "for good",
    "what becomes of",
    "the business of",
    "lies over",
    "a moment ago",
    " he ",
    " him ",
];
/// Files that read the system's clock: one per program or client, and the journal's own.
const CLOCKS: &[&str] = &[
    "journal/",
    "kafka-client/",
    "lab/",
    "net/src/trace/",
    "server/",
    "simulation/",
    "store/src/clock.rs",
];

/// Crates that name sockets: `net`, which accepts connections, and those that open them.
const SOCKETS: &[&str] = &[
    "kafka-client/",
    "lab/",
    "net/",
    "server/src/client/",
    "server/src/cluster/",
    "server/src/oauth.rs",
    "simulation/",
    "sinks/src/amqp/link.rs",
    "sinks/src/http.rs",
    "objects/src/remote/link.rs",
    "sinks/src/target/mongodb/link.rs",
];

/// Folders of a crate by floor, the lowest first. A folder knows those on lower floors only.
const FLOORS: &[(&str, &[&[&str]])] = &[(
    "messaging",
    &[&["queues", "readers"], &["delayed"], &["exchanges"], &["publish"]],
)];

/// A source file, up to its tests.
struct Source {
    /// Relative to `crates/`.
    path: String,
    lines: Vec<String>,
}

impl Source {
    fn is_in(&self, crates: &[&str]) -> bool {
        crates
            .iter()
            .any(|name| self.path.starts_with(&format!("{name}/")))
    }

    fn comments(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.lines.iter().enumerate();
        lines.filter_map(|(number, line)| {
            line.trim_start()
                .starts_with("//")
                .then_some((number, line.as_str()))
        })
    }

    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.lines.iter().enumerate();
        lines.map(|(number, line)| (number, line.split("//").next().unwrap_or(line)))
    }

    fn at(&self, number: usize) -> String {
        format!("{}:{}", self.path, number + 1)
    }
}

fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = std::fs::read_dir(crates())
        .unwrap()
        .map(|entry| entry.unwrap().path().join("src"))
        .collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && !["generated", "tests"].contains(&name) {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    let texts: BTreeMap<PathBuf, String> = found
        .iter()
        .map(|path| (path.clone(), std::fs::read_to_string(path).unwrap()))
        .collect();
    let for_tests: Vec<PathBuf> = texts
        .iter()
        .flat_map(|(path, text)| modules_for_tests(path, text))
        .collect();
    let is_for_tests = |path: &Path| {
        for_tests
            .iter()
            .any(|module| path.with_extension("").starts_with(module))
    };
    let source = |(path, text): (&PathBuf, &String)| Source {
        path: path.strip_prefix(crates()).unwrap().to_str().unwrap().to_owned(),
        lines: before_tests(text),
    };
    texts
        .iter()
        .filter(|(path, _)| !is_for_tests(path))
        .map(source)
        .collect()
}

fn is_test_attribute(line: &str) -> bool {
    line.starts_with("#[cfg(")
        && ["test", "testing", "fuzzing"]
            .iter()
            .any(|word| line.contains(word))
        && !line.contains("not(")
}

/// Paths without their ending of modules that a file declares for tests or fuzzing.
fn modules_for_tests(path: &Path, text: &str) -> Vec<PathBuf> {
    let stem = path.with_extension("");
    let is_root = ["mod", "lib", "main"].iter().any(|name| stem.ends_with(name));
    let folder = if is_root {
        path.parent().unwrap().to_owned()
    } else {
        stem
    };
    let lines: Vec<&str> = text.lines().collect();
    let declared = lines
        .windows(2)
        .filter(|pair| is_test_attribute(pair[0]))
        .filter_map(|pair| {
            let (_, name) = pair[1].strip_suffix(';')?.split_once("mod ")?;
            Some(folder.join(name))
        });
    declared.collect()
}

fn before_tests(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let begins = |at: usize| {
        lines[at].starts_with("#[cfg(test)]")
            && lines.get(at + 1).is_some_and(|line| line.starts_with("mod "))
    };
    let end = (0..lines.len())
        .find(|at| begins(*at) && lines[at + 1].ends_with('{'))
        .unwrap_or(lines.len());
    lines[..end].iter().map(|line| (*line).to_owned()).collect()
}

/// Fails unless there are as many violations as the ceiling says, or a few less.
fn hold(rule: &str, ceiling: usize, violations: &[String]) {
    let count = violations.len();
    let mut text = String::new();
    for violation in violations.iter().take(2000) {
        writeln!(text, "{violation}").unwrap();
    }
    assert!(
        count <= ceiling,
        "{rule}: {count}, the ceiling is {ceiling}\n{text}"
    );
    assert!(count + SLACK >= ceiling, "{rule}: lower the ceiling to {count}");
}

#[test]
fn comments_are_no_wider_than_code() {
    let mut violations = Vec::new();
    for source in sources() {
        // Drawings and tables may be wider.
        let mut is_drawing = false;
        for (number, line) in source.comments() {
            let text = line.trim_start().trim_start_matches(['/', '!']).trim_start();
            is_drawing ^= text.starts_with("```");
            if !is_drawing && !text.starts_with('|') && line.chars().count() > COMMENT_WIDTH {
                violations.push(source.at(number));
            }
        }
    }
    hold("comment lines over 110 columns", 0, &violations);
}

#[test]
fn long_files_give_a_reason() {
    let is_long = |source: &&Source| {
        source.lines.len() > FILE_LINES && !source.lines.iter().any(|line| line.starts_with("//! Length: "))
    };
    let describe = |source: &Source| format!("{}: {} lines", source.path, source.lines.len());
    let violations: Vec<String> = sources().iter().filter(is_long).map(describe).collect();
    hold(
        "files over 500 lines without a line `//! Length: REASON`",
        0,
        &violations,
    );
}

#[test]
fn functions_fit_on_a_screen() {
    let mut violations = Vec::new();
    for source in sources() {
        for (begin, line) in source.code() {
            let indent = line.len() - line.trim_start().len();
            let head = line.split('"').next().unwrap_or(line);
            if !head.split_whitespace().any(|word| word == "fn") {
                continue;
            }
            let rest = source.lines[begin..].iter().enumerate();
            let closes = |line: &String| {
                line.get(..indent).is_some_and(|space| space.trim().is_empty())
                    && line[indent..].starts_with('}')
            };
            let ends = |line: &String| {
                closes(line)
                    || line.trim_end().ends_with(';') && line.len() - line.trim_start().len() <= indent
            };
            let length = rest
                .clone()
                .find(|(_, line)| ends(line))
                .map_or(0, |(length, _)| length + 1);
            if length > FUNCTION_LINES {
                violations.push(format!("{}: {length} lines", source.at(begin)));
            }
        }
    }
    hold("functions over 70 lines", 4, &violations);
}

#[test]
fn comments_begin_with_nouns_and_verbs() {
    let mut violations = Vec::new();
    for source in sources() {
        for (number, line) in source.comments() {
            let is_first = number == 0 || !source.lines[number - 1].trim_start().starts_with("///");
            let opening = line.trim_start().strip_prefix("/// ");
            let word = opening
                .and_then(|text| text.split([' ', '\'']).next())
                .unwrap_or_default();
            if is_first && ["What", "Who", "Whoever"].contains(&word) {
                violations.push(source.at(number));
            }
        }
    }
    hold(
        "doc comments that begin with What, Who or Whoever",
        0,
        &violations,
    );
}

#[test]
fn comments_use_standard_words() {
    let mut violations = Vec::new();
    for source in sources() {
        for (number, line) in source.comments() {
            let text = format!("{} ", line.to_lowercase());
            if let Some(word) = DIALECT.iter().find(|word| text.contains(*word)) {
                violations.push(format!("{}: {word}", source.at(number)));
            }
        }
    }
    hold("comment lines with words of no standard", 0, &violations);
}

#[test]
fn comments_name_things_rather_than_what_they_do() {
    let (mut all, mut violations) = (0, Vec::new());
    for source in sources() {
        for (number, line) in source.comments() {
            all += 1;
            let text = line.to_lowercase();
            if text
                .split(|letter: char| !letter.is_alphabetic())
                .any(|word| word == "what")
            {
                violations.push(source.at(number));
            }
        }
    }
    let share = violations.len() * 1000 / all;
    hold(
        &format!("comment lines with \"what\" ({share} of 1000)"),
        17,
        &violations,
    );
}

/// Lines of code that contain a text, outside of the files that may.
fn code_with(text: &str, may: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources() {
        if may.iter().any(|path| source.path.starts_with(path)) {
            continue;
        }
        let lines = source.code().filter(|(_, line)| line.contains(text));
        found.extend(lines.map(|(number, _)| source.at(number)));
    }
    found
}

#[test]
fn some_things_stand_in_one_place() {
    hold(
        "numbers of state spaces",
        0,
        &code_with("StateSpace(", &["journal/", "simulation/", "store/src/table.rs"]),
    );
    hold(
        "locks that a panic poisons",
        4,
        &code_with("PoisonError::into_inner", &["model/src/lock.rs"]),
    );
    hold("clocks", 0, &code_with("SystemTime::now", CLOCKS));
    hold("accepted sockets", 0, &code_with("TcpStream", SOCKETS));
}

#[test]
fn modules_of_the_core_are_private() {
    let mut violations = Vec::new();
    for source in sources().iter().filter(|source| source.is_in(CORE)) {
        for (number, line) in source.code() {
            let attribute = number
                .checked_sub(1)
                .map_or("", |before| source.lines[before].as_str());
            if line.starts_with("pub mod ") && !attribute.starts_with("#[cfg(") {
                violations.push(source.at(number));
            }
        }
    }
    hold("public modules in crates of the core", 27, &violations);
}

/// Names behind `crate::` in a line of code.
fn crate_names(line: &str) -> impl Iterator<Item = &str> {
    let parts = line.split("crate::").skip(1);
    parts.filter_map(|part| part.split(|c: char| !c.is_alphanumeric() && c != '_').next())
}

#[test]
fn folders_know_lower_floors_only() {
    let sources = sources();
    let mut violations = Vec::new();
    for (name, floors) in FLOORS {
        for (floor, folder) in floors
            .iter()
            .enumerate()
            .flat_map(|(at, all)| all.iter().map(move |one| (at, one)))
        {
            let lower: Vec<&str> = floors[..floor]
                .iter()
                .flat_map(|all| all.iter().copied())
                .collect();
            let own = format!("{name}/src/{folder}/");
            let files: Vec<&Source> = sources
                .iter()
                .filter(|source| source.path.starts_with(&own))
                .collect();
            assert!(!files.is_empty(), "{own} has no files");
            for source in files {
                for (number, line) in source.code() {
                    let known = |name: &&str| lower.contains(name) || name == folder;
                    if let Some(other) = crate_names(line).find(|name| !known(name)) {
                        violations.push(format!("{}: {other}", source.at(number)));
                    }
                }
            }
        }
    }
    hold("uses of a folder that is not below", 0, &violations);
}

#[test]
fn no_crate_grows_beyond_its_size() {
    let mut lines = BTreeMap::new();
    for source in sources() {
        let name = source.path.split('/').next().unwrap().to_owned();
        // The lab is counted without its page, and without the parts of runs and experiments that serve it. A
        // driver of HTTP, faults of systems, and the roles and figures of a priority-queue paper are 2,000.
        let is_page = [
            "src/page/",
            "src/run/live.rs",
            "src/experiment/edit.rs",
            "src/experiment/fraction.rs",
            "src/experiment/ranges.rs",
            "src/report/side_by_side.rs",
            "commands/serve.rs",
        ];
        if name == "lab" && is_page.iter().any(|part| source.path.contains(part)) {
            continue;
        }
        *lines.entry(name).or_insert(0) += source.lines.len();
    }
    for (name, most) in [("broker", 2_000), ("messaging", 10_000), ("lab", 25_650)] {
        assert!(
            lines[name] <= most,
            "{name}: {} lines, the ceiling is {most}",
            lines[name]
        );
    }
}

#[test]
fn the_glossary_defines_each_word_once() {
    let glossary = std::fs::read_to_string(crates().join("../docs/glossary.md")).unwrap();
    let mut seen = BTreeMap::new();
    let rows = glossary
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    for word in rows.skip(1).flat_map(|words| words.split(", ")) {
        *seen.entry(word.to_lowercase()).or_insert(0) += 1;
    }
    assert!(!seen.is_empty(), "the glossary is a table");
    let twice: Vec<_> = seen.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

/// Names in backticks that look like code: `Type`, `path::to::item` and `path/to/file.rs`.
fn names_in(document: &str) -> Vec<String> {
    let quoted = document.split('`').skip(1).step_by(2);
    let is_name = |name: &&str| {
        let is_word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || c == '_');
        let is_type = name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase);
        let has_path = name.contains("::");
        name.strip_suffix(".rs").is_some() || ((is_type || has_path) && name.split("::").all(is_word))
    };
    quoted.filter(is_name).map(str::to_owned).collect()
}

#[test]
fn documents_name_code_that_exists() {
    let sources = sources();
    let words: BTreeSet<&str> = sources
        .iter()
        .flat_map(|source| &source.lines)
        .flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .collect();
    let exists = |name: &str| {
        if let Some(path) = name.strip_suffix(".rs") {
            let path = path.strip_prefix("crates/").unwrap_or(path);
            return crates().join(path).with_extension("rs").exists()
                || sources
                    .iter()
                    .any(|source| source.path.trim_end_matches(".rs").ends_with(path));
        }
        name.split("::").all(|word| words.contains(word))
    };
    for document in ["ARCHITECTURE.md", "format.md"] {
        let text = std::fs::read_to_string(crates().join("../docs").join(document)).unwrap();
        let names = names_in(&text);
        assert!(names.len() > 20, "{document}: {} names", names.len());
        let gone: Vec<_> = names.iter().filter(|name| !exists(name)).collect();
        assert!(gone.is_empty(), "{document} names {gone:?}");
    }
}
