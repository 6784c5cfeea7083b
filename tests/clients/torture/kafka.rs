//! Kafka side: producers of large batches over plain sockets, and readers that delete the records they have
//! read.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, Read as _, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use stafett_kafka_wire::messages::create_topics::CreatableTopic;
use stafett_kafka_wire::messages::delete_records::{DeleteRecordsPartition, DeleteRecordsTopic};
use stafett_kafka_wire::messages::fetch::{FetchPartition, FetchTopic, PartitionData};
use stafett_kafka_wire::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use stafett_kafka_wire::messages::produce::{PartitionProduceData, TopicProduceData};
use stafett_kafka_wire::messages::{
    CreateTopicsRequest, DeleteRecordsRequest, FetchRequest, ListOffsetsRequest, ProduceRequest,
};
use stafett_kafka_wire::{DecodeLimits, ErrorCode, Request, Str, frame};
use stafett_model::{BatchBuilder, BatchHeader, Codec, Record};

use super::load::{Load, Sent, Work};
use super::{AHEAD, BATCH, LANES, PATIENCE, content, number_of};

const PRODUCE_VERSION: i16 = 9;
/// Records that are read before they are deleted.
const KEPT: i64 = 16;

/// Partitions of one producer: each of its requests has a batch for each of them.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    pub(super) topic: &'static str,
    partitions: Range<u32>,
}

impl Lane {
    pub(super) const fn new(topic: &'static str, partitions: Range<u32>) -> Self {
        Self { topic, partitions }
    }
}

/// Returns the topics of all lanes, with their number of partitions.
pub(super) fn topics() -> Vec<(&'static str, u32)> {
    let names: BTreeSet<&str> = LANES.iter().map(|lane| lane.topic).collect();
    let count = |name: &str| {
        let lanes = LANES.iter().filter(|lane| lane.topic == name);
        lanes.map(|lane| lane.partitions.end).max().unwrap()
    };
    names.into_iter().map(|name| (name, count(name))).collect()
}

fn work(topic: &str) -> Work {
    if topic == LANES[0].topic {
        Work::Produce
    } else {
        Work::ProduceWide
    }
}

pub(super) fn connect(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn send<R: Request>(stream: &mut TcpStream, version: i16, request: &R) -> io::Result<()> {
    let name = Some(Str::from_static("torture"));
    let bytes = frame::write_request(version, 1, name, request)
        .unwrap()
        .into_bytes();
    stream.write_all(&bytes)
}

fn receive<R: Request>(stream: &mut TcpStream, version: i16) -> io::Result<R::Response> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut payload = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
    stream.read_exact(&mut payload)?;
    let (_, response) =
        frame::read_response::<R>(Bytes::from(payload), version, DecodeLimits::default()).unwrap();
    Ok(response)
}

