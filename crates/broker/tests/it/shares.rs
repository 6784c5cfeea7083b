//! Places of share groups: those that are answered as stored are stored.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use stafett_broker::{Broker, BrokerSettings};
use stafett_journal::simulated::SimulatedDisk;
use stafett_journal::{Append, ManualJournal, MemoryJournal, Outcome, Refusal};
use stafett_model::{BatchBuilder, Codec, Offset, Record};
use stafett_shares::{AcknowledgeKind, Acknowledgement, Acquire, Acquired, Place, PlaceStart, ShareRules};
use stafett_store::NotStored;
use stafett_topics::{LogRead, NewTopic, Topic, TopicSettings, Visibility};

use crate::simulated::{losing_power_at, on_disk};

const RULES: ShareRules = ShareRules {
    lock_ms: 30_000,
    deliveries_max: 5,
    locks_max: 100,
    visibility: Visibility::Stored,
};

/// Creates a topic with records; `None` if the disk is gone.
async fn topic_if_stored(broker: &Broker, records: u64) -> Option<Arc<Topic>> {
    let new = NewTopic {
        name: "t".into(),
        partitions: Some(1),
        settings: TopicSettings::default(),
    };
    let topic = broker.catalog().create(vec![new]).await.remove(0).ok()?;
    let mut batch = BatchBuilder::new(Codec::None);
    for _ in 0..records {
        let record = Record {
            key: None,
            value: Some(b"v"),
            headers: &[],
            timestamp: 5,
        };
        batch.push(&record).unwrap();
    }
    let append = Append::batch(topic.log(0)?, batch.finish().unwrap());
    let appended = broker.catalog().append(vec![append]).await;
    matches!(appended[..], [Outcome::Committed(_)]).then_some(topic)
}

async fn topic(broker: &Broker, records: u64) -> Arc<Topic> {
    topic_if_stored(broker, records).await.unwrap()
}

/// Acquires what there is.
async fn acquire(broker: &Broker, topic: &Topic, place: &Arc<Place>) -> Acquired {
    let log = topic.log(0).unwrap();
    let from = place.next_offset(0, &RULES).unwrap();
    let read = broker
        .catalog()
        .read_log(log, from, 1 << 20, Visibility::Committed);
    let read = match read.finish().await {
        LogRead::Batches(slice) => Some(slice),
        LogRead::Skip(_) | LogRead::End(_) => None,
    };
    let wanted = Acquire {
        member: "one".into(),
        records_max: 100,
        is_exact: true,
        range_records: 100,
    };
    place.acquire(0, from, read.unwrap(), &RULES, &wanted)
}

