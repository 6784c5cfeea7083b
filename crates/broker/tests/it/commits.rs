//! Reading a group's commits returns exactly the stored ones, in whatever order the journal decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use stafett_broker::{Broker, BrokerSettings};
use stafett_groups::{CommitSender, CommitTicket, GroupError, Groups, NewCommit};
use stafett_journal::{Journal, ManualJournal, MemoryJournal};
use stafett_topics::{NewTopic, TopicId, TopicSettings};

const NOBODY: CommitSender<'static> = CommitSender {
    member: "",
    instance: None,
    epoch: -1,
    is_transactional: false,
};

struct World {
    behind: Arc<MemoryJournal>,
    journal: Arc<ManualJournal>,
    broker: Arc<Broker>,
    topic: TopicId,
}

impl World {
    /// Starts a broker with a topic, whose journal then decides on request only.
    async fn start() -> Self {
        let behind = Arc::<MemoryJournal>::default();
        let journal = Arc::new(ManualJournal::over(Arc::clone(&behind)));
        let broker = start(Arc::<ManualJournal>::clone(&journal)).await;
        let new = NewTopic {
            name: "t".into(),
            partitions: Some(3000),
            settings: TopicSettings::default(),
        };
        let topic = broker.catalog().create(vec![new]).await.remove(0).unwrap().id;
        journal.hold();
        Self {
            behind,
            journal,
            broker,
            topic,
        }
    }

    fn groups(&self) -> &Arc<Groups> {
        self.broker.groups()
    }

    fn commit(&self, partitions: &[u32], offset: i64) -> CommitTicket {
        let commit = |partition: &u32| NewCommit {
            topic: self.topic,
            partition: *partition,
            offset,
            leader_epoch: -1,
            text: None,
        };
        let commits = partitions.iter().map(commit).collect();
        self.groups().commit("g", &NOBODY, commits).unwrap()
    }

    fn forget(&self, partition: u32) -> CommitTicket {
        let places = [(self.topic, partition)];
        let all = |_: &_| Ok::<_, GroupError>(vec![true]);
        self.groups().delete_commits("g", &places, all).unwrap().1
    }

    fn committed(&self, partition: u32) -> Option<i64> {
        committed(self.groups(), self.topic, partition)
    }

    /// Returns the commits after a restart.
    async fn after_restart(self) -> BTreeMap<u32, i64> {
        let broker = start(Arc::new(self.behind.reopen())).await;
        broker.groups().with_group("g", |group| {
            let commits = group.map(|group| group.commits.of_topic(self.topic));
            let all = commits.unwrap_or_default().iter();
            all.map(|(partition, committed)| (*partition, committed.offset))
                .collect()
        })
    }
}

async fn start(journal: Arc<dyn Journal>) -> Arc<Broker> {
    Arc::new(Broker::start(journal, BrokerSettings::default()).await.unwrap())
}

fn committed(groups: &Groups, topic: TopicId, partition: u32) -> Option<i64> {
    groups.with_group("g", |group| {
        group?
            .commits
            .get(topic, partition)
            .map(|committed| committed.offset)
    })
}

#[tokio::test]
async fn a_commit_is_read_once_it_is_stored_and_not_before() {
    let world = World::start().await;
    let committing = world.commit(&[0], 7);
    assert_eq!(world.committed(0), None);
    assert!(world.journal.commit(0));
    assert_eq!(world.committed(0), Some(7));
    committing.durable().await.unwrap();
}

#[tokio::test]
async fn a_refused_commit_was_never_there() {
    let world = World::start().await;
    let first = world.commit(&[0], 7);
    assert!(world.journal.commit(0));
    first.durable().await.unwrap();
    let refused = world.commit(&[0, 1], 8);
    assert!(world.journal.refuse(0));
    assert_eq!((world.committed(0), world.committed(1)), (Some(7), None));
    refused.durable().await.unwrap_err();
    assert_eq!(world.after_restart().await, BTreeMap::from([(0, 7)]));
}

#[tokio::test]
async fn of_overlapping_commits_the_last_that_is_stored_counts() {
    let world = World::start().await;
    let all = [
        world.commit(&[0, 1], 1),
        world.commit(&[0], 2),
        world.commit(&[0, 2], 3),
    ];
    assert!(world.journal.refuse(2));
    assert_eq!(world.committed(0), None);
    assert!(world.journal.commit(0));
    assert_eq!(world.committed(0), Some(1));
    assert!(world.journal.commit(0));
    assert_eq!(
        (world.committed(0), world.committed(1), world.committed(2)),
        (Some(2), Some(1), None)
    );
    drop(all);
}

#[tokio::test]
async fn a_commit_whose_client_went_away_is_read_all_the_same() {
    let world = World::start().await;
    drop(world.commit(&[0], 7));
    assert!(world.journal.commit(0));
    assert_eq!(world.committed(0), Some(7));
}

#[tokio::test]
async fn a_refused_deletion_leaves_the_commit_where_it_is() {
    let world = World::start().await;
    drop(world.commit(&[0], 7));
    assert!(world.journal.commit(0));
    let deleting = world.forget(0);
    assert_eq!(world.committed(0), Some(7));
    assert!(world.journal.refuse(0));
    deleting.durable().await.unwrap_err();
    assert_eq!(world.committed(0), Some(7));
    drop(world.forget(0));
    assert!(world.journal.commit(0));
    assert_eq!(world.committed(0), None);
}

