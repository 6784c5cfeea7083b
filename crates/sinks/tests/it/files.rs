//! Files: the suite, and their contents.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde_json::Value;
use stafett_sinks::definition::{Definition, Format, TargetSpec};
use stafett_sinks::target::files::Files;
use stafett_sinks::target::{Place, Start, Steps, Target};
use tempfile::TempDir;

use crate::suite::{self, Letters, Store, life, log, place};

struct FileStore {
    folder: TempDir,
    definition: Definition,
}

const COLUMNS: &str = "[sink.s.columns]\nn = { type = \"bigint\" }\ntext = { type = \"text\" }\n";

impl FileStore {
    fn new(fields: &str) -> Self {
        // In memory where that is possible: the suite syncs some thousand times.
        let folder = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        let path = folder.path().display();
        let text =
            format!("[sink.s]\nfrom = \"events\"\nto = \"files\"\npath = '{path}'\n{fields}\n{COLUMNS}");
        let definition = Definition::parse(&text).unwrap().remove(0);
        Self { folder, definition }
    }

    fn is_parquet(&self) -> bool {
        let TargetSpec::Files(spec) = &self.definition.target else {
            panic!("a target of files");
        };
        spec.format == Format::Parquet
    }

    /// Returns the manifests of a place, in order; their numbers have no gaps.
    fn manifests(&self, place: &Place) -> Vec<Value> {
        let folder = self.folder.path().join(format!("manifest/{place}"));
        (1..=1_000_u64)
            .map(|number| folder.join(format!("{number:08}.json")))
            .take_while(|path| path.exists())
            .map(|path| serde_json::from_slice(&fs::read(path).unwrap()).unwrap())
            .collect()
    }

    /// Returns the paths that the manifests of a place name, each with the number of its manifest.
    fn all_named(&self, place: &Place) -> Vec<(u64, PathBuf)> {
        let mut paths = Vec::new();
        for manifest in self.manifests(place) {
            let number = manifest["number"].as_u64().unwrap();
            for file in manifest["files"].as_array().unwrap() {
                paths.push((number, self.folder.path().join(file["path"].as_str().unwrap())));
            }
        }
        paths
    }

    /// Returns the paths that count: without those of manifests that a later one replaces.
    fn named(&self, place: &Place) -> Vec<PathBuf> {
        let mut named = self.all_named(place);
        for manifest in self.manifests(place) {
            let first = manifest["replaces"].as_u64().unwrap_or(u64::MAX);
            let replaced = first..manifest["number"].as_u64().unwrap();
            named.retain(|(number, _)| !replaced.contains(number));
        }
        named.into_iter().map(|(_, path)| path).collect()
    }
}

fn text_of(path: &Path) -> String {
    let bytes = fs::read(path).unwrap();
    let mut text = String::new();
    match path.extension().unwrap().to_str().unwrap() {
        "gz" => drop(
            flate2::read::GzDecoder::new(&*bytes)
                .read_to_string(&mut text)
                .unwrap(),
        ),
        "zst" => drop(
            ruzstd::decoding::StreamingDecoder::new(&*bytes)
                .unwrap()
                .read_to_string(&mut text)
                .unwrap(),
        ),
        _ => text = String::from_utf8(bytes).unwrap(),
    }
    text
}

/// Returns the first column of a Parquet file.
fn numbers_of(path: &Path) -> Vec<u64> {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    let file = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    let rows = file.get_row_iter(None).unwrap();
    rows.map(|row| u64::try_from(row.unwrap().get_long(0).unwrap()).unwrap())
        .collect()
}

fn number_of(line: &str) -> Option<u64> {
    if line.starts_with('{') {
        serde_json::from_str::<Value>(line).unwrap()["n"].as_u64()
    } else {
        line.split(',').next().unwrap().parse().ok()
    }
}

#[async_trait]
impl Store for FileStore {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn target(&self, steps: Steps) -> Box<dyn Target> {
        let TargetSpec::Files(spec) = &self.definition.target else {
            panic!("a target of files");
        };
        Box::new(Files::new(
            "s",
            spec,
            &self.definition.columns,
            || 1_795_342_800_000,
            steps,
        ))
    }

