//! One start of the broker, on a simulated disk and in simulated time.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use stafett_amqp::{Amqp, AmqpSettings};
use stafett_broker::{Broker, BrokerSettings, FrontEndHooks};
use stafett_groups::GroupSettings;
use stafett_groups::consumer::Rules;
use stafett_http::HttpServer;
use stafett_journal::disk::{Clock, RewritePolicy};
use stafett_journal::simulated::SimulatedDisk;
use stafett_journal::{DiskJournal, Journal, Metrics, Settings};
use stafett_kafka::{Kafka, KafkaSettings};
use stafett_live::{LiveFront, LiveFrontSettings};
use stafett_live_topics::{LiveSettings, LogRule};
use stafett_net::{
    BudgetSettings, ByteBudget, Connection, ConnectionEntry, ListenerMetrics, NetMetrics, Protocol, Shutdown,
    Stream,
};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::host;
use crate::journal::ReadsAtOnce;
use crate::steps::Shape;
use crate::wire::Socket;

/// Time limit of all operations, in simulated milliseconds.
const PATIENCE_MS: u32 = 100_000;

/// The running broker.
#[derive(Debug)]
pub struct Server {
    pub journal: Arc<DiskJournal>,
    pub broker: Arc<Broker>,
    kafka: Arc<Kafka>,
    amqp: Arc<Amqp>,
    live: LiveFront,
    http: HttpServer,
    /// Ends the live topics.
    shutdown: Shutdown,
    metrics: [Arc<ListenerMetrics>; 3],
    budget: Arc<ByteBudget>,
    drain: CancellationToken,
    tasks: TaskTracker,
    connections: u64,
}

/// Reason why the broker did not start or stop as it should.
#[derive(Debug)]
pub struct Failed(pub String);

impl Server {
    /// Starts the broker on the content of the disk.
    pub async fn open(disk: &SimulatedDisk, boots: u8, shape: &Shape) -> Result<Self, Failed> {
        let opened = DiskJournal::open_on(disk.storage(), settings(boots, shape), Metrics::new());
        let journal = opened.map_err(|error| Failed(format!("the journal cannot be opened: {error}")))?;
        let journal = Arc::new(journal);
        let shared: Arc<dyn Journal> = Arc::new(ReadsAtOnce::new(Arc::clone(&journal)));
        let start = Box::pin(Broker::start(shared, broker_settings()));
        let started = pumped(&journal, start).await?;
        let broker = started.map_err(|error| Failed(format!("the broker cannot start: {error}")))?;
        let broker = Arc::new(broker);
        let mut registry = Registry::default();
        let net = NetMetrics::register(&mut registry);
        let amqp = AmqpSettings {
            create_virtual_hosts: true,
            ..AmqpSettings::default()
        };
        let (shutdown, tasks) = (Shutdown::new(), TaskTracker::new());
        let live = LiveFront::new(LiveFrontSettings::default(), shutdown.clone(), tasks.clone());
        let http = HttpServer::new(stafett_live::router(live.clone()));
        Ok(Self {
            kafka: Arc::new(Kafka::new(
                Arc::clone(&broker),
                KafkaSettings::default(),
                &mut registry,
            )),
            amqp: Arc::new(Amqp::new(Arc::clone(&broker), amqp, &mut registry)),
            journal,
            broker,
            metrics: ["kafka", "amqp", "http"].map(|name| net.listener(name)),
            budget: ByteBudget::new(BudgetSettings { bytes: 256 << 20 }),
            drain: CancellationToken::new(),
            tasks,
            live,
            http,
            shutdown,
            connections: 0,
        })
    }

    /// Opens a connection to the Kafka listener.
    pub fn connect_kafka(&mut self) -> std::io::Result<Socket> {
        let (socket, connection) = self.connect(0)?;
        let kafka = Arc::clone(&self.kafka);
        self.tasks
            .spawn(async move { kafka.connection(connection).await });
        Ok(socket)
    }

    /// Opens a connection to the AMQP listener.
    pub fn connect_amqp(&mut self) -> std::io::Result<Socket> {
        let (socket, connection) = self.connect(1)?;
        let amqp = Arc::clone(&self.amqp);
        self.tasks.spawn(async move { amqp.connection(connection).await });
        Ok(socket)
    }

