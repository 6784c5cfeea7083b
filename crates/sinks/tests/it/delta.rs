//! Delta tables: the suite, values, and tables of others.

use std::fs;
use std::path::Path;

use async_trait::async_trait;
use bytes::Bytes;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::Value;
use stafett_sinks::definition::{Definition, TargetSpec};
use stafett_sinks::target::delta::Delta;
use stafett_sinks::target::{Place, Promise, Start, Steps, Target, TargetError};
use tempfile::TempDir;

use crate::suite::{self, Letters, Store, life, place, record};

struct Table {
    folder: TempDir,
    definition: Definition,
}

impl Table {
    fn new(columns: &str) -> Self {
        // In memory where that is possible: the suite syncs some thousand times.
        let folder = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        let path = folder.path().display();
        let text =
            format!("[sink.s]\nfrom = \"events\"\nto = \"delta\"\npath = '{path}'\ncreate = true\n{columns}");
        let definition = Definition::parse(&text).unwrap().remove(0);
        Self { folder, definition }
    }

    /// Returns the actions of all commits, in order.
    fn actions(&self) -> Vec<Value> {
        let log = self.folder.path().join("_delta_log");
        let commits = (0..).map(|number: u64| log.join(format!("{number:020}.json")));
        let texts = commits.map_while(|path| fs::read_to_string(path).ok());
        let lines = |text: String| {
            text.lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect::<Vec<_>>()
        };
        texts.flat_map(lines).collect()
    }

    /// Returns the rows of all files, in the order of the commits.
    fn all(&self) -> Vec<Row> {
        let paths = self.actions().into_iter().filter_map(|action| {
            let path = action["add"]["path"].as_str()?.to_owned();
            Some(self.folder.path().join(path))
        });
        paths.flat_map(|path| rows_of(&path)).collect()
    }
}

fn rows_of(path: &Path) -> Vec<Row> {
    let reader = SerializedFileReader::new(Bytes::from(fs::read(path).unwrap())).unwrap();
    reader.get_row_iter(None).unwrap().map(Result::unwrap).collect()
}

fn field<'a>(row: &'a Row, wanted: &str) -> &'a Field {
    row.get_column_iter().find(|(name, _)| *name == wanted).unwrap().1
}

fn number(row: &Row, name: &str) -> u64 {
    let Field::Long(number) = field(row, name) else {
        panic!("{name}: {}", field(row, name));
    };
    u64::try_from(*number).unwrap()
}

#[async_trait]
impl Store for Table {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn target(&self, steps: Steps) -> Box<dyn Target> {
        let TargetSpec::Delta(spec) = &self.definition.target else {
            panic!("a Delta table");
        };
        Box::new(Delta::new("s", spec, &self.definition.columns, || 0, steps))
    }

    async fn rows(&self, place: &Place) -> Vec<u64> {
        let own = self.all().into_iter().filter(|row| {
            *field(row, "_topic") == Field::Str(place.topic.clone())
                && number(row, "_partition") == u64::from(place.partition)
        });
        own.map(|row| number(&row, "n")).collect()
    }

    fn refuses(&self) -> bool {
        false
    }
}

const COLUMNS: &str =
    "place = true\n[sink.s.columns]\nn = { type = \"bigint\" }\ntext = { type = \"text\" }\n";

#[tokio::test]
async fn a_delta_table_passes_the_suite() {
    let table = Table::new(COLUMNS);
    assert_eq!(table.target(Steps::default()).promise(), Promise::ExactlyOnce);
    let missing = table.target(Steps::default()).prepare(true).await.unwrap();
    assert_eq!(missing.len(), 1, "{missing:?}");
    suite::all(&table).await;
    let sum: u64 = table
        .actions()
        .iter()
        .map(|action| {
            let stats = action["add"]["stats"].as_str().unwrap_or("{}");
            serde_json::from_str::<Value>(stats).unwrap()["numRecords"]
                .as_u64()
                .unwrap_or(0)
        })
        .sum();
    assert_eq!(sum, table.all().len() as u64);
}

/// Lake tools remove old commits behind a checkpoint, and people remove tables: nothing is put behind a hole.
#[tokio::test]
async fn a_writer_whose_commits_are_gone_begins_anew() {
    let table = Table::new(COLUMNS);
    let mut target = table.target(Steps::default());
    let mut letters = Letters::default();
    let whole = suite::log();
    let (definition, place) = (&table.definition, place(0));
    life(definition, &mut *target, &place, &whole[..10], &mut letters)
        .await
        .unwrap();
    let opened = target.open(&place, Start::at(0)).await.unwrap();
    for entry in fs::read_dir(table.folder.path().join("_delta_log")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let refused = suite::write(&table, &mut *target, &place, opened, opened.next + 5).await;
    assert_eq!(refused, Err(TargetError::Fenced(place.clone())));
    life(definition, &mut *target, &place, &whole, &mut letters)
        .await
        .unwrap();
    let rows = table.rows(&place).await;
    assert_eq!(
        rows,
        whole.iter().map(|record| record.offset.0).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn a_table_says_its_columns_and_another_form_is_refused() {
    let columns = "[sink.s.columns]\nt = { type = \"text\", null = false }\nd = { type = \"numeric(9,2)\" }\n\
        at = { type = \"timestamptz\" }\nday = { type = \"date\" }\nb = { type = \"bytea\" }\nrest = { type = \"jsonb\", rest = true }\n";
    let table = Table::new(columns);
    let value =
        r#"{"t":"x","d":1.5,"at":"1970-01-01T00:00:00.000001Z","day":"1970-01-02","b":"AAE=","more":[1]}"#;
    let target = &mut *table.target(Steps::default());
    let log = [record(0, value)];
    life(
        &table.definition,
        target,
        &place(0),
        &log,
        &mut Letters::default(),
    )
    .await
    .unwrap();
    let metadata = table
        .actions()
        .into_iter()
        .find(|action| action["metaData"].is_object())
        .unwrap();
    let schema: Value = serde_json::from_str(metadata["metaData"]["schemaString"].as_str().unwrap()).unwrap();
    let types: Vec<_> = schema["fields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|field| field["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        types,
        ["string", "decimal(9,2)", "timestamp", "date", "binary", "string"]
    );
    assert_eq!(schema["fields"][0]["nullable"], false);
    let row = table.all().remove(0);
    assert_eq!(*field(&row, "rest"), Field::Str("{\"more\":[1]}".to_owned()));
    assert_eq!(*field(&row, "at"), Field::TimestampMicros(1));
    let positions = table.target(Steps::default()).positions().await.unwrap();
    assert_eq!(positions, [(place(0), 1)]);
    // The columns of another definition do not fit.
    let text = table.folder.path().display();
    let text = format!(
        "[sink.s]\nfrom = \"events\"\nto = \"delta\"\npath = '{text}'\n[sink.s.columns]\nt = {{ type = \"bigint\" }}\n"
    );
    let other = Table {
        folder: tempfile::tempdir().unwrap(),
        definition: Definition::parse(&text).unwrap().remove(0),
    };
    let refused = other.target(Steps::default()).open(&place(0), Start::at(0)).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("column t of the table is required"), "{refused}");
    for kind in ["uuid", "timestamp"] {
        let text = format!(
            "[sink.s]\nfrom = \"e\"\nto = \"delta\"\npath = \"/p\"\n[sink.s.columns]\nu = {{ type = \"{kind}\" }}\n"
        );
        let refused = Definition::parse(&text).unwrap_err().to_string();
        assert!(refused.contains("a Delta table has no such type"), "{refused}");
    }
}
