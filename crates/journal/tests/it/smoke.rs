//! One log, one disk: every record stored is read back, also after a restart.

use smallvec::SmallVec;
use stafett_journal::{
    Append, BatchFrame, DiskJournal, Frame, Journal, LogSpec, Metrics, Outcome, Selection, Settings,
    StateWait, Target,
};
use stafett_model::LogId;

use crate::support::{self, batch};

fn settings() -> Settings {
    Settings {
        segment_bytes: 256 << 10,
        disk_free_bytes_min: 0,
        ..Settings::default()
    }
}

fn read_all(journal: &DiskJournal, log: LogId) -> Vec<String> {
    let records = support::read_all(journal, log, 100_000).unwrap();
    records.into_iter().map(|(_, text)| text).collect()
}

#[test]
fn what_goes_in_comes_out_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    let mut log = LogId(0);
    for round in 0..4 {
        let journal = DiskJournal::open(directory.path(), settings(), Metrics::new()).unwrap();
        if round == 0 {
            log = journal.allocate(1);
            let create = Frame::CreateLogs {
                first: log,
                count: 1,
                spec: LogSpec::default(),
            };
            journal
                .append(vec![Append::state([create], StateWait::Synced)])
                .wait();
        }
        assert_eq!(read_all(&journal, log), expected);
        let mut tickets = Vec::new();
        for n in 0..3000 {
            let text = format!("round {round} record {n} {}", "x".repeat(n % 300));
            tickets.push(journal.append(vec![Append::batch(log, batch(&[&text]))]));
            expected.push(text);
        }
        for ticket in tickets {
            let outcomes = ticket.wait();
            assert!(
                matches!(outcomes.as_slice(), [Outcome::Committed(_)]),
                "{outcomes:?} {:?}",
                journal.failure()
            );
        }
        assert_eq!(read_all(&journal, log), expected);
        if round % 2 == 0 {
            journal.close();
        } else {
            // Like a kill: data held by the threads is never written.
            std::mem::forget(journal);
            std::fs::remove_file(directory.path().join("lock")).unwrap();
        }
    }
}

/// Batches of several records of `bytes` bytes each, in logs that share them as a whole or in part.
#[test]
fn what_several_logs_share_is_the_same_from_memory_and_from_disk() {
    let directory = tempfile::tempdir().unwrap();
    let metrics = Metrics::new();
    let mut registry = prometheus_client::registry::Registry::default();
    metrics.register(&mut registry);
    let journal = DiskJournal::open(directory.path(), settings(), metrics.clone()).unwrap();
    let first = journal.allocate(3);
    let create = Frame::CreateLogs {
        first,
        count: 3,
        spec: LogSpec::default(),
    };
    journal
        .append(vec![Append::state([create], StateWait::Synced)])
        .wait();
    let logs = [first, LogId(first.0 + 1), LogId(first.0 + 2)];
    // The largest bodies stay in their publishers' buffers, without the frame around them.
    for bytes in [1, 1_000, 10_000] {
        let texts = ["0", "1", "2"].map(|digit| digit.repeat(bytes));
        let records = [
            Selection::All,
            Selection::All,
            Selection::Range { first: 1, count: 2 },
        ];
        let targets = logs.into_iter().zip(records);
        let shared = BatchFrame {
            body: batch(&texts.each_ref().map(String::as_str)),
            targets: targets.map(|(log, records)| Target { log, records }).collect(),
        };
        let append = Append {
            frames: SmallVec::from_iter([Frame::Batch(shared)]),
            ..Append::default()
        };
        journal
            .append(vec![append, Append::batch(logs[1], batch(&["alone"]))])
            .wait();
    }
    let from_memory = logs.map(|log| read_all(&journal, log));
    assert_eq!(from_memory.each_ref().map(Vec::len), [9, 12, 6]);
    let mut said = String::new();
    prometheus_client::encoding::text::encode(&mut said, &registry).unwrap();
    assert!(said.contains("cold_reads_total 0\n"), "{said}");
    journal.close();
    drop(journal);
    let journal = DiskJournal::open(directory.path(), settings(), Metrics::new()).unwrap();
    assert_eq!(logs.map(|log| read_all(&journal, log)), from_memory);
    journal.close();
}
