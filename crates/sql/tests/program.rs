//! The program, from its command line.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::process::{Command, Output};

const SINKS: &str = "[sink.none]\nfrom = \"log\"\nto = \"files\"\npath = \"none\"\nformat = \"csv\"\n\
    [sink.none.columns]\nn = { type = \"bigint\" }\n";

/// Asks about files: no broker is needed.
fn asked(arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sinks.toml");
    fs::write(&file, SINKS).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_stafett-sql"));
    command.args(["--server", "127.0.0.1:1", "-f"]).arg(file);
    command.args(arguments).output().unwrap()
}

#[test]
fn rows_are_printed_and_a_cut_answer_says_so() {
    let whole = asked(&["SELECT 1 AS one, 'x' AS text UNION SELECT 2, NULL"]);
    assert!(whole.status.success(), "{whole:?}");
    assert_eq!(
        String::from_utf8_lossy(&whole.stdout),
        "one\ttext\n1\tx\n2\tnull\n"
    );
    let cut = asked(&["--json", "--rows", "1", "VALUES (1), (2)"]);
    assert_eq!(String::from_utf8_lossy(&cut.stdout), "{\"column1\":1}\n");
    assert!(!cut.stderr.is_empty(), "{cut:?}");
}

#[test]
fn wrong_questions_and_options_fail_with_a_reason() {
    for (arguments, code, why) in [
        (&["SELECT 1; SELECT 2"][..], 1, "Multiple statements"),
        (&["PRAGMA user_version = 3"], 1, "nothing is changed"),
        (
            &["--memory", "some", "SELECT 1"],
            2,
            "a size is a number with a unit",
        ),
        (
            &["SELECT * FROM log"],
            1,
            "no broker to ask for a topic of that name: ",
        ),
        (
            &["--user", "u", "--password-file", "/none", "SELECT * FROM log"],
            1,
            "the password file /none cannot be read",
        ),
        (&[], 2, "QUESTION"),
    ] {
        let refused = asked(arguments);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
}
