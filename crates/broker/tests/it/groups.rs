//! The registry of groups: passing time, expiring commits, and restarts.
//!
//! Time is Tokio's, paused: it advances when all tasks wait.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stafett_broker::{Broker, BrokerSettings};
use stafett_groups::classic::{Join, Leave, Sync};
use stafett_groups::{
    CommitSender, GroupError, GroupSettings, Groups, JoinError, JoinReply, NewCommit, Strategy,
};
use stafett_journal::{Journal, MemoryJournal};
use stafett_topics::{NewTopic, Topic, TopicId, TopicSettings};

thread_local! {
    static SET_BY_MS: Cell<i64> = const { Cell::new(0) };
}

/// Returns the system's clock as set by the test.
fn system_ms() -> i64 {
    stafett_store::wall_ms() + SET_BY_MS.get()
}

async fn start(journal: &Arc<MemoryJournal>, groups: GroupSettings) -> Arc<Broker> {
    let settings = BrokerSettings {
        groups,
        wall_clock: system_ms,
        ..BrokerSettings::default()
    };
    let journal: Arc<dyn Journal> = Arc::<MemoryJournal>::clone(journal);
    Arc::new(Broker::start(journal, settings).await.unwrap())
}

async fn create(broker: &Arc<Broker>, name: &str) -> Arc<Topic> {
    let new = NewTopic {
        name: name.into(),
        partitions: Some(3),
        settings: TopicSettings::default(),
    };
    broker.catalog().create(vec![new]).await.remove(0).unwrap()
}

fn join(id: &str) -> Join {
    Join {
        member: "".into(),
        new_id: id.into(),
        instance: None,
        client_id: "client".into(),
        client_host: "host".into(),
        purpose: "consumer".into(),
        strategies: vec![Strategy {
            name: "range".into(),
            metadata: Bytes::new(),
        }],
        session_ms: 10_000,
        rebalance_ms: 20_000,
        must_know_id: false,
        may_skip_assignment: false,
    }
}

async fn join_and_sync(groups: &Groups, group: &str, id: &str) -> Result<JoinReply, JoinError> {
    let joined = groups.join(group, join(id)).await?;
    let sync = Sync {
        member: id.into(),
        instance: None,
        generation: joined.generation,
        purpose: None,
        strategy: None,
        assignments: vec![(id.into(), Bytes::from_static(b"all"))],
    };
    assert_eq!(groups.sync(group, sync).await.unwrap().assignment, "all");
    Ok(joined)
}

async fn commit(groups: &Groups, group: &str, topic: TopicId, offset: i64) -> Result<(), GroupError> {
    let by = CommitSender {
        epoch: -1,
        ..CommitSender::default()
    };
    let commit = NewCommit {
        topic,
        partition: 1,
        offset,
        leader_epoch: 7,
        text: Some("text".into()),
    };
    Ok(groups.commit(group, &by, vec![commit])?.durable().await?)
}

fn committed(groups: &Groups, group: &str, topic: TopicId) -> Option<i64> {
    groups.with_group(group, |group| {
        group?.commits.get(topic, 1).map(|committed| committed.offset)
    })
}

fn state(groups: &Groups, group: &str) -> Option<&'static str> {
    groups.state(group).map(|state| state.name)
}

#[tokio::test]
async fn a_commit_of_nothing_makes_no_group() {
    let broker = start(&Arc::default(), GroupSettings::default()).await;
    let groups = broker.groups();
    let by = CommitSender {
        epoch: -1,
        ..CommitSender::default()
    };
    assert!(groups.commit("none", &by, Vec::new()).unwrap().is_nothing());
    assert_eq!(state(groups, "none"), None);
}

#[tokio::test(start_paused = true)]
async fn members_that_are_silent_are_given_up_in_time() {
    let broker = start(&Arc::default(), GroupSettings::default()).await;
    let groups = broker.groups();
    join_and_sync(groups, "quiet", "a").await.unwrap();
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(9)).await;
        groups.heartbeat("quiet", "a", None, 1).unwrap();
    }
    assert_eq!(state(groups, "quiet"), Some("stable"));
    tokio::time::sleep(Duration::from_millis(10_001)).await;
    assert_eq!(state(groups, "quiet"), Some("empty"));
}

