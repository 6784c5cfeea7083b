//! A scripted broker.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stafett_kafka_client::Options;
use stafett_kafka_wire::messages::api_versions::ApiVersion;
use stafett_kafka_wire::messages::metadata::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use stafett_kafka_wire::messages::{
    ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse,
};
use stafett_kafka_wire::{ApiKey, DecodeLimits, Decoder, Request, RequestHeader, Str, Uuid, frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

/// Reaction of the broker to a request.
pub(crate) enum Reply {
    Bytes(Bytes),
    /// No answer, as if the request had not arrived.
    Silence,
    Close,
}

type Handler = dyn Fn(&RequestHeader, Decoder) -> Reply + Send + Sync;

/// Listens as long as the test's runtime exists.
pub(crate) async fn listen(
    handler: impl Fn(&RequestHeader, Decoder) -> Reply + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    serve(listener, Arc::new(handler))
}

pub(crate) fn serve(listener: TcpListener, handler: Arc<Handler>) -> SocketAddr {
    let address = listener.local_addr().unwrap();
    let tasks = TaskTracker::new();
    tasks.clone().spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tasks.spawn(talk(stream, Arc::clone(&handler)));
        }
    });
    address
}

async fn talk(mut stream: TcpStream, handler: Arc<Handler>) {
    while let Ok(length) = stream.read_i32().await {
        let mut request = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut request).await.unwrap();
        let (header, body) = frame::open_request(request.into(), DecodeLimits::default()).unwrap();
        match handler(&header, body) {
            Reply::Silence => {}
            Reply::Close => return,
            Reply::Bytes(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// An ordinary answer.
pub(crate) fn answer<R: Request>(header: &RequestHeader, response: &R::Response) -> Reply {
    let encoded = frame::write_response::<R>(header.version, header.correlation_id, response).unwrap();
    Reply::Bytes(encoded.into_bytes())
}

/// The `ApiVersions` response: all versions of the schemas.
pub(crate) fn versions(header: &RequestHeader) -> Reply {
    let row = |api: &ApiKey| ApiVersion {
        api_key: api.code(),
        min_version: api.versions().min,
        max_version: api.versions().max,
    };
    let response = ApiVersionsResponse {
        api_keys: ApiKey::ALL.iter().map(row).collect(),
        ..ApiVersionsResponse::default()
    };
    answer::<ApiVersionsRequest>(header, &response)
}

/// Metadata of the topic `t`: its partitions are led by `leaders`, which are places in `brokers`.
pub(crate) fn metadata(header: &RequestHeader, brokers: &[SocketAddr], leaders: &[i32]) -> Reply {
    let broker = |(id, address): (i32, &SocketAddr)| MetadataResponseBroker {
        node_id: id,
        host: Str::from(address.ip().to_string()),
        port: address.port().into(),
        rack: None,
    };
    let partition = |(index, leader): (i32, &i32)| MetadataResponsePartition {
        partition_index: index,
        leader_id: *leader,
        ..MetadataResponsePartition::default()
    };
    let response = MetadataResponse {
        brokers: (0..).zip(brokers).map(broker).collect(),
        topics: vec![MetadataResponseTopic {
            name: Some(Str::from_static("t")),
            topic_id: Uuid::from(7),
            partitions: (0..).zip(leaders).map(partition).collect(),
            ..MetadataResponseTopic::default()
        }],
        ..MetadataResponse::default()
    };
    answer::<MetadataRequest>(header, &response)
}

/// Short timeouts, so that tests of timeouts are short.
pub(crate) fn options() -> Options {
    Options {
        request_timeout: Duration::from_millis(100),
        retry_for: Duration::from_secs(10),
        response_bytes_max: 1 << 20,
        ..Options::default()
    }
}
