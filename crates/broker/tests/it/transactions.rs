//! Transactions over topics and groups: whole or not at all.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use stafett_broker::{Broker, BrokerSettings};
use stafett_groups::{CommitSender, NewCommit};
use stafett_journal::simulated::SimulatedDisk;
use stafett_journal::{Append, Journal, MemoryJournal, Outcome};
use stafett_model::{BatchBuilder, Codec, Durability, LogId, Offset, ProducerId, Record, TransactionEnd};
use stafett_topics::{Batches, LogRead, NewTopic, Topic, TopicSettings, Visibility};
use stafett_transactions::{Instance, Parts, Status, TransactionError, Transactions};

use crate::simulated::{losing_power_at, on_disk};

pub(crate) const NOBODY: CommitSender<'static> = CommitSender {
    member: "",
    instance: None,
    epoch: -1,
    is_transactional: true,
};
pub(crate) const TIMEOUT_MS: i32 = 60_000;

pub(crate) fn batch(instance: Instance, sequence: i32, text: &str) -> bytes::Bytes {
    let mut batch = BatchBuilder::new(Codec::None)
        .producer(instance.producer, instance.epoch, sequence)
        .transactional();
    let record = Record {
        key: None,
        value: Some(text.as_bytes()),
        headers: &[],
        timestamp: 5,
    };
    batch.push(&record).unwrap();
    batch.finish().unwrap()
}

pub(crate) async fn topic(broker: &Broker, name: &str, partitions: u32) -> Option<Arc<Topic>> {
    if let Some(topic) = broker.topics().named(name) {
        return Some(topic);
    }
    let new = NewTopic {
        name: name.into(),
        partitions: Some(partitions),
        settings: TopicSettings {
            durability: Some(Durability::Sync),
            ..TopicSettings::default()
        },
    };
    broker.catalog().create(vec![new]).await.remove(0).ok()
}

pub(crate) fn logs(topic: &Topic) -> Vec<LogId> {
    (0..topic.partitions()).map(|n| topic.log(n).unwrap()).collect()
}

/// Returns the records of a log that count, as readers of topics see them.
pub(crate) async fn committed(broker: &Broker, log: LogId) -> Vec<String> {
    let (mut from, mut found) = (Offset::ZERO, Vec::new());
    loop {
        let read = broker
            .catalog()
            .read_log(log, from, 1 << 20, Visibility::Committed);
        let run = match read.finish().await {
            LogRead::Batches(run) => run,
            LogRead::Skip(skipped) => {
                from = skipped.to;
                continue;
            }
            LogRead::End(_) => return found,
        };
        from = run.next;
        let mut batches = Batches::of(run);
        while let Some(records) = batches.next_records(1 << 20) {
            for record in records {
                let value = record.unwrap().value.unwrap();
                found.push(String::from_utf8(value.to_vec()).unwrap());
            }
        }
    }
}

pub(crate) fn committed_offset(broker: &Broker, group: &str, topic: &Topic) -> Option<i64> {
    broker
        .groups()
        .with_group(group, |group| Some(group?.commits.get(topic.id, 0)?.offset))
}

pub(crate) fn commit_of(topic: &Topic, offset: i64) -> Vec<NewCommit> {
    vec![NewCommit {
        topic: topic.id,
        partition: 0,
        offset,
        leader_epoch: -1,
        text: None,
    }]
}

pub(crate) async fn in_memory() -> (Arc<MemoryJournal>, Arc<Broker>) {
    let journal = Arc::<MemoryJournal>::default();
    let broker = start(&journal).await;
    (journal, broker)
}

pub(crate) async fn start(journal: &Arc<MemoryJournal>) -> Arc<Broker> {
    let journal = Arc::<MemoryJournal>::clone(journal) as Arc<dyn Journal>;
    Arc::new(Broker::start(journal, BrokerSettings::default()).await.unwrap())
}

/// A producer in the middle of a transaction: `sent` in each partition of the topic `t`.
async fn sending(broker: &Broker, id: &str, sent: &str) -> (Arc<Topic>, Instance) {
    let topic = topic(broker, "t", 2).await.unwrap();
    let transactions = broker.transactions();
    let instance = transactions.begin_producer(id, TIMEOUT_MS, None).await.unwrap();
    send(broker, id, instance, 0, &topic, sent).await;
    (topic, instance)
}

