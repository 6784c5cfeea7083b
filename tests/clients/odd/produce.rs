//! Produce and `InitProducerId`: malformed batches, and producers out of sequence.

use bytes::Bytes;
use stafett_kafka_wire::messages::produce::{PartitionProduceData, TopicProduceData};
use stafett_kafka_wire::messages::{ApiVersionsRequest, InitProducerIdRequest, ProduceRequest};
use stafett_kafka_wire::{Str, Uuid};
use stafett_model::checksum::crc32c;
use stafett_model::{BatchBuilder, Codec, ProducerId, Record};

use super::asker::{Asker, text};
use super::{Case, case};

const CRC_AT: usize = 17;
const CRC_FROM: usize = 21;

pub(super) fn produce(topic: &str, index: i32, records: Option<Bytes>) -> ProduceRequest {
    ProduceRequest {
        transactional_id: None,
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: text(topic),
            topic_id: Uuid::ZERO,
            partition_data: vec![PartitionProduceData { index, records }],
        }],
    }
}

pub(super) fn builder(builder: BatchBuilder, count: usize) -> BatchBuilder {
    let mut builder = builder;
    for _ in 0..count {
        let record = Record {
            key: Some(b"key"),
            value: Some(b"a value of some length"),
            headers: &[],
            timestamp: 1_700_000_000_000,
        };
        builder.push(&record).unwrap();
    }
    builder
}

pub(super) fn batch(count: usize) -> Bytes {
    builder(BatchBuilder::new(Codec::None), count).finish().unwrap()
}

/// Makes a topic of one partition with three records.
pub(super) fn filled(a: &mut Asker, topic: &str) {
    a.topic(topic, 1);
    assert_eq!(a.codes(9, &produce(topic, 0, Some(batch(3)))), "0", "{topic}");
}

pub(super) fn of_producer(id: i64, epoch: i16, sequence: i32) -> Bytes {
    let empty = BatchBuilder::new(Codec::None).producer(ProducerId(id), epoch, sequence);
    builder(empty, 2).finish().unwrap()
}

/// Returns three records with some bytes replaced at an offset and a matching checksum.
fn changed(at: usize, bytes: &[u8]) -> Bytes {
    resealed(&batch(3), at, bytes)
}

