//! The front end on a journal that commits on command, and a client that sends given frames.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use prometheus_client::registry::Registry;
use stafett_amqp::{Amqp, AmqpSettings};
use stafett_amqp_wire::methods::{
    Basic, Channel, Connection, Queue, Tx, basic, channel, confirm, connection, queue, tx,
};
use stafett_amqp_wire::{
    ContentHeader, Encoder, Frame, FrameKind, Method, Properties, TableBuilder, Value, frame,
};
use stafett_broker::{Broker, BrokerSettings};
use stafett_journal::ManualJournal;
use stafett_model::Tenure;
use stafett_net::{
    BudgetSettings, ByteBudget, Connections, Listener, ListenerSettings, NetMetrics, Shared, Shutdown,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;

/// Time limit of a test: no step takes this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Server {
    pub(crate) journal: Arc<ManualJournal>,
    pub(crate) address: SocketAddr,
    pub(crate) shutdown: Shutdown,
    pub(crate) tasks: TaskTracker,
    pub(crate) registry: Registry,
    pub(crate) broker: Arc<Broker>,
    pub(crate) connections: Arc<Connections>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(AmqpSettings::default()).await
    }

    pub(crate) async fn start_with(settings: AmqpSettings) -> Self {
        Self::start_on(settings, BrokerSettings::default()).await
    }

    /// Starts as a node that may have a successor.
    pub(crate) async fn start_while(tenure: Tenure) -> Self {
        let broker = BrokerSettings {
            tenure,
            ..BrokerSettings::default()
        };
        Self::start_on(AmqpSettings::default(), broker).await
    }

    async fn start_on(settings: AmqpSettings, mut broker: BrokerSettings) -> Self {
        let journal = Arc::new(ManualJournal::default());
        stafett_amqp::add_hooks(&mut broker.hooks);
        let broker = Broker::start(journal.clone(), broker).await.unwrap();
        let (broker, mut registry) = (Arc::new(broker), Registry::default());
        let settings = AmqpSettings {
            create_virtual_hosts: true,
            ..settings
        };
        let amqp = Amqp::new(Arc::clone(&broker), settings, &mut registry);
        let net = NetMetrics::register(&mut registry);
        let loopback = ["127.0.0.1:0".parse().unwrap()];
        let listener = Listener::bind(&loopback, ListenerSettings::new("amqp", 100), &net).unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = Shutdown::new();
        let budget = ByteBudget::new(BudgetSettings { bytes: 64 << 20 });
        let tasks = TaskTracker::new();
        let shared = Shared::new(shutdown.clone(), budget);
        let connections = Arc::clone(&shared.connections);
        tasks.spawn(stafett_net::serve(listener, Arc::new(amqp), shared));
        Self {
            journal,
            address,
            shutdown,
            tasks,
            registry,
            broker,
            connections,
        }
    }

    /// Waits until `count` appends are held.
    pub(crate) async fn until_undecided(&self, count: usize) {
        let held = async {
            while self.journal.undecided() < count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, held).await.unwrap();
    }

    /// Returns the number of blocked connections.
    pub(crate) fn blocked(&self) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("amqp_blocked_connections "));
        line.unwrap().parse().unwrap()
    }

    pub(crate) async fn client(&self, can_be_told: bool) -> Client {
        Client::open(self.address, can_be_told, "/").await
    }

    pub(crate) async fn client_in(&self, virtual_host: &'static str) -> Client {
        Client::open(self.address, true, virtual_host).await
    }
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) buffer: BytesMut,
    /// Deliveries that arrived before the answer to a method.
    pub(crate) delivered: Vec<basic::Deliver>,
}

impl Client {
    /// Opens a connection with channel 1.
    pub(crate) async fn open(address: SocketAddr, can_be_told: bool, virtual_host: &'static str) -> Self {
        Self::open_with(address, can_be_told, virtual_host, 0).await
    }

    /// Opens a connection with a heartbeat interval in seconds.
    pub(crate) async fn open_with(
        address: SocketAddr,
        can_be_told: bool,
        virtual_host: &'static str,
        heartbeat: u16,
    ) -> Self {
        let (mut client, opened) = Self::knock(address, can_be_told, virtual_host, heartbeat).await;
        assert!(
            matches!(opened, Method::Connection(Connection::OpenOk(_))),
            "{opened:?}"
        );
        client.send(1, channel::Open::default()).await;
        let opened = client.method().await;
        assert!(
            matches!(opened, Method::Channel(Channel::OpenOk(_))),
            "{opened:?}"
        );
        client
    }

    /// Asks for a virtual host; returns the answer.
    pub(crate) async fn knock(
        address: SocketAddr,
        can_be_told: bool,
        virtual_host: &'static str,
        heartbeat: u16,
    ) -> (Self, Method) {
        let login = Bytes::from_static(b"\0guest\0guest");
        Self::log_in(address, can_be_told, virtual_host, heartbeat, login).await
    }

