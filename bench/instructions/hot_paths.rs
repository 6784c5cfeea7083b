//! Instructions of the hot paths, counted by callgrind. `run` divides them by the operations and records of its table.

use std::hint::black_box;

use bytes::Bytes;
use gungraun::{LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};
use stafett_bench_instructions::core::{self, Core};
use stafett_bench_instructions::{
    Bench, PRODUCE_VERSION, batch, fetch_response, pieces, produce_request, produce_response, record,
};
use stafett_journal::LogSlice;
use stafett_kafka_wire::frame::{open_request, read_request, write_response};
use stafett_kafka_wire::messages::produce::{ProduceRequest, ProduceResponse};
use stafett_kafka_wire::{DecodeLimits, Encoded};
use stafett_messaging::Publish;
use stafett_model::{BatchHeader, Durability, ProduceLimits, sole_batch};

/// Other values of a bench than its result are dropped outside of the counted part.
type Kept<T, R> = (T, R);

#[library_benchmark]
#[bench::six_partitions(setup = produce_request)]
fn produce_decode(frame: Bytes) -> ProduceRequest {
    let (header, body) = open_request(black_box(frame), DecodeLimits::default()).expect("a sound header");
    read_request(body, header.version).expect("a sound request")
}

#[library_benchmark]
#[bench::six_partitions(setup = produce_response)]
fn produce_answer_encode(response: ProduceResponse) -> Kept<ProduceResponse, Encoded> {
    let encoded = write_response::<ProduceRequest>(PRODUCE_VERSION, 9, black_box(&response));
    (response, encoded.expect("a sound response"))
}

#[library_benchmark]
#[bench::one_mib(setup = pieces)]
fn fetch_answer_encode(pieces: Vec<Bytes>) -> Encoded {
    fetch_response(black_box(pieces))
}

#[library_benchmark]
#[bench::of_64_kib(setup = batch)]
#[bench::of_one_record(setup = record)]
fn validate(batch: Bytes) -> (Bytes, BatchHeader) {
    sole_batch(black_box(&batch), &ProduceLimits::default()).expect("a sound batch")
}

fn batch_at_sync() -> (Bench, Bytes) {
    (Bench::to_append(Durability::Sync), batch())
}

fn record_at_sync() -> (Bench, Bytes) {
    (Bench::to_append(Durability::Sync), record())
}

fn record_at_os() -> (Bench, Bytes) {
    (Bench::to_append(Durability::Os), record())
}

#[library_benchmark]
#[bench::of_64_kib_at_sync(setup = batch_at_sync)]
fn append_256(input: (Bench, Bytes)) -> Bench {
    let (mut bench, batch) = input;
    bench.append(black_box(&batch), 256);
    bench
}

#[library_benchmark]
#[bench::of_one_record_at_sync(setup = record_at_sync)]
#[bench::of_one_record_at_os(setup = record_at_os)]
fn append_1024(input: (Bench, Bytes)) -> Bench {
    let (mut bench, batch) = input;
    bench.append(black_box(&batch), 1024);
    bench
}

#[library_benchmark]
#[bench::of_one_record_at_sync(setup = record_at_sync)]
fn append_16_times_64(input: (Bench, Bytes)) -> Bench {
    let (mut bench, batch) = input;
    for _ in 0..16 {
        bench.append_together(black_box(&batch), 64);
    }
    bench
}

#[library_benchmark]
#[bench::one_mib(setup = Bench::to_read)]
fn read_hot(bench: Bench) -> Kept<Bench, LogSlice> {
    let run = bench.read(black_box(true));
    (bench, run)
}

#[library_benchmark]
#[bench::one_mib(setup = Bench::to_read)]
fn read_cold(bench: Bench) -> Kept<Bench, LogSlice> {
    let run = bench.read(black_box(false));
    (bench, run)
}

#[library_benchmark]
#[bench::six_batches(setup = core::with_batch)]
fn core_append(input: (Core, Bytes)) -> (Core, Bytes) {
    let (core, batch) = input;
    core.append(black_box(&batch));
    (core, batch)
}

#[library_benchmark]
#[bench::of_64(setup = core::with_unpublished)]
fn core_publish(input: (Core, Vec<Publish>)) -> Core {
    let (core, messages) = input;
    core.publish(black_box(messages));
    core
}

#[library_benchmark]
#[bench::of_64(setup = Core::with_messages)]
fn core_consume(core: Core) -> Core {
    core.consume();
    core
}

#[library_benchmark]
#[bench::to_1000(setup = Core::start)]
fn core_live(core: Core) -> Core {
    core.publish_live();
    core
}

#[library_benchmark]
#[bench::unchanged(setup = Core::start)]
fn core_heartbeat(core: Core) -> Core {
    core.heartbeat();
    core
}

#[library_benchmark]
#[bench::of_64(setup = Core::start)]
fn core_commit(core: Core) -> Core {
    core.commit();
    core
}

library_benchmark_group!(
    name = hot_paths,
    benchmarks = [
        produce_decode,
        produce_answer_encode,
        fetch_answer_encode,
        validate,
        append_256,
        append_1024,
        append_16_times_64,
        read_hot,
        read_cold,
        core_append,
        core_publish,
        core_consume,
        core_live,
        core_heartbeat,
        core_commit
    ]
);
main!(
    // Callgrind counts a repeated string instruction once per byte: copy with vectors instead.
    config = LibraryBenchmarkConfig::default().env(
        "GLIBC_TUNABLES",
        "glibc.cpu.x86_rep_movsb_threshold=1073741824:glibc.cpu.x86_rep_stosb_threshold=1073741824"
    ),
    library_benchmark_groups = hot_paths
);
