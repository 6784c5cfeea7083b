//! Answers Kafka's clients without storing anything: what a client reaches against it is the client's own ceiling.
//!
//! `cargo run --release -p stafett-kafka --example stub -- [--listen ADDR] [--partitions N] [--records N]`
//!
//! Every topic exists, with so many partitions, and each of them holds so many records of 100 bytes: one batch, given
//! out again and again under other offsets. What is produced is acknowledged under offsets of its own, and forgotten.

#![expect(clippy::print_stdout, reason = "says where it listens")]

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use bytes::{Bytes, BytesMut};
use clap::Parser;
use prometheus_client::registry::Registry;
use stafett_kafka_wire::messages::api_versions::ApiVersion;
use stafett_kafka_wire::messages::create_topics::CreatableTopicResult;
use stafett_kafka_wire::messages::fetch::{FetchableTopicResponse, PartitionData};
use stafett_kafka_wire::messages::list_offsets::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use stafett_kafka_wire::messages::metadata::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use stafett_kafka_wire::messages::produce::{PartitionProduceResponse, TopicProduceResponse};
use stafett_kafka_wire::messages::{
    ApiVersionsRequest, ApiVersionsResponse, CreateTopicsRequest, CreateTopicsResponse, FetchRequest,
    FetchResponse, InitProducerIdRequest, InitProducerIdResponse, ListOffsetsRequest, ListOffsetsResponse,
    MetadataRequest, MetadataResponse, ProduceRequest, ProduceResponse,
};
use stafett_kafka_wire::{
    ApiKey, DecodeLimits, Decoder, Encoded, Records, Request, RequestHeader, Str, Uuid, frame,
};
use stafett_model::{BatchBuilder, BatchHeader, Codec, Record};
use stafett_net::{
    BudgetSettings, ByteBudget, Connection, FrameLimits, FrameReader, FrameWriter, Listener,
    ListenerSettings, NetMetrics, Protocol, Shared, Shutdown, Status, WriteLimits,
};

const RECORD_BYTES: usize = 100;
const BATCH_RECORDS: i64 = 500;
const OFFSET_BYTES: usize = 8;

#[derive(Parser)]
struct Args {
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
    #[arg(long, default_value_t = 6)]
    partitions: i32,
    /// Records that each partition seems to hold.
    #[arg(long, default_value_t = 1_000_000)]
    records: i64,
}

struct Stub {
    args: Args,
    /// A batch without its base offset.
    batch: Bytes,
    produced: AtomicI64,
    topics: Mutex<HashMap<Str, Uuid>>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let addresses = stafett_net::resolve(&args.listen).await?;
    let listener = Listener::bind(
        &addresses,
        ListenerSettings::new("kafka", 10_000),
        &NetMetrics::register(&mut Registry::default()),
    )?;
    println!(
        "kafka listening on {}",
        listener.local_addr().context("no address")?
    );
    let stub = Stub {
        args,
        batch: batch()?.slice(OFFSET_BYTES..),
        produced: AtomicI64::new(0),
        topics: Mutex::default(),
    };
    let shared = Shared::new(
        Shutdown::new(),
        ByteBudget::new(BudgetSettings { bytes: 256 << 20 }),
    );
    stafett_net::serve(listener, Arc::new(stub), shared).await;
    Ok(())
}

fn batch() -> anyhow::Result<Bytes> {
    let mut builder = BatchBuilder::new(Codec::None);
    let value = [b'x'; RECORD_BYTES];
    for _ in 0..BATCH_RECORDS {
        builder.push(&Record {
            key: None,
            value: Some(&value),
            headers: &[],
            timestamp: 1,
        })?;
    }
    let batch = builder.finish()?;
    BatchHeader::verify(&batch)?;
    Ok(batch)
}

impl Protocol for Stub {
    async fn connection(&self, connection: Connection) {
        // A client that breaks off ends its connection, and nothing else.
        let _ended = self.serve(connection).await;
    }
}

impl Stub {
    async fn serve(&self, mut connection: Connection) -> anyhow::Result<()> {
        let local = connection.stream.local_addr()?;
        let metrics = Arc::clone(&connection.metrics);
        let mut reader = FrameReader::new(
            FrameLimits::default(),
            Arc::clone(&connection.budget),
            Arc::clone(&metrics),
            connection.drain.clone(),
        );
        let writer = FrameWriter::new(WriteLimits::default(), metrics);
        let (mut read, mut write) = connection.stream.split();
        let mut frames = Vec::new();
        let mut outgoing = VecDeque::new();
        while reader.next_frames(&mut read, &mut frames).await? == Status::Frames {
            for frame in frames.drain(..) {
                if let Some(answer) = self.answer(frame.payload, local).await? {
                    outgoing.extend(answer);
                }
            }
            writer.write_chunks(&mut write, &mut outgoing).await?;
        }
        Ok(())
    }

