//! Rewriting changes the places of batches, never the results of reads.

use std::collections::BTreeMap;

use bytes::Bytes;
use stafett_journal::{
    Append, BatchFrame, DiskJournal, Frame, Journal, LogSpec, Metrics, Outcome, Selection, Settings,
    StateWait, Target,
};
use stafett_model::{LogId, Offset};

use crate::support;

type Expected = BTreeMap<LogId, Vec<String>>;

fn settings() -> Settings {
    support::rewriting(256 << 10)
}

fn batch(texts: &[String]) -> Bytes {
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    support::batch(&texts)
}

fn create(journal: &DiskJournal, count: u32) -> LogId {
    let first = journal.allocate(count);
    let create = Frame::CreateLogs {
        first,
        count,
        spec: LogSpec::default(),
    };
    let ticket = journal.append(vec![Append::state([create], StateWait::Synced)]);
    journal.pump();
    assert!(matches!(ticket.wait().as_slice(), [Outcome::Committed(_)]));
    first
}

fn read_all(journal: &DiskJournal, log: LogId, from: Offset) -> Vec<String> {
    let mut out = Vec::new();
    let mut offset = from;
    loop {
        let run = support::read(journal, log, offset.0, 3000).unwrap();
        if run.pieces.is_empty() {
            return out;
        }
        let records = support::seen(&run).into_iter();
        out.extend(records.filter(|(at, _)| *at >= from.0).map(|(_, text)| text));
        offset = run.next;
    }
}

/// Writes batches to all logs in turn, some of them fanned out to two.
fn fill(journal: &DiskJournal, first: LogId, count: u64, rounds: usize, expected: &mut Expected) {
    for round in 0..rounds {
        for index in 0..count {
            let log = LogId(first.0 + index);
            let texts: Vec<_> = (0..3)
                .map(|n| format!("{log} round {round} record {n}"))
                .collect();
            let mut append = Append::batch(log, batch(&texts));
            expected.entry(log).or_default().extend(texts.iter().cloned());
            if round % 5 == 0 {
                let other = LogId(first.0 + (index + 7) % count);
                let targets = [
                    Target {
                        log,
                        records: Selection::All,
                    },
                    Target {
                        log: other,
                        records: Selection::Range { first: 1, count: 2 },
                    },
                ];
                let frame = BatchFrame {
                    body: batch(&texts),
                    targets: targets.into_iter().collect(),
                };
                append.frames = [Frame::Batch(frame)].into_iter().collect();
                expected
                    .entry(other)
                    .or_default()
                    .extend(texts.into_iter().skip(1));
            }
            drop(journal.append(vec![append]));
        }
        journal.pump();
    }
}

fn check(journal: &DiskJournal, expected: &Expected) {
    for (log, texts) in expected {
        let read = read_all(journal, *log, Offset(0));
        let differ = read
            .iter()
            .zip(texts)
            .position(|(read, expected)| read != expected);
        assert_eq!(differ, None, "{log} differs");
        assert_eq!(read.len(), texts.len(), "{log}");
    }
}

fn files(path: &std::path::Path, prefix: &str) -> usize {
    let names = std::fs::read_dir(path).unwrap();
    names
        .filter(|name| {
            name.as_ref()
                .unwrap()
                .file_name()
                .to_str()
                .unwrap()
                .starts_with(prefix)
        })
        .count()
}

#[test]
fn merged_segments_read_like_those_they_replace_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let mut expected = Expected::new();
    let journal = DiskJournal::open(directory.path(), settings(), Metrics::new()).unwrap();
    let first = create(&journal, 50);
    fill(&journal, first, 50, 60, &mut expected);
    check(&journal, &expected);
    journal.checkpoint();
    let before = files(directory.path(), "arrival-");
    assert!(journal.rewrite() > 0);
    assert!(files(directory.path(), "sorted-") > 0);
    assert!(files(directory.path(), "arrival-") < before);
    check(&journal, &expected);
    fill(&journal, first, 50, 20, &mut expected);
    check(&journal, &expected);
    drop(journal);
    let journal = DiskJournal::open(directory.path(), settings(), Metrics::new()).unwrap();
    check(&journal, &expected);
}

