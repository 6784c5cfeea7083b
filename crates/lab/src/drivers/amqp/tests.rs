//! The driver against the stub, over real sockets.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::Amqp;
use super::stub::Stub;
use crate::drivers::{Destinations, Driver, Reads, Seat};
use crate::experiment::Source;
use crate::run::point::destinations;
use crate::workload::content::Contents;
use crate::workload::recorder::Clock;
use crate::workload::{Message, Recorder, Reports};

/// The set `main` and the seat of the first client of a role.
fn place(roles: &str, role: &str, reads: Reads) -> (Arc<Destinations>, Seat) {
    let source = Source::new(
        "test",
        format!("question = \"?\"\nsystems = [\"stafett\"]\n[topics.main]\nkind = \"queue\"\n{roles}"),
    );
    let plan = source.plan(1.0, &BTreeMap::new()).unwrap();
    let topics = Arc::clone(&destinations(&plan, &[], "test")["main"]);
    let group = match reads {
        Reads::All => format!("{role}-0"),
        Reads::Share | Reads::One(_) => role.to_owned(),
    };
    let here = Seat {
        role: Arc::new(plan.roles[role].clone()),
        destinations: Arc::clone(&topics),
        onward: None,
        client: 0,
        clients: 1,
        reads,
        contents: Contents::constant(),
        group,
    };
    (topics, here)
}

fn messages(count: u64) -> Vec<Message> {
    let message = |sequence| Message {
        stream: 7,
        sequence,
        size: 100,
        ..Message::default()
    };
    (0..count).map(message).collect()
}

fn recorder() -> Arc<Recorder> {
    Arc::new(Recorder::new(Instant::now(), Clock::Acknowledgements))
}

/// A stub that serves until the test ends, and a driver for it.
async fn driver() -> (tokio::task::JoinHandle<()>, Amqp) {
    let stub = Stub::bind("127.0.0.1:0").await.unwrap();
    let driver = Amqp::new(stub.address().unwrap().to_string());
    #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
    let serving = tokio::spawn(async move {
        let _ended = stub.serve().await;
    });
    (serving, driver)
}

#[tokio::test]
async fn every_message_is_confirmed_once_and_no_more_than_allowed_are_under_way() {
    let (_serving, driver) = driver().await;
    let roles = "[roles.p]\ndoes = \"produce\"\nin_flight = 1\nbatch = 2000";
    let (topics, here) = place(roles, "p", Reads::Share);
    driver.prepare(&topics).await.unwrap();
    let (recorder, messages) = (recorder(), messages(1000));
    let reports = Reports::new(&recorder);
    let mut sender = driver.sender(&here, reports.clone()).await.unwrap();
    for chunk in messages.chunks(256) {
        reports.sent(chunk);
        sender.send(chunk).await.unwrap();
        assert!(reports.outstanding() <= 20, "{}", reports.outstanding());
    }
    sender.finish().await.unwrap();
    let totals = recorder.totals();
    assert_eq!((totals.sent, totals.acknowledged, totals.failed), (1000, 1000, 0));
    assert_eq!(reports.outstanding(), 0);
    driver.discard(&topics).await.unwrap();
}

#[tokio::test]
async fn at_most_once_counts_what_was_written_and_ends_in_order() {
    let (_serving, driver) = driver().await;
    let roles = "[roles.p]\ndoes = \"produce\"\ndelivery = \"at-most-once\"";
    let (_, here) = place(roles, "p", Reads::Share);
    let (recorder, messages) = (recorder(), messages(300));
    let reports = Reports::new(&recorder);
    let mut sender = driver.sender(&here, reports.clone()).await.unwrap();
    reports.sent(&messages);
    sender.send(&messages).await.unwrap();
    sender.finish().await.unwrap();
    assert_eq!(recorder.totals().acknowledged, 300);
}

#[tokio::test]
async fn a_consumer_goes_on_beyond_its_prefetch_by_acknowledging() {
    let (_serving, driver) = driver().await;
    let roles = "[roles.p]\ndoes = \"produce\"\n[roles.c]\ndoes = \"consume\"\nfan_out = true\nclients = 2\nprefetch = 10";
    let (topics, publisher) = place(roles, "p", Reads::Share);
    driver.prepare(&topics).await.unwrap();
    let recorder = recorder();
    let mut sender = driver.sender(&publisher, Reports::new(&recorder)).await.unwrap();
    let one = messages(1);
    Reports::new(&recorder).sent(&one);
    sender.send(&one).await.unwrap();
    sender.finish().await.unwrap();
    let (_, consumer) = place(roles, "c", Reads::All);
    let mut receiver = driver.receiver(&consumer).await.unwrap();
    let mut came = Vec::new();
    while came.len() < 100 {
        let before = came.len();
        let mut some = Vec::new();
        receiver.receive(&mut some).await.unwrap();
        came.append(&mut some);
        assert!(came.len() <= before + 10, "the prefetch holds");
    }
    assert!(
        came.iter()
            .all(|message| (message.stream, message.sequence, message.size) == (7, 0, 100))
    );
    receiver.settle().await.unwrap();
}

#[tokio::test]
async fn what_a_broker_takes_to_its_grave_is_counted_as_failed() {
    let stub = Stub::bind("127.0.0.1:0").await.unwrap();
    let driver = Amqp::new(stub.address().unwrap().to_string());
    let (_, here) = place("[roles.p]\ndoes = \"produce\"", "p", Reads::Share);
    let (recorder, messages) = (recorder(), messages(100));
    let reports = Reports::new(&recorder);
    let opened = async {
        let sender = driver.sender(&here, reports.clone()).await.unwrap();
        reports.sent(&messages);
        sender
    };
    let mut sender = tokio::select! {
        sender = opened => sender,
        () = stub.serve_one() => panic!("it serves"),
    };
    // The connection went with the server.
    let ended = async {
        sender.send(&messages).await?;
        sender.finish().await
    };
    assert!(ended.await.is_err());
    drop(sender);
    let totals = recorder.totals();
    assert_eq!(totals.acknowledged + totals.failed, 100);
    assert!(totals.failed > 0);
    assert_eq!(reports.outstanding(), 0);
    let again = driver.connection().await.unwrap_err();
    assert!(again.to_string().contains("127.0.0.1"), "{again}");
}
