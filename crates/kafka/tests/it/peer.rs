//! Both ends: a front end on a journal of its own, and a client that sends arbitrary requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use prometheus_client::registry::Registry;
use stafett_broker::{Broker, BrokerSettings};
use stafett_groups::GroupSettings;
use stafett_journal::{DiskJournal, Journal, LogSpec, Metrics, Retention, Settings};
use stafett_kafka::{Kafka, KafkaSettings};
use stafett_kafka_wire::messages::create_topics::CreatableTopic;
use stafett_kafka_wire::messages::fetch::{FetchPartition, FetchTopic};
use stafett_kafka_wire::messages::metadata::{MetadataRequestTopic, MetadataResponseTopic};
use stafett_kafka_wire::messages::produce::{PartitionProduceData, TopicProduceData};
use stafett_kafka_wire::messages::{
    CreateTopicsRequest, FetchRequest, FetchResponse, MetadataRequest, ProduceRequest,
};
use stafett_kafka_wire::{DecodeLimits, ErrorCode, Request, Str, Uuid, frame};
use stafett_model::{BatchBuilder, BatchHeader, Codec, Durability, ProducerId, Record, Tenure};
use stafett_net::{
    BudgetSettings, ByteBudget, Handed, Listener, ListenerSettings, NetMetrics, Shared, Shutdown, Stream,
};
use stafett_topics::TopicDefaults;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

/// Longer than any operation takes: a test that waits longer hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Server {
    pub address: SocketAddr,
    pub broker: Arc<Broker>,
    registry: Registry,
    kafka: Arc<Kafka>,
    listener: Listener,
    shared: Shared,
    shutdown: Shutdown,
    tasks: TaskTracker,
    directory: tempfile::TempDir,
    journal: Arc<DiskJournal>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(KafkaSettings::default()).await
    }

    pub(crate) async fn start_with(settings: KafkaSettings) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), settings, BrokerSettings::default()).await
    }

    pub(crate) async fn start_with_groups(groups: GroupSettings) -> Self {
        let settings = BrokerSettings {
            groups,
            ..BrokerSettings::default()
        };
        Self::start_in(tempfile::tempdir().unwrap(), KafkaSettings::default(), settings).await
    }

    /// Starts as a node that may have a successor.
    pub(crate) async fn start_while(tenure: Tenure) -> Self {
        let settings = BrokerSettings {
            tenure,
            ..BrokerSettings::default()
        };
        Self::start_in(tempfile::tempdir().unwrap(), KafkaSettings::default(), settings).await
    }

    /// Stops, and starts again with the stored state.
    pub(crate) async fn restart(self) -> Self {
        let directory = self.stop().await;
        Self::start_in(directory, KafkaSettings::default(), BrokerSettings::default()).await
    }

    /// Compacts everything there is, while the server is stopped.
    pub(crate) async fn compact(self) -> Self {
        let directory = self.stop().await;
        let settings = Settings {
            threads: false,
            ..journal_settings()
        };
        let journal = DiskJournal::open(directory.path(), settings, Metrics::new()).unwrap();
        journal.checkpoint();
        journal.rewrite();
        drop(journal);
        Self::start_in(directory, KafkaSettings::default(), BrokerSettings::default()).await
    }

    async fn stop(self) -> tempfile::TempDir {
        self.drain_hard().await;
        self.broker.stop().await;
        let Self {
            directory,
            journal,
            broker,
            ..
        } = self;
        drop(broker);
        let closing = tokio::task::spawn_blocking(move || journal.close());
        closing.await.unwrap();
        directory
    }

    async fn start_in(directory: tempfile::TempDir, settings: KafkaSettings, broker: BrokerSettings) -> Self {
        let journal = DiskJournal::open(directory.path(), journal_settings(), Metrics::new());
        let journal = Arc::new(journal.unwrap());
        let mut broker = BrokerSettings {
            topics: TopicDefaults {
                logs: LogSpec {
                    durability: Durability::Os,
                    retention: Retention::default(),
                    compaction: None,
                },
                partitions: 2,
                ..TopicDefaults::default()
            },
            ..broker
        };
        stafett_kafka::add_hooks(&mut broker.hooks);
        let broker = Arc::new(
            Broker::start(Arc::clone(&journal) as Arc<dyn Journal>, broker)
                .await
                .unwrap(),
        );
        let mut registry = Registry::default();
        let kafka = Kafka::new(Arc::clone(&broker), settings, &mut registry);
        broker.groups().register_metrics(&mut registry);
        let net = NetMetrics::register(&mut registry);
        let loopback = ["127.0.0.1:0".parse().unwrap()];
        let listener = Listener::bind(&loopback, ListenerSettings::new("kafka", 1000), &net).unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = Shutdown::new();
        let shared = Shared::new(
            shutdown.clone(),
            ByteBudget::new(BudgetSettings { bytes: 256 << 20 }),
        );
        let tasks = TaskTracker::new();
        let kafka = Arc::new(kafka);
        tasks.spawn(stafett_net::serve(
            listener.clone(),
            Arc::clone(&kafka),
            shared.clone(),
        ));
        Self {
            address,
            broker,
            registry,
            kafka,
            listener,
            shared,
            shutdown,
            tasks,
            directory,
            journal,
        }
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    /// Connects through another listener: of another node, or of this one before it served.
    pub(crate) async fn handed_client(&self, is_relayed: bool) -> Client {
        let (door, handed) = mpsc::channel(1);
        let (listener, kafka) = (self.listener.clone(), Arc::clone(&self.kafka));
        let serving = stafett_net::serve_handed(listener, handed, kafka, self.shared.clone());
        self.tasks.spawn(serving);
        let accepting = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connecting = Client::connect(accepting.local_addr().unwrap());
        let (client, accepted) = tokio::join!(connecting, accepting.accept());
        let (socket, peer) = accepted.unwrap();
        let handed = Handed {
            stream: Stream::Plain(socket),
            peer,
            needs_tls: false,
            is_relayed,
        };
        door.send(handed).await.unwrap();
        client
    }

    /// Drains, and waits until all connections have ended.
    pub(crate) async fn drain(&self) {
        self.shutdown.drain();
        self.tasks.close();
        tokio::time::timeout(PATIENCE, self.tasks.wait()).await.unwrap();
    }

    /// Ends all connections at once.
    pub(crate) async fn drain_hard(&self) {
        self.shutdown.abort();
        self.tasks.close();
        tokio::time::timeout(PATIENCE, self.tasks.wait()).await.unwrap();
    }

    /// The value of a metric, by its name and labels as they are shown.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().unwrap())
    }
}

