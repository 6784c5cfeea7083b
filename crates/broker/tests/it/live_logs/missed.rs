//! Notifications of messages that cannot be delivered.

use std::sync::Arc;

use stafett_live_topics::{GapNotice, GapReason, Outbox, OutboxDrain, StartFrom};
use stafett_model::{LogId, Offset};

use super::support::{Charts, ME, away, numbered};

fn log(charts: &Charts) -> LogId {
    charts.broker.topics().named("charts").unwrap().log(0).unwrap()
}

/// Returns messages and notifications, until `count` messages have arrived.
async fn told(outbox: &Arc<Outbox>, count: usize) -> (Vec<String>, Vec<GapNotice>) {
    let (mut messages, mut missed) = (Vec::new(), Vec::new());
    loop {
        let mut sent = OutboxDrain::default();
        outbox.take(usize::MAX, &mut sent);
        outbox.on_all_sent();
        let text = |bytes: &bytes::Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        messages.extend(sent.messages.iter().map(text));
        missed.extend(sent.missed);
        if messages.len() >= count {
            return (messages, missed);
        }
        outbox.ready().await;
    }
}

fn expected(from: u64, to: u64, why: GapReason) -> GapNotice {
    GapNotice {
        client: ME,
        topic: "charts".into(),
        partition: 0,
        from: Offset(from),
        to: Offset(to),
        why,
    }
}

#[tokio::test]
async fn what_is_damaged_is_passed_over_and_told() {
    let charts = away().await;
    charts.journal.tear(log(&charts), Offset(0), Offset(21));
    charts.deliver("charts/b", 0..1).await;
    charts.publish("charts/a", 20..25);
    let (_, outbox) = charts.listen();
    charts
        .subscribe(&["charts/a"], StartFrom::Earliest, &outbox)
        .await;
    let (messages, missed) = told(&outbox, 5).await;
    assert_eq!(messages, numbered("charts/a", 20..25));
    assert_eq!(missed.len(), 1, "{missed:?}");
    let missed = &missed[0];
    assert_eq!((missed.from, missed.to), (Offset(0), Offset(21)));
    assert_eq!((&missed.client, missed.why), (&ME, GapReason::Damaged));
}

#[tokio::test]
async fn what_is_kept_no_more_when_a_client_comes_back_is_told() {
    let charts = away().await;
    let bounds = charts.broker.catalog().bounds(log(&charts)).unwrap();
    let start = Offset(bounds.end.0 - 5);
    charts
        .broker
        .catalog()
        .truncate(&[(log(&charts), start)])
        .await
        .remove(0)
        .unwrap();
    let (_, outbox) = charts.listen();
    charts.subscribe(&["charts/a"], StartFrom::Resume, &outbox).await;
    let (messages, missed) = told(&outbox, 5).await;
    assert_eq!(messages, numbered("charts/a", 15..20));
    assert_eq!(missed.len(), 1, "{missed:?}");
    assert_eq!(missed[0], expected(missed[0].from.0, start.0, GapReason::Expired));
    // A client that asks for all existing messages gets no notification.
    let (_, outbox) = charts.listen();
    charts
        .subscribe(&["charts/a"], StartFrom::Earliest, &outbox)
        .await;
    assert_eq!(told(&outbox, 5).await.1, []);
}

#[tokio::test]
async fn of_what_came_live_nothing_is_told_however_much_is_kept_no_more() {
    let charts = away().await;
    let end = charts.broker.catalog().bounds(log(&charts)).unwrap().end;
    let (_, outbox) = charts.listen();
    charts.publish("charts/a", 20..30);
    assert_eq!(told(&outbox, 10).await.0, numbered("charts/a", 20..30));
    let start = Offset(end.0 + 5);
    let truncated = charts.broker.catalog().truncate(&[(log(&charts), start)]).await;
    assert_eq!(truncated, [Ok(())]);
    charts.subscribe(&["charts/a"], StartFrom::Resume, &outbox).await;
    charts.publish("charts/a", 30..31);
    let (messages, missed) = told(&outbox, 1).await;
    assert_eq!(messages, numbered("charts/a", 30..31));
    assert_eq!(missed.len(), 1, "{missed:?}");
    assert_eq!(missed[0], expected(missed[0].from.0, end.0, GapReason::Expired));
}
