//! Changes of definitions complete without a waiting caller, and survive a restart.

use std::convert::Infallible;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use stafett_broker::{Broker, BrokerSettings, Scope};
use stafett_journal::{
    Append, Change, DiskJournal, Frame, Journal, LogSpec, ManualJournal, MemoryJournal, Metrics, Outcome,
    Settings, StateChange, StateSpace, StateWait,
};
use stafett_model::Durability;
use stafett_topics::{
    AlterError, CreateError, DeleteError, GrowError, NewTopic, Topic, TopicId, TopicSettings,
};

fn settings() -> Settings {
    Settings {
        segment_bytes: 4 << 20,
        disk_free_bytes_min: 0,
        ..Settings::default()
    }
}

async fn start(folder: &Path) -> Arc<Broker> {
    let journal: Arc<dyn Journal> = Arc::new(DiskJournal::open(folder, settings(), Metrics::new()).unwrap());
    Arc::new(Broker::start(journal, BrokerSettings::default()).await.unwrap())
}

async fn stop(broker: Arc<Broker>) {
    broker.stop().await;
    drop(broker);
}

fn new(name: &str) -> NewTopic {
    NewTopic {
        name: name.into(),
        partitions: None,
        settings: TopicSettings::default(),
    }
}

async fn create(broker: &Arc<Broker>, name: &str) -> Result<Arc<Topic>, CreateError> {
    broker.catalog().create(vec![new(name)]).await.remove(0)
}

/// Begins some work, and drops it before it is done.
fn begin_and_leave(work: impl Future) {
    let mut work = pin!(work);
    let polled = work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "nothing is synced this quickly");
}

fn with_bytes(bytes: u32) -> impl Fn(&TopicSettings) -> Result<TopicSettings, Infallible> {
    move |before| {
        Ok(TopicSettings {
            message_bytes_max: Some(bytes),
            ..before.clone()
        })
    }
}

#[tokio::test]
async fn a_change_that_nobody_waits_for_any_more_goes_on_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let broker = start(folder.path()).await;
    begin_and_leave(create(&broker, "left"));
    assert_eq!(create(&broker, "left").await, Err(CreateError::Changing));
    broker.topics().settled("left").await;
    let topic = broker.topics().named("left").expect("it was created");
    assert_eq!(create(&broker, "left").await, Err(CreateError::Exists));

    begin_and_leave(broker.grow_topic(topic.id, 3));
    begin_and_leave(broker.catalog().alter(topic.id, with_bytes(77)));
    let topic = broker.grow_topic(topic.id, 5).await.unwrap();
    assert_eq!(
        topic.settings.message_bytes_max,
        Some(77),
        "they come in their order"
    );
    begin_and_leave(broker.alter_scope(Scope::Cluster, with_bytes(99)));

    create(&broker, "gone").await.unwrap();
    begin_and_leave(broker.delete_topic(broker.topics().named("gone").unwrap().id));
    broker.stop().await;
    assert_eq!(broker.catalog().defaults().message_bytes_max, 99);
    assert!(broker.topics().named("gone").is_none());
    assert!(!broker.topics().is_changing("gone"));
    stop(broker).await;

    let broker = start(folder.path()).await;
    let topic = broker.topics().named("left").unwrap();
    assert_eq!((topic.partitions(), broker.topics().len()), (5, 1));
    assert_eq!(broker.catalog().defaults().message_bytes_max, 99);
    assert_eq!(broker.catalog().rules(&topic).message_bytes_max, 77);
    stop(broker).await;
}

#[tokio::test]
async fn names_that_differ_only_in_dots_and_underscores_do_not_live_together() {
    let folder = tempfile::tempdir().unwrap();
    let broker = start(folder.path()).await;
    begin_and_leave(create(&broker, "a.b_c"));
    assert_eq!(create(&broker, "a_b.c").await, Err(CreateError::Changing));
    broker.topics().settled("a.b_c").await;
    let collides = Err(CreateError::Collides("a.b_c".into()));
    assert_eq!(create(&broker, "a_b.c").await, collides);
    assert_eq!(broker.catalog().check_all(&[new("a_b_c")]), [collides.map(drop)]);
    assert!(broker.topics().named("a_b_c").is_none());
    let topic = broker.topics().named("a.b_c").unwrap();
    broker.delete_topic(topic.id).await.unwrap();
    assert_eq!(broker.delete_topic(topic.id).await, Err(DeleteError::NoSuchTopic));
    create(&broker, "a_b_c").await.unwrap();
    stop(broker).await;
}

#[tokio::test]
async fn a_topic_grows_and_never_shrinks() {
    let folder = tempfile::tempdir().unwrap();
    let broker = start(folder.path()).await;
    let topic = create(&broker, "t").await.unwrap();
    create(&broker, "between").await.unwrap();
    let grown = broker.grow_topic(topic.id, 4).await.unwrap();
    assert_eq!(grown.log(0), topic.log(0));
    assert!((0..4).all(|partition| broker.catalog().bounds(grown.log(partition).unwrap()).is_some()));
    let refused = broker.grow_topic(topic.id, 4).await;
    assert_eq!(refused, Err(GrowError::NotMore { has: 4, wanted: 4 }));
    assert_eq!(
        broker.grow_topic(topic.id, 10_001).await,
        Err(GrowError::TooMany(10_001))
    );
    broker.delete_topic(topic.id).await.unwrap();
    assert_eq!(broker.grow_topic(topic.id, 9).await, Err(GrowError::NoSuchTopic));
    let altered = broker.catalog().alter(topic.id, with_bytes(1)).await;
    assert_eq!(altered, Err(AlterError::NoSuchTopic));
    stop(broker).await;
}

