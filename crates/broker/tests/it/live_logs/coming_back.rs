//! Clients that disconnect and return: each message once.

use stafett_live_topics::{
    Message, OutboxDrain, Pattern, Payload, PendingAppends, StartFrom, SubscriptionChange, SubscriptionEdit,
};

use super::support::{Charts, ME, away, numbered, taken, wait_for};

#[tokio::test]
async fn what_comes_between_listen_and_resume_comes_once() {
    let charts = away().await;
    let (_, outbox) = charts.listen();
    charts.publish("charts/a", 20..30);
    let mut found = wait_for(&outbox, 10).await;
    assert_eq!(found, numbered("charts/a", 20..30), "who listens gets what comes");
    for _ in 0..2 {
        charts
            .subscribe(&["charts/a", "charts/a"], StartFrom::Resume, &outbox)
            .await;
    }
    charts.publish("charts/a", 30..40);
    found.extend(charts.all(&outbox).await);
    found.sort();
    assert_eq!(found, numbered("charts/a", 10..40));
}

#[tokio::test]
async fn a_filter_holds_for_what_is_caught_up_with_too() {
    let charts = away().await;
    let (_, outbox) = charts.listen();
    let filter = charts.live().filter("value % 10 == 3").unwrap();
    charts.live().listen_filtered(&ME, &outbox, Some(filter)).unwrap();
    charts
        .subscribe(&["charts/a"], StartFrom::Earliest, &outbox)
        .await;
    charts.publish("charts/a", 20..30);
    let found = wait_for(&outbox, 3).await;
    let expected: Vec<_> = [3..4, 13..14, 23..24]
        .into_iter()
        .flat_map(|numbers| numbered("charts/a", numbers))
        .collect();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_message_that_waits_when_an_earlier_one_is_asked_for_comes_at_its_place() {
    let charts = away().await;
    let (_, outbox) = charts.listen();
    charts.deliver("charts/a", 20..30).await;
    charts
        .subscribe(&["charts/a"], StartFrom::Earliest, &outbox)
        .await;
    charts.publish("charts/a", 30..40);
    assert_eq!(charts.all(&outbox).await, numbered("charts/a", 0..40));
}

#[tokio::test]
async fn no_message_of_a_subscription_comes_before_the_caller_has_answered() {
    let charts = away().await;
    let (_, outbox) = charts.listen();
    let (topics, from) = (["charts/a"].into_iter().collect(), StartFrom::Earliest);
    let (subscribed, held) = charts.live().subscribe_from(ME, topics, from, &outbox).await;
    assert_eq!(subscribed, Ok(0));
    charts.deliver("charts/a", 20..30).await;
    assert!(taken(&outbox).is_empty());
    charts.live().catch_up(held.unwrap());
    assert_eq!(charts.all(&outbox).await, numbered("charts/a", 0..30));
}

#[tokio::test]
async fn a_topic_that_is_asked_for_again_while_it_catches_up_begins_again() {
    let charts = away().await;
    let (_, outbox) = charts.listen_within(500);
    charts
        .subscribe(&["charts/a"], StartFrom::Earliest, &outbox)
        .await;
    outbox.ready().await;
    assert!(!taken(&outbox).is_empty());
    outbox.ready().await;
    charts
        .subscribe(&["charts/a"], StartFrom::Earliest, &outbox)
        .await;
    assert_eq!(charts.all(&outbox).await, numbered("charts/a", 0..20));
}

#[tokio::test]
async fn an_unsubscription_that_is_not_stored_leaves_the_position() {
    let charts = away().await;
    charts.journal.refuse(true);
    let what = SubscriptionEdit::UnsubscribeAll;
    let change = SubscriptionChange { client: ME, what };
    charts.live().change(vec![change]).await.remove(0).unwrap_err();
    charts.journal.refuse(false);
    let (_, outbox) = charts.listen();
    charts.subscribe(&["charts/a"], StartFrom::Resume, &outbox).await;
    assert_eq!(charts.all(&outbox).await, numbered("charts/a", 10..20));
}

#[tokio::test]
async fn a_change_of_nothing_is_not_acknowledged_once_the_journal_has_failed() {
    let charts = Charts::new().await;
    let names = |name: &str| [name].into_iter().collect();
    charts
        .change(SubscriptionEdit::Subscribe(names("charts/a")))
        .await;
    charts.journal.fail();
    // The journal may hold a change that is undone in memory.
    for what in [
        SubscriptionEdit::Subscribe(names("charts/a")),
        SubscriptionEdit::Unsubscribe(names("charts/b")),
    ] {
        let change = SubscriptionChange { client: ME, what };
        let error = charts.live().change(vec![change]).await.remove(0).unwrap_err();
        assert!(error.is_outcome_unknown(), "{error}");
    }
}

#[tokio::test]
async fn what_is_not_delivered_yet_when_a_client_listens_comes_once() {
    let charts = away().await;
    charts.publish("charts/a", 20..30);
    let (_, outbox) = charts.listen();
    charts.subscribe(&["charts/a"], StartFrom::Resume, &outbox).await;
    let mut found = charts.all(&outbox).await;
    found.sort();
    assert_eq!(found, numbered("charts/a", 10..30));
}

#[tokio::test]
async fn topics_of_one_partition_resume_one_after_the_other() {
    let charts = Charts::new().await;
    let (client, outbox) = charts.listen();
    charts
        .subscribe(&["charts/a", "charts/b"], StartFrom::Earliest, &outbox)
        .await;
    assert!(charts.all(&outbox).await.is_empty());
    charts.live().leave(client, &outbox, true);
    charts.deliver("charts/a", 0..5).await;
    charts.deliver("charts/b", 0..5).await;
    let (_, outbox) = charts.listen();
    charts.subscribe(&["charts/b"], StartFrom::Resume, &outbox).await;
    assert_eq!(charts.all(&outbox).await, numbered("charts/b", 0..5));
    charts.publish("charts/b", 5..8);
    charts.publish("charts/a", 5..8);
    charts.subscribe(&["charts/a"], StartFrom::Resume, &outbox).await;
    let mut found = charts.all(&outbox).await;
    found.sort();
    let expected = [numbered("charts/a", 0..8), numbered("charts/b", 5..8)].concat();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_topic_that_was_subscribed_to_since_listen_has_begun() {
    let charts = away().await;
    charts.publish("charts/b", 0..5);
    let (_, outbox) = charts.listen();
    assert!(charts.all(&outbox).await.is_empty());
    charts
        .change(SubscriptionEdit::Subscribe(["charts/b"].into_iter().collect()))
        .await;
    charts.publish("charts/b", 5..8);
    charts.subscribe(&["charts/b"], StartFrom::Resume, &outbox).await;
    assert_eq!(charts.all(&outbox).await, numbered("charts/b", 5..8));
    // A topic may begin again after an unsubscription.
    let b = || ["charts/b"].into_iter().collect();
    charts.change(SubscriptionEdit::Unsubscribe(b())).await;
    charts
        .subscribe(&["charts/b"], StartFrom::Earliest, &outbox)
        .await;
    assert_eq!(charts.all(&outbox).await, numbered("charts/b", 0..8));
}

#[tokio::test]
async fn a_pattern_that_brings_a_topic_does_not_bring_it_twice() {
    let charts = Charts::new().await;
    let (client, outbox) = charts.listen();
    charts
        .subscribe(&["charts/b"], StartFrom::Earliest, &outbox)
        .await;
    charts
        .change(SubscriptionEdit::SubscribePatterns(vec![
            Pattern::parse("charts/a*").unwrap(),
        ]))
        .await;
    charts.all(&outbox).await;
    charts.live().leave(client, &outbox, true);
    charts.deliver("charts/a", 0..5).await;
    let (_, outbox) = charts.listen();
    let seen = charts.all(&outbox).await;
    charts.publish("charts/a", 5..9);
    let mut found = wait_for(&outbox, 4).await;
    charts.subscribe(&["charts/a"], StartFrom::Resume, &outbox).await;
    found.extend(charts.all(&outbox).await);
    found.extend(seen);
    found.sort();
    assert_eq!(found, numbered("charts/a", 0..9));
}

#[tokio::test]
async fn who_takes_over_resumes_exactly_where_the_first_was() {
    let charts = away().await;
    let (_, one) = charts.listen();
    charts.subscribe(&["charts/a"], StartFrom::Resume, &one).await;
    let mut found = wait_for(&one, 10).await;
    charts.publish("charts/a", 20..30);
    // Some of these are sent, some are being written, and some wait; the handed-over output tells which.
    one.ready().await;
    let mut sent = OutboxDrain::default();
    one.take(30, &mut sent);
    found.extend(
        sent.messages
            .iter()
            .map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()),
    );
    one.on_all_sent();
    one.take(1, &mut OutboxDrain::default());
    let (_, two) = charts.listen();
    let mut rest = OutboxDrain::default();
    one.take(usize::MAX, &mut rest);
    assert!(
        rest.messages.is_empty(),
        "what waited for the first is for the second"
    );
    assert_eq!(rest.taken_over, [ME]);
    charts.publish("charts/a", 30..35);
    charts.subscribe(&["charts/a"], StartFrom::Resume, &two).await;
    found.extend(charts.all(&two).await);
    found.sort();
    assert_eq!(found, numbered("charts/a", 10..35));
}

#[tokio::test]
async fn what_one_connection_was_catching_up_with_holds_nothing_back_from_the_next() {
    let charts = away().await;
    // It has room for one message, and never takes it.
    let (_, stuck) = charts.listen_within(100);
    charts.subscribe(&["charts/a"], StartFrom::Earliest, &stuck).await;
    let (_, outbox) = charts.listen();
    charts.publish("charts/a", 20..25);
    let found = charts.all(&outbox).await;
    let live = found
        .iter()
        .filter(|message| numbered("charts/a", 20..25).contains(message));
    assert_eq!(live.count(), 5, "{found:?}");
}

#[tokio::test]
async fn a_crash_loses_nothing_of_what_a_client_had_begun() {
    let charts = Charts::new().await;
    charts.publish("charts/a", 10..20);
    // A slow client: it has got next to nothing.
    let (_, stuck) = charts.listen_within(100);
    charts.subscribe(&["charts/a"], StartFrom::Earliest, &stuck).await;
    let charts = charts.kill().await;
    charts.publish("charts/a", 20..30);
    let (_, outbox) = charts.listen();
    charts.subscribe(&["charts/a"], StartFrom::Resume, &outbox).await;
    let mut found = charts.all(&outbox).await;
    found.sort();
    assert_eq!(found, numbered("charts/a", 10..30));
}

#[tokio::test]
async fn catching_up_fills_a_small_outbox_again_and_again_and_drops_nothing() {
    let charts = Charts::new().await;
    charts.publish("charts/a", 100..600);
    let (_, outbox) = charts.listen_within(1000);
    charts
        .subscribe(&["charts/a"], StartFrom::Earliest, &outbox)
        .await;
    assert_eq!(charts.all(&outbox).await, numbered("charts/a", 100..600));
}

#[tokio::test]
async fn who_unsubscribes_while_it_catches_up_gets_no_more() {
    let charts = Charts::new().await;
    charts.publish("charts/a", 0..500);
    let (_, outbox) = charts.listen_within(1000);
    charts
        .subscribe(&["charts/a"], StartFrom::Earliest, &outbox)
        .await;
    charts
        .change(SubscriptionEdit::Unsubscribe(["charts/a"].into_iter().collect()))
        .await;
    let before = taken(&outbox).len();
    let behind = charts.all(&outbox).await.len();
    assert!(before < 20 && behind < 20, "{before} and {behind}");
}

#[tokio::test]
async fn a_quiet_topic_does_not_cost_what_the_others_have() {
    let charts = Charts::new().await;
    let payload = format!("\"{}\"", "x".repeat(100));
    let mut total = 0;
    charts.publish("charts/quiet", 0..1);
    for number in 0..40_000 {
        let topic = format!("charts/{}", number % 5000);
        let mut staged = PendingAppends::default();
        let message = Message {
            topic: &topic,
            payload: Payload::Json(&payload),
            timestamp: None,
            id: None,
            offset: None,
        };
        charts.live().publish(message, &mut staged);
        total += topic.len() + payload.len();
        drop(charts.live().store(staged));
        if number % 1000 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let total = u64::try_from(total).unwrap();
    let cost = async |charts: &Charts| {
        let before = charts.live().metrics().caught_up_bytes();
        let (_, outbox) = charts.listen();
        charts
            .subscribe(&["charts/quiet"], StartFrom::Earliest, &outbox)
            .await;
        assert_eq!(charts.all(&outbox).await, ["charts/quiet=0"]);
        let quiet = SubscriptionEdit::Unsubscribe(["charts/quiet"].into_iter().collect());
        charts.change(quiet).await;
        charts.live().metrics().caught_up_bytes() - before
    };
    let first = cost(&charts).await;
    assert!(first < total, "{first} of {total}");
    let second = cost(&charts).await;
    assert!(second < total / 4, "{second} of {total}");
    // After a start the index is empty; the first client that catches up fills it for the others.
    let charts = charts.kill().await;
    let first = cost(&charts).await;
    assert!(first >= total, "{first} of {total}");
    let second = cost(&charts).await;
    assert!(second < total / 4, "{second} of {total}");
}
