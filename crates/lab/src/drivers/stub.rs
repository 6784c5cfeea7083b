//! A server of Kafka's protocol that stores nothing: the rate that a client reaches against it is
//! the client's own ceiling.
//!
//! Every topic exists as soon as it is created, with as many partitions as were asked for. Records are
//! acknowledged under offsets of their own, and forgotten; but for one batch of each partition, which is
//! fetched again and again. A stub that is *filled* has every topic that is asked for, with a number of
//! records of 100 bytes in each partition: one batch, fetched again and again under other offsets.
//!
//! - `topics`: topics; `records`: their records; `groups`: members of groups

mod groups;
mod records;
mod topics;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use stafett_kafka_wire::messages::api_versions::ApiVersion;
use stafett_kafka_wire::messages::produce::{PartitionProduceResponse, TopicProduceResponse};
use stafett_kafka_wire::messages::{
    ApiVersionsRequest, ApiVersionsResponse, FindCoordinatorRequest, HeartbeatRequest, HeartbeatResponse,
    InitProducerIdRequest, InitProducerIdResponse, LeaveGroupRequest, LeaveGroupResponse, ProduceRequest,
    ProduceResponse,
};
use stafett_kafka_wire::{
    ApiKey, DecodeLimits, Decoder, Encoded, ErrorCode, Request, RequestHeader, Str, Uuid, frame,
};
use stafett_model::{BatchBuilder, BatchError, Codec, Lock, LockGuard, Record};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

use self::records::{Filled, Partition};

const OFFSET_BYTES: usize = 8;
/// Of a stub that is filled.
const RECORD_BYTES: usize = 100;
const BATCH_RECORDS: i64 = 500;
/// Timestamp that asks for the end of a log (`ListOffsets` of Kafka's protocol).
const LATEST: i64 = -1;
const READ_BYTES: usize = 256 << 10;
const FRAME_BYTES_MAX: usize = 128 << 20;
/// Fetches are answered with the same batch this many times at most.
const REPEATS_MAX: usize = 64;
const FETCH_WAIT_MAX: Duration = Duration::from_secs(10);

/// The stub.
#[derive(Debug)]
pub struct Stub {
    listener: TcpListener,
    topics: Arc<Lock<HashMap<Str, Topic>>>,
    filled: Option<Arc<Filled>>,
}

#[derive(Debug, Default)]
struct Topic {
    partitions: Vec<Partition>,
}

/// Reason why a connection ended.
type Ended = Box<dyn std::error::Error + Send + Sync>;

impl Stub {
    pub async fn bind(address: &str) -> std::io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind(address).await?,
            topics: Arc::default(),
            filled: None,
        })
    }

    /// Lets every topic exist, with this many partitions, each of which holds this many records.
    /// Fails if a batch cannot be made.
    pub fn fill(&mut self, partitions: usize, records: i64) -> Result<(), BatchError> {
        let mut builder = BatchBuilder::new(Codec::None);
        for _ in 0..BATCH_RECORDS {
            builder.push(&Record {
                key: None,
                value: Some(&[b'x'; RECORD_BYTES]),
                headers: &[],
                timestamp: 1,
            })?;
        }
        self.filled = Some(Arc::new(Filled {
            partitions,
            records,
            batch: builder.finish()?.slice(OFFSET_BYTES..),
        }));
        Ok(())
    }

    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves for ever.
    pub async fn serve(self) -> std::io::Result<()> {
        self.serve_over(async |socket| Ok(socket)).await
    }

    /// Serves for ever, over streams that `open` makes of sockets.
    pub async fn serve_over<S, O>(self, open: impl Fn(TcpStream) -> O) -> std::io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
        O: Future<Output = std::io::Result<S>> + Send + 'static,
    {
        let tasks = TaskTracker::new();
        loop {
            let (socket, _) = self.listener.accept().await?;
            socket.set_nodelay(true)?;
            let local = socket.local_addr()?;
            let opened = open(socket);
            let connection = Connection {
                topics: Arc::clone(&self.topics),
                filled: self.filled.clone(),
            };
            tasks.spawn(async move {
                // A client that breaks off ends its connection, and nothing else.
                let Ok(stream) = opened.await else { return };
                let _ended = connection.serve(stream, local).await;
            });
        }
    }
}

struct Connection {
    topics: Arc<Lock<HashMap<Str, Topic>>>,
    filled: Option<Arc<Filled>>,
}