    async fn answer(&self, payload: Bytes, local: SocketAddr) -> anyhow::Result<Option<Encoded>> {
        let (header, body) = frame::open_request(payload, DecodeLimits::default())?;
        #[expect(clippy::wildcard_enum_match_arm, reason = "what is not there is not served")]
        Ok(Some(match header.api {
            ApiKey::ApiVersions => api_versions(&header)?,
            ApiKey::Metadata => self.metadata(&header, body, local)?,
            ApiKey::CreateTopics => self.create_topics(&header, body)?,
            ApiKey::InitProducerId => write::<InitProducerIdRequest>(
                &header,
                &InitProducerIdResponse {
                    producer_id: 1,
                    ..InitProducerIdResponse::default()
                },
            )?,
            ApiKey::ListOffsets => self.list_offsets(&header, body)?,
            ApiKey::Produce => return self.produce(&header, body),
            ApiKey::Fetch => self.fetch(&header, body).await?,
            other => anyhow::bail!("{} is not served", other.name()),
        }))
    }

    fn metadata(&self, header: &RequestHeader, body: Decoder, local: SocketAddr) -> anyhow::Result<Encoded> {
        let request: MetadataRequest = frame::read_request(body, header.version)?;
        let asked = match request.topics {
            Some(topics) => topics.into_iter().filter_map(|topic| topic.name).collect(),
            None => self.topics().keys().cloned().collect::<Vec<_>>(),
        };
        let partition = |index| MetadataResponsePartition {
            partition_index: index,
            leader_id: 1,
            leader_epoch: 1,
            replica_nodes: vec![1],
            isr_nodes: vec![1],
            ..MetadataResponsePartition::default()
        };
        let topic = |name: Str| MetadataResponseTopic {
            topic_id: self.id_of(&name),
            name: Some(name),
            partitions: (0..self.args.partitions).map(partition).collect(),
            ..MetadataResponseTopic::default()
        };
        let response = MetadataResponse {
            brokers: vec![MetadataResponseBroker {
                node_id: 1,
                host: local.ip().to_string().into(),
                port: local.port().into(),
                rack: None,
            }],
            cluster_id: Some("stub".into()),
            controller_id: 1,
            topics: asked.into_iter().map(topic).collect(),
            ..MetadataResponse::default()
        };
        write::<MetadataRequest>(header, &response)
    }

    fn create_topics(&self, header: &RequestHeader, body: Decoder) -> anyhow::Result<Encoded> {
        let request: CreateTopicsRequest = frame::read_request(body, header.version)?;
        let topic = |name: Str| CreatableTopicResult {
            topic_id: self.id_of(&name),
            name,
            num_partitions: self.args.partitions,
            replication_factor: 1,
            error_message: None,
            ..CreatableTopicResult::default()
        };
        let topics = request
            .topics
            .into_iter()
            .map(|asked| topic(asked.name))
            .collect();
        write::<CreateTopicsRequest>(
            header,
            &CreateTopicsResponse {
                throttle_time_ms: 0,
                topics,
            },
        )
    }

    fn list_offsets(&self, header: &RequestHeader, body: Decoder) -> anyhow::Result<Encoded> {
        let request: ListOffsetsRequest = frame::read_request(body, header.version)?;
        let topics = request.topics.into_iter().map(|topic| ListOffsetsTopicResponse {
            name: topic.name,
            partitions: topic
                .partitions
                .into_iter()
                .map(|partition| ListOffsetsPartitionResponse {
                    partition_index: partition.partition_index,
                    offset: if partition.timestamp == -1 {
                        self.args.records
                    } else {
                        0
                    },
                    ..ListOffsetsPartitionResponse::default()
                })
                .collect(),
        });
        let response = ListOffsetsResponse {
            throttle_time_ms: 0,
            topics: topics.collect(),
        };
        write::<ListOffsetsRequest>(header, &response)
    }

