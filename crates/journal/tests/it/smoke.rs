//! One log, one disk: every record stored is read back, also after a restart.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use smallvec::SmallVec;
use stafett_journal::{
    Append, BatchFrame, DiskJournal, Frame, Journal, Metrics, Outcome, Selection, Settings, Target,
};
use stafett_model::{Durability, LogId};

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

/// Appends record by record, waits for all, and adds their texts to `expected`.
fn append_records(journal: &DiskJournal, log: LogId, count: usize, expected: &mut Vec<String>) {
    let mut tickets = Vec::new();
    for n in 0..count {
        let text = format!("record {} {}", expected.len(), "x".repeat(n % 300));
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
}

#[test]
fn what_goes_in_comes_out_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    let mut log = LogId(0);
    for round in 0..4 {
        let journal = DiskJournal::open(directory.path(), settings(), Metrics::new()).unwrap();
        if round == 0 {
            log = support::create(&journal, Durability::default());
        }
        assert_eq!(read_all(&journal, log), expected);
        append_records(&journal, log, 3000, &mut expected);
        assert_eq!(read_all(&journal, log), expected);
        journal.close();
    }
}

/// Directory of the journal, in the environment of a process that this test starts of itself.
const KILLED_JOURNAL: &str = "STAFETT_TEST_KILLED_JOURNAL";

/// Threads cannot be killed: the journal lies in another process, this test program started anew.
#[test]
fn a_killed_process_leaves_what_it_acknowledged() {
    if let Some(directory) = std::env::var_os(KILLED_JOURNAL) {
        append_until_killed(Path::new(&directory));
    }
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    for _ in 0..3 {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "smoke::a_killed_process_leaves_what_it_acknowledged",
                "--nocapture",
            ])
            .env(KILLED_JOURNAL, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let counts =
            lines.filter_map(|line| line.unwrap().strip_prefix("acknowledged ")?.parse::<usize>().ok());
        acknowledged = counts.take(4).last().expect("the process appends");
        process.kill().unwrap();
        process.wait().unwrap();
    }
    assert!(acknowledged >= 12 * 500, "{acknowledged}");
    let journal = DiskJournal::open(directory.path(), settings(), Metrics::new()).unwrap();
    let records = read_all(&journal, LogId(1));
    assert!(
        records.len() >= acknowledged,
        "{} of {acknowledged}",
        records.len()
    );
    for (n, record) in records.iter().enumerate() {
        assert!(record.starts_with(&format!("record {n} ")), "{n}: {record}");
    }
    journal.close();
}

fn append_until_killed(directory: &Path) -> ! {
    let journal = DiskJournal::open(directory, settings(), Metrics::new()).unwrap();
    let stored = support::read_all(&journal, LogId(1), 100_000);
    let log = stored
        .as_ref()
        .map_or_else(|_| support::create(&journal, Durability::default()), |_| LogId(1));
    assert_eq!(log, LogId(1), "{stored:?}");
    let mut expected = read_all(&journal, log);
    loop {
        append_records(&journal, log, 500, &mut expected);
        let mut out = std::io::stdout();
        writeln!(out, "\nacknowledged {}", expected.len()).unwrap();
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
    let first = support::create_logs(&journal, 3, Durability::default());
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
