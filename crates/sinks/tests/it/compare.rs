//! Two stores compared: files of each format with a table, equal at first, and changed by a hand.

use std::path::Path;

use stafett_model::StoredRecord;
use stafett_sinks::compare::{CompareError, Compared, Selection, compare};
use stafett_sinks::definition::{Definition, TargetSpec};
use stafett_sinks::target::files::Files;
use stafett_sinks::target::postgres::Postgres;
use stafett_sinks::target::{Start, Steps, Target};

use crate::server::Server;
use crate::suite::{Letters, life, place, record};

const RECORDS: u64 = 1500;
/// 2026-11-22T10:00:00Z.
const BEGIN_S: u64 = 1_795_341_600;

const COLUMNS: &str = "[sink.s.columns]\n\
    n = { type = \"bigint\" }\ntext = { type = \"text\" }\nok = { type = \"boolean\" }\nd = { type = \"double\" }\n\
    price = { type = \"numeric(20,3)\" }\nat = { type = \"timestamptz\" }\nlocal = { type = \"timestamp\" }\n\
    day = { type = \"date\" }\nid = { type = \"uuid\" }\nbytes = { type = \"bytea\" }\nrest = { type = \"jsonb\", rest = true }\n";

fn log() -> Vec<StoredRecord> {
    let value = |n: u64| {
        if n % 100 == 99 {
            return format!("{{\"n\":{n},\"text\":\"without a time\"}}");
        }
        let at = jiff::Timestamp::from_second(i64::try_from(BEGIN_S + 3 * n).unwrap()).unwrap();
        format!(
            "{{\"n\":{n},\"text\":\"é, \\\"{}\\\"\\n\",\"ok\":{},\"d\":{}e-3,\"price\":-{}.50,\"at\":\"{}\",\
             \"local\":\"2026-11-22T10:20:00.{:06}\",\"day\":\"19{:02}-03-01\",\
             \"id\":\"67e55044-10b1-426f-9247-{:012x}\",\"bytes\":\"AAE=\",\"more\":[{n}]}}",
            n % 7,
            n.is_multiple_of(2),
            n * n,
            n,
            at,
            n,
            n % 90 + 10,
            n
        )
    };
    (0..RECORDS).map(|n| record(n, &value(n))).collect()
}

fn definition(text: &str) -> Definition {
    let text = format!("[sink.s]\nfrom = \"events\"\n{text}\n{COLUMNS}");
    Definition::parse(&text).unwrap().remove(0)
}

fn files_of(folder: &Path, fields: &str) -> Definition {
    definition(&format!(
        "to = \"files\"\npath = '{}'\n{fields}",
        folder.display()
    ))
}

fn target(sink: &Definition) -> Box<dyn Target> {
    if let TargetSpec::Files(spec) = &sink.target {
        let files = Files::new(&sink.name, spec, &sink.columns, || 0, Steps::default());
        return Box::new(files);
    }
    let TargetSpec::Postgres(spec) = &sink.target else {
        panic!("{}", sink.target.word());
    };
    let (columns, mode) = (&sink.columns, &sink.mode);
    Box::new(Postgres::new(&sink.name, spec, columns, mode, Steps::default()))
}

async fn fill(sink: &Definition) {
    let target = &mut *target(sink);
    target.prepare(true).await.unwrap();
    let mut letters = Letters::default();
    life(sink, target, &place(0), &log(), &mut letters).await.unwrap();
    assert_eq!(letters.0, [0_u64; 0]);
}

async fn compared(one: &Definition, other: &Definition) -> Compared {
    compare([one, other], &Selection::default()).await.unwrap()
}

