//! Sinks of the real binary over PostgreSQL: records looked up there, stores compared, and replays into new tables.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::fs;
use std::time::Instant;

use rustix::process::Signal;
use tokio_postgres::Client;

use crate::common::{Running, get};
use crate::postgres::Server;
use crate::sinks::{PATIENCE, Scene, printed};

/// Writes the definition of a sink that looks records up.
fn define(scene: &Scene, server: &Server, more: &str) {
    let out = scene.folder.path().join("out");
    let definition = format!(
        "[sink.events]\nfrom = \"log\"\nto = \"files\"\npath = '{0}'\nformat = \"ndjson\"\nplace = true\n\
         flush = {{ every = \"50ms\" }}\n\
         [[sink.events.transform]]\nwhere = \"value.app != 'none'\"\n\
         [[sink.events.transform]]\n\
         lookup = {{ url = \"{1}\", table = \"apps\", column = \"id\", key = \"value.app\", \
         add = [\"country\", \"owner\"]{more} }}\n\
         [[sink.events.transform]]\n\
         lookup = {{ url = \"{1}\", table = \"owners\", column = \"number\", key = \"value.owner\", \
         add = [\"name\"] }}\n\
         [[sink.events.transform]]\nset = {{ text = \"value.app + '/' + string(value.country)\" }}\n\
         [sink.events.columns]\ntext = {{ type = \"text\" }}\nname = {{ type = \"text\" }}\n",
        out.display(),
        server.url()
    );
    fs::write(scene.file(), definition).unwrap();
}

fn texts(scene: &Scene) -> Vec<String> {
    let rows = scene.rows();
    let text = |row: &serde_json::Value| format!("{} {}", row["text"].as_str().unwrap(), row["name"]);
    let mut texts: Vec<_> = rows.iter().map(|(_, _, row)| text(row)).collect();
    texts.sort();
    texts
}

const TABLES: &str = "CREATE TABLE owners (number bigint PRIMARY KEY, name text); \
    CREATE TABLE apps (id text PRIMARY KEY, country text, owner int); \
    INSERT INTO owners VALUES (7, 'Åsa \"x\"'); \
    INSERT INTO apps VALUES ('a', 'NO', 7), ('b''; DROP TABLE apps; --', 'SE', 8), ('c', 'DK', NULL)";

#[tokio::test]
async fn records_get_the_fields_of_a_table_of_a_database() {
    let Some(server) = Server::start().await else {
        return;
    };
    let client = server.connect().await;
    client.batch_execute(TABLES).await.unwrap();
    let scene = Scene::new();
    define(&scene, &server, ", missing = \"poison\"");
    printed(scene.sink("apply", &[]).output().unwrap());
    scene.produce("k:{\"app\":\"a\"}\nk:{\"app\":\"b'; DROP TABLE apps; --\"}\nk:{\"app\":\"zz\"}\nk:{\"app\":\"none\"}\n");
    let tried = printed(scene.sink("dry-run", &[]).output().unwrap());
    assert!(
        tried.contains("apps has no row of that key") && tried.contains("a/NO"),
        "{tried}"
    );
    scene.run_to_the_end(4);
    let first = ["a/NO \"Åsa \\\"x\\\"\"", "b'; DROP TABLE apps; --/SE null"];
    assert_eq!(texts(&scene), first);

    // Another process has a cache of its own. A record that waits for its second row is looked up again.
    client
        .batch_execute("UPDATE apps SET country = 'FI' WHERE id = 'a'")
        .await
        .unwrap();
    let sink = Running::start(scene.sink("run", &["--metrics", "127.0.0.1:0"]));
    let begun = Instant::now();
    scene.produce("k:{\"app\":\"a\"}\nk:{\"app\":\"a\"}\nk:{\"app\":\"a\"}\n");
    let found = "stafett_sink_lookups_total{sink=\"events\",result=\"found\"}";
    let metrics = || get(sink.address("metrics"), "/metrics");
    while !["6", "7"]
        .iter()
        .any(|count| metrics().contains(&format!("{found} {count}\n")))
    {
        assert!(begun.elapsed() < PATIENCE, "{}", metrics());
    }
    sink.signal(Signal::TERM);
    assert!(sink.end().0.success());
    assert_eq!(
        texts(&scene)
            .iter()
            .filter(|text| text.starts_with("a/FI"))
            .count(),
        3
    );
}