pub(super) fn create(address: &str, topic: &'static str, partitions: u32) {
    let mut stream = connect(address).unwrap();
    let topic = CreatableTopic {
        name: topic.into(),
        num_partitions: partitions.cast_signed(),
        replication_factor: -1,
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest {
        topics: vec![topic],
        ..CreateTopicsRequest::default()
    };
    send(&mut stream, 7, &request).unwrap();
    let created = receive::<CreateTopicsRequest>(&mut stream, 7).unwrap();
    assert_eq!(created.topics[0].error_code, 0);
}

/// Produces to the partitions of a lane, over one connection after another.
pub(super) fn produce(address: &str, lane: &Lane, load: &Load) -> Vec<Sent> {
    let mut sent: Vec<Sent> = lane.partitions.clone().map(|_| Sent::default()).collect();
    while load.goes_on() {
        // The listener ends with the process and is absent until the next start.
        if connect(address)
            .and_then(|stream| produce_on(stream, lane, load, &mut sent))
            .is_err()
        {
            thread::sleep(Duration::from_millis(5));
        }
    }
    sent
}

fn produce_on(mut stream: TcpStream, lane: &Lane, load: &Load, sent: &mut [Sent]) -> io::Result<()> {
    let work = work(lane.topic);
    let mut waiting = VecDeque::new();
    while load.goes_on() || !waiting.is_empty() {
        if load.goes_on() && waiting.len() < AHEAD && load.has_room(work) {
            let numbers: Vec<u64> = sent.iter_mut().map(Sent::number).collect();
            send(&mut stream, PRODUCE_VERSION, &request(lane, &numbers))?;
            waiting.push_back(numbers);
            continue;
        }
        if waiting.is_empty() {
            continue;
        }
        let answers = answers(&mut stream, lane)?;
        let numbers = waiting.pop_front().unwrap();
        for ((sent, number), code) in sent.iter_mut().zip(numbers).zip(answers) {
            if code == 0 {
                sent.acknowledge(number);
                load.done(work);
            } else {
                sent.refuse(number, format!("error {code}"));
            }
        }
    }
    Ok(())
}

/// Produces a record that must be accepted.
pub(super) fn produce_one(address: &str, topic: &'static str, partition: u32, sent: &mut Sent) {
    let lane = Lane::new(topic, partition..partition + 1);
    let mut stream = connect(address).unwrap();
    let number = sent.number();
    send(&mut stream, PRODUCE_VERSION, &request(&lane, &[number])).unwrap();
    assert_eq!(
        answers(&mut stream, &lane).unwrap(),
        [0],
        "{topic}/{partition} takes nothing more"
    );
    sent.acknowledge(number);
}

/// The error codes of an answer, in the order of the lane's partitions.
fn answers(stream: &mut TcpStream, lane: &Lane) -> io::Result<Vec<i16>> {
    let answer = receive::<ProduceRequest>(stream, PRODUCE_VERSION)?;
    let of = |partition: u32| {
        let mut answers = answer.responses[0].partition_responses.iter();
        let answer = answers.find(|answer| answer.index == partition.cast_signed());
        answer.unwrap().error_code
    };
    Ok(lane.partitions.clone().map(of).collect())
}

fn request(lane: &Lane, numbers: &[u64]) -> ProduceRequest {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let batch = |number: u64| {
        let mut batch = BatchBuilder::new(Codec::None);
        let value = content(number, &BATCH);
        let record = Record {
            value: Some(&value),
            timestamp: i64::try_from(now.as_millis()).unwrap(),
            ..Record::default()
        };
        batch.push(&record).unwrap();
        batch.finish().unwrap()
    };
    let partitions = lane.partitions.clone().zip(numbers);
    ProduceRequest {
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: lane.topic.into(),
            partition_data: partitions
                .map(|(partition, number)| PartitionProduceData {
                    index: partition.cast_signed(),
                    records: Some(batch(*number)),
                })
                .collect(),
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    }
}

/// Records read from a partition.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// Records by offset.
    numbers: Vec<u64>,
    /// Offsets below this one are deleted.
    deleted: i64,
}

impl Read {
    pub(super) fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    fn offset(&self) -> i64 {
        i64::try_from(self.numbers.len()).unwrap()
    }
}

/// Reads the partitions of a topic and deletes the records it has read, over one connection after another.
pub(super) fn follow(address: &str, topic: &'static str, partitions: u32, load: &Load) -> Vec<Read> {
    let mut read: Vec<Read> = (0..partitions).map(|_| Read::default()).collect();
    while load.goes_on() {
        if connect(address)
            .and_then(|stream| follow_on(stream, topic, load, &mut read))
            .is_err()
        {
            thread::sleep(Duration::from_millis(5));
        }
    }
    read
}

fn follow_on(mut stream: TcpStream, topic: &'static str, load: &Load, read: &mut [Read]) -> io::Result<()> {
    let work = work(topic);
    while load.goes_on() {
        let before = read.iter().map(Read::offset).sum::<i64>();
        for (partition, read) in (0..).zip(&mut *read) {
            for _ in 0..fetch(&mut stream, topic, partition, read)?.0 {
                load.read(work);
            }
            if read.offset() - read.deleted > KEPT {
                delete(&mut stream, topic, partition, read)?;
            }
        }
        if before == read.iter().map(Read::offset).sum::<i64>() {
            load.all_read(work);
            thread::sleep(Duration::from_millis(2));
        }
    }
    Ok(())
}

/// Reads a partition to its end. Deleted records must still be gone.
pub(super) fn read_rest(address: &str, topic: &'static str, partition: u32, read: &mut Read) {
    let mut stream = connect(address).unwrap();
    if read.deleted > 0 {
        let (code, _) = fetch_at(&mut stream, Asked::all(topic, partition), read.deleted - 1).unwrap();
        assert_eq!(
            code,
            ErrorCode::OffsetOutOfRange.code(),
            "{topic}/{partition}: what was deleted is back"
        );
    }
    let begun = Instant::now();
    loop {
        let (_, end) = fetch(&mut stream, topic, partition, read).unwrap();
        if read.offset() == end {
            return;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{topic}/{partition}: {} of {end}",
            read.offset()
        );
    }
}

