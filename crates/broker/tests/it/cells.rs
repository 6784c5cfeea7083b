//! The topics of a cluster of several cells: the first one decides, and others follow its copies.

use std::sync::Arc;

use stafett_broker::{Broker, BrokerSettings, Scope};
use stafett_journal::{Journal, MemoryJournal};
use stafett_topics::{Cells, FollowError, NewTopic, Topic, TopicSettings, cell_of};

const COUNT: u32 = 3;

async fn cell(own: u32) -> Arc<Broker> {
    let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::new());
    let broker = Broker::start(journal, BrokerSettings::default()).await.unwrap();
    broker.catalog().spread_over(Cells { own, count: COUNT });
    Arc::new(broker)
}

async fn cells() -> [Arc<Broker>; COUNT as usize] {
    [cell(0).await, cell(1).await, cell(2).await]
}

async fn create(broker: &Arc<Broker>, name: &str, partitions: u32, spread: bool) -> Arc<Topic> {
    let settings = TopicSettings {
        spread: Some(spread),
        ..TopicSettings::default()
    };
    let new = NewTopic {
        name: name.into(),
        partitions: Some(partitions),
        settings,
    };
    broker.catalog().create(vec![new]).await.remove(0).unwrap()
}

/// Has all other cells follow the first one.
async fn follow([first, others @ ..]: &[Arc<Broker>; COUNT as usize]) {
    let (_, copy) = first.copy_topics();
    for cell in others {
        let facts = cell.follow_topics(&copy).await.unwrap();
        assert_eq!(facts.cluster_id, first.cluster_id());
    }
}

/// Returns the cell in which each partition of a topic has a log, as all cells see it.
fn homes(cells: &[Arc<Broker>], name: &str) -> Vec<u32> {
    let mut seen: Vec<Vec<u32>> = Vec::new();
    for (own, cell) in (0..).zip(cells) {
        let topic = cell.topics().named(name).unwrap();
        let home = |partition| {
            let log = topic.log(partition).unwrap();
            let elsewhere = cell_of(log);
            let is_here = cell.catalog().bounds(log).is_some();
            assert_eq!(is_here, elsewhere.is_none(), "{name} {partition} in {own}");
            elsewhere.unwrap_or(own)
        };
        seen.push((0..topic.partitions()).map(home).collect());
    }
    let first = seen.swap_remove(0);
    assert!(
        seen.iter().all(|homes| *homes == first),
        "{name}: {first:?}, {seen:?}"
    );
    first
}

#[tokio::test]
async fn each_partition_has_a_log_in_one_cell_and_all_agree_on_it() {
    let cells = cells().await;
    let wide = create(&cells[0], "wide", 7, true).await;
    create(&cells[0], "narrow", 3, false).await;
    follow(&cells).await;
    assert_eq!(homes(&cells, "narrow"), [0, 0, 0]);
    let before = homes(&cells, "wide");
    for cell in 0..COUNT {
        assert!(
            before.iter().filter(|home| **home == cell).count() >= 2,
            "{before:?}"
        );
    }
    for total in [8, 13] {
        cells[0].grow_topic(wide.id, total).await.unwrap();
    }
    follow(&cells).await;
    let after = homes(&cells, "wide");
    assert_eq!((after.len(), &after[..7]), (13, &before[..]));
}

#[tokio::test]
async fn changes_and_deletions_are_followed() {
    let cells = cells().await;
    let topic = create(&cells[0], "a", 4, true).await;
    create(&cells[0], "b", 1, false).await;
    follow(&cells).await;
    let altered = |settings: &TopicSettings| {
        Ok::<_, std::convert::Infallible>(TopicSettings {
            message_bytes_max: Some(77),
            spread: None,
            ..settings.clone()
        })
    };
    cells[0].catalog().alter(topic.id, altered).await.unwrap();
    follow(&cells).await;
    let followed = cells[2].topics().named("a").unwrap();
    assert_eq!(followed.settings.message_bytes_max, Some(77));
    assert_eq!(followed.settings.spread, Some(true), "it is for ever");

    // Another topic takes the name, and a third one is gone.
    cells[0].delete_topic(topic.id).await.unwrap();
    let again = create(&cells[0], "a", 2, true).await;
    let b = cells[0].topics().named("b").unwrap();
    cells[0].delete_topic(b.id).await.unwrap();
    follow(&cells).await;
    for cell in &cells {
        assert_eq!(cell.topics().named("a").unwrap().id, again.id);
        assert!(cell.topics().named("b").is_none());
        assert!(cell.topics().with_id(topic.id).is_none());
    }
    homes(&cells, "a");
}

