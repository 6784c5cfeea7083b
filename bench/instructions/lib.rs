//! What the benches need: batches, requests, a journal without threads on files in memory.

pub mod core;
mod memory;

use bytes::Bytes;
use stafett_journal::disk::settings::Clock;
use stafett_journal::{
    Append, DiskJournal, Frame, Journal, LogSlice, LogSpec, Metrics, Outcome, ReadFrom, ReadRequest,
    Settings, StateWait, Visibility,
};
use stafett_kafka_wire::frame::{write_request, write_response};
use stafett_kafka_wire::messages::fetch::{
    FetchRequest, FetchResponse, FetchableTopicResponse, PartitionData,
};
use stafett_kafka_wire::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceData,
    TopicProduceResponse,
};
use stafett_kafka_wire::{Encoded, Records, Uuid};
use stafett_model::{BatchBuilder, Codec, Durability, LogId, Offset, Record};

use self::memory::{MemoryStorage, Segments};

pub const PARTITIONS: i32 = 6;
pub const PRODUCE_VERSION: i16 = 13;
pub const FETCH_VERSION: i16 = 17;
/// Batches of 64 KiB that are 1 MiB.
pub const BATCHES_OF_MIB: usize = 16;
/// Records of 100 B in 64 KiB.
pub const RECORDS_OF_BATCH: usize = 591;
const BATCH_BYTES: usize = 64 << 10;
const TOPIC: Uuid = Uuid([7; 16]);

/// As many records of 100 B as 64 KiB hold, uncompressed.
pub fn batch() -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None);
    while builder.bytes() + 110 < BATCH_BYTES {
        push(&mut builder);
    }
    assert_eq!(builder.len(), RECORDS_OF_BATCH, "the table divides by this");
    builder.finish().expect("a sound batch")
}

/// A batch of one record of 100 B.
pub fn record() -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None);
    push(&mut builder);
    builder.finish().expect("a sound batch")
}

fn push(builder: &mut BatchBuilder) {
    let timestamp = 1_700_000_000_000 + i64::try_from(builder.len()).expect("few records");
    let record = Record {
        key: None,
        value: Some(&[b'x'; 100]),
        headers: &[],
        timestamp,
    };
    builder.push(&record).expect("a sound record");
}

/// A batch to six partitions each, as a connection reads it from its socket.
pub fn produce_request() -> Bytes {
    let partition = |index| PartitionProduceData {
        index,
        records: Some(batch()),
    };
    let request = ProduceRequest {
        transactional_id: None,
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            topic_id: TOPIC,
            partition_data: (0..PARTITIONS).map(partition).collect(),
            ..TopicProduceData::default()
        }],
    };
    let mut frame = write_request(PRODUCE_VERSION, 9, Some("producer-1".into()), &request)
        .expect("a sound request")
        .into_bytes();
    // The opened part starts behind the length.
    frame.split_off(4)
}

/// The answer to that.
pub fn produce_response() -> ProduceResponse {
    let partition = |index| PartitionProduceResponse {
        index,
        base_offset: 123_456_789,
        log_append_time_ms: -1,
        ..PartitionProduceResponse::default()
    };
    ProduceResponse {
        responses: vec![TopicProduceResponse {
            topic_id: TOPIC,
            partition_responses: (0..PARTITIONS).map(partition).collect(),
            ..TopicProduceResponse::default()
        }],
        ..ProduceResponse::default()
    }
}

/// The pieces of 1 MiB of one partition, as the journal returns them.
pub fn pieces() -> Vec<Bytes> {
    (0..BATCHES_OF_MIB).map(|_| batch()).collect()
}

/// The answer to a fetch, with these pieces, as it goes to the socket.
pub fn fetch_response(pieces: Vec<Bytes>) -> Encoded {
    let mut records = Records::new();
    pieces.into_iter().for_each(|piece| records.push(piece));
    let response = FetchResponse {
        session_id: 5,
        responses: vec![FetchableTopicResponse {
            topic_id: TOPIC,
            partitions: vec![PartitionData {
                partition_index: 3,
                high_watermark: 1_000_000,
                last_stable_offset: 1_000_000,
                log_start_offset: 0,
                records: Some(records),
                ..PartitionData::default()
            }],
            ..FetchableTopicResponse::default()
        }],
        ..FetchResponse::default()
    };
    write_response::<FetchRequest>(FETCH_VERSION, 9, &response).expect("a sound response")
}