/// Reads the next records. Returns their number and the end of the partition.
fn fetch(
    stream: &mut TcpStream,
    topic: &'static str,
    partition: u32,
    read: &mut Read,
) -> io::Result<(u64, i64)> {
    let place = format!("{topic}/{partition} at {}", read.offset());
    let (code, fetched) = fetch_at(stream, Asked::all(topic, partition), read.offset())?;
    assert_eq!(code, 0, "{place}");
    let bytes = fetched.records.unwrap_or_default().into_bytes();
    let numbers = numbers_in(topic, read.offset(), bytes);
    let count = numbers.len() as u64;
    read.numbers.extend(numbers);
    Ok((count, fetched.high_watermark))
}

/// Returns the numbers of fetched records, which must begin at an offset and have no gap.
pub(super) fn numbers_in(topic: &'static str, from: i64, mut bytes: Bytes) -> Vec<u64> {
    let mut numbers = Vec::new();
    while !bytes.is_empty() {
        let header = BatchHeader::verify(&bytes).unwrap();
        let next = from + i64::try_from(numbers.len()).unwrap();
        assert_eq!(header.base_offset, next, "{topic} from {from} on");
        let batch = bytes.split_to(header.bytes);
        for record in stafett_model::records(&batch, 1 << 20).unwrap() {
            let record = record.unwrap();
            numbers.push(number_of(topic, &record.value.unwrap(), &BATCH));
        }
    }
    numbers
}

/// A partition that is fetched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) topic: &'static str,
    pub(super) partition: u32,
    pub(super) is_committed: bool,
    pub(super) bytes_max: i32,
}

impl Asked {
    fn all(topic: &'static str, partition: u32) -> Self {
        Self {
            topic,
            partition,
            is_committed: false,
            bytes_max: 8 << 20,
        }
    }
}

pub(super) fn fetch_at(
    stream: &mut TcpStream,
    asked: Asked,
    offset: i64,
) -> io::Result<(i16, PartitionData)> {
    let partition = FetchPartition {
        partition: asked.partition.cast_signed(),
        fetch_offset: offset,
        partition_max_bytes: asked.bytes_max,
        ..FetchPartition::default()
    };
    let request = FetchRequest {
        isolation_level: asked.is_committed.into(),
        topics: vec![FetchTopic {
            topic: asked.topic.into(),
            partitions: vec![partition],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    };
    send(stream, 12, &request)?;
    let mut response = receive::<FetchRequest>(stream, 12)?;
    let fetched = response.responses.remove(0).partitions.remove(0);
    Ok((fetched.error_code, fetched))
}

/// Returns the offset for a timestamp.
pub(super) fn offset_of(stream: &mut TcpStream, asked: Asked, timestamp: i64) -> io::Result<i64> {
    let partition = ListOffsetsPartition {
        partition_index: asked.partition.cast_signed(),
        timestamp,
        ..ListOffsetsPartition::default()
    };
    let request = ListOffsetsRequest {
        isolation_level: asked.is_committed.into(),
        topics: vec![ListOffsetsTopic {
            name: asked.topic.into(),
            partitions: vec![partition],
        }],
        ..ListOffsetsRequest::default()
    };
    send(stream, 7, &request)?;
    let answer = receive::<ListOffsetsRequest>(stream, 7)?;
    let partition = &answer.topics[0].partitions[0];
    assert_eq!(partition.error_code, 0, "{asked:?}");
    Ok(partition.offset)
}

/// Deletes the records read from a partition, if the broker can do that now.
fn delete(stream: &mut TcpStream, topic: &'static str, partition: u32, read: &mut Read) -> io::Result<()> {
    let request = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: topic.into(),
            partitions: vec![DeleteRecordsPartition {
                partition_index: partition.cast_signed(),
                offset: read.offset(),
            }],
        }],
        timeout_ms: 30_000,
    };
    send(stream, 2, &request)?;
    let answer = receive::<DeleteRecordsRequest>(stream, 2)?;
    if answer.topics[0].partitions[0].error_code == 0 {
        read.deleted = read.offset();
    }
    Ok(())
}