#[tokio::test]
async fn topics_of_a_cell_alone_stay() {
    let cells = cells().await;
    create(&cells[1], "own", 2, false).await;
    create(&cells[0], "own", 3, false).await;
    create(&cells[0], "other", 1, false).await;
    follow(&cells).await;
    assert_eq!(cells[1].topics().named("own").unwrap().partitions(), 2);
    assert_eq!(cells[2].topics().named("own").unwrap().partitions(), 3);
    assert!(cells[1].topics().named("other").is_some());
}

#[tokio::test]
async fn a_copy_that_is_cut_is_refused() {
    let cells = cells().await;
    let without_topics = cells[0].copy_topics().1.len();
    create(&cells[0], "a", 4, true).await;
    let (_, copy) = cells[0].copy_topics();
    for cut in (0..copy.len()).filter(|cut| *cut != without_topics) {
        let followed = cells[1].follow_topics(&copy[..cut]).await;
        assert_eq!(followed, Err(FollowError::Malformed), "{cut}");
    }
    assert!(cells[1].topics().is_empty());
}

#[tokio::test]
async fn settings_of_all_brokers_are_followed() {
    let cells = cells().await;
    create(&cells[0], "a", 4, true).await;
    let mut changes = cells[0].topics().watch_changes();
    let bounded = |_: &TopicSettings| {
        Ok::<_, std::convert::Infallible>(TopicSettings {
            message_bytes_max: Some(77),
            ..TopicSettings::default()
        })
    };
    cells[0].alter_scope(Scope::Cluster, bounded).await.unwrap();
    assert!(changes.has_changed().unwrap(), "another copy is due");
    changes.mark_unchanged();
    follow(&cells).await;
    for cell in &cells {
        let topic = cell.topics().named("a").unwrap();
        assert_eq!(cell.catalog().rules(&topic).message_bytes_max, 77);
    }
    let none = |_: &TopicSettings| Ok::<_, std::convert::Infallible>(TopicSettings::default());
    cells[0].alter_scope(Scope::Cluster, none).await.unwrap();
    follow(&cells).await;
    assert!(cells.iter().all(|cell| cell.scopes().is_empty()));
}

#[tokio::test]
async fn settings_of_groups_follow_those_of_the_first_cell() {
    let [first, second, _] = cells().await;
    let set = |name: &str, bytes_max: Option<u32>| {
        let settings = TopicSettings {
            message_bytes_max: bytes_max,
            ..TopicSettings::default()
        };
        first.alter_scope(Scope::Group(name.into()), move |_| Ok::<_, ()>(settings))
    };
    let of = |broker: &Broker, name: &str| {
        broker
            .scoped_settings(&Scope::Group(name.into()))
            .message_bytes_max
    };
    let follow = || {
        let (_, copy) = first.copy_group_settings();
        for cut in 1..copy.len() {
            let cut = second.follow_group_settings(&copy[..cut]);
            assert!(matches!(cut, Ok(()) | Err(FollowError::Malformed)));
        }
        second.follow_group_settings(&copy).unwrap();
    };
    let changes = first.watch_group_settings();
    set("one", Some(1)).await.unwrap();
    set("two", Some(2)).await.unwrap();
    assert!(changes.has_changed().unwrap());
    follow();
    assert_eq!((of(&second, "one"), of(&second, "two")), (Some(1), Some(2)));
    set("one", None).await.unwrap();
    set("two", Some(3)).await.unwrap();
    follow();
    assert_eq!((of(&second, "one"), of(&second, "two")), (None, Some(3)));
}
