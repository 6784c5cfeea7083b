//! Parquet: files as DuckDB reads them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use stafett_model::StoredRecord;
use stafett_sinks::broker::Servers;
use stafett_sinks::definition::Definition;
use stafett_sinks::target::{Steps, Surroundings, target_of};
use tempfile::TempDir;

use crate::peer::{python, skip};
use crate::suite::{Letters, life, place, record};

const COLUMNS: &str = r#"
[sink.s.columns]
id = { type = "bigint", null = false }
a = { type = "text" }
b = { type = "boolean" }
d = { type = "double" }
e = { type = "numeric(9,2)" }
f = { type = "numeric(38,4)" }
g = { type = "timestamptz" }
h = { type = "timestamp" }
i = { type = "date" }
j = { type = "uuid" }
k = { type = "bytea" }
l = { type = "jsonb" }
rest = { type = "jsonb", rest = true }
"#;

fn definition(folder: &Path, fields: &str) -> Definition {
    let path = folder.display();
    let text = format!(
        "[sink.s]\nfrom = \"events\"\nto = \"files\"\npath = '{path}'\nformat = \"parquet\"\n{fields}\n{COLUMNS}"
    );
    Definition::parse(&text).unwrap().remove(0)
}

/// Writes records, and returns the files in the order of their names, and the offsets of the dead letters.
async fn written(folder: &TempDir, fields: &str, log: &[StoredRecord]) -> (Vec<PathBuf>, Vec<u64>) {
    let definition = definition(folder.path(), fields);
    let surroundings = Surroundings {
        steps: Steps::default(),
        wall: || 0,
        servers: Servers::default(),
        webhook_allow: Vec::new(),
        ledger: None,
    };
    let mut letters = Letters::default();
    let mut target = target_of(&definition, &surroundings);
    life(&definition, &mut *target, &place(0), log, &mut letters)
        .await
        .unwrap();
    let entries = fs::read_dir(folder.path().join("events/0")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "parquet"))
        .collect();
    paths.sort();
    (paths, letters.0)
}

/// Returns the rows of a statement, as JSON; `None`, and says so, where DuckDB cannot be had.
fn duckdb(statement: &str) -> Option<Vec<Value>> {
    let program = "import duckdb, json, sys\n\
                   found = duckdb.sql(sys.argv[1])\n\
                   for row in found.fetchall(): print(json.dumps(dict(zip(found.columns, row)), default=str))";
    let output = Command::new(python()).args(["-c", program, statement]).output();
    let Some(output) = output
        .ok()
        .filter(|output| !String::from_utf8_lossy(&output.stderr).contains("No module named"))
    else {
        skip("DuckDB");
        return None;
    };
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    Some(
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
    )
}

fn whole(offset: u64) -> StoredRecord {
    record(
        offset,
        &format!(
            r#"{{"id":{offset},"a":"é\"{offset}","b":true,"d":0.5,"e":-1234567.25,"f":-1234567890123456789012345678901234.5,
            "g":"1969-12-31T23:59:59.999999Z","h":"2026-11-22T10:20:00.123456","i":"1969-12-31",
            "j":"67e55044-10b1-426f-9247-bb680e5fe0c8","k":"AAE=","l":{{"z":[1,2.5]}},"other":true}}"#
        ),
    )
}

