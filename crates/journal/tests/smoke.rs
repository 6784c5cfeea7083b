//! One log, one disk: what goes in comes out, also after a restart.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use stafett_journal::{
    Append, DiskJournal, Frame, Journal, LogSpec, Metrics, Outcome, ReadFrom, ReadRequest, Settings,
    StateWait,
};
use stafett_model::{BatchBuilder, Codec, LogId, Offset, Record};

fn batch(text: &str) -> bytes::Bytes {
    let mut builder = BatchBuilder::new(Codec::None);
    builder
        .push(&Record {
            key: None,
            value: Some(text.as_bytes()),
            headers: &[],
            timestamp: 5,
        })
        .unwrap();
    builder.finish().unwrap()
}

fn settings() -> Settings {
    Settings {
        segment_bytes: 256 << 10,
        disk_free_bytes_min: 0,
        ..Settings::default()
    }
}

fn read_all(journal: &DiskJournal, log: LogId) -> Vec<String> {
    let mut out = Vec::new();
    let mut offset = Offset(0);
    loop {
        let request = ReadRequest {
            logs: vec![ReadFrom {
                log,
                offset,
                bytes_max: 10_000,
            }],
            bytes_max: 10_000,
            first_batch_whole: true,
        };
        let run = journal.read(request).wait().unwrap().remove(0).unwrap();
        if run.pieces.is_empty() {
            return out;
        }
        let mut bytes = bytes::Bytes::from(run.pieces.concat());
        while !bytes.is_empty() {
            let header = stafett_model::BatchHeader::verify(&bytes).unwrap();
            let one = bytes.split_to(header.bytes);
            for record in stafett_model::records(&one, 1 << 20).unwrap() {
                out.push(String::from_utf8(record.unwrap().value.unwrap().to_vec()).unwrap());
            }
        }
        offset = run.next;
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
            tickets.push(journal.append(vec![Append::batch(log, batch(&text))]));
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
            // As good as killed: what the threads hold is never written.
            std::mem::forget(journal);
            std::fs::remove_file(directory.path().join("lock")).unwrap();
        }
    }
}
