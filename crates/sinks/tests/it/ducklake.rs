//! DuckLake: the suite on a catalog in PostgreSQL, made and read by DuckDB.

use async_trait::async_trait;
use serde_json::{Value, json};
use stafett_model::Lock;
use stafett_sinks::broker::Servers;
use stafett_sinks::definition::Definition;
use stafett_sinks::target::{Place, Promise, Start, Steps, Surroundings, Target, TargetError, target_of};
use tempfile::TempDir;

use crate::eyes::Eyes;
use crate::server::Server;
use crate::suite::{self, Letters, Store, life, log, place, record};

const COLUMNS: &str = "[sink.s.columns]\nn = { type = \"bigint\" }\ntext = { type = \"text\" }\n";

struct Lake {
    definition: Definition,
    eyes: Lock<Eyes>,
    folder: TempDir,
    server: Server,
}

impl Lake {
    /// Returns `None`, and says so, where PostgreSQL or DuckDB cannot be had.
    async fn start(table: &str, columns: &str) -> Option<Self> {
        let server = Server::start().await?;
        let folder = tempfile::tempdir().unwrap();
        let (url, path) = (server.url(), folder.path().display().to_string());
        let mut eyes = Eyes::open("duckdb_eyes.py", &["lake", &url, &format!("{path}/")], "DuckLake")?;
        assert_eq!(eyes.ask(&json!(table)), json!([]));
        let text = format!(
            "[sink.s]\nfrom = \"events\"\nto = \"ducklake\"\nurl = \"{url}\"\ntable = \"t\"\npath = '{path}'\n{columns}"
        );
        Some(Self {
            definition: Definition::parse(&text).unwrap().remove(0),
            eyes: Lock::new(eyes),
            folder,
            server,
        })
    }

    fn ask(&self, statement: &str) -> Value {
        self.eyes.lock().ask(&json!(statement))
    }
}

#[async_trait]
impl Store for Lake {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn target(&self, steps: Steps) -> Box<dyn Target> {
        let surroundings = Surroundings {
            steps,
            wall: || 0,
            servers: Servers::default(),
            webhook_allow: Vec::new(),
            ledger: None,
        };
        target_of(&self.definition, &surroundings)
    }

    async fn rows(&self, place: &Place) -> Vec<u64> {
        let Place { topic, partition } = place;
        let rows = self.ask(&format!(
            "SELECT n FROM lake.t WHERE _topic = '{topic}' AND _partition = {partition} ORDER BY rowid"
        ));
        let rows = rows.as_array().unwrap_or_else(|| panic!("{rows}")).clone();
        rows.iter().map(|row| row["n"].as_u64().unwrap()).collect()
    }

    fn refuses(&self) -> bool {
        false
    }
}

const TABLE: &str =
    "CREATE TABLE lake.t (_topic varchar, _partition bigint, _offset bigint, n bigint, text varchar)";

#[tokio::test]
async fn a_lake_passes_the_suite() {
    let Some(store) = Lake::start(TABLE, &format!("place = true\n{COLUMNS}")).await else {
        return;
    };
    assert_eq!(store.target(Steps::default()).promise(), Promise::ExactlyOnce);
    suite::all(&store).await;
    // Rows of DuckDB's own are beside them, and are found by their values.
    store.ask("INSERT INTO lake.t VALUES ('own', 1, 1, 99999, 'x')");
    for (condition, count) in [
        ("n = 99999", 1),
        ("n > 100000", 0),
        ("n < 0", 0),
        ("text IS NULL", 0),
    ] {
        let found = store.ask(&format!("SELECT count(*) AS c FROM lake.t WHERE {condition}"));
        assert_eq!(found[0]["c"], count, "{condition}: {found}");
    }
    let extremes = store.ask("SELECT min(n) AS a, max(n) AS b FROM lake.t");
    assert_eq!(extremes, json!([{"a": 0, "b": 99999}]));
    // Removed rows are gone from the lake, and its other operations work on the files of the sink.
    store.ask("DELETE FROM lake.t WHERE _partition = 1");
    assert_eq!(store.rows(&place(1)).await, [0_u64; 0]);
    let merged = store.ask("CALL ducklake_merge_adjacent_files('lake')");
    assert!(merged.is_array(), "{merged}");
    let expected: Vec<u64> = log().iter().map(|record| record.offset.0).collect();
    assert_eq!(store.rows(&place(2)).await, expected);
    assert!(store.folder.path().join("main/t").is_dir());
    assert!(!store.server.url().is_empty());
}