    async fn rows(&self, place: &Place) -> Vec<u64> {
        if self.is_parquet() {
            return self
                .named(place)
                .iter()
                .flat_map(|path| numbers_of(path))
                .collect();
        }
        let texts: Vec<_> = self.named(place).iter().map(|path| text_of(path)).collect();
        texts
            .iter()
            .flat_map(|text| text.lines())
            .filter_map(number_of)
            .collect()
    }

    fn refuses(&self) -> bool {
        false
    }
}

#[tokio::test]
async fn files_pass_the_suite_in_each_format() {
    for fields in [
        "format = \"ndjson\"",
        "format = \"csv\"\ncompression = \"gzip\"\nsplit = { records = 3 }",
        "format = \"ndjson\"\ncompression = \"zstd\"",
        "format = \"parquet\"\nsplit = { records = 5 }",
    ] {
        suite::all(&FileStore::new(fields)).await;
    }
}

#[tokio::test]
async fn a_batch_that_was_begun_leaves_no_orphans() {
    let store = FileStore::new("format = \"csv\"\nsplit = { records = 2 }");
    let kill = Steps::new(|step| match step {
        "files" => Err(stafett_sinks::target::TargetError::Retry("killed".to_owned())),
        _ => Ok(()),
    });
    let mut letters = Letters::default();
    let target = &mut *store.target(kill);
    assert!(
        life(&store.definition, target, &place(0), &log(), &mut letters)
            .await
            .is_err()
    );
    let target = &mut *store.target(Steps::default());
    // By now there are fewer records than were in the batch, and it still has the same bounds.
    let opened = target.open(&place(0), Start::at(0)).await.unwrap();
    assert_eq!((opened.next, opened.begun), (0, Some(7)));
    life(&store.definition, target, &place(0), &log(), &mut letters)
        .await
        .unwrap();
    let named: BTreeSet<PathBuf> = store.named(&place(0)).into_iter().collect();
    let folder = store.folder.path().join("events/0");
    let there = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (parts, others): (Vec<_>, Vec<_>) = there.partition(|path| path.extension().unwrap() == "part");
    let others: BTreeSet<_> = others
        .into_iter()
        .filter(|path| !path.ends_with("pending.json"))
        .collect();
    assert_eq!(others, named, "files without a manifest");
    assert_eq!(parts.len(), 4, "the parts of the writer that was killed");
}

#[tokio::test]
async fn manifests_are_a_chain_and_tell_what_is_in_their_files() {
    let store = FileStore::new("format = \"csv\"\nplace = true\nsplit = { records = 3 }");
    let mut letters = Letters::default();
    let target = &mut *store.target(Steps::default());
    life(&store.definition, target, &place(4), &log(), &mut letters)
        .await
        .unwrap();
    let manifests = store.manifests(&place(4));
    let mut next = 0;
    for manifest in &manifests {
        assert_eq!(manifest["from"], next);
        next = manifest["next"].as_u64().unwrap();
    }
    assert_eq!(next, suite::RECORDS);
    assert_eq!(manifests[0]["previous"], "");
    assert!(manifests[1]["previous"].as_str().unwrap().starts_with("sha256:"));
    assert_eq!(manifests[0]["written_at"], "2026-11-22T10:20:00Z");
    let file = &manifests[0]["files"][0];
    assert_eq!(
        file["path"],
        "events/4/00000000000000000-00000000000000002.00000001.csv"
    );
    let text = text_of(&store.folder.path().join(file["path"].as_str().unwrap()));
    assert_eq!(
        text,
        "_topic,_partition,_offset,n,text\nevents,4,0,0,row 0\nevents,4,1,1,row 1\nevents,4,2,2,row 2\n"
    );
    assert_eq!(
        (&file["records"], &file["bytes"]),
        (&3.into(), &text.len().into())
    );
}