#[tokio::test]
async fn values_have_the_types_of_their_columns() {
    let folder = tempfile::tempdir().unwrap();
    let log = [whole(0), record(1, r#"{"id":1}"#)];
    let (paths, letters) = written(&folder, "", &log).await;
    assert_eq!((paths.len(), letters.len()), (1, 0));
    let path = paths[0].display();
    let Some(types) = duckdb(&format!(
        "SELECT column_name, column_type, \"null\" FROM (DESCRIBE FROM '{path}')"
    )) else {
        return;
    };
    let types: Vec<_> = types
        .iter()
        .map(|row| {
            format!(
                "{} {}",
                row["column_name"].as_str().unwrap(),
                row["column_type"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        types,
        [
            "id BIGINT",
            "a VARCHAR",
            "b BOOLEAN",
            "d DOUBLE",
            "e DECIMAL(9,2)",
            "f DECIMAL(38,4)",
            "g TIMESTAMP WITH TIME ZONE",
            "h TIMESTAMP",
            "i DATE",
            "j UUID",
            "k BLOB",
            "l JSON",
            "rest JSON"
        ]
    );
    let rows = duckdb(&format!(
        "SELECT id, a, b, d, e::VARCHAR AS e, f::VARCHAR AS f, epoch_us(g) AS g, h::VARCHAR AS h, i::VARCHAR AS i, \
         j::VARCHAR AS j, hex(k) AS k, l::VARCHAR AS l, rest::VARCHAR AS rest FROM '{path}' ORDER BY id"
    ))
    .unwrap();
    assert_eq!(
        rows,
        [
            json!({
                "id": 0, "a": "é\"0", "b": true, "d": 0.5, "e": "-1234567.25",
                "f": "-1234567890123456789012345678901234.5000", "g": -1, "h": "2026-11-22 10:20:00.123456",
                "i": "1969-12-31", "j": "67e55044-10b1-426f-9247-bb680e5fe0c8", "k": "0001",
                "l": "{\"z\":[1,2.5]}", "rest": "{\"other\":true}"
            }),
            json!({
                "id": 1, "a": null, "b": null, "d": null, "e": null, "f": null, "g": null, "h": null, "i": null,
                "j": null, "k": null, "l": null, "rest": null
            })
        ]
    );
}

#[tokio::test]
async fn a_field_that_changes_its_type_goes_to_the_dead_letters_until_a_cast_says_more() {
    let log: Vec<_> = [
        r#"{"id":0,"a":"text"}"#,
        r#"{"id":1,"a":7}"#,
        r#"{"id":2,"a":null}"#,
    ]
    .into_iter()
    .zip(0..)
    .map(|(value, offset)| record(offset, value))
    .collect();
    let folder = tempfile::tempdir().unwrap();
    let (paths, letters) = written(&folder, "", &log).await;
    assert_eq!(letters, [1]);
    let Some(rows) = duckdb(&format!("SELECT id, a FROM '{}' ORDER BY id", paths[0].display())) else {
        return;
    };
    assert_eq!(rows, [json!({"id": 0, "a": "text"}), json!({"id": 2, "a": null})]);
    let folder = tempfile::tempdir().unwrap();
    let cast = "[[sink.s.transform]]\ncast = { a = \"text\" }";
    let (paths, letters) = written(&folder, cast, &log).await;
    assert_eq!(letters, [0_u64; 0]);
    let rows = duckdb(&format!("SELECT a FROM '{}' ORDER BY id", paths[0].display())).unwrap();
    assert_eq!(
        rows,
        [json!({"a": "text"}), json!({"a": "7"}), json!({"a": null})]
    );
}

#[tokio::test]
async fn the_same_rows_are_the_same_bytes_and_files_of_a_sink_are_one_table() {
    let log: Vec<_> = (0..30).map(whole).collect();
    let mut contents: Vec<Vec<Vec<u8>>> = Vec::new();
    for _ in 0..2 {
        let folder = tempfile::tempdir().unwrap();
        let (paths, _) = written(&folder, "split = { records = 4 }", &log).await;
        assert!(paths.len() > 7, "{paths:?}");
        contents.push(paths.iter().map(|path| fs::read(path).unwrap()).collect());
        let folder = folder.path().display();
        let Some(rows) = duckdb(&format!(
            "SELECT count(*) AS n, count(DISTINCT id) AS ids, max(a) AS a FROM '{folder}/events/*/*.parquet'"
        )) else {
            return;
        };
        assert_eq!(rows, [json!({"n": 30, "ids": 30, "a": "é\"9"})]);
    }
    assert_eq!(contents[0], contents[1]);
}

#[test]
fn columns_are_declared_and_never_guessed() {
    for (text, why) in [
        ("", "the target needs columns, and there are none"),
        (
            "[sink.s.columns]\na = { type = \"numeric(39,0)\" }",
            "38 digits at most",
        ),
        ("compression = \"gzip\"", "\"gzip\" is not one of zstd, none"),
    ] {
        let text =
            format!("[sink.s]\nfrom = \"t\"\nto = \"files\"\npath = \"x\"\nformat = \"parquet\"\n{text}\n");
        let refused = Definition::parse(&text).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    let text = "[sink.s]\nfrom = \"t\"\nto = \"parquet\"\npath = \"x\"\n";
    let refused = Definition::parse(text).unwrap_err().to_string();
    assert!(refused.contains("format = \"parquet\""), "{refused}");
}
