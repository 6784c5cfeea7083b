//! The sender against the stub, over real sockets and with time that stands still.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::{Instant, advance, pause, resume};

use super::super::{Lean, options};
use super::*;
use crate::drivers::stub::Stub;
use crate::drivers::{Driver as _, Reads};
use crate::experiment::Source;
use crate::run::point::destinations;
use crate::workload::Recorder;
use crate::workload::recorder::Clock;

const TOPICS: u32 = 100;

/// A sender of a role, which knows all topics and has sent a message to each.
async fn sender(role: &str) -> (LeanSender, Reports) {
    let stub = Stub::bind("127.0.0.1:0").await.unwrap();
    let address = stub.address().unwrap().to_string();
    #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
    let _serving = tokio::spawn(stub.serve());
    let source = Source::new(
        "test",
        format!(
            "question = \"?\"\nsystems = [\"kafka\"]\n[topics.main]\ncount = {TOPICS}\n[roles.p]\ndoes = \"produce\"\n{role}"
        ),
    );
    let plan = source.plan(1.0, &BTreeMap::new()).unwrap();
    let topics = Arc::clone(&destinations(&plan, &[], "test")["main"]);
    Lean::new(address.clone()).prepare(&topics).await.unwrap();
    let seat = Seat {
        role: Arc::new(plan.roles["p"].clone()),
        destinations: topics,
        onward: None,
        client: 0,
        clients: 1,
        reads: Reads::Share,
        contents: Contents::constant(),
        group: "p".to_owned(),
    };
    let recorder = Arc::new(Recorder::new(Instant::now(), Clock::Acknowledgements));
    let reports = Reports::new(&recorder);
    let client = Client::connect(&[address], options()).await.unwrap();
    let mut sender = LeanSender::open(client, &seat, reports.clone()).await.unwrap();
    let first = messages(0);
    reports.sent(&first);
    sender.send(&first).await.unwrap();
    sender.finish().await.unwrap();
    assert_eq!(reports.recorder().totals().acknowledged, u64::from(TOPICS));
    (sender, reports)
}

/// The next message to each topic.
fn messages(round: u64) -> Vec<Message> {
    let message = |topic| Message {
        stream: 7,
        sequence: round * u64::from(TOPICS) + u64::from(topic),
        topic,
        size: 100,
        ..Message::default()
    };
    (0..TOPICS).map(message).collect()
}

#[tokio::test]
async fn batches_that_have_waited_long_enough_leave_where_there_is_always_more_to_be_sent() {
    let (mut sender, reports) = sender("linger = \"20ms\"\nin_flight = 1000").await;
    pause();
    let (some, more) = (messages(1), messages(2));
    reports.sent(&some);
    sender.send(&some).await.unwrap();
    assert_eq!(sender.producer.waiting(), 100);
    advance(Duration::from_millis(19)).await;
    reports.sent(&more);
    sender.send(&more[..1]).await.unwrap();
    assert_eq!(sender.producer.waiting(), 100, "they wait for others");
    advance(Duration::from_millis(1)).await;
    // Nobody asks for a tick.
    sender.send(&more[1..2]).await.unwrap();
    assert_eq!(sender.producer.waiting(), 0);
    sender.send(&more[2..]).await.unwrap();
    assert_eq!(sender.producer.waiting(), 98);
    resume();
    sender.finish().await.unwrap();
    let totals = reports.recorder().totals();
    assert_eq!((totals.sent, totals.acknowledged), (300, 300));
}

#[tokio::test]
async fn answers_that_are_there_are_taken_with_the_next_messages() {
    let (mut sender, reports) = sender("linger = \"0us\"\nin_flight = 1000").await;
    let some = messages(1);
    reports.sent(&some);
    sender.send(&some).await.unwrap();
    // Only messages that are handed over ask for answers.
    while reports.outstanding() > 0 {
        yield_now().await;
        sender.send(&[]).await.unwrap();
    }
    assert_eq!(reports.recorder().totals().acknowledged, 200);
}

#[tokio::test]
async fn a_wait_for_the_connection_that_is_dropped_forgets_no_batch() {
    for delivery in ["at-most-once", "at-least-once"] {
        let (mut sender, reports) = sender(&format!(
            "linger = \"1h\"\nin_flight = 1000\ndelivery = \"{delivery}\""
        ))
        .await;
        let some = messages(1);
        reports.sent(&some);
        sender.send(&some).await.unwrap();
        assert_eq!(sender.producer.waiting(), 100);
        // The connection takes 64 requests before it has its turn; this test has its own from its beginning
        // on.
        yield_now().await;
        for _ in 0..3 {
            tokio::select! {
                biased;
                flushed = sender.flush() => panic!("it took them all: {flushed:?}"),
                () = ready(()) => {}
            }
            assert!(sender.producer.is_leaving());
        }
        sender.finish().await.unwrap();
        let totals = reports.recorder().totals();
        assert_eq!((totals.acknowledged, totals.failed), (200, 0), "{delivery}");
    }
}

#[tokio::test]
async fn what_was_not_handed_over_or_not_answered_has_failed_when_the_sender_is_dropped() {
    let (mut sender, reports) = sender("linger = \"1h\"\nin_flight = 1").await;
    let some = messages(1);
    reports.sent(&some);
    sender.send(&some).await.unwrap();
    yield_now().await;
    tokio::select! {
        biased;
        flushed = sender.flush() => panic!("it took them all: {flushed:?}"),
        () = ready(()) => {}
    }
    drop(sender);
    let totals = reports.recorder().totals();
    assert_eq!(totals.acknowledged + totals.failed, 200);
    assert_eq!(reports.outstanding(), 0);
}