#[tokio::test]
async fn a_group_deleted_behind_a_commit_on_its_way_stays_deleted() {
    let world = World::start().await;
    drop(world.commit(&[0], 7));
    let deleted = world.groups().delete("g").unwrap();
    assert!(world.groups().state("g").is_none());
    assert!(world.journal.commit(0) && world.journal.commit(0));
    deleted.durable().await.unwrap();
    assert!(world.groups().state("g").is_none());
    assert_eq!(world.after_restart().await, BTreeMap::new());
}

#[tokio::test]
async fn a_group_whose_deletion_is_refused_stays() {
    let world = World::start().await;
    drop(world.commit(&[0], 7));
    assert!(world.journal.commit(0));
    world.behind.close();
    let broker = &world.broker;
    // From here on the journal refuses everything at once.
    world.journal.release();
    broker.groups().delete("g").unwrap().durable().await.unwrap_err();
    assert_eq!(world.committed(0), Some(7));
}

#[tokio::test]
async fn a_group_whose_deletion_is_refused_later_comes_back() {
    let world = World::start().await;
    drop(world.commit(&[0, 1], 7));
    assert!(world.journal.commit(0));
    let deletion = world.groups().delete("g").unwrap();
    assert!(world.groups().state("g").is_none());
    assert!(world.journal.refuse(0));
    deletion.durable().await.unwrap_err();
    assert_eq!((world.committed(0), world.committed(1)), (Some(7), Some(7)));

    // Also into a new group of the same name, whose own commits win, and without a waiting caller.
    let deletion = world.groups().delete("g").unwrap();
    drop(world.commit(&[1, 2], 8));
    assert!(world.journal.commit(1) && world.journal.refuse(0));
    deletion.durable().await.unwrap_err();
    let committed = [0, 1, 2].map(|partition| world.committed(partition));
    assert_eq!(committed, [Some(7), Some(8), Some(8)]);
    let expected = BTreeMap::from([(0, 7), (1, 8), (2, 8)]);
    assert_eq!(world.after_restart().await, expected);
}

#[tokio::test]
async fn of_a_large_commit_each_part_is_there_if_it_was_acknowledged() {
    let world = World::start().await;
    let partitions: Vec<u32> = (0..2500).collect();
    let committing = world.commit(&partitions, 9);
    assert_eq!(world.journal.undecided(), 3);
    assert!(world.journal.commit(0) && world.journal.refuse(0) && world.journal.commit(0));
    let parts: Vec<bool> = committing.parts().await.iter().map(Result::is_ok).collect();
    assert_eq!(parts, [true, false, true]);
    assert_eq!(
        [0, 999, 1000, 1999, 2000, 2499].map(|partition| world.committed(partition)),
        [Some(9), Some(9), None, None, Some(9), Some(9)]
    );
    assert_eq!(world.after_restart().await.len(), 1500);
}

#[derive(Debug, Clone)]
enum Act {
    Commit(Vec<u32>),
    Forget(u32),
    Store(usize),
    Refuse(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        prop::collection::vec(0_u32..4, 1..4).prop_map(Act::Commit),
        (0_u32..4).prop_map(Act::Forget),
        (0_usize..3).prop_map(Act::Store),
        (0_usize..3).prop_map(Act::Refuse),
    ];
    prop::collection::vec(act, 1..40)
}

/// Staged changes: the number of the act, and the new offset of each partition.
type Model = Vec<(usize, Vec<(u32, Option<i64>)>)>;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_read_is_the_last_that_was_staged_of_what_is_stored(acts in acts()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let world = World::start().await;
            drop(world.commit(&[0], -5));
            assert!(world.journal.commit(0));
            let mut waiting: Model = Vec::new();
            let mut stored: Model = vec![(0, vec![(0, Some(-5))])];
            for (now, act) in (1..).zip(acts) {
                match act {
                    Act::Commit(partitions) => {
                        let offset = i64::try_from(now).unwrap();
                        drop(world.commit(&partitions, offset));
                        waiting.push((now, partitions.iter().map(|place| (*place, Some(offset))).collect()));
                    }
                    Act::Forget(partition) => {
                        let before = world.journal.undecided();
                        drop(world.forget(partition));
                        if world.journal.undecided() > before {
                            waiting.push((now, vec![(partition, None)]));
                        }
                    }
                    Act::Store(behind) => {
                        if world.journal.commit(behind) {
                            stored.push(waiting.remove(behind));
                        }
                    }
                    Act::Refuse(behind) => {
                        if world.journal.refuse(behind) {
                            waiting.remove(behind);
                        }
                    }
                }
                stored.sort();
                for partition in 0..4 {
                    let mut changes = stored.iter().flat_map(|(_, changes)| changes);
                    let last = changes.rfind(|(place, _)| *place == partition);
                    assert_eq!(world.committed(partition), last.and_then(|(_, offset)| *offset));
                }
            }
        });
    }
}
