//! A second connection takes over: each message is written to one of the two.

use bytes::{Buf, BytesMut};
use stafett_live_topics::{OutboxDrain, Pattern, StartFrom, SubscriptionEdit};

use super::support::{Charts, away, numbered};

/// Takes the waiting messages as a connection would: each message ends with a newline.
fn put_out(outbox: &stafett_live_topics::Outbox, output: &mut BytesMut) {
    let mut sent = OutboxDrain::default();
    outbox.take(usize::MAX, &mut sent);
    for message in sent.messages {
        output.extend_from_slice(&message);
    }
}

/// Writes at most `max` bytes.
fn write(outbox: &stafett_live_topics::Outbox, output: &mut BytesMut, max: usize, seen: &mut Vec<u8>) {
    let written = outbox.write(output, |bytes| {
        let count = bytes.len().min(max);
        seen.extend_from_slice(bytes.get(..count).unwrap_or_default());
        Ok::<usize, ()>(count)
    });
    assert!(written.is_ok());
}

#[tokio::test]
async fn what_the_first_has_begun_to_write_is_its_own_and_the_rest_is_for_the_second() {
    for cut in [0, 1, 30, 55, 10_000] {
        let charts = away().await;
        let (_, one) = charts.listen();
        charts.subscribe(&["charts/a"], StartFrom::Resume, &one).await;
        while one.bytes() == 0 {
            one.ready().await;
        }
        let (mut output, mut seen) = (BytesMut::new(), Vec::new());
        put_out(&one, &mut output);
        write(&one, &mut output, cut, &mut seen);
        let (_, two) = charts.listen();
        charts.subscribe(&["charts/a"], StartFrom::Resume, &two).await;
        // The first connection is still alive, and writes its output.
        write(&one, &mut output, usize::MAX, &mut seen);
        assert_eq!(output.remaining(), 0);
        let first = String::from_utf8(seen).unwrap().replace("charts", "\ncharts");
        let mut found: Vec<String> = first.lines().skip(1).map(str::to_owned).collect();
        found.extend(charts.all(&two).await);
        found.sort();
        assert_eq!(found, numbered("charts/a", 10..20), "cut at {cut}");
    }
}

#[tokio::test]
async fn what_a_connection_that_is_gone_had_not_written_whole_comes_again() {
    let charts = away().await;
    let (client, one) = charts.listen();
    charts.subscribe(&["charts/a"], StartFrom::Resume, &one).await;
    while one.bytes() == 0 {
        one.ready().await;
    }
    let (mut output, mut seen) = (BytesMut::new(), Vec::new());
    put_out(&one, &mut output);
    let whole = "charts/a=10".len();
    write(&one, &mut output, whole * 2 + 1, &mut seen);
    charts.live().leave(client, &one, true);
    let (_, two) = charts.listen();
    charts.subscribe(&["charts/a"], StartFrom::Resume, &two).await;
    assert_eq!(charts.all(&two).await, numbered("charts/a", 12..20));
}

#[tokio::test]
async fn a_pattern_that_came_late_does_not_hide_what_lies_before_it() {
    let charts = Charts::new().await;
    let (client, outbox) = charts.listen();
    charts
        .subscribe(&["charts/b"], StartFrom::Earliest, &outbox)
        .await;
    charts.all(&outbox).await;
    charts.live().leave(client, &outbox, true);
    charts.deliver("charts/a", 0..5).await;
    let (_, outbox) = charts.listen();
    // Messages before the pattern do not come live.
    charts.deliver("charts/a", 5..10).await;
    let pattern = || vec![Pattern::parse("charts/a*").unwrap()];
    charts
        .change(SubscriptionEdit::SubscribePatterns(pattern()))
        .await;
    charts.deliver("charts/a", 10..15).await;
    let mut found = charts.all(&outbox).await;
    assert_eq!(found, numbered("charts/a", 10..15));
    for _ in 0..2 {
        charts.subscribe(&["charts/a"], StartFrom::Resume, &outbox).await;
    }
    charts.publish("charts/a", 15..20);
    found.extend(charts.all(&outbox).await);
    found.sort();
    let mut expected = numbered("charts/a", 0..20);
    expected.sort();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn of_two_patterns_the_earlier_counts() {
    let charts = Charts::new().await;
    let (client, outbox) = charts.listen();
    charts
        .subscribe(&["charts/b"], StartFrom::Earliest, &outbox)
        .await;
    let early = vec![Pattern::parse("charts/?").unwrap()];
    charts.change(SubscriptionEdit::SubscribePatterns(early)).await;
    charts.all(&outbox).await;
    charts.live().leave(client, &outbox, true);
    charts.deliver("charts/a", 10..15).await;
    let (_, outbox) = charts.listen();
    charts.deliver("charts/a", 15..20).await;
    let late = vec![Pattern::parse("charts/a*").unwrap()];
    charts.change(SubscriptionEdit::SubscribePatterns(late)).await;
    charts.deliver("charts/a", 20..25).await;
    charts.subscribe(&["charts/a"], StartFrom::Resume, &outbox).await;
    let mut found = charts.all(&outbox).await;
    found.sort();
    assert_eq!(found, numbered("charts/a", 10..25));
}
