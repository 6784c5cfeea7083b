//! Readers that begin anywhere in a partition, again and again, also while the process ends and starts: of
//! committed records and of all. What each of them saw is compared with the whole partition in the end: a
//! record that was skipped, came twice, or is another one now, differs.

use std::io;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use stafett_kafka_wire::ErrorCode;

use super::kafka::{Asked, connect, fetch_at, numbers_in, offset_of};
use super::load::Load;

/// Longest pass, in records.
const PASS: usize = 40;
/// Timestamps that ask for the ends of a partition.
const EARLIEST: i64 = -2;
const LATEST: i64 = -1;
/// Bytes of a fetch: one batch, some, or as many as there are.
const BYTES: [i32; 3] = [1, 1 << 20, 8 << 20];

/// Records that a reader saw one behind the other.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) partition: u32,
    from: i64,
    numbers: Vec<u64>,
}

impl Pass {
    /// Compares it with all records of the partition, by offset.
    pub(super) fn check(&self, place: &str, all: &[u64]) {
        let from = usize::try_from(self.from).unwrap();
        let there = all.get(from..from + self.numbers.len());
        assert_eq!(
            there,
            Some(self.numbers.as_slice()),
            "{place}: a reader from {from} on saw something else"
        );
    }
}

/// Reads the partitions of a topic from drawn offsets on, over one connection after another.
pub(super) fn wander(
    address: &str,
    topic: &'static str,
    partitions: u32,
    is_committed: bool,
    load: &Load,
) -> Vec<Pass> {
    let mut passes: Vec<Pass> = Vec::new();
    let mut draws = Draws(u64::from(partitions) * 2 + u64::from(is_committed) + 1);
    while load.goes_on() {
        let partition = draws.below(partitions.into());
        let mut pass = Pass {
            partition: u32::try_from(partition).unwrap(),
            from: -1,
            numbers: Vec::new(),
        };
        // A pass goes on where it was when the process ends.
        while load.goes_on() {
            let asked = Asked {
                topic,
                partition: pass.partition,
                is_committed,
                bytes_max: BYTES[usize::try_from(draws.below(3)).unwrap()],
            };
            let done =
                connect(address).and_then(|stream| read_on(stream, asked, &mut pass, &mut draws, load));
            if done.is_ok() {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        if !pass.numbers.is_empty() {
            passes.push(pass);
        }
    }
    passes
}

/// Reads until the end of the partition, of the pass, or of what is kept.
fn read_on(
    mut stream: TcpStream,
    asked: Asked,
    pass: &mut Pass,
    draws: &mut Draws,
    load: &Load,
) -> io::Result<()> {
    if pass.from < 0 {
        let start = offset_of(&mut stream, asked, EARLIEST)?;
        let end = offset_of(&mut stream, asked, LATEST)?.max(start);
        let kept = u64::try_from(end - start).unwrap_or(0);
        pass.from = start + i64::try_from(draws.below(kept + 1)).unwrap();
    }
    while load.goes_on() && pass.numbers.len() < PASS {
        let next = pass.from + i64::try_from(pass.numbers.len()).unwrap();
        let (code, fetched) = fetch_at(&mut stream, asked, next)?;
        if code == ErrorCode::OffsetOutOfRange.code() {
            // The records before it were deleted meanwhile. A partition does not become shorter.
            let start = offset_of(&mut stream, asked, EARLIEST)?;
            assert!(start > next, "{asked:?}: {next} is not there from {start} on");
            return Ok(());
        }
        assert_eq!(code, 0, "{asked:?} at {next}");
        let numbers = numbers_in(
            asked.topic,
            next,
            fetched.records.unwrap_or_default().into_bytes(),
        );
        if numbers.is_empty() {
            return Ok(());
        }
        pass.numbers.extend(numbers);
    }
    Ok(())
}

/// A sequence of numbers, by xorshift.
struct Draws(u64);

impl Draws {
    fn below(&mut self, max: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % max
    }
}
