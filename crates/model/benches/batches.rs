//! Cost of one received record: the checksum and the validation, and for comparison building and reading.
//! `cargo bench -p stafett-model`
//!
//! Prints the best of many rounds in nanoseconds per record: the figure least disturbed by other work on the
//! machine.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench: its output is its purpose"
)]

use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use stafett_model::{BatchBuilder, BatchHeader, Codec, ProduceLimits, Record, records, validate_produced};

const ROUNDS: u32 = 300;

fn main() {
    println!(
        "{:>10} {:>8} {:>9} {:>9} {:>9} {:>9}",
        "value", "records", "verify", "validate", "read", "build"
    );
    for (value_bytes, count) in [(10, 3000), (100, 600), (100, 10_000), (1024, 64)] {
        let batch = build(value_bytes, count);
        let limits = ProduceLimits {
            batch_bytes_max: usize::MAX,
            ..ProduceLimits::default()
        };
        let verify = best(count, || BatchHeader::verify(black_box(&batch)).unwrap());
        let validate = best(count, || validate_produced(black_box(&batch), &limits).unwrap());
        let read = best(count, || records(black_box(&batch), 0).unwrap().flatten().count());
        let built = best(count, || build(value_bytes, count));
        println!(
            "{value_bytes:>8} B {count:>8} {verify:>6.2} ns {validate:>6.2} ns {read:>6.2} ns {built:>6.2} ns"
        );
    }
}

fn build(value_bytes: usize, count: u32) -> Bytes {
    let value = vec![b'x'; value_bytes];
    let mut builder = BatchBuilder::with_capacity(Codec::None, (value_bytes + 16) * count as usize);
    for nth in 0..count {
        let timestamp = 1_700_000_000_000 + i64::from(nth / 100);
        builder
            .push(&Record {
                value: Some(&value),
                timestamp,
                ..Record::default()
            })
            .unwrap();
    }
    builder.finish().unwrap()
}

fn best<T>(count: u32, mut run: impl FnMut() -> T) -> f64 {
    let timed = |_| {
        let start = Instant::now();
        black_box(run());
        start.elapsed()
    };
    (0..ROUNDS).map(timed).min().unwrap().as_secs_f64() * 1e9 / f64::from(count)
}