pub(super) fn resealed(batch: &Bytes, at: usize, bytes: &[u8]) -> Bytes {
    let mut batch = batch.to_vec();
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    let crc = crc32c(&batch[CRC_FROM..]);
    batch[CRC_AT..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
    batch.into()
}

/// Sends a batch to a topic of the case's own, in a given version. Returns the error code.
fn send(
    version: i16,
    topic: &'static str,
    records: impl Fn() -> Option<Bytes> + 'static,
) -> Box<dyn Fn(&mut Asker) -> String> {
    Box::new(move |a| {
        a.topic(topic, 1);
        a.codes(version, &produce(topic, 0, records()))
    })
}

fn named(name: &str, run: Box<dyn Fn(&mut Asker) -> String>) -> Case {
    (name.to_owned(), run)
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = batches();
    all.extend(targets());
    all.extend(producers());
    all
}

/// Offsets within a batch: base offset 0, length 8, leader epoch 12, magic 16, checksum 17, attributes 21,
/// last offset delta 23, timestamps 27 and 35, producer 43, its epoch 51, sequence 53, count 57, records from
/// 61.
fn batches() -> Vec<Case> {
    vec![
        named("Produce: a good batch", send(9, "odd.p.good", || Some(batch(3)))),
        named("Produce: no records", send(9, "odd.p.null", || None)),
        named(
            "Produce: empty records",
            send(9, "odd.p.empty", || Some(Bytes::new())),
        ),
        named(
            "Produce: a wrong checksum",
            send(9, "odd.p.crc", || {
                let mut bytes = batch(3).to_vec();
                bytes[CRC_AT] ^= 1;
                Some(bytes.into())
            }),
        ),
        named(
            "Produce: a batch cut short",
            send(9, "odd.p.cut", || Some(batch(3).slice(..70))),
        ),
        named(
            "Produce: less than a batch header",
            send(9, "odd.p.header", || Some(batch(3).slice(..20))),
        ),
        named(
            "Produce: fewer bytes than a magic",
            send(9, "odd.p.few", || Some(batch(3).slice(..12))),
        ),
        named(
            "Produce: bytes behind the batch",
            send(9, "odd.p.behind", || {
                Some([&batch(3)[..], &[0; 5]].concat().into())
            }),
        ),
        named(
            "Produce: two batches",
            send(9, "odd.p.two", || {
                Some([&batch(1)[..], &batch(2)[..]].concat().into())
            }),
        ),
        named(
            "Produce: a batch length of 0",
            send(9, "odd.p.length0", || Some(changed(8, &[0; 4]))),
        ),
        named(
            "Produce: a negative batch length",
            send(9, "odd.p.lengthneg", || Some(changed(8, &[0xff; 4]))),
        ),
        named(
            "Produce: a batch length beyond the records",
            send(9, "odd.p.lengthbig", || {
                Some(changed(8, &10_000_i32.to_be_bytes()))
            }),
        ),
        named(
            "Produce: magic 0",
            send(9, "odd.p.magic0", || Some(changed(16, &[0]))),
        ),
        named(
            "Produce: magic 1",
            send(9, "odd.p.magic1", || Some(changed(16, &[1]))),
        ),
        named(
            "Produce: magic 3",
            send(9, "odd.p.magic3", || Some(changed(16, &[3]))),
        ),
        named(
            "Produce: a negative magic",
            send(9, "odd.p.magicneg", || Some(changed(16, &[0xff]))),
        ),
        named(
            "Produce: an unknown codec",
            send(9, "odd.p.codec", || Some(changed(21, &[0, 7]))),
        ),
        named(
            "Produce: unknown attribute bits",
            send(9, "odd.p.attributes", || Some(changed(21, &[0xff, 0x80]))),
        ),
        named(
            "Produce: uncompressed records that claim gzip",
            send(9, "odd.p.gzip", || Some(changed(21, &[0, 1]))),
        ),
        named(
            "Produce: uncompressed records that claim zstd",
            send(9, "odd.p.zstd", || Some(changed(21, &[0, 4]))),
        ),
        named(
            "Produce: zstd in a version before it",
            send(6, "odd.p.zstdold", || {
                Some(builder(BatchBuilder::new(Codec::None), 1).finish().unwrap())
                    .map(|b| resealed(&b, 21, &[0, 4]))
            }),
        ),
        named(
            "Produce: a control batch",
            send(9, "odd.p.control", || {
                Some(
                    builder(BatchBuilder::new(Codec::None).control(), 1)
                        .finish()
                        .unwrap(),
                )
            }),
        ),
        named(
            "Produce: a transactional batch without a transaction",
            send(9, "odd.p.transactional", || {
                let empty = BatchBuilder::new(Codec::None)
                    .producer(ProducerId(5000), 0, 0)
                    .transactional();
                Some(builder(empty, 1).finish().unwrap())
            }),
        ),
        named(
            "Produce: a batch with a base offset",
            send(9, "odd.p.base", || Some(changed(0, &9_i64.to_be_bytes()))),
        ),
        named(
            "Produce: a count of 0",
            send(9, "odd.p.count0", || Some(changed(57, &[0; 4]))),
        ),
        named(
            "Produce: a negative count",
            send(9, "odd.p.countneg", || Some(changed(57, &[0xff; 4]))),
        ),
        named(
            "Produce: a count of one too many",
            send(9, "odd.p.countmore", || Some(changed(57, &4_i32.to_be_bytes()))),
        ),
        named(
            "Produce: a count of one too few",
            send(9, "odd.p.countless", || Some(changed(57, &2_i32.to_be_bytes()))),
        ),
        named(
            "Produce: a count and a delta of one too many",
            send(9, "odd.p.countdelta", || {
                Some(resealed(
                    &changed(57, &4_i32.to_be_bytes()),
                    23,
                    &3_i32.to_be_bytes(),
                ))
            }),
        ),
        named(
            "Produce: a last offset delta that does not fit",
            send(9, "odd.p.delta", || Some(changed(23, &8_i32.to_be_bytes()))),
        ),
        named(
            "Produce: a negative last offset delta",
            send(9, "odd.p.deltaneg", || Some(changed(23, &[0xff; 4]))),
        ),
        named(
            "Produce: a time far in the future",
            send(9, "odd.p.future", || {
                Some(changed(
                    27,
                    &[0x00, 0x00, 0x10, 0, 0, 0, 0, 0, 0x00, 0x00, 0x10, 0, 0, 0, 0, 0],
                ))
            }),
        ),
        named(
            "Produce: a largest time that is not the records'",
            send(9, "odd.p.maxtime", || {
                Some(changed(35, &1_800_000_000_000_i64.to_be_bytes()))
            }),
        ),
        named(
            "Produce: a negative base time",
            send(9, "odd.p.timeneg", || {
                Some(changed(27, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xf0]))
            }),
        ),
        named(
            "Produce: a record length that lies",
            send(9, "odd.p.record", || Some(changed(61, &[0x7e]))),
        ),
        named(
            "Produce: a negative record length",
            send(9, "odd.p.recordneg", || Some(changed(61, &[0x01]))),
        ),
        named(
            "Produce: a key length beyond its record",
            send(9, "odd.p.key", || Some(changed(65, &[0x7e]))),
        ),
        named(
            "Produce: an offset delta out of order",
            send(9, "odd.p.order", || Some(changed(64, &[0x06]))),
        ),
    ]
}