    fn produce(&self, header: &RequestHeader, body: Decoder) -> anyhow::Result<Option<Encoded>> {
        let request: ProduceRequest = frame::read_request(body, header.version)?;
        if request.acks == 0 {
            return Ok(None);
        }
        let partition = |index, records: Option<Bytes>| {
            let header = records.and_then(|records| BatchHeader::parse(&records).ok());
            let count = header.map_or(0, |header| i64::from(header.record_count));
            PartitionProduceResponse {
                index,
                base_offset: self.produced.fetch_add(count, Ordering::Relaxed),
                log_start_offset: 0,
                ..PartitionProduceResponse::default()
            }
        };
        let topics = request.topic_data.into_iter().map(|topic| TopicProduceResponse {
            name: topic.name,
            topic_id: topic.topic_id,
            partition_responses: topic
                .partition_data
                .into_iter()
                .map(|data| partition(data.index, data.records))
                .collect(),
        });
        let response = ProduceResponse {
            responses: topics.collect(),
            ..ProduceResponse::default()
        };
        write::<ProduceRequest>(header, &response).map(Some)
    }

    async fn fetch(&self, header: &RequestHeader, body: Decoder) -> anyhow::Result<Encoded> {
        let request: FetchRequest = frame::read_request(body, header.version)?;
        let mut left = usize::try_from(request.max_bytes)?;
        let mut found = false;
        let topics: Vec<_> = request
            .topics
            .into_iter()
            .map(|topic| FetchableTopicResponse {
                topic: topic.topic,
                topic_id: topic.topic_id,
                partitions: topic
                    .partitions
                    .into_iter()
                    .map(|asked| {
                        let bytes_max = usize::try_from(asked.partition_max_bytes).unwrap_or(0).min(left);
                        let records = self.records(asked.fetch_offset, bytes_max);
                        left = left.saturating_sub(records.len());
                        found |= !records.is_empty();
                        PartitionData {
                            partition_index: asked.partition,
                            high_watermark: self.args.records,
                            last_stable_offset: self.args.records,
                            log_start_offset: 0,
                            aborted_transactions: None,
                            records: Some(records),
                            ..PartitionData::default()
                        }
                    })
                    .collect(),
            })
            .collect();
        if !found {
            tokio::time::sleep(Duration::from_millis(u64::try_from(request.max_wait_ms)?)).await;
        }
        write::<FetchRequest>(
            header,
            &FetchResponse {
                responses: topics,
                ..FetchResponse::default()
            },
        )
    }

    /// Batches from the one that holds an offset on.
    fn records(&self, offset: i64, bytes_max: usize) -> Records {
        let mut records = Records::new();
        let mut base = offset - offset.rem_euclid(BATCH_RECORDS);
        let whole = OFFSET_BYTES + self.batch.len();
        while base + BATCH_RECORDS <= self.args.records
            && (records.is_empty() || records.len() + whole <= bytes_max)
        {
            records.push(BytesMut::from(&base.to_be_bytes()[..]).freeze());
            records.push(self.batch.clone());
            base += BATCH_RECORDS;
        }
        records
    }

    fn id_of(&self, name: &Str) -> Uuid {
        let mut topics = self.topics();
        *topics.entry(name.detach()).or_insert_with(|| {
            let mut hasher = DefaultHasher::new();
            name.hash(&mut hasher);
            Uuid::from(u128::from(hasher.finish()) | 1 << 100)
        })
    }

    fn topics(&self) -> std::sync::MutexGuard<'_, HashMap<Str, Uuid>> {
        self.topics
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn api_versions(header: &RequestHeader) -> anyhow::Result<Encoded> {
    const SERVED: [ApiKey; 7] = [
        ApiKey::Produce,
        ApiKey::Fetch,
        ApiKey::ListOffsets,
        ApiKey::Metadata,
        ApiKey::ApiVersions,
        ApiKey::CreateTopics,
        ApiKey::InitProducerId,
    ];
    let version = |api: &ApiKey| {
        let range = api.advertised_versions();
        // No sessions: each fetch says all that it wants.
        let max = if *api == ApiKey::Fetch { 6 } else { range.max };
        ApiVersion {
            api_key: api.code(),
            min_version: range.min,
            max_version: max,
        }
    };
    let response = ApiVersionsResponse {
        api_keys: SERVED.iter().map(version).collect(),
        ..ApiVersionsResponse::default()
    };
    write::<ApiVersionsRequest>(header, &response)
}

fn write<R: Request>(header: &RequestHeader, response: &R::Response) -> anyhow::Result<Encoded> {
    Ok(frame::write_response::<R>(
        header.version,
        header.correlation_id,
        response,
    )?)
}
