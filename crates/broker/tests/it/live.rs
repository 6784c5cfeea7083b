//! Live topics over an in-memory journal: requests of a front end, and restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use stafett_broker::{Broker, BrokerSettings};
use stafett_journal::{Journal, MemoryJournal, StateSpace};
use stafett_live_topics::{
    Audience, ChangeError, ClientName, Live, LiveSettings, LogRule, Message, NameList, Outbox, OutboxBound,
    OutboxDrain, Overflow, Pattern, Payload, PendingAppends, Published, StartFrom, SubscriberCount,
    Subscription, SubscriptionChange, SubscriptionEdit,
};

use crate::plain::Plain;

const BOUND: OutboxBound = OutboxBound {
    bytes: 1 << 20,
    overflow: Overflow::DropOldest,
};

/// Restarts from the stored state.
async fn start(journal: &mut Arc<MemoryJournal>, live: LiveSettings) -> Arc<Live> {
    *journal = Arc::new(journal.reopen());
    let journal: Arc<dyn Journal> = Arc::<MemoryJournal>::clone(journal);
    let broker = Broker::start(
        journal,
        BrokerSettings {
            live_topics: live,
            ..BrokerSettings::default()
        },
    )
    .await;
    Arc::clone(broker.unwrap().live_topics())
}

fn outbox(live: &Live) -> Arc<Outbox> {
    Outbox::new(&Plain, BOUND, Arc::clone(live.metrics()))
}

fn publish(live: &Live, topic: &str, payload: &str) -> Published {
    let message = Message {
        topic,
        payload: Payload::Json(payload),
        timestamp: None,
        id: None,
        offset: None,
    };
    let mut staged = PendingAppends::default();
    let published = live.publish(message, &mut staged);
    drop(live.store(staged));
    published
}

fn taken(outbox: &Outbox) -> Vec<String> {
    let mut sent = OutboxDrain::default();
    outbox.take(usize::MAX, &mut sent);
    outbox.on_all_sent();
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    sent.messages.iter().map(text).collect()
}

fn number(client: i64) -> ClientName {
    ClientName::Number(client)
}

async fn change(live: &Arc<Live>, client: i64, what: SubscriptionEdit) -> Result<usize, ChangeError> {
    let client = number(client);
    live.change(vec![SubscriptionChange { client, what }])
        .await
        .remove(0)
}

async fn subscribe(live: &Arc<Live>, client: i64, topics: &[&str]) -> Result<usize, ChangeError> {
    change(
        live,
        client,
        SubscriptionEdit::Subscribe(topics.iter().copied().collect()),
    )
    .await
}

fn all_topics(live: &Live, client: i64, page: usize) -> Vec<Subscription> {
    let (mut found, mut from) = (Vec::new(), Some(0));
    while let Some(first) = from {
        let page = live.subscriptions(&number(client), first, page);
        found.extend(page.items);
        from = page.next;
    }
    found
}

#[tokio::test]
async fn only_who_subscribes_and_listens_gets_a_message() {
    let live = start(&mut Arc::default(), LiveSettings::default()).await;
    let (one, two) = (outbox(&live), outbox(&live));
    live.listen(&number(1), &one).unwrap();
    subscribe(&live, 1, &["a"]).await.unwrap();
    subscribe(&live, 2, &["a"]).await.unwrap();
    assert_eq!(publish(&live, "a", "1"), Published::To(1));
    live.listen(&number(2), &two).unwrap();
    assert_eq!(publish(&live, "a", "2"), Published::To(2));
    assert_eq!(publish(&live, "b", "3"), Published::To(0));
    assert_eq!(taken(&one), ["a=1", "a=2"]);
    assert_eq!(taken(&two), ["a=2"]);
}