#[tokio::test(start_paused = true)]
async fn members_come_back_after_a_restart_and_have_a_whole_session_to_do_so() {
    let journal = Arc::<MemoryJournal>::default();
    let broker = start(&journal, GroupSettings::default()).await;
    let topic = create(&broker, "t").await;
    join_and_sync(broker.groups(), "steady", "a").await.unwrap();
    commit(broker.groups(), "other", topic.id, 40).await.unwrap();
    tokio::time::sleep(Duration::from_secs(9)).await;
    broker.stop().await;
    drop(broker);
    let broker = start(&Arc::new(journal.reopen()), GroupSettings::default()).await;
    let groups = broker.groups();
    assert_eq!(groups.len(), 2);
    assert_eq!(committed(groups, "other", topic.id), Some(40));
    tokio::time::sleep(Duration::from_secs(9)).await;
    groups.heartbeat("steady", "a", None, 1).unwrap();
    tokio::time::sleep(Duration::from_millis(10_001)).await;
    assert_eq!(state(groups, "steady"), Some("empty"));
}

#[tokio::test(start_paused = true)]
async fn commits_expire_when_their_group_has_no_members() {
    let settings = GroupSettings {
        commit_retention: Some(Duration::ZERO),
        ..GroupSettings::default()
    };
    let journal = Arc::<MemoryJournal>::default();
    let broker = start(&journal, settings).await;
    let topic = create(&broker, "t").await;
    let groups = broker.groups();
    for group in ["simple", "lively"] {
        commit(groups, group, topic.id, 1).await.unwrap();
    }
    join_and_sync(groups, "lively", "a").await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(state(groups, "simple"), None);
    assert_eq!(committed(groups, "lively", topic.id), Some(1));
    let leave = Leave {
        member: "a".into(),
        instance: None,
    };
    groups.leave("lively", &[leave]).unwrap()[0].clone().unwrap();
    tokio::time::sleep(settings.sweep_every).await;
    assert!(groups.is_empty());
    broker.stop().await;
    drop(broker);
    assert!(
        start(&Arc::new(journal.reopen()), settings)
            .await
            .groups()
            .is_empty()
    );
}