    /// Opens a connection to the HTTP listener.
    pub fn connect_http(&mut self) -> std::io::Result<Socket> {
        let (socket, connection) = self.connect(2)?;
        let http = self.http.clone();
        self.tasks.spawn(async move { http.connection(connection).await });
        Ok(socket)
    }

    /// Opens the logs of live topics. Returns false if there is no space for them.
    pub async fn open_live(&self) -> Result<bool, Failed> {
        let opened = pumped(&self.journal, self.broker.open_live_logs()).await?;
        self.live.open(Arc::clone(self.broker.live_topics()));
        Ok(opened.is_ok())
    }

    fn connect(&mut self, listener: usize) -> std::io::Result<(Socket, Connection)> {
        let (near, far) = UnixStream::pair()?;
        near.set_nonblocking(true)?;
        far.set_nonblocking(true)?;
        self.connections += 1;
        // Front ends use the stream like any stream socket.
        let stream = std::net::TcpStream::from(OwnedFd::from(far));
        let connection = Connection {
            stream: Stream::Plain(tokio::net::TcpStream::from_std(stream)?),
            drain: self.drain.child_token(),
            budget: Arc::clone(&self.budget),
            shedding: None,
            trace: None,
            entry: ConnectionEntry::of(
                self.connections,
                self.metrics.get(listener).cloned().unwrap_or_default(),
            ),
        };
        Ok((Socket::new(near), connection))
    }

    /// Stops like the program after a request to stop.
    ///
    /// `hear` is called meanwhile, so that clients read their input.
    pub async fn stop(&mut self, mut hear: impl FnMut()) -> Result<(), Failed> {
        self.drain.cancel();
        self.shutdown.drain();
        self.tasks.close();
        let ended = async {
            let mut wait = std::pin::pin!(self.tasks.wait());
            loop {
                tokio::select! {
                    biased;
                    () = &mut wait => break,
                    () = tokio::time::sleep(Duration::from_millis(1)) => hear(),
                }
            }
        };
        pumped(&self.journal, ended).await?;
        pumped(&self.journal, self.broker.stop()).await?;
        self.journal.close();
        Ok(())
    }
}

/// Waits for `work` while driving the journal.
pub async fn pumped<T>(journal: &DiskJournal, work: impl Future<Output = T>) -> Result<T, Failed> {
    let mut work = std::pin::pin!(work);
    for _ in 0..PATIENCE_MS {
        tokio::select! {
            biased;
            done = &mut work => return Ok(done),
            () = tokio::time::sleep(Duration::from_millis(1)) => journal.pump(),
        }
        if let Some(failure) = journal.failure() {
            return Err(Failed(format!("the journal failed: {failure}")));
        }
    }
    Err(Failed("nothing goes on".to_owned()))
}

fn live_settings() -> LiveSettings {
    let (topic, prefix) = crate::live::LOG;
    LiveSettings {
        logs: vec![LogRule {
            prefix: prefix.into(),
            topic: topic.into(),
            partitions: 1,
        }],
        ..LiveSettings::default()
    }
}

fn broker_settings() -> BrokerSettings {
    // Clocks jump by days, but commits must not expire.
    let groups = GroupSettings {
        commit_retention: None,
        initial_delay_ms: 5,
        sweep_every: Duration::from_hours(24),
        consumer: Rules {
            session_ms: crate::kafka::SESSION_MS,
            ..Rules::default()
        },
        ..GroupSettings::default()
    };
    let mut hooks = FrontEndHooks::default();
    stafett_kafka::add_hooks(&mut hooks);
    stafett_amqp::add_hooks(&mut hooks);
    BrokerSettings {
        groups,
        live_topics: live_settings(),
        hooks,
        ..BrokerSettings::default()
    }
}

fn settings(boots: u8, shape: &Shape) -> Settings {
    Settings {
        segment_bytes: shape.segment_bytes,
        tail_cache_bytes: shape.tail_cache_bytes,
        checkpoint_bytes: shape.checkpoint_bytes,
        disk_free_bytes_min: 0,
        rewrite: RewritePolicy {
            young: Duration::ZERO,
            merge_bytes: u64::from(shape.segment_bytes) * 2,
            dead_bytes_tolerated: 0,
            ..RewritePolicy::default()
        },
        rewrite_bytes_per_second: u64::MAX,
        boot: [boots; 16],
        clock: Clock::new(host::wall_ms),
        threads: false,
        ..Settings::default()
    }
}