fn targets() -> Vec<Case> {
    let acks = |acks: i16| {
        move |a: &mut Asker| {
            let topic = format!("odd.p.acks{acks}");
            a.topic(&topic, 1);
            let request = ProduceRequest {
                acks,
                ..produce(&topic, 0, Some(batch(1)))
            };
            a.codes(9, &request)
        }
    };
    let missing = |name: &'static str| move |a: &mut Asker| a.codes(9, &produce(name, 0, Some(batch(1))));
    vec![
        case("Produce: acks of 2", acks(2)),
        case("Produce: acks of -2", acks(-2)),
        case("Produce: acks of 0 to a topic that is not there", |a| {
            let request = ProduceRequest {
                acks: 0,
                ..produce("odd.p.absent", 0, Some(batch(1)))
            };
            let sent = a.send(&super::asker::encoded(9, &request));
            assert!(sent.is_ok());
            a.codes(0, &ApiVersionsRequest::default())
        }),
        case("Produce: a topic that is not there", missing("odd.p.absent")),
        case("Produce: an empty topic name", missing("")),
        case("Produce: a topic called ..", missing("..")),
        case("Produce: a topic with a bad name", missing("odd p/√")),
        case("Produce: a partition that is not there", |a| {
            a.topic("odd.p.partition", 1);
            a.codes(9, &produce("odd.p.partition", 1, Some(batch(1))))
        }),
        case("Produce: a negative partition", |a| {
            a.topic("odd.p.negative", 1);
            a.codes(9, &produce("odd.p.negative", -1, Some(batch(1))))
        }),
        case("Produce: the same partition twice", |a| {
            a.topic("odd.p.twice", 1);
            let mut request = produce("odd.p.twice", 0, Some(batch(1)));
            let again = request.topic_data[0].partition_data[0].clone();
            request.topic_data[0].partition_data.push(again);
            a.codes(9, &request)
        }),
        case("Produce: an unknown topic id", |a| {
            let mut request = produce("", 0, Some(batch(1)));
            request.topic_data[0].topic_id = Uuid([7; 16]);
            a.codes(13, &request)
        }),
        case("Produce: the topic id of zeros", |a| {
            a.codes(13, &produce("", 0, Some(batch(1))))
        }),
        case("Produce: a batch larger than the topic allows", |a| {
            a.topic_with("odd.p.large", 1, &[("max.message.bytes", "100")]);
            a.codes(9, &produce("odd.p.large", 0, Some(batch(10))))
        }),
        case("Produce: good and bad partitions together", |a| {
            a.topic("odd.p.mixed", 2);
            let mut request = produce("odd.p.mixed", 0, Some(batch(1)));
            let partitions = &mut request.topic_data[0].partition_data;
            partitions.push(PartitionProduceData {
                index: 1,
                records: Some(changed(57, &[0; 4])),
            });
            partitions.push(PartitionProduceData {
                index: 9,
                records: Some(batch(1)),
            });
            a.codes(9, &request)
        }),
        case("Produce: nothing at all", |a| {
            let request = ProduceRequest {
                topic_data: Vec::new(),
                ..produce("", 0, None)
            };
            a.codes(9, &request)
        }),
        case("Produce: a transactional id for ordinary records", |a| {
            a.topic("odd.p.tid", 1);
            let request = ProduceRequest {
                transactional_id: Some(text("odd")),
                ..produce("odd.p.tid", 0, Some(batch(1)))
            };
            a.codes(9, &request)
        }),
    ]
}

