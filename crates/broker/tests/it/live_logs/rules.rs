//! Rules that change while the broker runs.

use stafett_live_topics::{Message, Payload, PendingAppends, Published, StartFrom, SubscriptionEdit};

use super::support::{Charts, numbered, rule, wait_for};

/// Publishes one message. Returns its outcome.
fn publish(charts: &Charts, topic: &str) -> Published {
    let mut staged = PendingAppends::default();
    let message = Message {
        topic,
        payload: Payload::Json("0"),
        timestamp: None,
        id: None,
        offset: None,
    };
    let published = charts.live().publish(message, &mut staged);
    drop(charts.live().store(staged));
    published
}

#[tokio::test]
async fn a_rule_that_is_added_stores_from_then_on_and_one_that_is_gone_no_more() {
    let charts = Charts::new().await;
    let (_, outbox) = charts.listen();
    charts
        .change(SubscriptionEdit::Subscribe(
            ["news/a", "charts/a"].into_iter().collect(),
        ))
        .await;
    assert_eq!(publish(&charts, "news/a"), Published::To(1));
    let both = [rule("charts/", "charts"), rule("news/", "news")];
    charts.broker.change_live_logs(&both).await.unwrap();
    assert_eq!(publish(&charts, "news/a"), Published::Staged);
    assert_eq!(publish(&charts, "charts/a"), Published::Staged);
    let mut found = wait_for(&outbox, 3).await;
    found.sort();
    assert_eq!(found, ["charts/a=0", "news/a=0", "news/a=0"]);

    charts.broker.change_live_logs(&both[1..]).await.unwrap();
    assert_eq!(publish(&charts, "charts/a"), Published::To(1));
    assert_eq!(publish(&charts, "news/a"), Published::Staged);
    charts.broker.change_live_logs(&[]).await.unwrap();
    assert_eq!(publish(&charts, "news/a"), Published::To(1));
    assert_eq!(wait_for(&outbox, 3).await.len(), 3);
}

#[tokio::test]
async fn who_listens_while_a_rule_is_added_resumes_with_nothing_lost_and_nothing_twice() {
    let charts = Charts::new().await;
    let (client, outbox) = charts.listen();
    charts
        .subscribe(&["charts/a"], StartFrom::Earliest, &outbox)
        .await;
    let both = [rule("charts/", "charts"), rule("news/", "news")];
    charts.broker.change_live_logs(&both).await.unwrap();
    charts.subscribe(&["news/a"], StartFrom::Resume, &outbox).await;
    charts.publish("news/a", 0..5);
    let found = wait_for(&outbox, 5).await;
    assert_eq!(found, numbered("news/a", 0..5));
    charts.live().leave(client, &outbox, true);
    charts.deliver("news/a", 5..8).await;
    let (_, outbox) = charts.listen();
    charts.subscribe(&["news/a"], StartFrom::Resume, &outbox).await;
    charts.publish("news/a", 8..9);
    assert_eq!(wait_for(&outbox, 4).await, numbered("news/a", 5..9));
}

#[tokio::test]
async fn two_rules_that_lead_to_one_stored_topic_deliver_once() {
    let charts = Charts::new().await;
    let both = [rule("charts/", "charts"), rule("old/", "charts")];
    charts.broker.change_live_logs(&both).await.unwrap();
    let (_, outbox) = charts.listen();
    charts
        .change(SubscriptionEdit::Subscribe(
            ["old/a", "old/end"].into_iter().collect(),
        ))
        .await;
    charts.publish("old/a", 0..3);
    charts.publish("old/end", 0..1);
    let found = wait_for(&outbox, 4).await;
    assert_eq!(
        found,
        [numbered("old/a", 0..3), numbered("old/end", 0..1)].concat()
    );
}
