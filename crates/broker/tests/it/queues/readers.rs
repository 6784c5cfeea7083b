//! Readers of stored topics.

use std::sync::Arc;

use bytes::Bytes;
use stafett_delivery::{Delivery, DeliveryBatch, Event, Outbox, Settle, Source};
use stafett_messaging::readers::{HeaderFilter, ReaderHandle, ReaderSpec};
use stafett_model::{BatchBuilder, Codec, Offset, Record};
use stafett_topics::StartPosition;
use stafett_topics::{Append, Outcome, Topic};

use super::over::{append, topic};
use super::support::{World, body, settle_down};

/// A test's reader.
struct Reads {
    outbox: Arc<Outbox>,
    _reading: ReaderHandle,
    source: Option<Source>,
    events: Vec<Event>,
}

impl Reads {
    fn begin(world: &World, topic: &Arc<Topic>, spec: &ReaderSpec) -> Self {
        let outbox = Outbox::new(1 << 20);
        let reading = world
            .broker
            .messaging()
            .readers()
            .open(topic, spec, Arc::clone(&outbox), 3);
        Self {
            outbox,
            _reading: reading,
            source: None,
            events: Vec::new(),
        }
    }

    fn from(world: &World, topic: &Arc<Topic>, start: StartPosition) -> Self {
        let spec = ReaderSpec {
            start,
            ..ReaderSpec::default()
        };
        Self::begin(world, topic, &spec)
    }

    /// Returns the messages available once all tasks have settled.
    async fn rest(&mut self) -> Vec<Delivery> {
        settle_down().await;
        let mut runs: Vec<DeliveryBatch> = Vec::new();
        self.outbox.take(&mut runs, &mut self.events);
        let mut got = Vec::new();
        for run in runs {
            assert_eq!(run.token, 3);
            self.source = Some(run.source);
            got.extend(run.deliveries);
        }
        got
    }

    async fn bodies(&mut self) -> Vec<String> {
        self.rest().await.iter().map(body).collect()
    }

    fn settle(&self, deliveries: &[Delivery], how: Settle) {
        let settlements: Vec<_> = deliveries.iter().map(|one| (one.id, how)).collect();
        self.source.as_ref().unwrap().settle(&settlements);
    }
}

