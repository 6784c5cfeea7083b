//! Topics as targets: the suite of all targets, on the real binary, and records that go over as they are.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "the helpers of tests fail as tests do"
)]

#[path = "../../../sinks/tests/it/suite.rs"]
mod suite;

use async_trait::async_trait;
use bytes::Bytes;
use stafett_kafka_client::admin::NewTopic;
use stafett_kafka_client::batches::{Aborted, Batches};
use stafett_kafka_client::{Client, FetchSettings, Fetcher, Options, Place as Position, Transactional};
use stafett_model::{StoredRecord, records};
use stafett_sinks::broker::Servers;
use stafett_sinks::convert::{Converter, OnUnknown};
use stafett_sinks::definition::Definition;
use stafett_sinks::rows::Rows;
use stafett_sinks::target::{
    Part, Place, Promise, Start, Steps, Surroundings, Target, TargetError, target_of,
};

use crate::common::{Folder, Running, serve};
use suite::{Store, place, record};

/// A broker, and a sink that writes into a topic of it.
struct Scene {
    _running: Running,
    _folder: Folder,
    client: Client,
    server: String,
    definition: Definition,
}

impl Scene {
    async fn new(fields: &str, partitions: i32, settings: &[(&str, &str)]) -> Self {
        let folder = Folder::new();
        let running = Running::start(serve(&folder));
        let server = running.address("kafka").to_string();
        let client = Client::connect(std::slice::from_ref(&server), Options::default())
            .await
            .unwrap();
        let topic = NewTopic {
            name: "copy".to_owned(),
            partitions: Some(partitions),
            replication: None,
            settings: settings
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            dry_run: false,
        };
        client.create_topic(&topic).await.unwrap();
        let text = format!("[sink.s]\nfrom = \"events\"\nto = \"topic\"\ntopic = \"copy\"\n{fields}");
        let definition = Definition::parse(&text).unwrap().remove(0);
        Self {
            _running: running,
            _folder: folder,
            client,
            server,
            definition,
        }
    }

    /// Returns the records of the target that count, in the order of partitions and offsets.
    async fn records(&self) -> Vec<(i32, StoredRecord)> {
        let topic = self.client.topic("copy").await.unwrap();
        let ends = self
            .client
            .offsets(&[&topic], Position::CommittedEnd)
            .await
            .unwrap();
        let mut found = Vec::new();
        for (partition, end) in topic.partitions.iter().zip(&ends[0]) {
            let settings = FetchSettings {
                committed: true,
                ..FetchSettings::default()
            };
            let mut fetcher = Fetcher::new(self.client.clone(), settings);
            fetcher.add(&topic, partition.index, 0);
            let mut next = 0;
            while next < end.unwrap() {
                for fetched in fetcher.next().await.unwrap() {
                    let mut aborted = Aborted::new(fetched.aborted);
                    for batch in Batches::new(fetched.bytes) {
                        let (header, bytes) = batch.unwrap();
                        next = header.base_offset + i64::from(header.last_offset_delta) + 1;
                        // The end of an aborted transaction is a control batch, and has to be seen.
                        let is_aborted = aborted.has(&header, &bytes);
                        if !header.is_control() && !is_aborted {
                            let records = records(&bytes, 1 << 24).unwrap();
                            found.extend(records.map(|record| (partition.index, record.unwrap())));
                        }
                    }
                }
            }
        }
        found
    }
}

#[async_trait]
impl Store for Scene {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn target(&self, steps: Steps) -> Box<dyn Target> {
        let surroundings = Surroundings {
            steps,
            wall: || 0,
            servers: Servers::new(vec![self.server.clone()], Options::default()),
            webhook_allow: Vec::new(),
            ledger: None,
        };
        target_of(&self.definition, &surroundings)
    }

    async fn rows(&self, place: &Place) -> Vec<u64> {
        let mark = format!("{place}@");
        let offset = |(_, record): (i32, StoredRecord)| {
            let from = record.headers.last(b"stafett-from")??.to_vec();
            String::from_utf8(from).unwrap().strip_prefix(&mark)?.parse().ok()
        };
        self.records().await.into_iter().filter_map(offset).collect()
    }

