//! A producer whose broker fails now and then: each record is stored once and in order, or reported as
//! failed.

use std::sync::{Arc, Mutex};

use stafett_kafka_client::{Client, Delivery, Producer, ProducerSettings};
use stafett_kafka_wire::messages::produce::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse,
};
use stafett_kafka_wire::messages::{
    InitProducerIdRequest, InitProducerIdResponse, ProduceRequest, ProduceResponse,
};
use stafett_kafka_wire::{ApiKey, ErrorCode, Str, frame};
use stafett_model::{BatchHeader, Codec, Record};
use tokio::net::TcpListener;

use crate::stub::{Reply, answer, metadata, options, serve, versions};

/// State of the broker: sequences of stored batches, and the number of requests.
#[derive(Default)]
struct Stored {
    sequences: Vec<(i32, i32)>,
    requests: u32,
}

/// Fault of the n-th produce request, injected before the sequence is checked.
type Fault = fn(u32) -> Option<ErrorCode>;

/// A broker that checks sequences as brokers do.
async fn broker(fault: Fault) -> (String, Arc<Mutex<Stored>>) {
    let stored = Arc::new(Mutex::new(Stored::default()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let state = Arc::clone(&stored);
    serve(
        listener,
        Arc::new(move |header, body| match header.api {
            ApiKey::ApiVersions => versions(header),
            ApiKey::Metadata => metadata(header, &[address], &[0]),
            ApiKey::InitProducerId => {
                let response = InitProducerIdResponse {
                    producer_id: 42,
                    producer_epoch: 0,
                    ..InitProducerIdResponse::default()
                };
                answer::<InitProducerIdRequest>(header, &response)
            }
            _ => {
                let request: ProduceRequest = frame::read_request(body, header.version).unwrap();
                let row = &request.topic_data[0].partition_data[0];
                let batch = BatchHeader::verify(row.records.as_ref().unwrap()).unwrap();
                let Some(code) = store(&mut state.lock().unwrap(), &batch, fault) else {
                    return Reply::Close;
                };
                let blamed = BatchIndexAndErrorMessage {
                    batch_index: 1,
                    batch_index_error_message: Some(Str::from_static("it is bad")),
                };
                let is_bad = code == ErrorCode::InvalidRecord;
                let response = ProduceResponse {
                    responses: vec![TopicProduceResponse {
                        topic_id: request.topic_data[0].topic_id,
                        partition_responses: vec![PartitionProduceResponse {
                            error_code: code.code(),
                            base_offset: batch.base_sequence.into(),
                            record_errors: is_bad.then_some(blamed).into_iter().collect(),
                            ..PartitionProduceResponse::default()
                        }],
                        ..TopicProduceResponse::default()
                    }],
                    ..ProduceResponse::default()
                };
                answer::<ProduceRequest>(header, &response)
            }
        }),
    );
    (address.to_string(), stored)
}

/// `None` if the connection is lost after the batch was stored.
fn store(stored: &mut Stored, batch: &BatchHeader, fault: Fault) -> Option<ErrorCode> {
    stored.requests += 1;
    let fault = fault(stored.requests);
    if let Some(code) = fault.filter(|code| *code != ErrorCode::NetworkException) {
        return Some(code);
    }
    let next = stored.sequences.last().map_or(0, |(first, count)| first + count);
    let row = (batch.base_sequence, batch.record_count);
    let code = if stored.sequences.contains(&row) {
        ErrorCode::DuplicateSequenceNumber
    } else if batch.base_sequence == next {
        stored.sequences.push(row);
        ErrorCode::None
    } else {
        ErrorCode::OutOfOrderSequenceNumber
    };
    fault.is_none().then_some(code)
}

/// Sends `count` records in small batches, and returns their deliveries.
async fn send(server: String, count: u64) -> Vec<(u64, u64, Result<i64, String>, Vec<u64>)> {
    let client = Client::connect(&[server], options()).await.unwrap();
    let topic = client.topic("t").await.unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let settings = ProducerSettings {
        batch_bytes: 400,
        codec: Codec::Lz4,
        ..ProducerSettings::default()
    };
    let mut producer = Producer::open(client, topic, settings, move |delivery: Delivery| {
        let (first, count) = delivery.marks.runs()[0];
        let culprits = delivery.culprits.iter().map(|(mark, _)| *mark).collect();
        let result = delivery.result.map_err(|error| error.to_string());
        telling.lock().unwrap().push((first, count, result, culprits));
    })
    .await
    .unwrap();
    for number in 0..count {
        let record = Record {
            value: Some(&[b'x'; 40]),
            ..Record::default()
        };
        producer.push(0, &record, number).await.unwrap();
    }
    producer.finish().await;
    std::mem::take(&mut *told.lock().unwrap())
}

#[tokio::test]
async fn failures_that_pass_neither_double_nor_reorder_nor_lose() {
    let faults: [Fault; 4] = [
        |_| None,
        |request| (request % 7 == 3).then_some(ErrorCode::NotLeaderOrFollower),
        // Stored, but the connection closes before the answer.
        |request| (request % 11 == 5).then_some(ErrorCode::NetworkException),
        |request| (request == 1).then_some(ErrorCode::LeaderNotAvailable),
    ];
    for fault in faults {
        let (server, stored) = broker(fault).await;
        let told = send(server, 300).await;
        let mut next = 0;
        for (first, count, result, _) in &told {
            assert_eq!((*first, result), (next, &Ok(i64::try_from(next).unwrap())));
            next += count;
        }
        assert_eq!(next, 300, "everything is told once, in order");
        let stored = stored.lock().unwrap();
        assert_eq!(stored.sequences.iter().map(|(_, count)| count).sum::<i32>(), 300);
    }
}

#[tokio::test]
async fn after_a_failure_that_stays_what_is_behind_fails_too_and_the_culprit_is_named() {
    let (server, stored) = broker(|request| (request == 3).then_some(ErrorCode::InvalidRecord)).await;
    let told = send(server, 100).await;
    assert_eq!(told.iter().map(|(_, count, ..)| count).sum::<u64>(), 100);
    assert!(told[0].2.is_ok() && told[1].2.is_ok());
    let (first, _, result, culprits) = &told[2];
    assert_eq!(*culprits, [first + 1]);
    assert!(
        result
            .as_ref()
            .unwrap_err()
            .contains("a record breaks the topic's rules")
    );
    for (_, _, result, _) in &told[3..] {
        assert!(
            result.as_ref().unwrap_err().starts_with("not sent, because"),
            "{result:?}"
        );
    }
    assert_eq!(stored.lock().unwrap().sequences.len(), 2);
}