#[tokio::test]
async fn who_listens_with_a_filter_gets_what_it_lets_through() {
    let live = start(&mut Arc::default(), LiveSettings::default()).await;
    let outboxes = [outbox(&live), outbox(&live), outbox(&live)];
    let filters = [Some("value.n > 1"), Some("value.n > 1 && topic == 'a'"), None];
    for ((client, outbox), filter) in (1..).zip(&outboxes).zip(filters) {
        let filter = filter.map(|filter| live.filter(filter).unwrap());
        live.listen_filtered(&number(client), outbox, filter).unwrap();
        subscribe(&live, client, &["a", "b"]).await.unwrap();
    }
    assert_eq!(publish(&live, "a", r#"{"n":1}"#), Published::To(1));
    assert_eq!(publish(&live, "a", r#"{"n":2}"#), Published::To(3));
    assert_eq!(publish(&live, "b", r#"{"n":2}"#), Published::To(2));
    assert_eq!(publish(&live, "b", r#"{"m":2}"#), Published::To(1));
    assert_eq!(taken(&outboxes[0]), [r#"a={"n":2}"#, r#"b={"n":2}"#]);
    assert_eq!(taken(&outboxes[1]), [r#"a={"n":2}"#]);
    assert_eq!(taken(&outboxes[2]).len(), 4);
    // The filter goes with the listening.
    live.listen(&number(1), &outboxes[0]).unwrap();
    assert_eq!(publish(&live, "a", "1"), Published::To(2));
    assert_eq!(taken(&outboxes[0]), ["a=1"]);
}

#[tokio::test]
async fn who_subscribes_by_name_and_by_patterns_gets_a_message_once() {
    let live = start(&mut Arc::default(), LiveSettings::default()).await;
    let one = outbox(&live);
    live.listen(&number(1), &one).unwrap();
    let pattern = |text| Pattern::parse(text).unwrap();
    let patterns = vec![pattern("so*"), pattern("*")];
    change(&live, 1, SubscriptionEdit::SubscribePatterns(patterns))
        .await
        .unwrap();
    subscribe(&live, 1, &["song", "so*"]).await.unwrap();
    assert_eq!(publish(&live, "song", "1"), Published::To(1));
    assert_eq!(publish(&live, "other", "2"), Published::To(1));
    let left = SubscriptionEdit::UnsubscribePatterns(vec![pattern("*"), pattern("so*")]);
    assert_eq!(change(&live, 1, left).await, Ok(2));
    assert_eq!(publish(&live, "sox", "3"), Published::To(0), "a name is literal");
    assert_eq!(publish(&live, "so*", "4"), Published::To(1));
    assert_eq!(taken(&one).len(), 3);
}

#[tokio::test]
async fn the_second_to_listen_takes_over_and_the_first_is_told() {
    let live = start(&mut Arc::default(), LiveSettings::default()).await;
    let (one, two) = (outbox(&live), outbox(&live));
    let client = live.listen(&number(1), &one).unwrap();
    live.listen(&number(1), &two).unwrap();
    subscribe(&live, 1, &["a"]).await.unwrap();
    live.leave(client, &one, true);
    publish(&live, "a", "1");
    let mut sent = OutboxDrain::default();
    one.take(usize::MAX, &mut sent);
    assert_eq!((sent.messages.len(), sent.taken_over), (0, vec![number(1)]));
    assert_eq!(taken(&two), ["a=1"]);
    assert_eq!(live.presence().listening, 1);
}

#[tokio::test]
async fn a_list_beyond_the_quota_is_refused_as_a_whole() {
    let mut journal = Arc::default();
    let settings = LiveSettings {
        subscriptions_max: 3,
        ..LiveSettings::default()
    };
    let live = start(&mut journal, settings.clone()).await;
    subscribe(&live, 1, &["a", "b"]).await.unwrap();
    let refused = subscribe(&live, 1, &["b", "c", "d"]).await;
    assert_eq!(refused, Err(ChangeError::TooManySubscriptions { max: 3 }));
    assert_eq!(
        subscribe(&live, 1, &["a", "a", "b", "c", "c"]).await,
        Ok(1),
        "only new ones count"
    );
    let live = start(&mut journal, settings).await;
    assert_eq!(all_topics(&live, 1, 10).len(), 3);
}

#[tokio::test]
async fn a_client_without_subscriptions_leaves_nothing_behind() {
    let mut journal: Arc<MemoryJournal> = Arc::default();
    let live = start(&mut journal, LiveSettings::default()).await;
    let names: Vec<String> = (0..5000).map(|n| format!("topic {n}")).collect();
    for names in names.chunks(2) {
        let names = names.iter().map(String::as_str).collect();
        change(&live, 7, SubscriptionEdit::Subscribe(names))
            .await
            .unwrap();
    }
    assert_eq!(change(&live, 7, SubscriptionEdit::UnsubscribeAll).await, Ok(5000));
    assert_eq!((live.presence().clients, live.presence().topics), (0, 0));
    drop(live);
    let stored = journal.reopen();
    for space in [9, 11] {
        let mut left = 0;
        stored.load_state(StateSpace(space), &mut |_| left += 1).unwrap();
        assert_eq!(left, 0, "space {space}");
    }
}

#[tokio::test]
async fn what_is_stored_stays_in_proportion_to_what_there_is() {
    let mut journal: Arc<MemoryJournal> = Arc::default();
    let live = start(&mut journal, LiveSettings::default()).await;
    subscribe(&live, 1, &["kept"]).await.unwrap();
    for _ in 0..2000 {
        subscribe(&live, 1, &["a topic that comes and goes"])
            .await
            .unwrap();
        let topics = ["a topic that comes and goes"].into_iter().collect();
        change(&live, 1, SubscriptionEdit::Unsubscribe(topics))
            .await
            .unwrap();
    }
    let mut rows = 0;
    journal = Arc::new(journal.reopen());
    journal.load_state(StateSpace(11), &mut |_| rows += 1).unwrap();
    assert!(rows < 200, "{rows}");
    let live = start(&mut journal, LiveSettings::default()).await;
    assert_eq!(all_topics(&live, 1, 10), [Subscription::Topic("kept".into())]);
}

#[tokio::test]
async fn presence_names_who_subscribes_and_who_listens() {
    let live = start(&mut Arc::default(), LiveSettings::default()).await;
    let one = outbox(&live);
    for client in 0..5 {
        subscribe(&live, client, &["a"]).await.unwrap();
    }
    live.listen(&number(3), &one).unwrap();
    let audience = Audience {
        subscribers: 5,
        listening: 1,
    };
    assert_eq!(live.topic_audience("a"), audience);
    let page = live.subscribers("a", 0, 4);
    assert_eq!(page.items.len(), 4);
    let rest = live.subscribers("a", page.next.unwrap(), 4);
    assert_eq!((rest.items.len(), rest.next), (1, None));
    let all = page.items.iter().chain(&rest.items);
    let listening: Vec<_> = all.filter(|present| present.listening).collect();
    assert_eq!(listening.len(), 1);
    assert_eq!(listening[0].client, number(3));
    assert_eq!(live.present(0, 10).items.len(), 5);
    let page = live.listening(0, 10);
    assert_eq!((page.items.len(), page.next), (1, None));
    assert_eq!(
        (&page.items[0].client, page.items[0].subscriptions),
        (&number(3), 1)
    );
}

#[tokio::test]
async fn topics_and_patterns_are_listed_with_their_subscribers_page_by_page() {
    let live = start(&mut Arc::default(), LiveSettings::default()).await;
    let names: Vec<String> = (0..500).map(|topic| format!("topic {topic}")).collect();
    let topics: Vec<&str> = names.iter().map(String::as_str).collect();
    subscribe(&live, 1, &topics).await.unwrap();
    subscribe(&live, 2, &topics[..7]).await.unwrap();
    let patterns = ["topic 1*", "topic ?"].map(|text| Pattern::parse(text).unwrap());
    change(&live, 2, SubscriptionEdit::SubscribePatterns(patterns.to_vec()))
        .await
        .unwrap();
    let (mut found, mut from) = (Vec::new(), Some(0));
    while let Some(first) = from {
        let page = live.subscribed_topics(first, 33);
        assert!(page.items.len() <= 33);
        found.extend(page.items);
        from = page.next;
    }
    found.sort();
    let mut expected: Vec<SubscriberCount> = names
        .iter()
        .enumerate()
        .map(|(place, name)| SubscriberCount {
            name: name.clone(),
            subscribers: if place < 7 { 2 } else { 1 },
        })
        .collect();
    expected.sort();
    assert_eq!(found, expected);
    let matching = live.patterns_matching("topic 1");
    let texts: Vec<(&str, usize)> = matching
        .iter()
        .map(|pattern| (pattern.name.as_str(), pattern.subscribers))
        .collect();
    assert_eq!(texts, [("topic 1*", 1), ("topic ?", 1)]);
    assert_eq!(live.pattern_audience(&patterns[0]).subscribers, 1);
    assert_eq!(
        live.pattern_subscribers(&patterns[1], 0, 10).items[0].client,
        number(2)
    );
    assert_eq!(live.presence().patterns, 2);
}

#[tokio::test]
async fn a_page_of_long_names_is_bounded_in_bytes() {
    let live = start(&mut Arc::default(), LiveSettings::default()).await;
    let names: Vec<String> = (0..50)
        .map(|topic| format!("{topic} {}", "x".repeat(60_000)))
        .collect();
    let topics: Vec<&str> = names.iter().map(String::as_str).collect();
    subscribe(&live, 1, &topics).await.unwrap();
    let page = live.subscriptions(&number(1), 0, 10_000);
    assert!(
        page.items.len() < 20 && page.next.is_some(),
        "{}",
        page.items.len()
    );
    assert_eq!(all_topics(&live, 1, 10_000).len(), 50);
    let page = live.subscribed_topics(0, 10_000);
    assert!(
        page.items.len() < 20 && page.next.is_some(),
        "{}",
        page.items.len()
    );
}

/// Waits until `count` messages have arrived.
async fn wait_for(outbox: &Outbox, count: usize) -> Vec<String> {
    let mut found = taken(outbox);
    while found.len() < count {
        outbox.ready().await;
        found.extend(taken(outbox));
    }
    found
}

fn numbered(from: usize, to: usize) -> Vec<String> {
    (from..to)
        .map(|number| format!("charts/{}={number}", number % 3))
        .collect()
}

#[tokio::test]
async fn who_catches_up_gets_everything_once_and_goes_on_where_it_was() {
    let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::new());
    let rule = LogRule {
        prefix: "charts/".into(),
        topic: "charts".into(),
        partitions: 1,
    };
    let settings = LiveSettings {
        logs: vec![rule],
        ..LiveSettings::default()
    };
    let broker = Broker::start(
        journal,
        BrokerSettings {
            live_topics: settings,
            ..BrokerSettings::default()
        },
    )
    .await;
    let broker = Arc::new(broker.unwrap());
    broker.open_live_logs().await.unwrap();
    let live = broker.live_topics();
    let publish_all = |from: usize, to: usize| {
        for number in from..to {
            let topic = format!("charts/{}", number % 3);
            assert_eq!(publish(live, &topic, &number.to_string()), Published::Staged);
        }
    };
    let topics = || {
        ["charts/0", "charts/1", "charts/2"]
            .into_iter()
            .collect::<NameList>()
    };
    publish_all(0, 500);
    let one = outbox(live);
    let client = live.listen(&number(1), &one).unwrap();
    let ((subscribed, held), ()) = tokio::join!(
        live.subscribe_from(number(1), topics(), StartFrom::Earliest, &one),
        async { publish_all(500, 1000) },
    );
    assert_eq!(subscribed, Ok(3));
    live.catch_up(held.unwrap());
    publish_all(1000, 1100);
    assert_eq!(wait_for(&one, 1100).await, numbered(0, 1100));
    live.leave(client, &one, true);

    publish_all(1100, 1110);
    let two = outbox(live);
    live.listen(&number(1), &two).unwrap();
    let resumed = live.subscribe_from(number(1), topics(), StartFrom::Resume, &two);
    let (subscribed, held) = resumed.await;
    assert_eq!(subscribed, Ok(0));
    live.catch_up(held.unwrap());
    publish_all(1110, 1120);
    let found = wait_for(&two, 20).await;
    assert_eq!(found, numbered(1100, 1120));
    broker.stop().await;
}

#[derive(Debug, Clone)]
enum Act {
    Subscribe(i64, Vec<u8>),
    Unsubscribe(i64, Vec<u8>),
    UnsubscribeAll(i64),
    Restart,
}

fn act() -> impl Strategy<Value = Act> {
    let topics = proptest::collection::vec(0..30_u8, 1..12);
    prop_oneof![
        6 => (0..4_i64, topics.clone()).prop_map(|(client, topics)| Act::Subscribe(client, topics)),
        4 => (0..4_i64, topics).prop_map(|(client, topics)| Act::Unsubscribe(client, topics)),
        1 => (0..4_i64).prop_map(Act::UnsubscribeAll),
        1 => Just(Act::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn subscriptions_are_those_of_a_plain_map_over_any_restarts(
        groups in proptest::collection::vec(proptest::collection::vec(act(), 1..6), 1..30),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut journal = Arc::default();
            let mut live = start(&mut journal, LiveSettings::default()).await;
            let mut model: BTreeMap<i64, BTreeSet<String>> = BTreeMap::new();
            for group in groups {
                let mut changes = Vec::new();
                let mut restart = false;
                for act in group {
                    let name = |topic: &u8| format!("topic {topic}");
                    let (client, what) = match &act {
                        Act::Restart => {
                            restart = true;
                            continue;
                        }
                        Act::Subscribe(client, topics) => {
                            let names: Vec<String> = topics.iter().map(name).collect();
                            model.entry(*client).or_default().extend(names.iter().cloned());
                            (client, SubscriptionEdit::Subscribe(names.iter().map(String::as_str).collect()))
                        }
                        Act::Unsubscribe(client, topics) => {
                            let names: Vec<String> = topics.iter().map(name).collect();
                            let known = model.entry(*client).or_default();
                            known.retain(|known| !names.contains(known));
                            (client, SubscriptionEdit::Unsubscribe(names.iter().map(String::as_str).collect()))
                        }
                        Act::UnsubscribeAll(client) => {
                            model.remove(client);
                            (client, SubscriptionEdit::UnsubscribeAll)
                        }
                    };
                    changes.push(SubscriptionChange { client: number(*client), what });
                }
                for result in live.change(changes).await {
                    result.unwrap();
                }
                if restart {
                    live = start(&mut journal, LiveSettings::default()).await;
                }
                for client in 0..4 {
                    let found: BTreeSet<Subscription> = all_topics(&live, client, 3).into_iter().collect();
                    let expected = model.get(&client).into_iter().flatten();
                    let expected: BTreeSet<_> = expected.cloned().map(Subscription::Topic).collect();
                    assert_eq!(found, expected);
                }
            }
        });
    }
}