impl Connection {
    async fn serve(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        local: SocketAddr,
    ) -> Result<(), Ended> {
        let mut buffer = BytesMut::new();
        loop {
            while let Some(payload) = next_frame(&mut buffer)? {
                if let Some(mut answer) = self.answer(payload, local).await? {
                    stream.write_all_buf(&mut answer).await?;
                    stream.flush().await?;
                }
            }
            buffer.reserve(READ_BYTES);
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
    }

    async fn answer(&self, payload: Bytes, local: SocketAddr) -> Result<Option<Encoded>, Ended> {
        let (header, body) = frame::open_request(payload, DecodeLimits::default())?;
        #[expect(clippy::wildcard_enum_match_arm, reason = "what is not there is not served")]
        Ok(Some(match header.api {
            ApiKey::ApiVersions => api_versions(&header)?,
            ApiKey::Metadata => serve(&header, body, |request| Ok(self.metadata(request, local)))?,
            ApiKey::CreateTopics => serve(&header, body, |request| self.create_topics(request))?,
            ApiKey::DeleteTopics => serve(&header, body, |request| Ok(self.delete_topics(request)))?,
            ApiKey::InitProducerId => write::<InitProducerIdRequest>(
                &header,
                &InitProducerIdResponse {
                    producer_id: 1,
                    ..InitProducerIdResponse::default()
                },
            )?,
            ApiKey::ListOffsets => serve(&header, body, |request| Ok(self.list_offsets(request)))?,
            ApiKey::Produce => return self.produce(&header, body),
            ApiKey::Fetch => self.fetch(&header, body).await?,
            ApiKey::FindCoordinator => write::<FindCoordinatorRequest>(&header, &groups::coordinator(local))?,
            ApiKey::JoinGroup => serve(&header, body, groups::join)?,
            ApiKey::SyncGroup => serve(&header, body, |request| Ok(groups::sync(request)))?,
            ApiKey::Heartbeat => write::<HeartbeatRequest>(&header, &HeartbeatResponse::default())?,
            ApiKey::LeaveGroup => write::<LeaveGroupRequest>(&header, &LeaveGroupResponse::default())?,
            ApiKey::OffsetFetch => serve(&header, body, |request| Ok(groups::committed(request)))?,
            ApiKey::OffsetCommit => serve(&header, body, |request| Ok(groups::commit(request)))?,
            other => return Err(format!("{} is not served", other.name()).into()),
        }))
    }

    fn produce(&self, header: &RequestHeader, body: Decoder) -> Result<Option<Encoded>, Ended> {
        let request: ProduceRequest = frame::read_request(body, header.version)?;
        let mut topics = self.topics();
        let mut responses = Vec::new();
        for data in request.topic_data {
            let mut topic = if header.version >= 13 {
                topics
                    .iter_mut()
                    .find(|(name, _)| id_of(name) == data.topic_id)
                    .map(|(_, topic)| topic)
            } else {
                topics.get_mut(&data.name)
            };
            let mut rows = Vec::new();
            for row in data.partition_data {
                let place = usize::try_from(row.index)?;
                let partition = topic.as_mut().and_then(|topic| topic.partitions.get_mut(place));
                let base_offset = partition.map(|partition| partition.take(row.records));
                let unknown = ErrorCode::UnknownTopicOrPartition.code();
                rows.push(PartitionProduceResponse {
                    index: row.index,
                    error_code: if base_offset.is_some() { 0 } else { unknown },
                    base_offset: base_offset.unwrap_or_default(),
                    log_start_offset: 0,
                    ..PartitionProduceResponse::default()
                });
            }
            responses.push(TopicProduceResponse {
                name: data.name,
                topic_id: data.topic_id,
                partition_responses: rows,
            });
        }
        drop(topics);
        if request.acks == 0 {
            return Ok(None);
        }
        let response = ProduceResponse {
            responses,
            ..ProduceResponse::default()
        };
        write::<ProduceRequest>(header, &response).map(Some)
    }

    fn topics(&self) -> LockGuard<'_, HashMap<Str, Topic>> {
        self.topics.lock()
    }
}

fn next_frame(buffer: &mut BytesMut) -> Result<Option<Bytes>, Ended> {
    let Some(length) = buffer.first_chunk() else {
        return Ok(None);
    };
    let length = usize::try_from(i32::from_be_bytes(*length))?;
    if length > FRAME_BYTES_MAX {
        return Err("a frame is too large".into());
    }
    if buffer.len() < 4 + length {
        buffer.reserve(4 + length - buffer.len());
        return Ok(None);
    }
    buffer.advance(4);
    Ok(Some(buffer.split_to(length).freeze()))
}

fn id_of(name: &Str) -> Uuid {
    // Any number that is the same for the same name (FNV-1a).
    let hash = name
        .as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
    Uuid::from(u128::from(hash) | 1 << 100)
}

fn api_versions(header: &RequestHeader) -> Result<Encoded, Ended> {
    const SERVED: [ApiKey; 15] = [
        ApiKey::Produce,
        ApiKey::Fetch,
        ApiKey::ListOffsets,
        ApiKey::Metadata,
        ApiKey::ApiVersions,
        ApiKey::CreateTopics,
        ApiKey::DeleteTopics,
        ApiKey::InitProducerId,
        ApiKey::FindCoordinator,
        ApiKey::JoinGroup,
        ApiKey::SyncGroup,
        ApiKey::Heartbeat,
        ApiKey::LeaveGroup,
        ApiKey::OffsetFetch,
        ApiKey::OffsetCommit,
    ];
    let version = |api: &ApiKey| {
        let range = api.advertised_versions();
        // No sessions: each fetch says all that it wants. And names instead of ids, which are found faster
        // here.
        #[expect(clippy::wildcard_enum_match_arm, reason = "the others are served as they are")]
        let max = match api {
            ApiKey::Fetch => 6,
            ApiKey::Produce => 12,
            ApiKey::OffsetCommit => 9,
            // One group at a time.
            ApiKey::FindCoordinator => 3,
            ApiKey::OffsetFetch => 7,
            _ => range.max,
        };
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

/// Answers a request with the response that `answer` makes.
fn serve<R: Request>(
    header: &RequestHeader,
    body: Decoder,
    answer: impl FnOnce(R) -> Result<R::Response, Ended>,
) -> Result<Encoded, Ended> {
    let request: R = frame::read_request(body, header.version)?;
    write::<R>(header, &answer(request)?)
}

fn write<R: Request>(header: &RequestHeader, response: &R::Response) -> Result<Encoded, Ended> {
    Ok(frame::write_response::<R>(
        header.version,
        header.correlation_id,
        response,
    )?)
}
