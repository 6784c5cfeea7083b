//! Questions about files that a sink has written.

use std::fs;
use std::path::Path;

use stafett_model::{Headers, Offset, StoredRecord};
use stafett_sinks::Definition;
use stafett_sinks::convert::Converter;
use stafett_sinks::definition::TargetSpec;
use stafett_sinks::rows::{Rows, Slice};
use stafett_sinks::target::files::Files;
use stafett_sinks::target::{Part, Place, Start, Steps, Target};
use tokio::sync::mpsc::channel;

use crate::question::tests::{BOUNDS, asked_of};
use crate::question::{Form, Tables};
use crate::source::{Asked, Row, Source};

fn sink(name: &str, folder: &Path, columns: &str) -> Definition {
    let text = format!(
        "[sink.{name}]\nfrom = \"log\"\nto = \"files\"\npath = '{}'\nformat = \"csv\"\n[sink.{name}.columns]\n{columns}",
        folder.join(name).display()
    );
    Definition::parse(&text).unwrap().remove(0)
}

/// Writes values into files of `file_rows` rows.
async fn write(sink: &Definition, values: &[String], file_rows: usize) {
    let TargetSpec::Files(spec) = &sink.target else {
        panic!("files");
    };
    let place = Place {
        topic: "log".to_owned(),
        partition: 0,
    };
    let mut converter = Converter::new(sink.columns.clone(), sink.steps.clone(), sink.on_unknown);
    let mut rows = Rows::new(sink.columns.len());
    for (offset, value) in (0..).zip(values) {
        let record = StoredRecord {
            offset: Offset(offset),
            timestamp: 0,
            key: None,
            value: Some(value.clone().into()),
            headers: Headers::default(),
        };
        converter.convert(&place, &record, &mut rows).unwrap();
    }
    let mut target = Files::new(&sink.name, spec, &sink.columns, || 0, Steps::default());
    target.prepare(true).await.unwrap();
    let opened = target.open(&place, Start::at(0)).await.unwrap();
    for from in (0..rows.len()).step_by(file_rows) {
        let range = from..rows.len().min(from + file_rows);
        let bounds = (range.start as u64, range.end as u64);
        let part = Part {
            place: &place,
            epoch: opened.epoch,
            from: bounds.0,
            next: bounds.1,
            batch: bounds,
            records: range.len() as u64,
            rows: Slice { rows: &rows, range },
        };
        target.write(&part).await.unwrap();
    }
}

#[tokio::test]
async fn files_are_read_in_pieces_and_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let sink = sink("s", folder.path(), "n = { type = \"bigint\" }");
    let values: Vec<_> = (0..10_000).map(|n| format!("{{\"n\":{n}}}")).collect();
    write(&sink, &values, 5000).await;
    let source = Source::of_files(&sink).unwrap();
    let (sender, mut rows) = channel::<Result<Vec<Row>, String>>(1);
    let taken = async {
        let first = rows.recv().await.unwrap().unwrap();
        // The second file is not read yet: rows of the first one wait.
        let second = folder.path().join("s/log/0");
        let mut paths = fs::read_dir(second).unwrap().map(|entry| entry.unwrap().path());
        let second = paths
            .find(|path| path.to_string_lossy().contains(".00000002."))
            .unwrap();
        fs::write(second, "n\n1\n").unwrap();
        let mut lengths = vec![first.len()];
        loop {
            match rows.recv().await.unwrap() {
                Ok(piece) => lengths.push(piece.len()),
                Err(why) => return (lengths, why),
            }
        }
    };
    let asked = Asked {
        columns: u64::MAX,
        terms: Vec::new(),
    };
    let ((), (lengths, why)) = tokio::join!(source.scan(&asked, sender), taken);
    assert_eq!(lengths, [1000; 5]);
    assert!(why.contains("has other bytes than its manifest says"), "{why}");
}