#[tokio::test]
async fn values_have_the_types_of_their_columns_and_others_are_null() {
    let table = "CREATE TABLE lake.t (z varchar, a varchar, b boolean, c bigint, d double, e decimal(9,2), \
                 f timestamptz, g timestamp, h date, i uuid, j blob, k json)";
    let columns = r#"
[sink.s.columns]
k = { type = "jsonb" }
a = { type = "text" }
b = { type = "boolean" }
c = { type = "bigint" }
d = { type = "double" }
e = { type = "numeric(9,2)" }
f = { type = "timestamptz" }
g = { type = "timestamp" }
h = { type = "date" }
i = { type = "uuid" }
j = { type = "bytea" }
"#;
    let Some(store) = Lake::start(table, columns).await else {
        return;
    };
    let value = r#"{"a":"é\"","b":true,"c":-7,"d":0.5,"e":-1234567.25,"f":"1969-12-31T23:59:59.999999Z",
        "g":"2026-11-22T10:20:00.123456","h":"1969-12-31","i":"67e55044-10b1-426f-9247-bb680e5fe0c8","j":"AAE=",
        "k":{"z":[1,2.5]}}"#;
    let mut target = store.target(Steps::default());
    let mut letters = Letters::default();
    let log = [record(0, value), record(1, "{}")];
    life(&store.definition, &mut *target, &place(0), &log, &mut letters)
        .await
        .unwrap();
    let rows = store.ask(
        "SELECT z, a, b, c, d, e::VARCHAR AS e, epoch_us(f) AS f, g::VARCHAR AS g, h::VARCHAR AS h, i::VARCHAR AS i, \
         hex(j) AS j, k::VARCHAR AS k FROM lake.t ORDER BY rowid",
    );
    assert_eq!(
        rows,
        json!([
            {
                "z": null, "a": "é\"", "b": true, "c": -7, "d": 0.5, "e": "-1234567.25", "f": -1,
                "g": "2026-11-22 10:20:00.123456", "h": "1969-12-31", "i": "67e55044-10b1-426f-9247-bb680e5fe0c8",
                "j": "0001", "k": "{\"z\":[1,2.5]}"
            },
            {
                "z": null, "a": null, "b": null, "c": null, "d": null, "e": null, "f": null, "g": null, "h": null, "i": null,
                "j": null, "k": null
            }
        ])
    );
    files_are_passed_over_rightly(&store);
}

/// Files are passed over by their known bounds, and never wrongly; rows of DuckDB's own widen that.
fn files_are_passed_over_rightly(store: &Lake) {
    let own = "INSERT INTO lake.t VALUES ('own', 'z', false, 3, 0.25, 1.5, '2030-01-01', '2030-01-01', '2030-01-01', \
               '00000000-0000-0000-0000-000000000000', 'x', '{}')";
    assert!(store.ask(own).is_array());
    for (condition, count) in [
        ("c = -7", 1),
        ("h = '1969-12-31'", 1),
        ("f < '1970-01-01 00:00:00+00'", 1),
        ("g >= '2026-11-22'", 2),
        ("a = 'é\"'", 1),
        ("b", 1),
        ("d > 0.3", 1),
        ("e < 0", 1),
        ("i > '60000000-0000-0000-0000-000000000000'", 1),
        ("z = 'own'", 1),
        ("z IS NULL", 2),
        ("c > 3", 0),
    ] {
        let found = store.ask(&format!("SELECT count(*) AS c FROM lake.t WHERE {condition}"));
        assert_eq!(found[0]["c"], count, "{condition}: {found}");
    }
    let extremes = store.ask(
        "SELECT min(a) AS a, min(c) AS c, max(d) AS d, min(e)::VARCHAR AS e, min(h)::VARCHAR AS h, \
         max(i)::VARCHAR AS i, max(b) AS b FROM lake.t",
    );
    assert_eq!(
        extremes,
        json!([{
            "a": "z", "c": -7, "d": 0.5, "e": "-1234567.25", "h": "1969-12-31",
            "i": "67e55044-10b1-426f-9247-bb680e5fe0c8", "b": true
        }])
    );
}

#[tokio::test]
async fn a_default_that_a_file_would_lack_stops_the_sink() {
    let Some(store) = Lake::start(TABLE, &format!("place = true\n{COLUMNS}")).await else {
        return;
    };
    store.ask("ALTER TABLE lake.t ADD COLUMN more varchar DEFAULT 'none'");
    let mut target = store.target(Steps::default());
    let refused = target.open(&place(0), Start::at(0)).await.unwrap_err();
    assert!(
        matches!(&refused, TargetError::Stop(why) if why.contains("declare it")),
        "{refused}"
    );
}

#[tokio::test]
async fn a_table_that_changes_is_looked_at_anew_and_one_that_does_not_fit_stops_the_sink() {
    let Some(store) = Lake::start(TABLE, &format!("place = true\n{COLUMNS}")).await else {
        return;
    };
    let mut target = store.target(Steps::default());
    let mut letters = Letters::default();
    let three: Vec<_> = log().into_iter().take(3).collect();
    life(&store.definition, &mut *target, &place(0), &three, &mut letters)
        .await
        .unwrap();
    store.ask("ALTER TABLE lake.t RENAME COLUMN text TO words");
    let refused = target.open(&place(0), Start::at(0)).await.unwrap_err();
    let text = refused.to_string();
    assert!(
        matches!(refused, TargetError::Stop(_)) && text.contains("ADD COLUMN \"text\" varchar"),
        "{text}"
    );
    store.ask("ALTER TABLE lake.t ADD COLUMN text varchar");
    life(&store.definition, &mut *target, &place(0), &log(), &mut letters)
        .await
        .unwrap();
    let expected: Vec<u64> = log().iter().map(|record| record.offset.0).collect();
    assert_eq!(store.rows(&place(0)).await, expected);
    let found = store.ask("SELECT count(words) AS words, count(text) AS texts FROM lake.t");
    assert_eq!(found, json!([{"words": 3, "texts": expected.len() - 3}]));
    store.ask("ALTER TABLE lake.t ALTER n SET DATA TYPE varchar");
    store.ask("DROP TABLE lake.t");
    let refused = target.open(&place(0), Start::at(0)).await.unwrap_err();
    assert!(
        refused.to_string().contains("CREATE TABLE \"main\".\"t\""),
        "{refused}"
    );
}