#[test]
fn deleted_and_truncated_logs_leave_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let mut expected = Expected::new();
    let journal = DiskJournal::open(directory.path(), settings(), Metrics::new()).unwrap();
    let first = create(&journal, 20);
    fill(&journal, first, 20, 100, &mut expected);
    let last = LogId(first.0 + 19);
    let cut = Offset(100);
    let frames = [
        Frame::DeleteLogs { first, count: 19 },
        Frame::Truncate {
            log: last,
            before: cut,
        },
    ];
    let ticket = journal.append(vec![Append::state(frames, StateWait::Synced)]);
    journal.pump();
    assert!(matches!(ticket.wait().as_slice(), [Outcome::Committed(_)]));
    journal.checkpoint();
    let kept = read_all(&journal, last, cut);
    assert_eq!(kept, expected[&last][100..]);
    while journal.rewrite() > 0 {}
    assert_eq!(read_all(&journal, last, cut), kept);
    let bytes: u64 = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().to_str().unwrap().starts_with("sorted-"))
        .map(|entry| entry.metadata().unwrap().len())
        .sum();
    assert!(bytes < 200 << 10, "{bytes} bytes of sorted segments for one log");
    drop(journal);
    let journal = DiskJournal::open(directory.path(), settings(), Metrics::new()).unwrap();
    assert_eq!(read_all(&journal, last, cut), kept);
    assert!(journal.bounds(first).is_none());
}

#[test]
fn a_backup_made_while_writing_goes_on_restores_to_what_was_there() {
    let directory = tempfile::tempdir().unwrap();
    let (source, target, restored) = (
        directory.path().join("data"),
        directory.path().join("backup"),
        directory.path().join("restored"),
    );
    let mut expected = Expected::new();
    let journal = DiskJournal::open(&source, settings(), Metrics::new()).unwrap();
    let first = create(&journal, 20);
    fill(&journal, first, 20, 50, &mut expected);
    let report = journal.backup(&target).unwrap();
    assert!(report.segments > 2);
    let at_backup = expected.clone();
    fill(&journal, first, 20, 50, &mut expected);
    journal.checkpoint();
    let frames = [Frame::DeleteLogs { first, count: 20 }];
    drop(journal.append(vec![Append::state(frames, StateWait::Synced)]));
    journal.pump();
    journal.checkpoint();
    while journal.rewrite() > 0 {}
    assert!(journal.backup(&target).is_err(), "a backup is never written over");
    drop(journal);
    let report = stafett_journal::disk::backup::restore(&target, &restored).unwrap();
    assert!(report.is_sound(), "{report}");
    let journal = DiskJournal::open(&restored, settings(), Metrics::new()).unwrap();
    check(&journal, &at_backup);
    drop(journal);
    assert!(stafett_journal::disk::fsck::check(&source).unwrap().is_sound());
    let mut frames = 0;
    stafett_journal::disk::fsck::dump(&restored, (0, 0), |_| {
        frames += 1;
        frames < 100
    })
    .unwrap();
    assert_eq!(frames, 100);
}

/// An unfinished backup shares its files with the journal: they must not be overwritten.
#[test]
fn a_backup_behind_one_that_was_cut_short_harms_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (source, target) = (directory.path().join("data"), directory.path().join("backup"));
    let mut expected = Expected::new();
    let journal = DiskJournal::open(&source, settings(), Metrics::new()).unwrap();
    let first = create(&journal, 20);
    fill(&journal, first, 20, 50, &mut expected);
    let partial = directory.path().join("backup.partial");
    std::fs::create_dir(&partial).unwrap();
    for entry in std::fs::read_dir(&source).unwrap() {
        let name = entry.unwrap().file_name();
        if name.to_string_lossy().starts_with("arrival-") {
            std::fs::hard_link(source.join(&name), partial.join(&name)).unwrap();
        }
    }
    let refused = journal.backup(&target).unwrap_err().to_string();
    assert!(refused.contains("backup.partial"), "{refused}");
    check(&journal, &expected);
    std::fs::remove_dir_all(&partial).unwrap();
    journal.backup(&target).unwrap();
    assert!(!partial.exists());
    check(&journal, &expected);
    drop(journal);
    let restored = directory.path().join("restored");
    let report = stafett_journal::disk::backup::restore(&target, &restored).unwrap();
    assert!(report.is_sound(), "{report}");
    assert!(stafett_journal::disk::fsck::check(&source).unwrap().is_sound());
}
