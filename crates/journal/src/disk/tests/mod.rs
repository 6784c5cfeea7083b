//! Tests of the engine from inside, most of them with writer and syncer run step by step
//! ([`stepwise_journal`]).

mod chunked_appends;
mod full_rewrites;
mod housekeeping_faults;
mod lost_checkpoint;
mod lowered_levels;
mod resent_appends;
mod stepwise_journal;

use stafett_model::{BatchBuilder, Codec, Offset, Record};

use stepwise_journal::{Bench, base_of, body_of};

use super::start::next_epoch;
use super::*;
use crate::contract::{Frame, LogSpec, ReadError, ReadFrom, StateWait, Visibility};
use crate::simulated::SimulatedDisk;

#[test]
fn a_hole_before_a_damaged_range_is_not_taken_for_a_gap_up_to_the_end() {
    let disk = SimulatedDisk::new();
    let settings = Settings {
        segment_bytes: 1 << 20,
        disk_free_bytes_min: 0,
        threads: false,
        ..Settings::default()
    };
    let journal = DiskJournal::open_on(disk.storage(), settings, Metrics::new()).unwrap();
    let log = journal.allocate(1);
    let spec = LogSpec {
        durability: stafett_model::Durability::Os,
        ..LogSpec::default()
    };
    let create = Frame::CreateLogs {
        first: log,
        count: 1,
        spec,
    };
    let mut appends = vec![Append::state([create], StateWait::Written)];
    for _ in 0..3 {
        let mut batch = BatchBuilder::with_capacity(Codec::None, 100);
        for _ in 0..4 {
            let record = Record {
                key: None,
                value: Some(b"value"),
                headers: &[],
                timestamp: 1,
            };
            batch.push(&record).unwrap();
        }
        appends.push(Append::batch(log, batch.finish().unwrap()));
    }
    drop(journal.append(appends));
    journal.pump();
    // There is nothing complete between the fourth record and the lost data.
    let state = journal.core.logs.get(log).unwrap();
    state.lock().lose(Offset(6), Offset(8));
    let read = |offset: u64, bytes_max: usize| {
        let request = ReadRequest {
            logs: vec![ReadFrom {
                log,
                offset: Offset(offset),
                bytes_max,
                visibility: Visibility::Stored,
            }],
            bytes_max,
            first_batch_whole: false,
        };
        journal.read(request).wait().unwrap().pop().unwrap()
    };
    let run = read(0, 1 << 20).unwrap();
    assert_eq!(run.next, Offset(4), "what lies before is read");
    let damaged = ReadError::Damaged {
        log,
        from: Offset(6),
        to: Offset(8),
    };
    assert_eq!(read(4, 1 << 20), Err(damaged));
    assert_eq!(read(8, 1 << 20).unwrap().next, Offset(12));
    assert_eq!(read(0, 0).unwrap().next, Offset(0), "no room is no damage");
}

#[test]
fn what_is_acknowledged_and_not_yet_written_is_no_offset_out_of_range() {
    let bench = Bench::new();
    let [log] = bench.logs();
    let read = |offset: u64| {
        let request = ReadRequest {
            logs: vec![ReadFrom {
                log,
                offset: Offset(offset),
                bytes_max: 1 << 20,
                visibility: Visibility::Stored,
            }],
            bytes_max: 1 << 20,
            first_batch_whole: true,
        };
        let run = bench.journal.read(request).wait().unwrap().pop().unwrap();
        run.map(|run| (run.next, run.bounds.unwrap().end))
    };
    assert_eq!(bench.end(log), 1);
    let mut ticket = bench.append(Append::batch(log, body_of(10)));
    assert_eq!(read(2), Ok((Offset(2), Offset(1))));
    let out_of_range = |end| {
        Err(ReadError::OutOfRange {
            log,
            wanted: Offset(3),
            start: Offset(1),
            end: Offset(end),
        })
    };
    assert_eq!(read(3), out_of_range(1));
    bench.write();
    assert_eq!(base_of(&mut ticket), Some(1));
    assert_eq!(read(1), Ok((Offset(2), Offset(2))));
    assert_eq!(read(3), out_of_range(2));
}

#[test]
fn the_last_epoch_that_clients_can_name_is_not_followed_by_another() {
    assert_eq!(next_epoch(0).unwrap(), Epoch(1));
    for last in [i32::MAX.unsigned_abs(), u32::MAX] {
        assert!(matches!(next_epoch(last), Err(OpenError::Start(_))));
    }
}
