//! The accept loop with real sockets.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prometheus_client::registry::Registry;
use stafett_net::{
    BindError, BudgetSettings, ByteBudget, Connection, Connections, FrameLimits, FrameReader, Listener,
    ListenerMetrics, ListenerSettings, NetMetrics, Output, Protocol, Shared, Shutdown, Status, WRITE_PACE,
    resolve, serve,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// Time limit for events that are expected at once.
const SOON: Duration = Duration::from_secs(20);

/// Sends frames back, without their length; each needs a permit of `answers` first.
struct Echo {
    answers: Arc<Semaphore>,
    received: Arc<Notify>,
}

impl Protocol for Echo {
    async fn connection(&self, mut connection: Connection) {
        let (budget, entry) = (connection.budget, connection.entry);
        let mut reader = FrameReader::new(
            FrameLimits::default(),
            budget,
            Arc::clone(&entry),
            connection.drain,
        );
        let mut output = Output::default();
        let mut frames = Vec::new();
        while let Ok(Status::Frames) = reader.next_frames(&mut connection.stream, &mut frames).await {
            self.received.notify_one();
            for frame in frames.drain(..) {
                let Ok(answer) = self.answers.acquire().await else {
                    return;
                };
                answer.forget();
                output.push(frame.payload);
                if output
                    .write_paced(&mut connection.stream, WRITE_PACE, &entry)
                    .await
                    .is_err()
                {
                    return;
                }
            }
        }
    }
}

struct Server {
    address: std::net::SocketAddr,
    shutdown: Shutdown,
    budget: Arc<ByteBudget>,
    metrics: Arc<ListenerMetrics>,
    answers: Arc<Semaphore>,
    received: Arc<Notify>,
    connections: Arc<Connections>,
    served: JoinHandle<()>,
}

async fn server(connections_max: usize) -> Server {
    server_with(connections_max, 4 << 20).await
}

async fn server_with(connections_max: usize, budget_bytes: usize) -> Server {
    let families = NetMetrics::register(&mut Registry::default());
    let addresses = resolve("127.0.0.1:0").await.unwrap();
    let listener = Listener::bind(
        &addresses,
        ListenerSettings::new("echo", connections_max),
        &families,
    )
    .unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let budget = ByteBudget::new(BudgetSettings { bytes: budget_bytes });
    let echo = Echo {
        answers: Arc::new(Semaphore::new(0)),
        received: Arc::default(),
    };
    let (answers, received) = (Arc::clone(&echo.answers), Arc::clone(&echo.received));
    let shared = Shared::new(shutdown.clone(), Arc::clone(&budget));
    let connections = Arc::clone(&shared.connections);
    let tasks = tokio_util::task::TaskTracker::new();
    let served = tasks.spawn(serve(listener, Arc::new(echo), shared));
    Server {
        address,
        shutdown,
        budget,
        metrics: families.listener("echo"),
        answers,
        received,
        connections,
        served,
    }
}

fn frame(payload: &[u8]) -> Bytes {
    let length = i32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], payload].concat().into()
}

async fn ask(stream: &mut TcpStream, payload: &[u8]) {
    stream.write_all(&frame(payload)).await.unwrap();
}

async fn answer(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut answer = vec![0; bytes];
    timeout(SOON, stream.read_exact(&mut answer))
        .await
        .unwrap()
        .unwrap();
    answer
}

/// Returns true if the peer has closed the connection.
async fn is_ended(stream: &mut TcpStream) -> bool {
    !matches!(timeout(SOON, stream.read(&mut [0])).await.unwrap(), Ok(1..))
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_at_once_and_counted() {
    let server = server(2).await;
    server.answers.add_permits(100);
    let mut first = TcpStream::connect(server.address).await.unwrap();
    let mut second = TcpStream::connect(server.address).await.unwrap();
    for stream in [&mut first, &mut second] {
        ask(stream, b"x").await;
        assert_eq!(answer(stream, 1).await, b"x");
    }
    let mut third = TcpStream::connect(server.address).await.unwrap();
    assert!(is_ended(&mut third).await);
    assert_eq!((server.metrics.open.get(), server.metrics.refused.get()), (2, 1));

    drop(first);
    // The place is free once the server has noticed the end: until then it refuses.
    let fourth = async {
        loop {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            let asked = stream.write_all(&frame(b"y")).await;
            let mut byte = [0];
            if asked.is_ok() && stream.read_exact(&mut byte).await.is_ok() {
                return byte;
            }
        }
    };
    assert_eq!(timeout(SOON, fourth).await.unwrap(), *b"y");
    assert_eq!(server.metrics.accepted.get(), 3);
}

#[tokio::test]
async fn draining_finishes_what_was_begun_and_accepts_nothing_more() {
    let server = server(10).await;
    let mut busy = TcpStream::connect(server.address).await.unwrap();
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    ask(&mut busy, b"last words").await;
    timeout(SOON, server.received.notified()).await.unwrap();
    server.shutdown.drain();
    assert!(is_ended(&mut idle).await);
    server.answers.add_permits(1);
    assert_eq!(answer(&mut busy, 10).await, b"last words");
    assert!(is_ended(&mut busy).await);
    timeout(SOON, server.served).await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
    assert_eq!(server.metrics.open.get(), 0);
}

#[tokio::test]
async fn aborting_drops_what_does_not_end_and_gives_its_memory_back() {
    let server = server(10).await;
    let mut stuck = TcpStream::connect(server.address).await.unwrap();
    ask(&mut stuck, &vec![1; 1_000_000]).await;
    timeout(SOON, server.received.notified()).await.unwrap();
    assert!(server.budget.in_use() >= 1_000_000);
    server.shutdown.drain();
    server.shutdown.abort();
    timeout(SOON, server.served).await.unwrap().unwrap();
    assert!(is_ended(&mut stuck).await);
    assert_eq!(server.budget.in_use(), 0);
}

#[tokio::test]
async fn large_frames_come_through_real_sockets_whole() {
    let server = server(10).await;
    server.answers.add_permits(100);
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    for size in [1, 1000, 70_000, 2_500_000] {
        let payload: Vec<u8> = (0..size).map(|at: u32| u8::try_from(at % 251).unwrap()).collect();
        let (mut read, mut write) = stream.split();
        let mut echoed = vec![0; payload.len()];
        let bytes = frame(&payload);
        let (sent, received) = tokio::join!(write.write_all(&bytes), read.read_exact(&mut echoed));
        sent.unwrap();
        received.unwrap();
        assert!(echoed == payload, "{size} bytes");
    }
    assert_eq!(server.metrics.sent_bytes.get(), 1 + 1000 + 70_000 + 2_500_000);
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let server = server(1).await;
    let families = NetMetrics::register(&mut Registry::default());
    let failed = Listener::bind(&[server.address], ListenerSettings::new("second", 1), &families);
    let error = failed.unwrap_err();
    assert!(matches!(&error, BindError::Bind { address, .. } if *address == server.address));
    assert_eq!(
        error.to_string(),
        format!(
            "cannot listen on {}: the address is in use by another program",
            server.address
        )
    );
    assert!(matches!(
        resolve("nonsense").await,
        Err(BindError::Resolve { .. })
    ));
}

/// A connection that announces a frame, sends the beginning of it and falls silent.
async fn half_a_request(server: &Server, announced: usize, sent: usize) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let length = i32::try_from(announced).unwrap().to_be_bytes();
    stream.write_all(&length).await.unwrap();
    stream.write_all(&vec![0; sent]).await.unwrap();
    stream
}