#[tokio::test]
async fn a_folder_that_is_not_there_stops_the_sink() {
    let store = FileStore::new("format = \"ndjson\"");
    let path = store.folder.path().to_owned();
    fs::remove_dir_all(&path).unwrap();
    let mut target = store.target(Steps::default());
    let refused = target.open(&place(0), Start::at(0)).await.unwrap_err();
    assert!(
        matches!(&refused, stafett_sinks::target::TargetError::Stop(why) if why.starts_with("there is no folder"))
    );
    let refused = target.positions().await.unwrap_err();
    assert!(refused.to_string().starts_with("there is no folder"), "{refused}");
    assert_eq!(target.prepare(true).await.unwrap().len(), 1);
    target.open(&place(0), Start::at(0)).await.unwrap();
}

/// Writes the log, sets the position to 17, and writes the rest again. Returns the positions behind the
/// setting, and before it.
async fn replayed(store: &FileStore, earliest: u64) -> (u64, Value) {
    let mut letters = Letters::default();
    let target = &mut *store.target(Steps::default());
    life(&store.definition, target, &place(0), &log(), &mut letters)
        .await
        .unwrap();
    let before: Vec<_> = store.all_named(&place(0));
    let contents: Vec<_> = before.iter().map(|(_, path)| fs::read(path).unwrap()).collect();
    let start = Start {
        earliest,
        ..Start::at(17)
    };
    target.set_position(&place(0), start).await.unwrap();
    let next = target.open(&place(0), Start::at(0)).await.unwrap().next;
    let set = store.manifests(&place(0)).pop().unwrap();
    life(&store.definition, target, &place(0), &log(), &mut letters)
        .await
        .unwrap();
    let after: Vec<_> = before.iter().map(|(_, path)| fs::read(path).unwrap()).collect();
    assert_eq!(after, contents, "files of earlier manifests stay as they are");
    let all = store.all_named(&place(0));
    let names: BTreeSet<_> = all.iter().map(|(_, path)| path).collect();
    assert_eq!(names.len(), all.len(), "no name is used twice");
    (next, set)
}

#[tokio::test]
async fn a_replay_writes_other_files_and_its_manifest_replaces_earlier_ones() {
    let store = FileStore::new("format = \"csv\"\nsplit = { records = 3 }");
    let (next, set) = replayed(&store, 0).await;
    assert_eq!(set["since"], set["number"]);
    let manifests = store.manifests(&place(0));
    let within =
        |manifest: &&Value| (manifest["from"].as_u64()..manifest["next"].as_u64()).contains(&Some(17));
    let first = manifests.iter().find(within).unwrap();
    assert_eq!(
        (&first["from"], &first["number"]),
        (&next.into(), &set["replaces"])
    );
    let all: Vec<u64> = log().iter().map(|record| record.offset.0).collect();
    assert_eq!(store.rows(&place(0)).await, all, "each row once");
}

#[tokio::test]
async fn a_replay_from_records_that_are_no_longer_all_there_keeps_their_files() {
    let store = FileStore::new("format = \"csv\"");
    let (next, _) = replayed(&store, 17).await;
    assert_eq!(next, 17);
    let mut rows = store.rows(&place(0)).await;
    rows.sort_unstable();
    let twice = rows.windows(2).filter(|two| two[0] == two[1]).count();
    assert!((1..7).contains(&twice), "rows of one flush at most: {rows:?}");
    rows.dedup();
    let all: Vec<u64> = log().iter().map(|record| record.offset.0).collect();
    assert_eq!(rows, all, "none is missing");
}

#[tokio::test]
async fn replays_from_any_positions_leave_each_row_once() {
    let all: Vec<u64> = log().iter().map(|record| record.offset.0).collect();
    for position in 0..=suite::RECORDS {
        let store = FileStore::new("format = \"csv\"");
        let mut letters = Letters::default();
        let target = &mut *store.target(Steps::default());
        for from in [0, position, position / 2] {
            if from < suite::RECORDS {
                let start = Start {
                    earliest: 0,
                    ..Start::at(from)
                };
                target.set_position(&place(0), start).await.unwrap();
            }
            life(&store.definition, target, &place(0), &log(), &mut letters)
                .await
                .unwrap();
            assert_eq!(store.rows(&place(0)).await, all, "{position}, from {from}");
        }
    }
}
