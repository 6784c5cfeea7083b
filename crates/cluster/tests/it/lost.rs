//! Lost objects beside a living owner: what needs them waits, everything else goes on, and nothing is noted as
//! damage.

use std::sync::Arc;
use std::time::Duration;

use stafett_cluster::fake::FakeDatabase;
use stafett_cluster::{Clock, Database, Metrics as StorageMetrics, Objects, Settings, SharedStorage};
use stafett_journal::disk::storage::Storage;
use stafett_journal::disk::{Clock as JournalClock, Settings as JournalSettings};
use stafett_journal::{DiskJournal, Frame, Metrics};
use stafett_model::{Durability, LogId, Offset};

use crate::node::{claim, storage_with, with_objects};
use crate::support::{Seen, batch, control, create, put, read_all, rewriting};

struct Node {
    storage: Arc<SharedStorage>,
    journal: DiskJournal,
    metrics: StorageMetrics,
}

/// Takes the cell over, by the clock of the database.
fn node(database: &FakeDatabase) -> Node {
    node_with(database, &rewriting(100 << 10))
}

/// The same, with segments of 12 MiB.
fn node_of_large_segments(database: &FakeDatabase) -> Node {
    let mut settings = JournalSettings {
        segment_bytes: 12 << 20,
        ..rewriting(1 << 20)
    };
    settings.rewrite.run_bytes_good = u64::MAX;
    node_with(database, &settings)
}

fn node_with(database: &FakeDatabase, journal_settings: &JournalSettings) -> Node {
    let fake = database.node();
    let shared: Arc<dyn Database> = Arc::<_>::clone(&fake) as Arc<dyn Database>;
    let objects: Arc<dyn Objects> = fake;
    let (clock, journal_clock) = (database.clone(), database.clone());
    let settings = Settings {
        clock: Clock::new(move || clock.now()),
        ..with_objects(objects, 0)
    };
    let metrics = settings.metrics.clone();
    let storage = Arc::new(storage_with(&shared, claim(&shared), settings).unwrap());
    let opened = Arc::<SharedStorage>::clone(&storage);
    let now_ms = move || i64::try_from(journal_clock.now().as_millis()).unwrap();
    let journal_settings = JournalSettings {
        clock: JournalClock::new(now_ms),
        ..journal_settings.clone()
    };
    let journal = DiskJournal::open_on(opened, journal_settings, Metrics::new()).unwrap();
    Node {
        storage,
        journal,
        metrics,
    }
}

/// Fills some segments with records of 10 KB, in objects.
fn fill(node: &Node) -> (LogId, Vec<Seen>) {
    let log = pumped(node, |journal| create(journal, Durability::Sync));
    let mut expected = Vec::new();
    for number in 0..60_u64 {
        let text = format!("{number:05}").repeat(2000);
        pumped(node, |journal| put(journal, log, batch(&[&text])));
        expected.push((number, text));
    }
    node.journal.checkpoint();
    (log, expected)
}

/// Does something that waits, while another thread does the work of the journal's.
fn pumped<R: Send>(node: &Node, work: impl FnOnce(&DiskJournal) -> R + Send) -> R {
    std::thread::scope(|scope| {
        let done = scope.spawn(|| work(&node.journal));
        while !done.is_finished() {
            node.journal.pump();
            std::thread::yield_now();
        }
        done.join().unwrap()
    })
}

/// Loses an object of a sealed segment. Returns its name.
fn lose_segment(database: &FakeDatabase) -> String {
    let objects = database.objects();
    let needed = objects.iter().filter(|(name, _)| database.needs(name));
    let mut large = needed.enumerate().filter(|(_, (_, body))| body.len() > 30_000);
    let (index, _) = large.nth(3).unwrap();
    database.lose(index).unwrap()
}

#[test]
fn a_segment_with_a_lost_object_waits_and_nothing_is_put_again_for_it() {
    let database = FakeDatabase::default();
    let former = node(&database);
    let (log, expected) = fill(&former);
    drop(former);
    let owner = node(&database);
    let lost = database.lose(20).unwrap();
    let why = owner.storage.seal().unwrap_err().to_string();
    assert!(why.contains(&lost), "{why}");
    assert_eq!(owner.metrics.lost_objects(), 1);
    let objects = database.objects().len();
    for _ in 0..100 {
        database.advance(Duration::from_secs(1));
        assert_eq!(owner.storage.seal().unwrap(), 0, "all others are sealed");
    }
    assert_eq!(database.objects().len(), objects, "nothing is put");
    assert_eq!(database.bring_back(), 1);
    database.advance(Duration::from_mins(1));
    assert_eq!(owner.storage.seal().unwrap(), 1);
    assert_eq!(owner.metrics.lost_objects(), 0);
    assert!(read_all(&owner.journal, log, 1 << 20).unwrap() == expected);
}