fn init(a: &mut Asker, transactional_id: Option<&str>, timeout: i32, id: i64, epoch: i16) -> String {
    let request = InitProducerIdRequest {
        transactional_id: transactional_id.map(text),
        transaction_timeout_ms: timeout,
        producer_id: id,
        producer_epoch: epoch,
    };
    a.codes_of_coordinator(4, &request)
}

/// Sends batches of two records, each with the epoch and the sequence that are given; one code each.
fn sequences(topic: &'static str, steps: &'static [(i16, i32)]) -> impl Fn(&mut Asker) -> String {
    move |a| {
        a.topic(topic, 1);
        let request = InitProducerIdRequest {
            transactional_id: None::<Str>,
            transaction_timeout_ms: -1,
            producer_id: -1,
            producer_epoch: -1,
        };
        let id = a.ask(4, &request).unwrap().producer_id;
        let codes: Vec<String> = steps
            .iter()
            .map(|(epoch, sequence)| a.codes(9, &produce(topic, 0, Some(of_producer(id, *epoch, *sequence)))))
            .collect();
        codes.join("; ")
    }
}

fn producers() -> Vec<Case> {
    vec![
        case("InitProducerId: an id without an epoch", |a| {
            init(a, None, -1, 10, -1)
        }),
        case("InitProducerId: an epoch without an id", |a| {
            init(a, None, -1, -1, 3)
        }),
        case("InitProducerId: an id that nobody gave out", |a| {
            init(a, None, -1, 1 << 40, 3)
        }),
        case("InitProducerId: an empty transactional id", |a| {
            init(a, Some(""), 60_000, -1, -1)
        }),
        case(
            "Produce: sequences that begin at 5",
            sequences("odd.p.begin", &[(0, 5)]),
        ),
        case(
            "Produce: a sequence skipped",
            sequences("odd.p.skip", &[(0, 0), (0, 4), (0, 2)]),
        ),
        case(
            "Produce: a batch sent twice",
            sequences("odd.p.double", &[(0, 0), (0, 0), (0, 2), (0, 0)]),
        ),
        case(
            "Produce: a sequence older than five batches",
            sequences(
                "odd.p.old",
                &[(0, 0), (0, 2), (0, 4), (0, 6), (0, 8), (0, 10), (0, 0)],
            ),
        ),
        case(
            "Produce: an epoch that is over",
            sequences("odd.p.epoch", &[(1, 0), (0, 0), (1, 2)]),
        ),
        case(
            "Produce: a new epoch that does not begin at 0",
            sequences("odd.p.newepoch", &[(0, 0), (1, 2), (1, 0)]),
        ),
        case("Produce: a producer id that nobody gave out", |a| {
            a.topic("odd.p.nobody", 1);
            a.codes(9, &produce("odd.p.nobody", 0, Some(of_producer(1 << 41, 0, 0))))
        }),
        case("Produce: a producer id without a sequence", |a| {
            a.topic("odd.p.nosequence", 1);
            a.codes(9, &produce("odd.p.nosequence", 0, Some(of_producer(77, 0, -1))))
        }),
        case("Produce: a producer id without an epoch", |a| {
            a.topic("odd.p.noepoch", 1);
            a.codes(9, &produce("odd.p.noepoch", 0, Some(of_producer(77, -1, 0))))
        }),
    ]
}
