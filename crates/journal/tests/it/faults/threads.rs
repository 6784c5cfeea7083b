//! With threads: acknowledged data survives a stop of the disk at any time, and nothing hangs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use stafett_journal::simulated::{Effect, Fault, SimulatedDisk};
use stafett_journal::{
    Append, DiskJournal, Frame, Journal, LogSpec, Metrics, Outcome, Refusal, Settings, StateWait,
};
use stafett_model::{Durability, LogId};

use super::run::settings;
use crate::support::{batch, more, read_all};

const LEVELS: [Durability; 3] = [Durability::Memory, Durability::Os, Durability::Sync];
const THREADS: usize = 3;

fn open(disk: &SimulatedDisk, boots: u8) -> DiskJournal {
    let settings = Settings {
        threads: true,
        checkpoint_bytes: 20 << 10,
        ..settings(boots)
    };
    DiskJournal::open_on(disk.storage(), settings, Metrics::new()).unwrap()
}

/// Acknowledged contents by place.
type Told = BTreeMap<(LogId, u64), String>;

/// Several threads append to the same logs until the journal accepts no more; returns the acknowledged
/// contents.
fn append_until_it_fails(journal: &DiskJournal, logs: &[LogId]) -> Told {
    let told = Mutex::new(Told::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let told = &told;
            scope.spawn(move || {
                for round in 0.. {
                    let value = format!("{thread} {round} {}", "x".repeat(round * 37 % 400));
                    let appends = logs
                        .iter()
                        .map(|log| Append::batch(*log, batch(&[&value])))
                        .collect();
                    for outcome in journal.append(appends).wait() {
                        match outcome {
                            Outcome::Committed(placed) => {
                                let at = (placed[0].log, placed[0].base.0);
                                let before = told.lock().unwrap().insert(at, value.clone());
                                assert_eq!(before, None, "an offset was given out twice");
                            }
                            // No spare could be made.
                            Outcome::Unknown | Outcome::Refused(Refusal::Closed | Refusal::DiskFull) => {
                                return;
                            }
                            Outcome::Refused(refusal) => panic!("{refusal}"),
                        }
                    }
                }
            });
        }
    });
    told.into_inner().unwrap()
}

#[test]
fn what_threads_were_told_is_there_whenever_the_disk_stops() {
    for case in 0..more(16, 400) {
        let (by_power, seed) = (case % 2 == 0, case);
        let disk = SimulatedDisk::new();
        let journal = open(&disk, 1);
        let logs = LEVELS.map(|durability| {
            let first = journal.allocate(1);
            let spec = LogSpec {
                durability,
                ..LogSpec::default()
            };
            let frame = Frame::CreateLogs {
                first,
                count: 1,
                spec,
            };
            journal
                .append(vec![Append::state([frame], StateWait::Synced)])
                .wait();
            first
        });
        let change = disk.changes() + 20 + case * 61 % 900;
        disk.set_fault(Some(Fault {
            change,
            effect: Effect::PowerLoss,
        }));
        let told = append_until_it_fails(&journal, &logs);
        let (boots, safe) = if by_power {
            disk.lose_power(seed);
            (2, &logs[2..])
        } else {
            disk.kill();
            (1, &logs[1..])
        };
        drop(journal);
        let journal = open(&disk, boots);
        let mut next = BTreeMap::new();
        for log in logs {
            let found: BTreeMap<_, _> = read_all(&journal, log, 20_000).unwrap().into_iter().collect();
            for ((_, at), value) in told.range((log, 0)..=(log, u64::MAX)) {
                match found.get(at) {
                    Some(found) => assert_eq!(found, value),
                    None => assert!(!safe.contains(&log), "{log} lost offset {at} in case {case}"),
                }
                assert!(
                    journal.bounds(log).unwrap().end.0 > *at,
                    "{log} gives offset {at} out again"
                );
            }
            let mut last = [None; THREADS];
            for value in found.values() {
                let mut words = value.split(' ').map(|word| word.parse::<usize>().unwrap_or(0));
                let (thread, round) = (words.next().unwrap(), words.next().unwrap());
                assert!(
                    last[thread] < Some(round),
                    "{log} has the appends of a thread out of order"
                );
                last[thread] = Some(round);
            }
            next.insert(log, journal.bounds(log).unwrap().end.0);
        }
        let appends = logs.map(|log| Append::batch(log, batch(&["after"])));
        for outcome in journal.append(appends.to_vec()).wait() {
            let Outcome::Committed(placed) = outcome else {
                panic!("{outcome:?}")
            };
            assert_eq!(placed[0].base.0, next[&placed[0].log]);
        }
    }
}