#[tokio::test]
async fn settings_of_a_scope_are_forgotten_with_the_last_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let broker = start(folder.path()).await;
    let group = Scope::Group("g".into());
    broker.alter_scope(group.clone(), with_bytes(5)).await.unwrap();
    broker.alter_scope(Scope::Broker, with_bytes(6)).await.unwrap();
    broker.alter_scope(Scope::Cluster, with_bytes(7)).await.unwrap();
    assert_eq!(broker.scopes(), [Scope::Cluster, Scope::Broker, group.clone()]);
    assert_eq!(
        broker.catalog().defaults().message_bytes_max,
        6,
        "the nearer one holds"
    );
    let nothing = |_: &TopicSettings| Ok::<_, Infallible>(TopicSettings::default());
    for scope in broker.scopes() {
        broker.alter_scope(scope, nothing).await.unwrap();
    }
    assert_eq!(broker.scopes(), []);
    assert_eq!(broker.catalog().defaults(), broker.base_settings());
    stop(broker).await;
    let broker = start(folder.path()).await;
    assert_eq!(broker.scopes(), []);
    stop(broker).await;
}

/// A deletion can be lost with a part of the journal. The topic that took the name since then keeps it, with
/// any id.
#[tokio::test]
async fn of_two_definitions_with_one_name_the_later_one_is_served_and_the_earlier_one_is_deleted() {
    for ids in [[1, 2], [2, 1]] {
        let folder = tempfile::tempdir().unwrap();
        let journal = DiskJournal::open(folder.path(), settings(), Metrics::new()).unwrap();
        let logs = ids.map(|_| journal.allocate(1));
        for (id, first) in ids.into_iter().zip(logs) {
            let topic = Topic::new(TopicId(id), "name".into(), first, 1, Arc::default());
            let put = StateChange {
                space: StateSpace(1),
                key: id.to_be_bytes().to_vec().into(),
                change: Change::Put(topic.encode().into()),
            };
            let create = Frame::CreateLogs {
                first,
                count: 1,
                spec: LogSpec::default(),
            };
            let append = Append::state([create, Frame::State(put)], StateWait::Synced);
            let outcomes = journal.append(vec![append]).await;
            assert!(matches!(outcomes[..], [Outcome::Committed(_)]));
        }
        drop(journal);
        let broker = start(folder.path()).await;
        let topic = broker.topics().named("name").unwrap();
        assert_eq!(topic.log(0), Some(logs[1]));
        broker.delete_topic(topic.id).await.unwrap();
        stop(broker).await;
        let journal = DiskJournal::open(folder.path(), settings(), Metrics::new()).unwrap();
        assert_eq!(logs.map(|log| journal.bounds(log)), [None, None]);
        drop(journal);
        let broker = start(folder.path()).await;
        assert!(broker.topics().named("name").is_none());
        stop(broker).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_is_created_while_settings_change_follows_them_once_there_is_space_to_store_that() {
    let journal = Arc::new(ManualJournal::default());
    let shared: Arc<dyn Journal> = Arc::<ManualJournal>::clone(&journal);
    let broker = Broker::start(shared, BrokerSettings::default()).await;
    let broker = Arc::new(broker.unwrap());
    let level = |settings: &TopicSettings| {
        Ok::<_, Infallible>(TopicSettings {
            durability: Some(Durability::Os),
            ..settings.clone()
        })
    };
    journal.hold();
    let decide = async {
        while journal.undecided() < 2 {
            tokio::task::yield_now().await;
        }
        // The settings first, with everything that follows from them.
        for _ in 0..100 {
            journal.commit(1);
            tokio::task::yield_now().await;
        }
        assert_eq!(broker.catalog().defaults().logs.durability, Durability::Os);
        journal.set_used_up(true);
        journal.commit(0);
    };
    let work = async {
        tokio::join!(
            create(&broker, "t"),
            broker.alter_scope(Scope::Cluster, level),
            decide
        )
    };
    let (created, altered, ()) = work.await;
    assert!(created.is_ok() && altered.is_ok());
    assert_eq!(journal.undecided(), 0, "refused");
    journal.set_used_up(false);
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert_eq!(journal.undecided(), 1, "tried again");
    journal.release();
    journal.commit(0);
}

#[tokio::test]
async fn a_topic_some_of_whose_logs_are_gone_can_be_deleted_and_made_again() {
    let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::new());
    let broker = Arc::new(
        Broker::start(Arc::clone(&journal), BrokerSettings::default())
            .await
            .unwrap(),
    );
    let wanted = || NewTopic {
        partitions: Some(5),
        ..new("t")
    };
    let topic = broker.catalog().create(vec![wanted()]).await.remove(0).unwrap();
    for partition in [0, 3] {
        let first = topic.log(partition).unwrap();
        let delete = Frame::DeleteLogs { first, count: 1 };
        journal
            .append(vec![Append::state([delete], StateWait::Written)])
            .await;
    }
    broker.delete_topic(topic.id).await.unwrap();
    for partition in 0..5 {
        assert_eq!(journal.bounds(topic.log(partition).unwrap()), None);
    }
    broker.catalog().create(vec![wanted()]).await.remove(0).unwrap();
}