#[test]
fn a_lost_object_that_nothing_needs_any_more_is_forgotten() {
    let database = FakeDatabase::default();
    let owner = node(&database);
    let (log, _) = fill(&owner);
    owner.storage.seal().unwrap();
    let lost = lose_segment(&database);
    assert!(read_all(&owner.journal, log, 1 << 20).is_err());
    assert_eq!(owner.metrics.lost_objects(), 1);
    let before = Offset(59);
    pumped(&owner, |journal| {
        control(journal, [Frame::Truncate { log, before }]);
    });
    owner.journal.checkpoint();
    owner.journal.rewrite();
    owner.storage.sync_names().unwrap();
    assert!(!database.needs(&lost));
    database.advance(Duration::from_secs(1));
    owner.storage.seal().unwrap();
    assert_eq!(owner.metrics.lost_objects(), 0);
}

#[test]
fn a_lost_object_keeps_no_other_segment_from_being_merged() {
    let database = FakeDatabase::default();
    let owner = node(&database);
    let (log, expected) = fill(&owner);
    owner.storage.seal().unwrap();
    let arrivals = || owner.journal.status().arrival_segments;
    let all = arrivals();
    assert!(all > 6, "{all}");
    lose_segment(&database);
    owner.journal.rewrite();
    let left = arrivals();
    assert!(left < all - 3, "{left} of {all}");
    assert_eq!(owner.journal.scrub(), 1, "it cannot be read");
    database.bring_back();
    database.advance(Duration::from_secs(2));
    owner.journal.rewrite();
    assert!(arrivals() < left, "{left}");
    let damaged = owner.journal.status().damaged_segments;
    assert_eq!((owner.journal.scrub(), damaged), (0, 0));
    assert!(read_all(&owner.journal, log, 1 << 20).unwrap() == expected);
    drop(owner);
    let next = node(&database);
    assert!(!next.journal.report().is_damaged());
    assert!(read_all(&next.journal, log, 1 << 20).unwrap() == expected);
}

/// Fills a segment of 12 MiB with records of two logs, one behind the other, and begins the next one.
fn fill_large(node: &Node) {
    let logs = [(); 2].map(|()| pumped(node, |journal| create(journal, Durability::Sync)));
    let text = "0123456789".repeat(20 << 10);
    for (log, count) in [(logs[0], 28), (logs[1], 40)] {
        for _ in 0..count {
            pumped(node, |journal| put(journal, log, batch(&[&text])));
        }
    }
    node.journal.checkpoint();
    node.storage.seal().unwrap();
}

/// A sync of each mebibyte would put the whole segment each time.
#[test]
fn a_merged_segment_is_put_once() {
    let database = FakeDatabase::default();
    let owner = node_of_large_segments(&database);
    fill_large(&owner);
    let stored = || database.objects().values().map(Vec::len).sum::<usize>();
    let before = stored();
    owner.journal.rewrite();
    let put = stored() - before;
    assert!(owner.journal.status().rewritten_bytes > 10 << 20);
    assert!(put < 14 << 20, "{put} bytes for a segment of 12 MiB");
}

#[test]
fn nothing_is_written_for_a_segment_that_is_lost_for_good() {
    let database = FakeDatabase::default();
    let owner = node_of_large_segments(&database);
    fill_large(&owner);
    let objects = database.objects();
    let needed = objects.iter().filter(|(name, _)| database.needs(name));
    // The last large piece: some of what is before it can be read.
    let last = needed
        .enumerate()
        .filter(|(_, (_, body))| body.len() > 1 << 20)
        .last();
    database.lose(last.unwrap().0).unwrap();
    let written = || owner.journal.status().rewritten_bytes;
    let mut rewrite = owner.journal.rewriter();
    rewrite();
    let first = written();
    for _ in 0..3 {
        database.advance(Duration::from_mins(2));
        rewrite();
        assert_eq!(written(), first);
    }
    database.bring_back();
    database.advance(Duration::from_mins(2));
    rewrite();
    assert!(written() > first + (10 << 20), "it is merged once it is back");
}