fn accept(place: &Arc<Place>, offset: u64) {
    let one = Acknowledgement {
        offsets: offset..=offset,
        kinds: vec![AcknowledgeKind::Accept],
    };
    place.acknowledge(0, "one", &RULES, &[one]).unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_for_which_there_is_no_space_is_not_told_as_stored() {
    for has_space_again in [false, true] {
        let behind = Arc::new(MemoryJournal::new());
        let journal = Arc::new(ManualJournal::over(Arc::clone(&behind)));
        let broker = Broker::start(Arc::<ManualJournal>::clone(&journal), BrokerSettings::default()).await;
        let broker = broker.unwrap();
        let topic = topic(&broker, 3).await;
        let shares = broker.shares();
        let place = shares.get_or_make("g", &topic, PlaceStart::First).await.unwrap();
        assert_eq!(acquire(&broker, &topic, &place).await.records(), 3);
        accept(&place, 0);
        assert_eq!(shares.stored(&[Arc::clone(&place)]).await, Ok(()));
        journal.set_deletions_only();
        accept(&place, 1);
        let refused = NotStored::Refused(Refusal::DiskFull);
        assert_eq!(shares.stored(&[Arc::clone(&place)]).await, Err(refused));
        assert_eq!(
            place.next_offset(0, &RULES),
            None,
            "it does not come again meanwhile"
        );
        if has_space_again {
            journal.set_used_up(false);
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert_eq!(shares.stored(&[Arc::clone(&place)]).await, Ok(()));
        }
        let journal = Arc::new(behind.reopen());
        let broker = Broker::start(journal, BrokerSettings::default()).await.unwrap();
        let place = broker.shares().get("g", topic.id).unwrap();
        let start = if has_space_again { 2 } else { 1 };
        assert_eq!(place.next_offset(0, &RULES), Some(Offset(start)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_for_which_there_is_no_space_holds_up_no_other() {
    for has_space_again in [false, true] {
        let behind = Arc::new(MemoryJournal::new());
        let journal = Arc::new(ManualJournal::over(Arc::clone(&behind)));
        let broker = Broker::start(Arc::<ManualJournal>::clone(&journal), BrokerSettings::default()).await;
        let broker = broker.unwrap();
        let topic = topic(&broker, 100).await;
        let shares = broker.shares();
        let mut places = Vec::new();
        for group in ["large", "small", "deleted"] {
            let place = shares
                .get_or_make(group, &topic, PlaceStart::First)
                .await
                .unwrap();
            assert_eq!(acquire(&broker, &topic, &place).await.records(), 100);
            places.push([place]);
        }
        let [large, small, deleted] = &places[..] else {
            unreachable!("there are three")
        };
        let refused = NotStored::Refused(Refusal::DiskFull);
        journal.set_used_up(true);
        assert_eq!(shares.delete("deleted", topic.id).await, Err(refused));
        for offset in (0..100).step_by(2) {
            accept(&large[0], offset);
        }
        accept(&small[0], 0);
        for all in [large, small, deleted] {
            assert_eq!(shares.stored(all).await, Err(refused));
        }
        journal.set_bytes_left(30);
        assert_eq!(shares.stored(small).await, Ok(()));
        assert_eq!(shares.stored(large).await, Err(refused));
        // It waits behind the refused ones.
        accept(&large[0], 1);
        accept(&small[0], 1);
        assert_eq!(shares.stored(small).await, Ok(()));
        assert_eq!(shares.stored(large).await, Err(refused));
        if has_space_again {
            journal.set_used_up(false);
            for all in [large, small, deleted] {
                assert_eq!(shares.stored(all).await, Ok(()));
            }
        }
        let start = if has_space_again { 3 } else { 0 };
        assert_eq!(starts(&behind, &topic).await, [Some(start), Some(2), None]);
    }
}

/// Returns where groups begin after a restart; `None` of one without a place.
async fn starts(behind: &MemoryJournal, topic: &Topic) -> Vec<Option<u64>> {
    let broker = Broker::start(Arc::new(behind.reopen()), BrokerSettings::default()).await;
    let broker = broker.unwrap();
    let start = |group: &&str| {
        let place = broker.shares().get(group, topic.id)?;
        Some(place.counts(0)?.start.0)
    };
    ["large", "small", "deleted"].iter().map(start).collect()
}

/// Answers of a run, and the offset that was accepted without an answer.
#[derive(Debug, Default)]
struct Told {
    accepted: BTreeSet<u64>,
    begun: Option<u64>,
}

const RECORDS: u64 = 8;

/// Accepts every record, the odd ones first, each answered as stored before the next.
async fn accept_all(broker: &Broker, told: &mut Told) -> Option<()> {
    let topic = topic_if_stored(broker, RECORDS).await?;
    let place = broker
        .shares()
        .get_or_make("g", &topic, PlaceStart::First)
        .await
        .ok()?;
    if acquire(broker, &topic, &place).await.records() < RECORDS {
        return None;
    }
    let order = (1..RECORDS).step_by(2).chain((0..RECORDS).step_by(2));
    for offset in order {
        told.begun = Some(offset);
        accept(&place, offset);
        broker.shares().stored(&[Arc::clone(&place)]).await.ok()?;
        told.begun = None;
        told.accepted.insert(offset);
    }
    Some(())
}

/// Returns the offsets that come again.
async fn left(broker: &Broker) -> Option<BTreeSet<u64>> {
    let topic = broker.topics().named("t")?;
    let place = broker.shares().get("g", topic.id)?;
    if place.next_offset(0, &RULES).is_none() {
        return Some(BTreeSet::new());
    }
    let acquired = acquire(broker, &topic, &place).await;
    let ranges = acquired.ranges.iter();
    Some(ranges.flat_map(|range| range.first.0..=range.last.0).collect())
}

#[test]
fn what_was_acknowledged_and_stored_never_comes_again_wherever_the_power_goes() {
    let disk = SimulatedDisk::new();
    let run = async |broker: &Arc<Broker>, _: &_| {
        let mut told = Told::default();
        let _ = accept_all(broker, &mut told).await;
        told
    };
    let whole = on_disk(&disk, 1, run).unwrap();
    assert_eq!(whole.accepted, (0..RECORDS).collect());
    let changes = disk.changes();
    assert!(changes > 20, "{changes}");
    for change in 1..=changes {
        let disk = losing_power_at(change);
        let told = on_disk(&disk, 1, run).unwrap_or_default();
        disk.lose_power(change);
        let again = on_disk(&disk, 2, async |broker, _| left(broker).await).unwrap();
        let Some(again) = again else {
            assert!(told.accepted.is_empty() && told.begun.is_none(), "{told:?}");
            continue;
        };
        let maybe = told.begun.filter(|offset| !again.contains(offset));
        let done: BTreeSet<u64> = told.accepted.iter().copied().chain(maybe).collect();
        let all: BTreeSet<u64> = again.union(&done).copied().collect();
        assert!(again.is_disjoint(&told.accepted), "{again:?} {told:?}");
        if !told.accepted.is_empty() {
            assert_eq!(all, (0..RECORDS).collect(), "{again:?} {told:?}");
        }
    }
}