/// Bytes of recent groups that stay in memory.
const TAIL_CACHE_BYTES: usize = 4 << 20;

/// A journal with one log, to which some was appended already.
pub struct Bench {
    journal: DiskJournal,
    log: LogId,
    last: u64,
}

impl Bench {
    /// For appends: bytes that are written to segments are forgotten.
    pub fn to_append(durability: Durability) -> Self {
        let mut bench = Self::open(durability, Segments::Forgotten);
        bench.append(&batch(), 4);
        bench
    }

    /// For reads: three segments, of which the first two have sidecars; the last 4 MiB are in memory.
    pub fn to_read() -> Self {
        let mut bench = Self::open(Durability::Os, Segments::Kept);
        bench.append(&batch(), 20 * BATCHES_OF_MIB);
        bench
    }

    fn open(durability: Durability, segments: Segments) -> Self {
        let settings = Settings {
            segment_bytes: 8 << 20,
            tail_cache_bytes: TAIL_CACHE_BYTES,
            disk_free_bytes_min: 0,
            clock: Clock::new(|| 1_700_000_000_000),
            threads: false,
            ..Settings::default()
        };
        let storage = MemoryStorage::shared(segments);
        let journal = DiskJournal::open_on(storage, settings, Metrics::new()).expect("an empty disk");
        let log = journal.allocate(1);
        let create = Frame::CreateLogs {
            first: log,
            count: 1,
            spec: LogSpec {
                durability,
                ..LogSpec::default()
            },
        };
        let ticket = journal.append(vec![Append::state([create], StateWait::Synced)]);
        journal.pump();
        assert!(matches!(ticket.wait().as_slice(), [Outcome::Committed(_)]));
        Self {
            journal,
            log,
            last: 0,
        }
    }

    /// Appends a batch so often, each time to the end: staged, written, synced, acknowledged.
    pub fn append(&mut self, batch: &Bytes, times: usize) {
        for _ in 0..times {
            let ticket = self.journal.append(vec![Append::batch(self.log, batch.clone())]);
            self.journal.pump();
            let outcomes = ticket.wait();
            let [Outcome::Committed(placed)] = outcomes.as_slice() else {
                panic!("it was not stored: {outcomes:?}");
            };
            self.last = placed[0].base.0;
        }
    }

    /// Appends a batch so often in one go, as a connection does with what its client sent ahead.
    pub fn append_together(&mut self, batch: &Bytes, times: usize) {
        let appends = (0..times).map(|_| Append::batch(self.log, batch.clone()));
        let ticket = self.journal.append(appends.collect());
        self.journal.pump();
        let outcomes = ticket.wait();
        assert_eq!(outcomes.len(), times);
        let is_stored = |outcome: &Outcome| matches!(outcome, Outcome::Committed(_));
        assert!(outcomes.iter().all(is_stored), "{outcomes:?}");
    }

    /// Reads 1 MiB: the last batches, or the first.
    pub fn read(&self, last: bool) -> LogSlice {
        let behind = (BATCHES_OF_MIB - 1) * RECORDS_OF_BATCH;
        let offset = if last { self.last - behind as u64 } else { 0 };
        let request = ReadRequest {
            logs: vec![ReadFrom {
                log: self.log,
                offset: Offset(offset),
                bytes_max: 1 << 20,
                visibility: Visibility::Stored,
            }],
            bytes_max: 1 << 20,
            first_batch_whole: true,
        };
        let run = self.journal.read(request).wait().expect("it waits").remove(0);
        let run = run.expect("the log can be read");
        let records = (BATCHES_OF_MIB * RECORDS_OF_BATCH) as u64;
        assert_eq!(run.next.0 - offset, records, "the table divides by this");
        run
    }
}