/// One group never had members, one has lost its member, and one is of an earlier run.
#[tokio::test(start_paused = true)]
async fn commits_grow_old_with_time_and_not_by_a_clock_that_is_set() {
    const MONTHS_MS: i64 = 90 * 86_400_000;
    let settings = GroupSettings {
        sweep_every: Duration::from_mins(10),
        ..GroupSettings::default()
    };
    let retention = settings.commit_retention.unwrap();
    for by_ms in [MONTHS_MS, -MONTHS_MS] {
        let journal = Arc::<MemoryJournal>::default();
        let broker = start(&journal, settings).await;
        let topic = create(&broker, "t").await;
        commit(broker.groups(), "earlier", topic.id, 1).await.unwrap();
        broker.stop().await;
        drop(broker);
        let broker = start(&Arc::new(journal.reopen()), settings).await;
        let groups = broker.groups();
        commit(groups, "simple", topic.id, 2).await.unwrap();
        join_and_sync(groups, "left", "a").await.unwrap();
        let leave = Leave {
            member: "a".into(),
            instance: None,
        };
        groups.leave("left", &[leave]).unwrap()[0].clone().unwrap();
        commit(groups, "left", topic.id, 3).await.unwrap();
        let all = || ["earlier", "simple", "left"].map(|group| committed(groups, group, topic.id));
        SET_BY_MS.set(SET_BY_MS.get() + by_ms);
        let shortly_before = retention.checked_sub(Duration::from_mins(20)).unwrap();
        tokio::time::sleep(shortly_before).await;
        commit(groups, "later", topic.id, 4).await.unwrap();
        assert_eq!(all(), [Some(1), Some(2), Some(3)], "set by {by_ms} ms");
        tokio::time::sleep(Duration::from_mins(40)).await;
        assert_eq!(all(), [None; 3], "set by {by_ms} ms");
        assert_eq!(committed(groups, "later", topic.id), Some(4), "set by {by_ms} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn commits_of_a_deleted_topic_are_forgotten() {
    let journal = Arc::<MemoryJournal>::default();
    let broker = start(&journal, GroupSettings::default()).await;
    let (gone, kept) = (create(&broker, "gone").await, create(&broker, "kept").await);
    let groups = broker.groups();
    commit(groups, "both", gone.id, 1).await.unwrap();
    commit(groups, "both", kept.id, 2).await.unwrap();
    commit(groups, "only", gone.id, 3).await.unwrap();
    broker.delete_topic(gone.id).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(committed(groups, "both", gone.id), None);
    assert_eq!(committed(groups, "both", kept.id), Some(2));
    assert_eq!(state(groups, "only"), None, "nothing is left of it");
    broker.stop().await;
    drop(broker);
    let again = start(&Arc::new(journal.reopen()), GroupSettings::default()).await;
    assert_eq!(again.groups().len(), 1);
    assert_eq!(committed(again.groups(), "both", gone.id), None);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_in_a_join_is_given_up_like_any_other() {
    let broker = start(&Arc::default(), GroupSettings::default()).await;
    let groups = broker.groups();
    let gone = groups.join("left", join("a"));
    assert!(
        tokio::time::timeout(Duration::from_millis(10), gone)
            .await
            .is_err()
    );
    assert_eq!(state(groups, "left"), Some("preparing"));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(state(groups, "left"), Some("completing"));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(state(groups, "left"), Some("empty"));
}

#[tokio::test(start_paused = true)]
async fn there_are_bounds() {
    let settings = GroupSettings {
        groups_max: 2,
        name_bytes_max: 10,
        member_bytes_max: 1000,
        memory_bytes_max: 1000,
        ..GroupSettings::default()
    };
    let broker = start(&Arc::default(), settings).await;
    let topic = create(&broker, "t").await;
    let groups = broker.groups();
    commit(groups, "one", topic.id, 1).await.unwrap();
    commit(groups, "two", topic.id, 1).await.unwrap();
    commit(groups, "two", topic.id, 2).await.unwrap();
    assert_eq!(
        commit(groups, "three", topic.id, 1).await,
        Err(GroupError::TooManyGroups)
    );
    let named = commit(groups, "eleven bytes", topic.id, 1).await;
    assert_eq!(named, Err(GroupError::Name { bytes: 12, max: 10 }));
    let mut large = join("a");
    large.strategies[0].metadata = Bytes::from_static(&[0; 1000]);
    let refused = groups.join("one", large).await.unwrap_err();
    assert!(matches!(
        refused.error,
        GroupError::MemberTooLarge { max: 1000, .. }
    ));
    let mut joined = 0;
    for number in 0..10 {
        let mut large = join(&format!("member {number}"));
        large.strategies[0].metadata = Bytes::from_static(&[0; 100]);
        let joining = tokio::time::timeout(Duration::from_millis(1), groups.join("two", large));
        match joining.await {
            Ok(refused) => assert_eq!(refused.unwrap_err().error, GroupError::NoMemory),
            Err(_) => joined += 1,
        }
    }
    assert!(
        (1..=7).contains(&joined),
        "{joined} members of more than 100 bytes"
    );
    groups.delete("one").unwrap().durable().await.unwrap();
    assert_eq!(groups.delete("one").unwrap_err(), GroupError::NoSuchGroup);
    commit(groups, "three", topic.id, 1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_large_commit_comes_back_whole() {
    let journal = Arc::<MemoryJournal>::default();
    let broker = start(&journal, GroupSettings::default()).await;
    let mut commits = Vec::new();
    for number in 0..50_u32 {
        let topic = create(&broker, &format!("t{number}")).await;
        commits.extend((0..100).map(|partition| NewCommit {
            topic: topic.id,
            partition,
            offset: i64::from(number * 1000 + partition),
            leader_epoch: -1,
            text: None,
        }));
    }
    let by = CommitSender {
        epoch: -1,
        ..CommitSender::default()
    };
    let committing = broker.groups().commit("wide", &by, commits.clone()).unwrap();
    committing.durable().await.unwrap();
    broker.stop().await;
    drop(broker);
    let broker = start(&Arc::new(journal.reopen()), GroupSettings::default()).await;
    broker.groups().with_group("wide", |group| {
        let known = &group.unwrap().commits;
        assert_eq!(known.len(), commits.len());
        for commit in &commits {
            assert_eq!(
                known.get(commit.topic, commit.partition).unwrap().offset,
                commit.offset
            );
        }
    });
}