fn asked(sinks: &[&Definition], question: &str, form: Form) -> Result<String, String> {
    let tables = Tables {
        client: Err("no broker".to_owned()),
        sinks: sinks.iter().map(|sink| (*sink).clone()).collect(),
    };
    asked_of(&tables, question, BOUNDS, form).map(|(text, _)| text)
}

fn written(sink: &Definition, values: &[&str]) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let values: Vec<_> = values.iter().map(|value| (*value).to_owned()).collect();
    runtime.block_on(write(sink, &values, 10));
}

#[test]
fn tables_whose_names_differ_in_case_are_not_taken_for_one() {
    let folder = tempfile::tempdir().unwrap();
    let large = sink("Log", &folder.path().join("a"), "n = { type = \"text\" }");
    let small = sink("log", &folder.path().join("b"), "n = { type = \"text\" }");
    written(&large, &[r#"{"n":"large"}"#]);
    written(&small, &[r#"{"n":"small"}"#]);
    let both = [&large, &small];
    let ask = |question| asked(&both, question, Form::Lines);
    assert_eq!(ask("SELECT n FROM Log").unwrap(), "n\nlarge\n");
    assert_eq!(
        ask("SELECT n FROM log WHERE n != 'Log' -- Log").unwrap(),
        "n\nsmall\n"
    );
    for question in [
        "SELECT a.n, b.n FROM Log a, log b",
        "SELECT (SELECT n FROM \"log\"), n FROM Log",
    ] {
        let why = ask(question).unwrap_err();
        assert!(
            why.contains("are two tables, and SQLite takes names that differ in case alone for one"),
            "{why}"
        );
    }
    let other = sink("log", &folder.path().join("c"), "m = { type = \"text\" }");
    written(&other, &[r#"{"m":"other"}"#]);
    let why = asked(
        &[&large, &other],
        "SELECT a.n, b.m FROM Log a, log b",
        Form::Lines,
    )
    .unwrap_err();
    assert!(why.contains("are two tables"), "{why}");
    // With one of the two, SQLite's rule stays.
    let one = asked(&[&large], "SELECT log.n FROM Log", Form::Lines).unwrap();
    assert_eq!(one, "n\nlarge\n");
}

#[test]
fn decimals_are_numbers_where_doubles_hold_them() {
    let folder = tempfile::tempdir().unwrap();
    let sink = sink(
        "s",
        folder.path(),
        "d = { type = \"numeric(30,3)\" }\nj = { type = \"jsonb\" }\n",
    );
    let values = [
        r#"{"d":9.5,"j":{"d":1}}"#,
        r#"{"d":10,"j":[2]}"#,
        r#"{"d":-0.125,"j":null}"#,
        r#"{"d":null}"#,
        r#"{"d":123456789012345678901.5,"j":"x"}"#,
    ];
    written(&sink, &values);
    let ask = |question: &str, form| asked(&[&sink], question, form);
    let sorted = ask("SELECT d FROM s WHERE d < 100 ORDER BY d", Form::Json).unwrap();
    assert_eq!(sorted, "{\"d\":-0.125}\n{\"d\":9.5}\n{\"d\":10}\n");
    let sums = "SELECT sum(d) AS sum, typeof(max(d)) AS kind FROM s WHERE d < 100";
    assert_eq!(ask(sums, Form::Lines).unwrap(), "sum\tkind\n19.375\tinteger\n");
    // More digits than a double has stay as they are.
    let long = ask(
        "SELECT d, typeof(d) AS kind FROM s WHERE d LIKE '123%'",
        Form::Json,
    )
    .unwrap();
    assert_eq!(long, "{\"d\":\"123456789012345678901.5\",\"kind\":\"text\"}\n");
    // A field of JSON and a column of its name: twins in an answer in JSON.
    let twins = "SELECT d, j ->> 'd' AS d FROM s LIMIT 1";
    let why = ask(twins, Form::Json).unwrap_err();
    assert!(
        why.contains("two columns are named d: give them names with AS"),
        "{why}"
    );
    assert_eq!(ask(twins, Form::Lines).unwrap(), "d\td\n9.5\t1\n");
}
