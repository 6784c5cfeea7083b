//! Allocation counts on the path of a batch, independent of its content.
//!
//! Everything that the front end does, and the journal on the same thread, is counted: connection, parsing,
//! staging, reading, answering. The client is on another thread, and so are the journal's writer and syncer.

use std::io::{Read, Write};

use allocation_counter::measure;
use bytes::Bytes;
use stafett_kafka_wire::messages::FetchRequest;
use stafett_kafka_wire::messages::produce::{PartitionProduceData, TopicProduceData};
use stafett_kafka_wire::messages::{ProduceRequest, fetch::FetchTopic};

use crate::peer::{Server, batch, fetch, fetch_topic, produce};

const REQUESTS: usize = 100;
const PER_BATCH_MAX: u64 = 8;

/// Sends each request after the answer to the one before. Returns the number of the server's allocations
/// meanwhile.
fn count(runtime: &tokio::runtime::Runtime, server: &Server, request: &Bytes) -> u64 {
    let (done, is_done) = tokio::sync::oneshot::channel();
    let (address, request) = (server.address, request.clone());
    let client = std::thread::spawn(move || {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let mut buffer = vec![0; 8 << 20];
        for _ in 0..REQUESTS {
            stream.write_all(&request).unwrap();
            let mut length = [0; 4];
            stream.read_exact(&mut length).unwrap();
            let length = usize::try_from(u32::from_be_bytes(length)).unwrap();
            stream.read_exact(&mut buffer[..length]).unwrap();
        }
        done.send(()).unwrap();
    });
    let counted = measure(|| runtime.block_on(async { is_done.await.unwrap() }));
    client.join().unwrap();
    counted.count_total
}

fn check(what: &str, batches: usize, make: impl AsyncFnOnce(&Server) -> Bytes) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (server, request) = runtime.block_on(async {
        let server = Server::start().await;
        let request = make(&server).await;
        (server, request)
    });
    count(&runtime, &server, &request);
    let total = count(&runtime, &server, &request);
    let batches = (batches * REQUESTS) as u64;
    assert!(
        total <= PER_BATCH_MAX * batches,
        "{what}: {total} for {batches} batches"
    );
}

fn records(count: usize) -> Bytes {
    batch(&vec!["0123456789"; count])
}

async fn encoded<R: stafett_kafka_wire::Request>(server: &Server, version: i16, request: &R) -> Bytes {
    server.client().await.encode(version, request).1
}

#[test]
fn a_produced_batch_takes_memory_eight_times_at_most_whatever_it_holds() {
    for count in [1, 100, 5000] {
        check(
            &format!("produced, {count} records"),
            1,
            async |server: &Server| {
                server.client().await.create("orders", 1).await;
                encoded(server, 9, &produce(-1, "orders", 0, records(count))).await
            },
        );
    }
    check("produced, six partitions", 6, async |server: &Server| {
        server.client().await.create("orders", 6).await;
        let partition = |index| PartitionProduceData {
            index,
            records: Some(records(100)),
        };
        let topic = TopicProduceData {
            name: "orders".into(),
            partition_data: (0..6).map(partition).collect(),
            ..TopicProduceData::default()
        };
        let request = ProduceRequest {
            acks: -1,
            topic_data: vec![topic],
            ..ProduceRequest::default()
        };
        encoded(server, 9, &request).await
    });
}

#[test]
fn a_fetched_batch_takes_memory_eight_times_at_most_whatever_it_holds() {
    for count in [100, 5000] {
        check(
            &format!("fetched, {count} records"),
            8,
            async |server: &Server| {
                let mut client = server.client().await;
                client.create("orders", 1).await;
                for _ in 0..8 {
                    client.produce("orders", 0, records(count)).await;
                }
                encoded(server, 12, &fetch("orders", 0, 0)).await
            },
        );
    }
    check("fetched, six partitions", 6, async |server: &Server| {
        let mut client = server.client().await;
        client.create("orders", 6).await;
        for partition in 0..6 {
            client.produce("orders", partition, records(100)).await;
        }
        let all: Vec<_> = (0..6).map(|partition| (partition, 0)).collect();
        let topics: Vec<FetchTopic> = vec![fetch_topic("orders", &all)];
        encoded(
            server,
            12,
            &FetchRequest {
                topics,
                ..FetchRequest::default()
            },
        )
        .await
    });
    check(
        "fetched, one batch of one partition",
        1,
        async |server: &Server| {
            let mut client = server.client().await;
            client.create("orders", 1).await;
            client.produce("orders", 0, records(100)).await;
            encoded(server, 12, &fetch("orders", 0, 0)).await
        },
    );
}