    /// As [`Self::knock`], with a response of the mechanism PLAIN.
    pub(crate) async fn log_in(
        address: SocketAddr,
        can_be_told: bool,
        virtual_host: &'static str,
        heartbeat: u16,
        response: Bytes,
    ) -> (Self, Method) {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut client = Self::over(stream);
        client.stream.write_all(&frame::PROTOCOL_HEADER).await.unwrap();
        client.method().await;
        let capabilities = TableBuilder::new()
            .with("connection.blocked", Value::Bool(can_be_told))
            .finish();
        let start = connection::StartOk {
            client_properties: TableBuilder::new().with("capabilities", capabilities).finish(),
            mechanism: "PLAIN".into(),
            response,
            locale: "en_US".into(),
        };
        client.send(0, start).await;
        client.method().await;
        let tune = connection::TuneOk {
            channel_max: 10,
            frame_max: 131_072,
            heartbeat,
        };
        client.send(0, tune).await;
        let open = connection::Open {
            virtual_host: virtual_host.into(),
            ..connection::Open::default()
        };
        client.send(0, open).await;
        let answer = client.method().await;
        (client, answer)
    }

    pub(crate) async fn send(&mut self, channel: u16, method: impl Into<Method>) {
        let mut out = BytesMut::new();
        method.into().encode(channel, &mut out);
        self.stream.write_all(&out).await.unwrap();
    }