/// Waits until `bytes` in all were received.
async fn received(server: &Server, bytes: usize) {
    let all = async {
        while server.metrics.received_bytes.get() < bytes as u64 {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, all).await.unwrap();
}

#[tokio::test]
async fn a_hundred_half_requests_of_100_mb_do_not_hold_up_a_produce_of_900_kb() {
    let server = server_with(1000, 256 << 20).await;
    server.answers.add_permits(100);
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(half_a_request(&server, 100_000_000, 70_000).await);
    }
    received(&server, 100 * 65_536).await;
    let mut other = TcpStream::connect(server.address).await.unwrap();
    ask(&mut other, &vec![7; 900_000]).await;
    assert_eq!(answer(&mut other, 900_000).await.len(), 900_000);
    assert!(
        server.budget.in_use() <= 100 << 20,
        "what is announced takes no memory before it comes"
    );
}

/// Lets paused time pass faster than real time, while the sockets work in real time.
async fn fast_forward(most: Duration) {
    let start = Instant::now();
    while start.elapsed() < most {
        for _ in 0..500 {
            tokio::task::yield_now().await;
        }
        tokio::time::advance(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn half_requests_that_fill_the_memory_make_way_within_seconds() {
    // There is memory for eight silent connections of each kind.
    for (announced, bytes, budget_bytes) in
        [(1_000_000, 900_000, 32 << 20), (11_000_000, 5_000_000, 16 << 20)]
    {
        let server = server_with(1000, budget_bytes).await;
        server.answers.add_permits(100);
        let mut silent = Vec::new();
        for _ in 0..20 {
            silent.push(half_a_request(&server, announced, 70_000).await);
        }
        received(&server, 20 * 65_536).await;
        tokio::time::pause();
        let start = Instant::now();
        let produce = async {
            let mut other = TcpStream::connect(server.address).await.unwrap();
            other.write_all(&frame(&vec![7; bytes])).await.unwrap();
            other.read_exact(&mut vec![0; bytes]).await.unwrap();
        };
        tokio::select! {
            () = produce => {}
            () = fast_forward(Duration::from_secs(30)) => panic!("it still waits"),
        }
        assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
        assert!(server.metrics.errors("gave_way") >= 12);
        tokio::time::resume();
    }
}

#[tokio::test]
async fn connections_are_listed_with_their_traffic_and_ended_one_by_one() {
    let server = server(10).await;
    server.answers.add_permits(100);
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        ask(&mut stream, b"hello").await;
        assert_eq!(answer(&mut stream, 5).await, b"hello");
        streams.push(stream);
    }
    let entries = server.connections.all();
    assert_eq!(entries.len(), 3);
    for (entry, stream) in entries.iter().zip(&streams) {
        assert_eq!(
            (entry.peer, entry.local),
            (stream.local_addr().unwrap(), server.address)
        );
        assert_eq!(
            (entry.traffic().received_bytes, entry.metrics.name()),
            (9, "echo")
        );
    }
    assert!(server.connections.end(&entries[1], "the second"));
    assert!(is_ended(&mut streams[1]).await);
    ask(&mut streams[0], b"x").await;
    assert_eq!(answer(&mut streams[0], 1).await, b"x");
    let gone = async {
        while server.connections.len() > 2 {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, gone).await.unwrap();
    assert_eq!(server.metrics.open.get(), 2);
    assert!(server.connections.get(entries[1].id).is_none());
}