#[tokio::test]
async fn a_record_waits_for_its_row_and_the_sink_can_be_stopped_meanwhile() {
    let Some(server) = Server::start().await else {
        return;
    };
    let mut client = server.connect().await;
    client.batch_execute(TABLES).await.unwrap();
    let scene = Scene::new();
    define(&scene, &server, "");
    printed(scene.sink("apply", &[]).output().unwrap());
    let lock = client.transaction().await.unwrap();
    lock.batch_execute("LOCK TABLE apps IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    let watcher = server.connect().await;
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let sink = Running::start(scene.sink("run", &[]));
    // The first one waits for no row.
    scene.produce("k:{\"app\":\"none\"}\nk:{\"app\":\"a\"}\nk:{\"app\":\"c\"}\n");
    let begun = Instant::now();
    while watcher.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 || scene.position() == 0 {
        assert!(begun.elapsed() < PATIENCE, "at {}", scene.position());
    }
    sink.signal(Signal::TERM);
    assert!(sink.end().0.success());
    assert_eq!(scene.position(), 1, "nothing is written without its row");
    lock.commit().await.unwrap();
    scene.run_to_the_end(3);
    assert_eq!(texts(&scene), ["a/NO \"Åsa \\\"x\\\"\"", "c/DK null"]);
}

/// Writes the definitions of a table, of files of two kinds and of a roll-up over one topic.
fn define_all(scene: &Scene, server: &Server) {
    let columns = "columns]\nn = { type = \"bigint\" }\nat = { type = \"timestamptz\" }\n";
    let definition = format!(
        "[sink.table]\nfrom = \"log\"\nto = \"postgres\"\nurl = \"{url}\"\ntable = \"t\"\ncreate = true\n\
         flush = {{ every = \"50ms\" }}\n[sink.table.{columns}\
         [sink.files]\nfrom = \"log\"\nto = \"files\"\npath = '{out}'\nformat = \"csv\"\n\
         flush = {{ every = \"50ms\" }}\n[sink.files.{columns}\
         [sink.parquet]\nfrom = \"log\"\nto = \"files\"\npath = '{out}-parquet'\nformat = \"parquet\"\n\
         flush = {{ every = \"50ms\" }}\n[sink.parquet.{columns}\
         [sink.sums]\nfrom = \"log\"\nto = \"postgres\"\nurl = \"{url}\"\ntable = \"sums\"\ncreate = true\n\
         mode = \"rollup\"\nflush = {{ every = \"50ms\" }}\n\
         [sink.sums.rollup]\ntime = {{ field = \"at\", zone = \"UTC\" }}\nevery = [\"day\", \"month\"]\n\
         [sink.sums.rollup.values]\nrows = {{ count = true }}\ntotal = {{ sum = \"n\" }}\n",
        url = server.url(),
        out = scene.folder.path().join("out").display(),
    );
    fs::write(scene.file(), definition).unwrap();
}

#[tokio::test]
async fn stores_and_roll_ups_are_verified_and_records_are_written_again_into_a_new_table() {
    let Some(server) = Server::start().await else {
        return;
    };
    let client = server.connect().await;
    let scene = Scene::new();
    define_all(&scene, &server);
    printed(scene.sink("apply", &[]).output().unwrap());
    let lines = (0..60).map(|n| {
        let day = n % 30 + 1;
        format!("k{n}:{{\"n\":{n},\"at\":\"2026-11-{day:02}T12:00:00Z\"}}\n")
    });
    scene.produce(&lines.collect::<Vec<_>>().concat());
    scene.run_to_the_end(240);
    let file = scene.file();
    let rollup = |words: &[&str]| {
        let file = ["-f", file.to_str().unwrap()];
        let words = [&["rollup", words[0]][..], &file[..], &words[1..]].concat();
        let output = scene.stafett(&words).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, said) = rollup(&["verify", "table", "files"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("60 rows in table, 60 in files; 0 of 30 hours of at differ"),
        "{said}"
    );
    let (code, said) = rollup(&["verify"]);
    assert_eq!(code, Some(0), "{said}");
    for files in ["files", "parquet"] {
        let (code, said) = rollup(&["verify", "sums", "--files", files]);
        assert!(code == Some(0) && said.contains("60 records read"), "{said}");
    }
    // A row of the table, and a figure, are changed by a hand.
    let change =
        "UPDATE t SET n = 1000 WHERE n = 7; UPDATE sums SET total = total + 1 WHERE bucket = '2026-11-08'";
    client.batch_execute(change).await.unwrap();
    let (code, said) = rollup(&["verify", "table", "files"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("1000 | 2026-11-08T12:00:00Z") && said.contains("7 | 2026-11-08T12:00:00Z"),
        "{said}"
    );
    let november = ["--from", "2026-11-09T00:00:00Z", "--to", "2026-11-10T00:00:00Z"];
    let (code, said) = rollup(&[&["verify", "table", "files"], &november[..]].concat());
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("2 rows in table, 2 in files"), "{said}");
    assert_eq!(rollup(&["verify"]).0, Some(1));
    assert_eq!(rollup(&[&["verify", "sums"], &november[..]].concat()).0, Some(0));
    let hour = ["--from", "2026-11-08T10:00:00Z", "--to", "2026-11-08T11:00:00Z"];
    let (code, said) = rollup(&[&["recompute", "sums"], &hour[..]].concat());
    assert!(
        code == Some(0) && said.contains("2 rows computed again"),
        "{said}"
    );
    assert_eq!(rollup(&["verify", "sums"]).0, Some(0));
    shown_in_part(&rollup, &november);
    written_again(&scene, &client).await;
    let (code, said) = rollup(&["verify", "again", "files"]);
    assert_eq!(code, Some(0), "{said}");
    late_files(&scene);
    let (_, said) = rollup(&["verify", "sums", "--files", "late"]);
    let why = "the files begin at the record 2, and the figures at 0";
    assert!(said.contains(why), "{said}");
}

/// Checks the rows of a strict window, with its own records, and of a loose one, with whole buckets.
fn shown_in_part(rollup: &impl Fn(&[&str]) -> (Option<i32>, String), window: &[&str]) {
    let (_, strict) = rollup(&[&["show", "sums", "--strict"], window].concat());
    let (_, loose) = rollup(&[&["show", "sums"], window].concat());
    assert!(
        strict.contains("month | 2026-11-01T00:00:00 | UTC |  | 2 | 46"),
        "{strict}"
    );
    assert!(
        loose.contains("month | 2026-11-01T00:00:00 | UTC |  | 60 | 1770"),
        "{loose}"
    );
}

/// Writes the records of both partitions into other files, without the first ones.
fn late_files(scene: &Scene) {
    let folder = scene.folder.path().join("late");
    let into = folder.to_str().unwrap();
    let set = ["--set", "log/0=2", "--set", "log/1=2"];
    let words = [&["files"][..], &set, &["--into", into, "--as", "late"]].concat();
    let made = printed(scene.sink("replay", &words).output().unwrap());
    let text = fs::read_to_string(scene.file()).unwrap();
    fs::write(scene.file(), format!("{text}{made}")).unwrap();
    scene.run_to_the_end(360);
}

/// Writes the records of the table again into another one.
async fn written_again(scene: &Scene, client: &Client) {
    let into = ["table", "--from", "earliest", "--into", "t_new", "--as", "again"];
    let made = printed(scene.sink("replay", &into).output().unwrap());
    assert!(
        made.contains("[sink.again]") && made.contains("table = \"t_new\""),
        "{made}"
    );
    let text = fs::read_to_string(scene.file()).unwrap();
    fs::write(scene.file(), format!("{text}{made}")).unwrap();
    scene.run_to_the_end(300);
    let statement = "SELECT count(*), count(DISTINCT n) FROM t_new";
    let row = client.query_one(statement, &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (60, 60));
}

/// Defines a look-up of `name` by `value.app` in a database of a server.
fn define_names(scene: &Scene, server: &Server, database: &str) {
    let definition = format!(
        "[sink.events]\nfrom = \"log\"\nto = \"files\"\npath = '{}'\nformat = \"ndjson\"\nplace = true\n\
         flush = {{ every = \"50ms\" }}\n[[sink.events.transform]]\n\
         lookup = {{ url = \"{}\", table = \"names\", column = \"id\", key = \"value.app\", add = [\"name\"] }}\n\
         [sink.events.columns]\ntext = {{ type = \"text\", from = \"app\" }}\nname = {{ type = \"text\" }}\n",
        scene.folder.path().join("out").display(),
        server
            .url()
            .replace("dbname=postgres", &format!("dbname={database}"))
    );
    fs::write(scene.file(), definition).unwrap();
}

#[tokio::test]
async fn an_odd_key_of_a_database_in_another_encoding_is_a_matter_of_its_record() {
    let Some(server) = Server::start().await else {
        return;
    };
    let client = server.connect().await;
    for (encoding, insert) in [
        ("LATIN1", "('å', 'Åsa'), ('b', 'Bo')"),
        // Bytes that are no UTF-8.
        (
            "SQL_ASCII",
            "('å', 'Åsa'), ('b', 'Bo'), ('Ω', convert_from('\\xff', 'SQL_ASCII'))",
        ),
    ] {
        let database = encoding.to_lowercase();
        let create =
            format!("CREATE DATABASE {database} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0");
        client.batch_execute(&create).await.unwrap();
        let url = server
            .url()
            .replace("dbname=postgres", &format!("dbname={database}"));
        let (own, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
            .await
            .unwrap();
        let fill =
            format!("CREATE TABLE names (id text PRIMARY KEY, name text); INSERT INTO names VALUES {insert}");
        let filled = async move { own.batch_execute(&fill).await };
        let (filled, ended) = tokio::join!(filled, connection);
        filled.and(ended).unwrap();
        let scene = Scene::new();
        define_names(&scene, &server, &database);
        printed(scene.sink("apply", &[]).output().unwrap());
        scene.produce("k:{\"app\":\"å\"}\nk:{\"app\":\"Ω\"}\nk:{\"app\":\"b\"}\nk:{\"app\":\"c\"}\n");
        let tried = printed(scene.sink("dry-run", &[]).output().unwrap());
        let is_poison = encoding == "SQL_ASCII";
        let why = "poison (transform): step 1: the row of names: invalid byte sequence";
        assert_eq!(tried.contains(why), is_poison, "{tried}");
        scene.run_to_the_end(4);
        let mut expected = vec!["b \"Bo\"", "c null", "å \"Åsa\""];
        if !is_poison {
            expected.push("Ω null");
        }
        assert_eq!(texts(&scene), expected, "{encoding}");
    }
}
