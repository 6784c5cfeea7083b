//! Spares: a change of the disk fails while one is made. It leaves no file, and the next start takes nothing
//! for damage.

use stafett_journal::simulated::{Change, Effect, Fault, SimulatedDisk};
use stafett_journal::{Append, DiskJournal, Frame, Journal, Outcome, StateWait};
use stafett_model::{Durability, LogId};

use super::full::{CAPACITY_BYTES, append, body, create, fill, open};
use crate::support::read_all;

/// Spares of a journal that has space.
const SPARES: usize = 4;
/// Batches of 9,000 bytes for about nine segments: more than there are spares.
const BATCHES: usize = 60;

/// Returns the ids of arrival segments in use, and the number of other files of that kind.
fn arrivals(disk: &SimulatedDisk) -> (Vec<u32>, usize) {
    let id_of = |name: &String| {
        let id = name.strip_prefix("arrival-")?.strip_suffix(".seg")?;
        id.parse::<u32>().ok()
    };
    let is_used = |id: &u32| disk.contents(&name_of(*id)).unwrap().get(16..20) == Some(&id.to_le_bytes());
    let (used, unused): (Vec<_>, Vec<_>) = disk.names().iter().filter_map(id_of).partition(is_used);
    (used, unused.len())
}

fn name_of(id: u32) -> String {
    format!("arrival-{id:010}.seg")
}

/// Appends batches; returns false if the journal has failed.
fn append_batches(journal: &DiskJournal, log: LogId) -> bool {
    for _ in 0..BATCHES {
        let outcome = append(journal, Append::batch(log, body(9000)));
        if journal.failure().is_some() {
            return false;
        }
        assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    }
    true
}

fn fail_once(disk: &SimulatedDisk, change: u64) {
    let effect = Effect::Error;
    disk.set_fault(Some(Fault { change, effect }));
}

/// Kills the program and checks that the next start finds every batch and no damage.
fn assert_sound_after_kill(disk: &SimulatedDisk, log: LogId, what: &str) {
    disk.kill();
    let journal = open(disk, 1);
    let report = journal.report();
    assert!(!report.is_damaged(), "{what}: {report:?}");
    assert_eq!(read_all(&journal, log, 50_000).unwrap().len(), BATCHES, "{what}");
    let outcome = append(&journal, Append::batch(log, body(10)));
    assert!(matches!(outcome, Outcome::Committed(_)), "{what}: {outcome:?}");
}

#[test]
fn a_dead_segment_that_cannot_be_made_a_spare_leaves_no_file_and_is_not_taken_for_damage() {
    let mut failed_names = 0;
    for after in 1.. {
        let disk = SimulatedDisk::new();
        // Without space, spares are missing: dead segments are recycled.
        disk.set_capacity_bytes(CAPACITY_BYTES / 2);
        let journal = open(&disk, 1);
        let (log, gone) = (
            create(&journal, Durability::Sync),
            create(&journal, Durability::Sync),
        );
        fill(&journal, gone, 9000);
        let delete = Frame::DeleteLogs {
            first: gone,
            count: 1,
        };
        append(&journal, Append::state([delete], StateWait::Synced));
        journal.checkpoint();
        let before = disk.changes();
        fail_once(&disk, before + after);
        journal.rewrite();
        if disk.changes() < before + after {
            break;
        }
        let (failed, file) = disk.change(before + after).unwrap();
        let what = format!("{failed:?} {file} failed");
        disk.set_capacity_bytes(2 * CAPACITY_BYTES);
        if !append_batches(&journal, log) {
            continue;
        }
        let (_, unused) = arrivals(&disk);
        failed_names += usize::from(failed == Change::SyncNames);
        assert_sound_after_kill(&disk, log, &what);
        assert_eq!(unused, SPARES, "{what}");
    }
    assert!(failed_names > 1, "{failed_names}");
}

#[test]
fn an_unused_file_between_two_segments_is_no_damage_and_hides_none() {
    let mut gaps = 0;
    for after in 1..=60 {
        let disk = SimulatedDisk::new();
        let journal = open(&disk, 1);
        let log = create(&journal, Durability::Sync);
        fail_once(&disk, disk.changes() + after);
        if !append_batches(&journal, log) {
            continue;
        }
        // A spare that could not be made has left its id unused.
        let (used, _) = arrivals(&disk);
        let Some(gap) = used.windows(2).find(|pair| pair[0] + 1 < pair[1]) else {
            continue;
        };
        gaps += 1;
        disk.kill();
        let old = disk.contents(&name_of(used[0])).unwrap();
        for contents in [old, vec![0; 64 << 10], Vec::new()] {
            let disk = disk.fork();
            let storage = disk.storage();
            let file = storage.create(&name_of(gap[0] + 1)).unwrap();
            let mut slices = [std::io::IoSlice::new(&contents)];
            file.write_at(&mut slices, 0).unwrap();
            file.sync().unwrap();
            storage.sync_names().unwrap();
            for id in gap {
                let disk = disk.fork();
                assert!(disk.delete(&name_of(*id)));
                let journal = open(&disk, 1);
                assert!(journal.report().is_damaged(), "without segment {id}");
            }
            assert_sound_after_kill(&disk, log, &format!("{} bytes in {gap:?}", contents.len()));
        }
    }
    assert!(gaps > 1, "{gaps}");
}

#[test]
fn starts_in_a_row_leave_no_empty_ends_of_segments() {
    for is_clean in [false, true] {
        let disk = SimulatedDisk::new();
        let mut log = None;
        let mut used = Vec::new();
        for count in 1..=40 {
            let journal = open(&disk, 1);
            let log = *log.get_or_insert_with(|| create(&journal, Durability::Sync));
            let outcome = append(&journal, Append::batch(log, body(10)));
            assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
            assert_eq!(read_all(&journal, log, 50_000).unwrap().len(), count);
            if is_clean {
                journal.close();
            } else {
                disk.kill();
            }
            used.push(disk.used_bytes());
        }
        let more = used[39] - used[9];
        assert!(more < 30 * 32 * 1024, "half a segment a start: {used:?}");
    }
}