    fn refuses(&self) -> bool {
        false
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_passes_the_suite_of_targets() {
    let fields = "mark = true\n[sink.s.columns]\nn = { type = \"bigint\" }\ntext = { type = \"text\" }\n";
    let scene = Scene::new(fields, 1, &[]).await;
    assert_eq!(scene.target(Steps::default()).promise(), Promise::ExactlyOnce);
    suite::all(&scene).await;
}

fn rows_of(definition: &Definition, place: &Place, log: &[StoredRecord]) -> Rows {
    let mut rows = Rows::new(definition.columns.len());
    let (columns, steps) = (definition.columns.clone(), definition.steps.clone());
    let mut converter = Converter::new(columns, steps, OnUnknown::Rest);
    for record in log {
        converter.convert(place, record, &mut rows).unwrap();
    }
    rows
}

async fn write(scene: &Scene, rows: &Rows, next: u64) -> Result<(), TargetError> {
    let place = place(3);
    let mut target = scene.target(Steps::default());
    let opened = target.open(&place, Start::at(0)).await.unwrap();
    let part = Part {
        place: &place,
        epoch: opened.epoch,
        from: opened.next,
        next,
        batch: (opened.next, next),
        rows: rows.all(),
        records: rows.len() as u64,
    };
    target.write(&part).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_keys_and_times_go_over_as_they_are() {
    let scene = Scene::new("compression = \"lz4\"", 4, &[]).await;
    let mut log = vec![record(0, "not JSON"), record(1, ""), record(2, "x")];
    log[0].key = Some(Bytes::from_static(b"key"));
    log[0].timestamp = 1_795_342_800_000;
    log[1].key = Some(Bytes::from_static(b"\xff\x00"));
    log[1].value = None;
    log[2].value = Some(Bytes::from_static(b"\xfe"));
    write(&scene, &rows_of(&scene.definition, &place(3), &log), 3)
        .await
        .unwrap();
    let there = scene.records().await;
    assert_eq!(there.len(), 3);
    for record in &log {
        let same =
            |(_, other): &&(i32, StoredRecord)| (&other.key, &other.value) == (&record.key, &record.value);
        let (partition, found) = there.iter().find(same).unwrap();
        match &record.key {
            Some(key) => {
                let partition_of = stafett_model::partition_of(key, 4);
                assert_eq!(u32::try_from(*partition).unwrap(), partition_of);
            }
            None => assert_eq!(*partition, 3, "without a key: as in the source"),
        }
        if record.timestamp > 0 {
            assert_eq!(found.timestamp, record.timestamp);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_are_changed_on_the_way_and_get_keys() {
    let fields = "key = \"app.id\"\n[[sink.s.transform]]\ndrop = [\"message\"]\n";
    let scene = Scene::new(fields, 1, &[]).await;
    let log = [record(
        0,
        "{\"app\":{\"id\":\"tv\"},\"message\":\"long\",\"n\":1}",
    )];
    write(&scene, &rows_of(&scene.definition, &place(3), &log), 1)
        .await
        .unwrap();
    let (_, found) = scene.records().await.remove(0);
    assert_eq!(found.key.as_deref(), Some(&b"tv"[..]));
    assert_eq!(
        found.value.as_deref(),
        Some(&b"{\"app\":{\"id\":\"tv\"},\"n\":1}"[..])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_is_read_once_no_transaction_is_about_to_change_it() {
    let scene = Scene::new("", 1, &[]).await;
    let (client, long) = (&scene.client, std::time::Duration::from_mins(1));
    let mut producer = Transactional::open(client, "id", long).await.unwrap();
    let mut commit = async |next: i64, is_open: bool| {
        producer
            .commit_offset("group", ("copy", 0), next, "")
            .await
            .unwrap();
        if !is_open {
            producer.end(true).await.unwrap();
        }
    };
    commit(3, false).await;
    commit(7, true).await;
    let position = async |is_final: bool| {
        let committed = if is_final {
            client.another().committed_for_good("group").await
        } else {
            client.another().committed("group").await
        };
        committed.unwrap().values().map(|found| found.offset).next()
    };
    assert_eq!(position(false).await, Some(3));
    // The first answer is that the position is not stable.
    let (found, ()) = tokio::join!(position(true), commit(7, false));
    assert_eq!(found, Some(7));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_too_large_is_poison_and_the_next_batch_goes_over() {
    let scene = Scene::new("", 1, &[("max.message.bytes", "2000")]).await;
    let large = "x".repeat(5000);
    let rows = rows_of(&scene.definition, &place(3), &[record(0, &large)]);
    let refused = write(&scene, &rows, 1).await.unwrap_err();
    assert!(matches!(refused, TargetError::Poison { .. }), "{refused:?}");
    let rows = rows_of(&scene.definition, &place(3), &[record(0, "small")]);
    write(&scene, &rows, 1).await.unwrap();
    assert_eq!(scene.records().await.len(), 1);
}