async fn send(broker: &Broker, id: &str, instance: Instance, sequence: i32, topic: &Topic, text: &str) {
    let logs = logs(topic);
    let appends = logs
        .iter()
        .map(|log| Append::batch(*log, batch(instance, sequence, text)));
    let ticket = broker
        .transactions()
        .append(id, instance, true, &logs, appends.collect())
        .unwrap();
    for outcome in ticket.await {
        assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn records_and_commits_count_from_the_end_of_their_transaction_on() {
    let (_, broker) = in_memory().await;
    let transactions = broker.transactions();
    for end in [TransactionEnd::Abort, TransactionEnd::Commit] {
        let (topic, instance) = sending(&broker, "id", "x").await;
        let pending = commit_of(&topic, 7);
        transactions
            .commit_offsets("id", instance, true, ("g", &NOBODY), pending)
            .await
            .unwrap();
        let log = logs(&topic)[1];
        assert!(committed(&broker, log).await.is_empty());
        assert_eq!(committed_offset(&broker, "g", &topic), None);
        assert!(transactions.pending_commits("g").contains(&(topic.id, 0)));
        transactions.end("id", instance, end, true).await.unwrap();
        assert!(transactions.pending_commits("g").is_empty());
        let counts = end == TransactionEnd::Commit;
        assert_eq!(committed(&broker, log).await.len(), usize::from(counts));
        assert_eq!(committed_offset(&broker, "g", &topic), counts.then_some(7));
    }
}

#[tokio::test(start_paused = true)]
async fn a_later_instance_aborts_what_the_one_before_left_open() {
    let (_, broker) = in_memory().await;
    let (topic, first) = sending(&broker, "id", "zombie").await;
    let transactions = broker.transactions();
    let second = transactions.begin_producer("id", TIMEOUT_MS, None).await.unwrap();
    assert_eq!((second.producer, second.epoch), (first.producer, first.epoch + 1));
    let log = logs(&topic)[0];
    let late = vec![Append::batch(log, batch(first, 1, "late"))];
    assert_eq!(
        transactions.append("id", first, true, &[log], late).unwrap_err(),
        TransactionError::Fenced
    );
    assert_eq!(
        transactions.end("id", first, TransactionEnd::Commit, true).await,
        Err(TransactionError::Fenced)
    );
    // Past the transactional id, the log itself refuses the earlier epoch.
    let outcome = broker
        .catalog()
        .append(vec![Append::batch(log, batch(first, 1, "late"))])
        .await;
    assert!(matches!(outcome[0], Outcome::Refused(_)), "{outcome:?}");
    send(&broker, "id", second, 0, &topic, "living").await;
    transactions
        .end("id", second, TransactionEnd::Commit, false)
        .await
        .unwrap();
    assert_eq!(committed(&broker, log).await, ["living"]);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() {
    let (_, broker) = in_memory().await;
    let (topic, instance) = sending(&broker, "slow", "x").await;
    let transactions = broker.transactions();
    tokio::time::sleep(Duration::from_secs(58)).await;
    assert_eq!(transactions.describe("slow").unwrap().status, Status::Ongoing);
    tokio::time::sleep(Duration::from_secs(4)).await;
    let status = transactions.describe("slow").unwrap().status;
    assert_eq!(status, Status::Ended(TransactionEnd::Abort));
    assert_eq!(
        transactions
            .end("slow", instance, TransactionEnd::Commit, false)
            .await,
        Err(TransactionError::Fenced)
    );
    assert!(committed(&broker, logs(&topic)[0]).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_open_transaction_goes_on_after_a_restart() {
    let (journal, broker) = in_memory().await;
    let (topic, instance) = sending(&broker, "id", "x").await;
    let commits = commit_of(&topic, 9);
    let transactions = broker.transactions();
    transactions
        .commit_offsets("id", instance, true, ("g", &NOBODY), commits)
        .await
        .unwrap();
    broker.stop().await;
    drop(broker);
    let broker = start(&Arc::new(journal.reopen())).await;
    let transactions = broker.transactions();
    let found = transactions.describe("id").unwrap();
    assert_eq!((found.status, found.instance), (Status::Ongoing, instance));
    assert_eq!(found.logs.into_iter().collect::<Vec<_>>(), logs(&topic));
    send(&broker, "id", instance, 1, &topic, "y").await;
    transactions
        .end("id", instance, TransactionEnd::Commit, false)
        .await
        .unwrap();
    assert_eq!(committed(&broker, logs(&topic)[1]).await, ["x", "y"]);
    assert_eq!(committed_offset(&broker, "g", &topic), Some(9));
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_is_asked_for_again_is_the_same_until_it_is_used() {
    let (journal, broker) = in_memory().await;
    let topic = topic(&broker, "t", 1).await.unwrap();
    let transactions = broker.transactions();
    let first = transactions.begin_producer("id", TIMEOUT_MS, None).await.unwrap();
    let again = |transactions: Arc<Transactions>, given| async move {
        transactions.begin_producer("id", TIMEOUT_MS, Some(given)).await
    };
    let second = Instance {
        epoch: first.epoch + 1,
        ..first
    };
    for _ in 0..2 {
        let begun = again(Arc::clone(transactions), first).await;
        assert_eq!(begun, Ok(second));
    }
    broker.stop().await;
    drop(broker);
    let broker = start(&Arc::new(journal.reopen())).await;
    let transactions = broker.transactions();
    assert_eq!(again(Arc::clone(transactions), first).await, Ok(second));
    send(&broker, "id", second, 0, &topic, "x").await;
    let late = again(Arc::clone(transactions), first).await;
    assert_eq!(late, Err(TransactionError::Fenced));
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_is_deleted_meanwhile_keeps_no_transaction_from_its_end() {
    let (_, broker) = in_memory().await;
    let (gone, instance) = sending(&broker, "id", "x").await;
    let kept = topic(&broker, "kept", 1).await.unwrap();
    send(&broker, "id", instance, 0, &kept, "x").await;
    broker.delete_topic(gone.id).await.unwrap();
    let transactions = broker.transactions();
    transactions
        .end("id", instance, TransactionEnd::Commit, true)
        .await
        .unwrap();
    assert_eq!(committed(&broker, logs(&kept)[0]).await, ["x"]);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_whose_id_is_lost_holds_nothing_up() {
    let (_, broker) = in_memory().await;
    let topic = topic(&broker, "t", 1).await.unwrap();
    let instance = Instance {
        producer: ProducerId(77),
        epoch: 3,
    };
    let log = logs(&topic)[0];
    broker
        .catalog()
        .append(vec![Append::batch(log, batch(instance, 0, "lost"))])
        .await;
    assert_eq!(broker.catalog().bounds(log).unwrap().stable, Offset(0));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let bounds = broker.catalog().bounds(log).unwrap();
    assert_eq!((bounds.stable, bounds.end), (Offset(2), Offset(2)));
    assert!(committed(&broker, log).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn steps_without_a_transaction_or_with_wrong_names_are_refused() {
    use TransactionError::{Busy, Fenced, Id, NoTransaction, NotAdded, Timeout, UnknownProducer};
    let (_, broker) = in_memory().await;
    let transactions = broker.transactions();
    for timeout in [0, -1, 900_001] {
        let refused = transactions.begin_producer("id", timeout, None).await;
        assert_eq!(refused, Err(Timeout { max_ms: 900_000 }));
    }
    let long = "x".repeat(2000);
    for id in ["", &long] {
        let refused = transactions.begin_producer(id, TIMEOUT_MS, None).await;
        assert_eq!(refused, Err(Id { max: 1024 }));
    }
    let given = Instance {
        producer: ProducerId(1 << 40),
        epoch: 0,
    };
    let instance = transactions
        .begin_producer("id", TIMEOUT_MS, Some(given))
        .await
        .unwrap();
    assert_ne!(instance, given);
    let refused = transactions.begin_producer("id", TIMEOUT_MS, Some(given)).await;
    assert_eq!(refused, Err(Fenced));
    let added = transactions.add_parts("id", given, Parts::default()).await;
    assert_eq!(added, Err(UnknownProducer));
    let later = instance.epoch + 1;
    let later = Instance {
        epoch: later,
        ..instance
    };
    let added = transactions.add_parts("id", later, Parts::default()).await;
    assert_eq!(added, Err(Fenced));
    for (bumps, expected) in [(false, NoTransaction), (true, Busy), (true, NoTransaction)] {
        let refused = transactions
            .end("id", instance, TransactionEnd::Commit, bumps)
            .await;
        assert_eq!(refused, Err(expected));
    }
    let topic = topic(&broker, "t", 2).await.unwrap();
    let [one, other] = logs(&topic)[..] else {
        panic!("there are two");
    };
    let parts = Parts::of_logs([one]);
    transactions.add_parts("id", instance, parts).await.unwrap();
    let append = || vec![Append::batch(other, batch(instance, 0, "x"))];
    let refused = transactions.append("id", instance, false, &[other], append());
    assert_eq!(refused.unwrap_err(), NotAdded);
    assert!(
        transactions
            .append("id", instance, true, &[other], append())
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn a_transaction_has_a_bounded_number_of_groups() {
    let (_, broker) = in_memory().await;
    let (_, instance) = sending(&broker, "id", "x").await;
    let transactions = broker.transactions();
    let max = 10_000;
    for number in 0..max {
        let group = number.to_string();
        assert_eq!(transactions.add_group("id", instance, &group), Ok(()));
    }
    let refused = Err(TransactionError::TooManyCommits { max });
    assert_eq!(transactions.add_group("id", instance, "another"), refused);
    assert_eq!(transactions.add_group("id", instance, "7"), Ok(()));
    let ended = transactions
        .end("id", instance, TransactionEnd::Commit, true)
        .await;
    let next = ended.unwrap();
    assert_eq!(transactions.add_group("id", next, "another"), Ok(()));
}

/// Outcomes of transactions by number, and whether the client got the answer.
type Told = BTreeMap<i64, (TransactionEnd, bool)>;

/// Sends transactions 0, 1, 2, … of a record in each of two partitions and a commit of the number plus one;
/// every third one is aborted.
async fn run_transactions(broker: &Arc<Broker>, told: &RefCell<Told>) -> Option<()> {
    let topic = topic(broker, "t", 2).await?;
    let transactions = broker.transactions();
    let mut instance = transactions.begin_producer("id", TIMEOUT_MS, None).await.ok()?;
    let mut sequence = 0;
    for number in 0..6 {
        let end = if number % 3 == 2 {
            TransactionEnd::Abort
        } else {
            TransactionEnd::Commit
        };
        told.borrow_mut().insert(number, (end, false));
        let logs = logs(&topic);
        let text = number.to_string();
        let appends = logs
            .iter()
            .map(|log| Append::batch(*log, batch(instance, sequence, &text)));
        let sent = transactions
            .append("id", instance, true, &logs, appends.collect())
            .ok()?;
        for outcome in sent.await {
            let Outcome::Committed(_) = outcome else {
                return None;
            };
        }
        let commits = commit_of(&topic, number + 1);
        let stored = transactions.commit_offsets("id", instance, true, ("g", &NOBODY), commits);
        stored.await.ok()?;
        let bumps = number % 2 == 1;
        let next = transactions.end("id", instance, end, bumps).await.ok()?;
        told.borrow_mut().insert(number, (end, true));
        sequence = if next == instance { sequence + 1 } else { 0 };
        instance = next;
    }
    Some(())
}

/// Compares records and commits with the client's outcomes, once every transaction has an end.
async fn check(broker: &Broker, told: &Told) -> Option<()> {
    let topic = topic(broker, "t", 2).await?;
    broker
        .transactions()
        .begin_producer("id", TIMEOUT_MS, None)
        .await
        .ok()?;
    assert_eq!(broker.catalog().open_transactions(), [], "{told:?}");
    let (one, other) = (topic.log(0)?, topic.log(1)?);
    let found = committed(broker, one).await;
    assert_eq!(found, committed(broker, other).await, "{told:?}");
    let mut last = None;
    let mut found = found.iter().map(|text| text.parse::<i64>().unwrap()).peekable();
    for (number, (end, is_told)) in told {
        let is_there = found.next_if_eq(number).is_some();
        match (end, is_told) {
            (TransactionEnd::Commit, true) => assert!(is_there, "{number}: {told:?}"),
            (TransactionEnd::Commit, false) => {}
            (TransactionEnd::Abort, _) => assert!(!is_there, "{number}: {told:?}"),
        }
        if is_there {
            last = Some(number + 1);
        }
    }
    assert_eq!(found.next(), None, "{told:?}");
    assert_eq!(committed_offset(broker, "g", &topic), last, "{told:?}");
    Some(())
}

#[test]
fn a_transaction_counts_whole_or_not_at_all_wherever_the_power_goes() {
    for change in 1.. {
        let disk: SimulatedDisk = losing_power_at(change);
        let told = RefCell::new(Told::new());
        let done = on_disk(&disk, 1, async |broker, _| run_transactions(broker, &told).await);
        let is_last = done.flatten().is_some();
        disk.lose_power(change);
        let told = told.into_inner();
        let checked = on_disk(&disk, 2, async |broker, _| check(broker, &told).await);
        assert_eq!(checked, Some(Some(())), "after change {change}");
        if is_last {
            assert!(change > 50, "{change}");
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_outside_of_the_open_transaction_of_its_producer_is_refused() {
    let (_, broker) = in_memory().await;
    let (topic, instance) = sending(&broker, "id", "x").await;
    let log = logs(&topic)[0];
    let foreign = |epoch: i16| {
        let mut batch = BatchBuilder::new(Codec::None).producer(instance.producer, epoch, 0);
        let record = Record {
            key: None,
            value: Some(b"foreign"),
            headers: &[],
            timestamp: 5,
        };
        batch.push(&record).unwrap();
        batch.finish().unwrap()
    };
    for epoch in [instance.epoch, instance.epoch + 5] {
        let sent = broker
            .catalog()
            .append(vec![Append::batch(log, foreign(epoch))])
            .await;
        assert!(matches!(sent[..], [Outcome::Refused(_)]), "{sent:?}");
    }
    // In a log that is added and not written to, nothing is known of the transaction: its end passes.
    let added = self::topic(&broker, "added", 1).await.unwrap();
    let log = logs(&added)[0];
    let transactions = broker.transactions();
    let parts = Parts::of_logs([log]);
    transactions.add_parts("id", instance, parts).await.unwrap();
    broker
        .catalog()
        .append(vec![Append::batch(log, foreign(instance.epoch + 5))])
        .await;
    transactions
        .end("id", instance, TransactionEnd::Commit, true)
        .await
        .unwrap();
    assert_eq!(committed(&broker, logs(&topic)[1]).await, ["x"]);
    assert!(broker.catalog().open_transactions().is_empty());
}

async fn pending(broker: &Broker, id: &str, instance: Instance, commits: Vec<NewCommit>) {
    let sent = broker
        .transactions()
        .commit_offsets(id, instance, true, ("g", &NOBODY), commits);
    sent.await.unwrap();
}

async fn plain(broker: &Broker, commits: Vec<NewCommit>) {
    let sent = broker.groups().commit("g", &NOBODY, commits).unwrap();
    sent.durable().await.unwrap();
}

/// Two transactions that are ended in the other order than their commits came, and commits outside of them;
/// the clock stands still or goes back. Starts anew before each end if asked to.
async fn commits_in_turn(restarts: bool) {
    let (mut journal, mut broker) = in_memory().await;
    let (topic, one) = sending(&broker, "one", "x").await;
    let transactions = broker.transactions();
    let two = transactions
        .begin_producer("two", TIMEOUT_MS, None)
        .await
        .unwrap();
    let of = |partition: u32, offset: i64| -> Vec<NewCommit> {
        let commits = commit_of(&topic, offset).into_iter();
        commits.map(|commit| NewCommit { partition, ..commit }).collect()
    };
    plain(&broker, of(1, 1)).await;
    pending(&broker, "one", one, [of(0, 2), of(1, 3)].concat()).await;
    plain(&broker, of(0, 4)).await;
    pending(&broker, "two", two, of(1, 5)).await;
    for (id, instance) in [("two", two), ("one", one)] {
        if restarts {
            broker.stop().await;
            journal = Arc::new(journal.reopen());
            broker = start(&journal).await;
        }
        let ended = broker
            .transactions()
            .end(id, instance, TransactionEnd::Commit, true);
        ended.await.unwrap();
    }
    let offset = |partition| {
        let of = |group: Option<&stafett_groups::Group>| group?.commits.get(topic.id, partition).cloned();
        broker.groups().with_group("g", of).map(|found| found.offset)
    };
    assert_eq!((offset(0), offset(1)), (Some(4), Some(5)), "restarts: {restarts}");
}

#[tokio::test(start_paused = true)]
async fn the_later_of_two_commits_of_a_partition_counts_whenever_their_transactions_end() {
    for restarts in [false, true] {
        commits_in_turn(restarts).await;
    }
}

/// Deletes a group, or its offset of partition 0, between commits of a transaction and its end.
async fn deletion_before_the_end(whole: bool, has_others: bool, restarts: bool) {
    let (mut journal, mut broker) = in_memory().await;
    let topic = topic(&broker, "t", 2).await.unwrap();
    let transactions = broker.transactions();
    let instance = transactions.begin_producer("id", TIMEOUT_MS, None).await.unwrap();
    if has_others {
        plain(&broker, commit_of(&topic, 1)).await;
    }
    pending(&broker, "id", instance, commit_of(&topic, 2)).await;
    if whole {
        let deleted = transactions.delete_group("g").unwrap();
        deleted.durable().await.unwrap();
    } else {
        let all = |_: &_| Ok(vec![true]);
        let deleted = transactions.delete_commits("g", &[(topic.id, 0)], all);
        deleted.unwrap().1.durable().await.unwrap();
    }
    assert!(transactions.pending_commits("g").is_empty());
    if restarts {
        broker.stop().await;
        journal = Arc::new(journal.reopen());
        broker = start(&journal).await;
    }
    let transactions = broker.transactions();
    assert_eq!(transactions.describe("id").unwrap().status, Status::Ongoing);
    let ended = transactions.end("id", instance, TransactionEnd::Commit, true);
    ended.await.unwrap();
    assert_eq!(committed_offset(&broker, "g", &topic), None);
    if whole {
        let again = transactions.delete_group("g").err();
        assert_eq!(again, Some(stafett_groups::GroupError::NoSuchGroup));
    }
}

#[tokio::test(start_paused = true)]
async fn commits_that_wait_go_with_their_group_and_with_their_offset() {
    for case in 0..8 {
        deletion_before_the_end(case & 1 > 0, case & 2 > 0, case & 4 > 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_commits_of_the_deleted_group_and_partition_are_withdrawn() {
    let (_, broker) = in_memory().await;
    let (topic, instance) = sending(&broker, "id", "x").await;
    let other = NewCommit {
        partition: 1,
        ..commit_of(&topic, 3).remove(0)
    };
    pending(
        &broker,
        "id",
        instance,
        vec![commit_of(&topic, 2).remove(0), other],
    )
    .await;
    let transactions = broker.transactions();
    let second = transactions.commit_offsets("id", instance, true, ("h", &NOBODY), commit_of(&topic, 4));
    second.await.unwrap();
    let all = |_: &_| Ok(vec![true]);
    let deleted = transactions.delete_commits("g", &[(topic.id, 0)], all);
    deleted.unwrap().1.durable().await.unwrap();
    pending(&broker, "id", instance, commit_of(&topic, 5)).await;
    let deleted = transactions.delete_group("nobody's").err();
    assert_eq!(deleted, Some(stafett_groups::GroupError::NoSuchGroup));
    let ended = transactions.end("id", instance, TransactionEnd::Commit, true);
    ended.await.unwrap();
    assert_eq!(committed_offset(&broker, "g", &topic), Some(5));
    assert_eq!(committed_offset(&broker, "h", &topic), Some(4));
    assert!(transactions.pending_commits("g").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_look_at_open_transactions_does_not_depend_on_the_number_of_ids() {
    let (_, broker) = in_memory().await;
    let topic = topic(&broker, "t", 1).await.unwrap();
    let transactions = broker.transactions();
    for number in 0..1000 {
        let id = format!("idle-{number}");
        transactions.begin_producer(&id, TIMEOUT_MS, None).await.unwrap();
    }
    for _ in 0..2 {
        let instance = transactions.begin_producer("id", TIMEOUT_MS, None).await.unwrap();
        pending(&broker, "id", instance, commit_of(&topic, 2)).await;
        let look = || assert_eq!(transactions.pending_commits("g").len(), 1);
        let counted = allocation_counter::measure(look);
        assert!(counted.bytes_total < 4096, "{counted:?}");
        let ended = transactions.end("id", instance, TransactionEnd::Commit, true);
        ended.await.unwrap();
        assert!(transactions.pending_commits("g").is_empty());
    }
}