#[tokio::test(start_paused = true)]
async fn each_reader_begins_where_it_wants_and_gets_everything_from_there() {
    let world = World::new().await;
    let topic = topic(&world, 1).await;
    append(&world, &topic, 0, 0..4).await;
    append(&world, &topic, 0, 4..6).await;
    let starts = [
        (StartPosition::First, 0),
        (StartPosition::Last, 5),
        (StartPosition::Next, 6),
        (StartPosition::Offset(2), 2),
        (StartPosition::Offset(99), 6),
        (StartPosition::Time(2500), 3),
        (StartPosition::Time(99_000), 6),
    ];
    let mut readers: Vec<_> = starts
        .iter()
        .map(|(start, _)| Reads::from(&world, &topic, *start))
        .collect();
    settle_down().await;
    append(&world, &topic, 0, 6..7).await;
    for (reader, (start, first)) in readers.iter_mut().zip(starts) {
        let expected: Vec<String> = (first..7).map(|number| format!("0-{number}")).collect();
        assert_eq!(reader.bodies().await, expected, "{start:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn settling_gives_credit_back_and_nothing_comes_twice() {
    let world = World::new().await;
    let topic = topic(&world, 1).await;
    append(&world, &topic, 0, 0..5).await;
    let spec = ReaderSpec {
        start: StartPosition::First,
        credit: Some(2),
        ..ReaderSpec::default()
    };
    let mut reader = Reads::begin(&world, &topic, &spec);
    let got = reader.rest().await;
    assert_eq!(got.iter().map(|one| one.id.offset).collect::<Vec<_>>(), [0, 1]);
    assert!(reader.rest().await.is_empty());
    reader.settle(&got[..1], Settle::Requeue);
    assert_eq!(reader.bodies().await, ["0-2"]);
    reader.settle(&got[1..], Settle::Discard);
    assert_eq!(reader.bodies().await, ["0-3"]);
}

/// Appends one record per value, with the value as its header `kind`; `None` for no header.
async fn append_kinds(world: &World, topic: &Topic, kinds: &[Option<&str>]) {
    let mut batch = BatchBuilder::new(Codec::None);
    for (kind, number) in kinds.iter().zip(0_i64..) {
        let value = format!("{}-{number}", kind.unwrap_or("none"));
        let headers = kind.map(|kind| (&b"kind"[..], Some(kind.as_bytes())));
        let record = Record {
            key: None,
            value: Some(value.as_bytes()),
            headers: headers.as_slice(),
            timestamp: number,
        };
        batch.push(&record).unwrap();
    }
    let log = topic.log(0).unwrap();
    let append = Append::batch(log, batch.finish().unwrap());
    assert!(matches!(
        world.broker.catalog().append(vec![append]).await[..],
        [Outcome::Committed(_)]
    ));
}

#[tokio::test(start_paused = true)]
async fn a_reader_gets_what_it_wants_and_spends_no_credit_on_the_rest() {
    let world = World::new().await;
    let topic = topic(&world, 1).await;
    let kinds = [
        Some("eu"),
        None,
        Some("us"),
        Some("asia"),
        Some("eu"),
        Some(""),
        Some("eu2"),
    ];
    append_kinds(&world, &topic, &kinds).await;
    let wants = |values: &[&'static str], also_without| {
        let values = values.iter().map(|value| Bytes::from_static(value.as_bytes()));
        let spec = ReaderSpec {
            start: StartPosition::First,
            credit: Some(2),
            wanted: Some(HeaderFilter::new("kind", values, also_without)),
            ..ReaderSpec::default()
        };
        Reads::begin(&world, &topic, &spec)
    };
    let expected: [(&[&str], bool, &[&str]); 6] = [
        (&["eu"], false, &["eu-0", "eu-4"]),
        (&["us", "asia", "us"], false, &["us-2", "asia-3"]),
        (&["asia"], true, &["none-1", "asia-3"]),
        (&[""], false, &["-5"]),
        (&[], true, &["none-1"]),
        (&[], false, &[]),
    ];
    for (values, also_without, bodies) in expected {
        assert_eq!(wants(values, also_without).bodies().await, bodies, "{values:?}");
    }
    let mut reader = wants(&["eu"], false);
    let got = reader.rest().await;
    append_kinds(&world, &topic, &kinds).await;
    assert!(reader.rest().await.is_empty(), "two are in flight");
    reader.settle(&got, Settle::Complete);
    let offsets: Vec<u64> = reader.rest().await.iter().map(|one| one.id.offset).collect();
    assert_eq!(offsets, [7, 11]);
}

#[tokio::test(start_paused = true)]
async fn a_full_outbox_holds_a_reader_until_it_is_emptied() {
    let world = World::new().await;
    let topic = topic(&world, 1).await;
    append(&world, &topic, 0, 0..100).await;
    let outbox = Outbox::new(1000);
    let spec = ReaderSpec {
        start: StartPosition::First,
        ..ReaderSpec::default()
    };
    let _reading = world
        .broker
        .messaging()
        .readers()
        .open(&topic, &spec, Arc::clone(&outbox), 3);
    let mut got = 0;
    let mut times = 0;
    while got < 100 {
        outbox.filled().await;
        let (mut runs, mut events) = (Vec::new(), Vec::new());
        outbox.take(&mut runs, &mut events);
        let now: usize = runs.iter().map(|run: &DeliveryBatch| run.deliveries.len()).sum();
        assert!(now < 50, "{now} at once");
        (got, times) = (got + now, times + 1);
    }
    assert_eq!(got, 100);
    assert!(times > 2);
}

#[tokio::test(start_paused = true)]
async fn all_partitions_are_read_each_in_its_order_and_those_that_are_added_too() {
    let world = World::new().await;
    let topic = topic(&world, 2).await;
    append(&world, &topic, 0, 0..3).await;
    append(&world, &topic, 1, 0..2).await;
    let mut all = Reads::from(&world, &topic, StartPosition::First);
    let one = ReaderSpec {
        start: StartPosition::First,
        partition: Some(1),
        credit: None,
        ..ReaderSpec::default()
    };
    let mut one = Reads::begin(&world, &topic, &one);
    assert_eq!(all.bodies().await, ["0-0", "0-1", "0-2", "1-0", "1-1"]);
    let of_one = one.rest().await;
    assert!(of_one.iter().all(|delivery| delivery.id.lane == 1) && of_one.len() == 2);
    let grown = world.broker.grow_topic(topic.id, 3).await.unwrap();
    append(&world, &grown, 2, 0..1).await;
    assert_eq!(all.bodies().await, ["2-0"]);
    assert!(one.bodies().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_no_longer_kept_is_passed_over_and_a_deleted_topic_ends_its_readers() {
    let world = World::new().await;
    let topic = topic(&world, 1).await;
    append(&world, &topic, 0, 0..4).await;
    let spec = ReaderSpec {
        start: StartPosition::First,
        credit: Some(1),
        ..ReaderSpec::default()
    };
    let mut reader = Reads::begin(&world, &topic, &spec);
    let first = reader.rest().await;
    let log = topic.log(0).unwrap();
    append(&world, &topic, 0, 4..6).await;
    world
        .broker
        .catalog()
        .truncate(&[(log, Offset(4))])
        .await
        .remove(0)
        .unwrap();
    let mut late = Reads::from(&world, &topic, StartPosition::First);
    assert_eq!(late.bodies().await, ["0-4", "0-5"]);
    reader.settle(&first, Settle::Complete);
    assert_eq!(reader.bodies().await.len(), 1, "it goes on");
    world.broker.delete_topic(topic.id).await.unwrap();
    late.rest().await;
    assert_eq!(late.events, [Event::ConsumerGone { token: 3 }]);
}