    pub(crate) async fn frame(&mut self) -> Frame {
        loop {
            if let Some(frame) = frame::split(&mut self.buffer, 0).unwrap() {
                return frame;
            }
            let read = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.buffer)).await;
            assert_ne!(read.unwrap().unwrap(), 0, "the connection has ended");
        }
    }

    pub(crate) async fn method(&mut self) -> Method {
        Method::decode(self.frame().await.payload).unwrap()
    }

    /// Declares the queue `q`; returns the number of ready messages.
    pub(crate) async fn waiting(&mut self) -> u32 {
        self.declare("q").await.message_count
    }

    pub(crate) async fn want_confirms(&mut self) {
        self.send(1, confirm::Select::default()).await;
        let selected = self.method().await;
        assert!(matches!(selected, Method::Confirm(_)), "{selected:?}");
    }

    /// Publishes to `q` with one write.
    pub(crate) async fn publish(&mut self, bodies: &[&'static str]) {
        self.publish_all("", "q", bodies).await;
    }

    pub(crate) async fn publish_through(
        &mut self,
        exchange: &'static str,
        key: &'static str,
        body: &'static str,
    ) {
        self.publish_all(exchange, key, &[body]).await;
    }

    async fn publish_all(&mut self, exchange: &'static str, key: &'static str, bodies: &[&'static str]) {
        let out = publications(exchange, key, bodies);
        self.stream.write_all(&out).await.unwrap();
    }

    /// Publishes to a queue and gets from it, with one write; expects no message.
    pub(crate) async fn publish_and_get(&mut self, name: &'static str) {
        let mut out = publications("", name, &["x"]);
        let get = basic::Get {
            queue: name.into(),
            ..basic::Get::default()
        };
        Method::from(get).encode(1, &mut out);
        self.stream.write_all(&out).await.unwrap();
        let got = self.answer().await;
        assert!(matches!(got, Method::Basic(Basic::GetEmpty(_))), "{got:?}");
    }

    /// Waits until `count` messages are confirmed.
    pub(crate) async fn confirmed(&mut self, count: u64) {
        let mut last = 0;
        while last < count {
            let confirmed = self.method().await;
            let Method::Basic(Basic::Ack(ack)) = confirmed else {
                panic!("{confirmed:?}");
            };
            last = ack.delivery_tag;
        }
    }

    pub(crate) async fn is_blocked(&mut self) {
        let blocked = self.method().await;
        let Method::Connection(Connection::Blocked(blocked)) = blocked else {
            panic!("{blocked:?}");
        };
        assert_eq!(blocked.reason, "low on disk");
    }

    pub(crate) async fn is_unblocked(&mut self) {
        let unblocked = self.method().await;
        assert!(
            matches!(unblocked, Method::Connection(Connection::Unblocked(_))),
            "{unblocked:?}"
        );
    }
}

impl Client {
    /// Sends methods on channel 1 with one write.
    pub(crate) async fn send_together(&mut self, methods: impl IntoIterator<Item = Method>) {
        let mut out = BytesMut::new();
        for method in methods {
            method.encode(1, &mut out);
        }
        self.stream.write_all(&out).await.unwrap();
    }
}

/// Helpers for a channel with consumers: deliveries arrive between the answers to methods.
impl Client {
    pub(crate) fn over(stream: TcpStream) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
            delivered: Vec::new(),
        }
    }

    /// Returns the answer to a method; deliveries before it are kept.
    async fn answer(&mut self) -> Method {
        loop {
            let method = self.method().await;
            let Method::Basic(Basic::Deliver(delivery)) = method else {
                return method;
            };
            self.content().await;
            self.delivered.push(delivery);
        }
    }

    /// Skips a content header and a body.
    async fn content(&mut self) {
        self.frame().await;
        self.frame().await;
    }

    /// Returns the next delivery.
    pub(crate) async fn delivery(&mut self) -> basic::Deliver {
        if !self.delivered.is_empty() {
            return self.delivered.remove(0);
        }
        let method = self.method().await;
        let Method::Basic(Basic::Deliver(delivery)) = method else {
            panic!("{method:?}");
        };
        self.content().await;
        delivery
    }

    pub(crate) async fn declare(&mut self, name: &'static str) -> queue::DeclareOk {
        let declare = queue::Declare {
            queue: name.into(),
            durable: true,
            ..queue::Declare::default()
        };
        self.send(1, declare).await;
        let declared = self.answer().await;
        let Method::Queue(Queue::DeclareOk(declared)) = declared else {
            panic!("{declared:?}");
        };
        declared
    }

    pub(crate) async fn bind(&mut self, name: &'static str, exchange: &'static str, key: &'static str) {
        let bind = queue::Bind {
            queue: name.into(),
            exchange: exchange.into(),
            routing_key: key.into(),
            ..queue::Bind::default()
        };
        self.send(1, bind).await;
        let bound = self.answer().await;
        assert!(matches!(bound, Method::Queue(Queue::BindOk(_))), "{bound:?}");
    }

    pub(crate) async fn publish_to(&mut self, name: &'static str, body: &'static str) {
        self.publish_through("", name, body).await;
    }

    pub(crate) async fn consume(&mut self, name: &'static str, tag: &'static str, no_ack: bool) {
        let consume = basic::Consume {
            queue: name.into(),
            consumer_tag: tag.into(),
            no_ack,
            ..basic::Consume::default()
        };
        self.send(1, consume).await;
        let consumes = self.answer().await;
        assert!(
            matches!(consumes, Method::Basic(Basic::ConsumeOk(_))),
            "{consumes:?}"
        );
    }

    pub(crate) async fn cancel(&mut self, tag: &'static str) {
        let cancel = basic::Cancel {
            consumer_tag: tag.into(),
            no_wait: false,
        };
        self.send(1, cancel).await;
        let cancelled = self.answer().await;
        assert!(
            matches!(cancelled, Method::Basic(Basic::CancelOk(_))),
            "{cancelled:?}"
        );
    }

    /// Gets a message that has to be settled.
    pub(crate) async fn get(&mut self, name: &'static str) -> Option<basic::GetOk> {
        let get = basic::Get {
            queue: name.into(),
            ..basic::Get::default()
        };
        self.send(1, get).await;
        let answer = self.answer().await;
        if let Method::Basic(Basic::GetOk(got)) = answer {
            self.content().await;
            return Some(got);
        }
        assert!(matches!(answer, Method::Basic(Basic::GetEmpty(_))), "{answer:?}");
        None
    }

    pub(crate) async fn ack(&mut self, delivery_tag: u64) {
        let ack = basic::Ack {
            delivery_tag,
            multiple: false,
        };
        self.send(1, ack).await;
    }

    pub(crate) async fn want_transactions(&mut self) {
        self.send(1, tx::Select {}).await;
        let selected = self.answer().await;
        assert!(matches!(selected, Method::Tx(Tx::SelectOk(_))), "{selected:?}");
    }

    pub(crate) async fn commit(&mut self) {
        self.send(1, tx::Commit {}).await;
        let committed = self.answer().await;
        assert!(matches!(committed, Method::Tx(Tx::CommitOk(_))), "{committed:?}");
    }

    pub(crate) async fn close_channel(&mut self) {
        self.send(1, channel::Close::default()).await;
        let closed = self.answer().await;
        assert!(
            matches!(closed, Method::Channel(Channel::CloseOk(_))),
            "{closed:?}"
        );
    }
}

/// Encodes messages as a publisher sends them on channel 1.
fn publications(exchange: &'static str, key: &'static str, bodies: &[&'static str]) -> BytesMut {
    let mut out = BytesMut::new();
    for body in bodies {
        let publish = basic::Publish {
            exchange: exchange.into(),
            routing_key: key.into(),
            ..basic::Publish::default()
        };
        Method::from(publish).encode(1, &mut out);
        let header = ContentHeader {
            body_size: body.len() as u64,
            properties: Properties::NONE,
        };
        Encoder::frame(&mut out, FrameKind::Header, 1, |e| header.encode(e));
        Encoder::frame(&mut out, FrameKind::Body, 1, |e| e.raw(body.as_bytes()));
    }
    out
}