#[test]
fn backups_checkpoints_and_rewriting_do_not_wait_for_each_other() {
    let home = tempfile::TempDir::new().unwrap();
    let settings = Settings {
        threads: true,
        segment_bytes: 64 << 10,
        checkpoint_bytes: 30 << 10,
        clock: stafett_journal::disk::Clock::system(),
        ..settings(1)
    };
    let path = home.path().join("journal");
    let journal = DiskJournal::open(&path, settings.clone(), Metrics::new()).unwrap();
    let first = journal.allocate(2);
    let frame = Frame::CreateLogs {
        first,
        count: 2,
        spec: LogSpec::default(),
    };
    journal
        .append(vec![Append::state([frame], StateWait::Synced)])
        .wait();
    let logs = [first, LogId(first.0 + 1)];
    let done = AtomicBool::new(false);
    let backups = more(30, 1000);
    let mut told = 0;
    std::thread::scope(|scope| {
        let appender = scope.spawn(|| {
            let mut rounds = 0;
            while !done.load(Ordering::Relaxed) {
                let value = format!("{rounds} {}", "x".repeat(1500));
                let appends = logs.map(|log| Append::batch(log, batch(&[&value]))).to_vec();
                for outcome in journal.append(appends).wait() {
                    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
                }
                rounds += 1;
            }
            rounds
        });
        for number in 0..backups {
            let target = home.path().join("backup");
            let report = journal.backup(&target).unwrap();
            assert!(report.segments > 0, "backup {number}");
            if number + 1 < backups {
                std::fs::remove_dir_all(target).unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
        told = appender.join().unwrap();
    });
    let restored = home.path().join("restored");
    let report = stafett_journal::disk::backup::restore(&home.path().join("backup"), &restored).unwrap();
    assert!(report.is_sound(), "{report}");
    let copy = DiskJournal::open(&restored, settings, Metrics::new()).unwrap();
    for log in logs {
        let (all, found) = (
            read_all(&journal, log, 100_000).unwrap(),
            read_all(&copy, log, 100_000).unwrap(),
        );
        assert_eq!(all.len(), told);
        assert!(!found.is_empty() && all.starts_with(&found));
    }
}

/// Makes a journal of twenty large batches, and copies it as a kill leaves it.
fn killed_journal(home: &Path) -> PathBuf {
    let path = home.join("data");
    let settings = Settings {
        segment_bytes: 64 << 10,
        disk_free_bytes_min: 0,
        threads: false,
        ..Settings::default()
    };
    let journal = DiskJournal::open(&path, settings, Metrics::new()).unwrap();
    let log = journal.allocate(1);
    let spec = LogSpec::default();
    let create = Frame::CreateLogs {
        first: log,
        count: 1,
        spec,
    };
    let created = journal.append(vec![Append::state([create], StateWait::Synced)]);
    journal.pump();
    created.wait();
    for _ in 0..20 {
        let ticket = journal.append(vec![Append::batch(log, batch(&["x".repeat(20_000).as_str()]))]);
        journal.pump();
        assert!(matches!(ticket.wait()[..], [Outcome::Committed(_)]));
    }
    let killed = home.join("killed");
    std::fs::create_dir(&killed).unwrap();
    for entry in std::fs::read_dir(&path).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), killed.join(entry.file_name())).unwrap();
    }
    killed
}

/// A check of the stopped journal reports the same losses as the next start.
#[test]
fn a_check_names_what_is_gone_behind_the_checkpoint_and_the_checkpoint_itself() {
    let home = tempfile::tempdir().unwrap();
    let killed = killed_journal(home.path());
    let check = || stafett_journal::disk::fsck::check(&killed).unwrap();
    assert!(check().is_sound(), "{}", check());
    std::fs::remove_file(killed.join("arrival-0000000003.seg")).unwrap();
    assert_eq!(check().missing, ["a segment before arrival-0000000004.seg"]);
    std::fs::remove_file(killed.join("checkpoint.redb")).unwrap();
    assert!(check().checkpoint.is_some());
    assert!(
        !killed.join("checkpoint.redb").exists(),
        "a check changes nothing"
    );
}

#[test]
fn a_check_takes_a_write_cut_short_for_damage_only_before_a_whole_group() {
    let home = tempfile::tempdir().unwrap();
    let killed = killed_journal(home.path());
    let check = || stafett_journal::disk::fsck::check(&killed).unwrap();
    let newest = killed.join(&check().segments.last().unwrap().file);
    let whole = std::fs::read(&newest).unwrap();
    let zeroed = |range: std::ops::Range<usize>| {
        let mut bytes = whole.clone();
        bytes[range].fill(0);
        std::fs::write(&newest, bytes).unwrap();
        let segment = check().segments.pop().unwrap();
        (segment.damage.is_some(), segment.torn)
    };
    let is_body = |bytes: &[u8]| bytes == [b'x'; 100];
    let first = whole.windows(100).position(is_body).unwrap();
    let last = whole.windows(100).rposition(is_body).unwrap();
    assert!(last - first > 30_000, "two batches at least");
    assert_eq!(zeroed(last..whole.len()), (false, true));
    assert_eq!(zeroed(first..first + 100), (true, false));
}
