//! Behaviour without free descriptors. Alone in its process, because the limit is the process's.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stafett_net::{
    BudgetSettings, ByteBudget, Connection, Listener, ListenerSettings, NetMetrics, Protocol, Shared,
    Shutdown, serve,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

struct Greeting;

impl Protocol for Greeting {
    async fn connection(&self, mut connection: Connection) {
        let _ = connection.stream.write_all(b"hello").await;
    }
}

#[tokio::test]
async fn a_process_out_of_descriptors_accepts_again_once_it_has_some() {
    let families = NetMetrics::register(&mut Registry::default());
    let addresses = ["127.0.0.1:0".parse().unwrap()];
    let listener = Listener::bind(&addresses, ListenerSettings::new("greeting", 100), &families).unwrap();
    let address = listener.local_addr().unwrap();
    let metrics = families.listener("greeting");
    let shutdown = Shutdown::new();
    let shared = Shared::new(shutdown.clone(), ByteBudget::new(BudgetSettings { bytes: 0 }));
    // Made before the descriptors run out.
    let socket = TcpSocket::new_v4().unwrap();

    let before = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(64),
            maximum: before.maximum,
        },
    )
    .unwrap();
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }

    let tasks = TaskTracker::new();
    let served = tasks.spawn(serve(listener, Arc::new(Greeting), shared));
    let mut client: TcpStream = socket.connect(address).await.unwrap();
    let failing = async {
        while metrics.errors("accept") == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(20), failing).await.unwrap();
    drop(files);

    let mut greeting = [0; 5];
    timeout(Duration::from_secs(20), client.read_exact(&mut greeting))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(&greeting, b"hello");
    assert!(metrics.errors("accept") < 20, "it waits between its tries");
    setrlimit(Resource::Nofile, before).unwrap();
    shutdown.drain();
    timeout(Duration::from_secs(20), served).await.unwrap().unwrap();
}
