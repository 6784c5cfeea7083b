//! The stub that gives out once, against the lean driver, over real sockets.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::Stub;
use crate::drivers::lean::Lean;
use crate::drivers::{Driver, Reads, Seat};
use crate::experiment::Source;
use crate::run::point::destinations;
use crate::workload::content::Contents;
use crate::workload::recorder::Clock;
use crate::workload::{Message, Recorder, Reports};

#[tokio::test]
async fn no_more_is_given_out_than_was_produced() {
    let stub = Stub::bind("127.0.0.1:0").await.unwrap().once();
    let driver = Lean::new(stub.address().unwrap().to_string());
    #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
    let _serving = tokio::spawn(stub.serve());
    let source = Source {
        place: "test".to_owned(),
        text: "question = \"?\"\nsystems = [\"kafka\"]\n[roles.p]\ndoes = \"produce\"\n[roles.c]\ndoes = \"consume\""
            .to_owned(),
    };
    let plan = source.plan(1.0, &BTreeMap::new()).unwrap();
    let topics = Arc::clone(&destinations(&plan, &[], "test")["main"]);
    driver.prepare(&topics).await.unwrap();
    let seat = |role: &str| Seat {
        role: Arc::new(plan.roles[role].clone()),
        destinations: Arc::clone(&topics),
        client: 0,
        clients: 1,
        reads: Reads::Share,
        contents: Contents::constant(),
        group: role.to_owned(),
    };
    let (publisher, consumer) = (seat("p"), seat("c"));
    let mut receiver = driver.receiver(&consumer).await.unwrap();
    let recorder = Arc::new(Recorder::new(Instant::now(), Clock::Acknowledgements));
    let mut came = 0;
    for produced in [300, 301] {
        let message = |sequence| Message {
            stream: 7,
            sequence,
            size: 100,
            ..Message::default()
        };
        let some: Vec<Message> = (came..produced).map(message).collect();
        let reports = Reports::new(&recorder);
        let mut sender = driver.sender(&publisher, reports.clone()).await.unwrap();
        reports.sent(&some);
        sender.send(&some).await.unwrap();
        sender.finish().await.unwrap();
        while came < produced {
            let mut batch = Vec::new();
            receiver.receive(&mut batch).await.unwrap();
            came += batch.len() as u64;
        }
        assert_eq!(came, produced);
    }
}