#[tokio::test]
async fn one_changed_one_missing_and_one_doubled_row_are_found() {
    let Some(server) = Server::start().await else {
        return;
    };
    let client = server.connect().await;
    let table = definition(&format!(
        "to = \"postgres\"\nurl = \"{}\"\ntable = \"t\"",
        server.url()
    ));
    fill(&table).await;
    let folder = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    let mut all = Vec::new();
    for (name, fields) in [
        ("a", "format = \"ndjson\"\ncompression = \"gzip\""),
        ("b", "format = \"csv\"\ncompression = \"zstd\""),
        ("c", "format = \"parquet\""),
    ] {
        let sink = files_of(&folder.path().join(name), fields);
        fill(&sink).await;
        let found = compared(&table, &sink).await;
        assert_eq!(found.rows, [RECORDS, RECORDS], "{name}");
        assert_eq!((found.different, found.only.len()), (0, 0), "{name}: {found:?}");
        assert_eq!(
            (found.hours, found.by.as_str()),
            (3, "at"),
            "two, and rows without a time"
        );
        assert_eq!(found.left_out, ["rest"]);
        assert!(found.apart.is_empty());
        all.push(sink);
    }
    let change = "UPDATE t SET text = text || 'x' WHERE n = 3; DELETE FROM t WHERE n = 1400; \
        INSERT INTO t SELECT * FROM t WHERE n = 99; UPDATE t SET d = d + 1e-9 WHERE n = 700";
    client.batch_execute(change).await.unwrap();
    for sink in &all {
        let found = compared(&table, sink).await;
        let mut only: Vec<_> = found
            .only
            .iter()
            .map(|only| (only.store, only.row[0].clone().unwrap(), only.copies))
            .collect();
        only.sort();
        let row = |store, n: &str| (store, n.to_owned(), 1);
        let expected = [
            row(0, "3"),
            row(0, "700"),
            row(0, "99"),
            row(1, "1400"),
            row(1, "3"),
            row(1, "700"),
        ];
        assert_eq!(only, expected);
        assert_eq!(
            (found.rows, found.different, found.unlisted),
            ([RECORDS, RECORDS], 3, 0)
        );
    }
    // The files with each other, and a part of the time.
    assert!(compared(&all[0], &all[2]).await.only.is_empty());
    let micros = |second: u64| Some(i64::try_from((BEGIN_S + second) * 1_000_000).unwrap());
    let selection = Selection {
        by: Some("at".to_owned()),
        from: micros(9),
        to: micros(2100),
    };
    let found = compare([&table, &all[1]], &selection).await.unwrap();
    assert_eq!((found.rows, found.only.len()), ([690, 690], 2));
    replays_and_other_bytes(&table, &all[2], folder.path()).await;
}

async fn replays_and_other_bytes(table: &Definition, files: &Definition, folder: &Path) {
    let before = compared(table, files).await;
    // The same rows once more: manifests before the replay no longer count.
    let mut again = target(files);
    again.set_position(&place(0), Start::at(0)).await.unwrap();
    let apart = compared(table, files).await.apart;
    assert_eq!(apart, [format!("events/0: {RECORDS} and 0")]);
    life(files, &mut *again, &place(0), &log(), &mut Letters::default())
        .await
        .unwrap();
    assert_eq!(compared(table, files).await, before);
    let mut found = std::fs::read_dir(folder.join("c/events/0")).unwrap();
    let path = found
        .find_map(|entry| {
            let path = entry.unwrap().path();
            path.to_str().unwrap().contains(".00000300.").then_some(path)
        })
        .unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[10] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let why = compare([table, files], &Selection::default()).await.unwrap_err();
    assert!(
        why.to_string().contains("has other bytes than its manifest says"),
        "{why}"
    );
}

#[tokio::test]
async fn stores_that_cannot_be_compared_are_refused() {
    let files = files_of(Path::new("/none"), "");
    let bare = "[sink.s]\nfrom = \"events\"\nto = \"files\"\npath = \"/none\"\n";
    let parse = |text: &str| Definition::parse(text).unwrap().remove(0);
    let other = parse(&format!("{bare}[sink.s.columns]\nn = {{ type = \"text\" }}\n"));
    let timeless = parse(&format!("{bare}[sink.s.columns]\ntext = {{ type = \"text\" }}\n"));
    let topic = parse("[sink.s]\nfrom = \"events\"\nto = \"topic\"\ntopic = \"t\"\n");
    let refused = async |one: &Definition, other: &Definition, by: Option<&str>| {
        let by = by.map(str::to_owned);
        let selection = Selection {
            by,
            ..Selection::default()
        };
        compare([one, other], &selection).await.unwrap_err()
    };
    assert!(matches!(
        refused(&files, &other, None).await,
        CompareError::Types { .. }
    ));
    assert!(matches!(
        refused(&files, &timeless, None).await,
        CompareError::NoTime
    ));
    assert!(matches!(
        refused(&files, &files, Some("n")).await,
        CompareError::NoSuchTime(_)
    ));
    assert!(matches!(
        refused(&files, &topic, None).await,
        CompareError::NoColumns
    ));
}