fn journal_settings() -> Settings {
    Settings {
        segment_bytes: 4 << 20,
        disk_free_bytes_min: 0,
        ..Settings::default()
    }
}

pub(crate) struct Client {
    pub stream: TcpStream,
    buffer: BytesMut,
    correlation_id: AtomicI32,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            buffer: BytesMut::new(),
            correlation_id: AtomicI32::new(1),
        }
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        let sent = self.send(version, request).await;
        let (id, response) = self.receive::<R>(version).await;
        assert_eq!(id, sent, "answers come in order");
        response
    }

    pub(crate) async fn send<R: Request>(&mut self, version: i16, request: &R) -> i32 {
        let (id, bytes) = self.encode(version, request);
        self.stream.write_all(&bytes).await.unwrap();
        id
    }

    /// A request's bytes, with its length in front, and its correlation id.
    pub(crate) fn encode<R: Request>(&self, version: i16, request: &R) -> (i32, Bytes) {
        let id = self.correlation_id.fetch_add(1, Ordering::Relaxed);
        let name = Some(Str::from_static("test"));
        (
            id,
            frame::write_request(version, id, name, request)
                .unwrap()
                .into_bytes(),
        )
    }

    pub(crate) async fn receive<R: Request>(&mut self, version: i16) -> (i32, R::Response) {
        let payload = self.frame().await.expect("an answer");
        frame::read_response::<R>(payload, version, DecodeLimits::default()).unwrap()
    }

    /// The next frame, or `None` if the server ends the connection.
    pub(crate) async fn frame(&mut self) -> Option<Bytes> {
        loop {
            if let Some(length) = self.buffer.first_chunk::<4>() {
                let length = usize::try_from(i32::from_be_bytes(*length)).unwrap();
                if self.buffer.len() >= 4 + length {
                    return Some(self.buffer.split_to(4 + length).freeze().slice(4..));
                }
            }
            let read = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.buffer));
            match read.await.expect("the server answers or leaves") {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// True if the server has ended the connection without sending more.
    pub(crate) async fn is_closed(&mut self) -> bool {
        self.frame().await.is_none()
    }

    pub(crate) async fn create(&mut self, name: &'static str, partitions: i32) -> Uuid {
        let topic = CreatableTopic {
            name: name.into(),
            num_partitions: partitions,
            replication_factor: -1,
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest {
            topics: vec![topic],
            ..CreateTopicsRequest::default()
        };
        let made = self.call(7, &request).await.topics.remove(0);
        assert_eq!(made.error_code, 0, "{:?}", made.error_message);
        made.topic_id
    }

    pub(crate) async fn create_failing(&mut self, name: &'static str, partitions: i32, expected: ErrorCode) {
        let topic = CreatableTopic {
            name: name.into(),
            num_partitions: partitions,
            replication_factor: -1,
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest {
            topics: vec![topic],
            ..CreateTopicsRequest::default()
        };
        assert_eq!(self.call(7, &request).await.topics[0].error_code, expected.code());
    }

    pub(crate) async fn topic(&mut self, name: &'static str) -> MetadataResponseTopic {
        let asked = MetadataRequestTopic {
            name: Some(name.into()),
            ..MetadataRequestTopic::default()
        };
        let request = MetadataRequest {
            topics: Some(vec![asked]),
            allow_auto_topic_creation: false,
            ..MetadataRequest::default()
        };
        self.call(12, &request).await.topics.remove(0)
    }

    /// Produces a batch to one partition; gives its base offset.
    pub(crate) async fn produce(&mut self, name: &'static str, partition: i32, batch: Bytes) -> i64 {
        let response = self.call(9, &produce(-1, name, partition, batch)).await;
        let answer = &response.responses[0].partition_responses[0];
        assert_eq!(answer.error_code, 0, "{:?}", answer.error_message);
        answer.base_offset
    }

    /// Fetches one partition without a session, and without waiting.
    pub(crate) async fn fetch(&mut self, name: &'static str, partition: i32, offset: i64) -> FetchResponse {
        self.call(12, &fetch(name, partition, offset)).await
    }

    /// The values of all records of a partition from an offset on.
    pub(crate) async fn values(&mut self, name: &'static str, partition: i32, offset: i64) -> Vec<String> {
        let response = self.fetch(name, partition, offset).await;
        values(&response)
    }
}

/// One batch to one partition.
pub(crate) fn produce(acks: i16, name: &'static str, partition: i32, batch: Bytes) -> ProduceRequest {
    ProduceRequest {
        acks,
        timeout_ms: 1000,
        topic_data: vec![TopicProduceData {
            name: name.into(),
            partition_data: vec![PartitionProduceData {
                index: partition,
                records: Some(batch),
            }],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    }
}

/// A fetch of one partition that does not wait.
pub(crate) fn fetch(name: &'static str, partition: i32, offset: i64) -> FetchRequest {
    FetchRequest {
        topics: vec![fetch_topic(name, &[(partition, offset)])],
        ..FetchRequest::default()
    }
}

pub(crate) fn fetch_topic(name: &'static str, partitions: &[(i32, i64)]) -> FetchTopic {
    let partition = |&(partition, fetch_offset): &(i32, i64)| FetchPartition {
        partition,
        fetch_offset,
        partition_max_bytes: 1 << 20,
        ..FetchPartition::default()
    };
    FetchTopic {
        topic: name.into(),
        partitions: partitions.iter().map(partition).collect(),
        ..FetchTopic::default()
    }
}

pub(crate) fn values(response: &FetchResponse) -> Vec<String> {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    let mut values = Vec::new();
    for partition in partitions {
        assert_eq!(partition.error_code, 0);
        let mut bytes = partition.records.clone().unwrap_or_default().into_bytes();
        while !bytes.is_empty() {
            let header = BatchHeader::verify(&bytes).unwrap();
            let batch = bytes.split_to(header.bytes);
            if header.is_control() {
                continue;
            }
            for record in stafett_model::records(&batch, 1 << 20).unwrap() {
                values.push(String::from_utf8(record.unwrap().value.unwrap().to_vec()).unwrap());
            }
        }
    }
    values
}

pub(crate) fn batch(values: &[&str]) -> Bytes {
    batch_at(1000, values)
}

/// A batch whose records have the times `from_ms`, and so on.
pub(crate) fn batch_at(from_ms: i64, values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None);
    fill(&mut builder, from_ms, values);
    builder.finish().unwrap()
}

/// A batch of an idempotent producer.
pub(crate) fn numbered(producer: i64, epoch: i16, sequence: i32, values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None).producer(ProducerId(producer), epoch, sequence);
    fill(&mut builder, 1000, values);
    builder.finish().unwrap()
}

pub(crate) fn fill(builder: &mut BatchBuilder, from_ms: i64, values: &[&str]) {
    for (timestamp, value) in (from_ms..).zip(values) {
        let record = Record {
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
            timestamp,
        };
        builder.push(&record).unwrap();
    }
}
