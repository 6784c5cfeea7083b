//! Responses of `/health` in each state, through a real socket.

use std::sync::{Arc, RwLock};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use stafett_http::{Health, HttpServer, Router, State, router};
use stafett_net::{
    BudgetSettings, ByteBudget, Listener, ListenerSettings, NetMetrics, Shared, Shutdown, serve,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;

#[tokio::test]
async fn health_is_503_unless_ready_and_metrics_may_come_later() {
    let registry = Arc::new(RwLock::new(Registry::default()));
    let families = NetMetrics::register(&mut registry.write().unwrap());
    let addresses = ["127.0.0.1:0".parse().unwrap()];
    let listener = Listener::bind(&addresses, ListenerSettings::new("http", 10), &families).unwrap();
    let address = listener.local_addr().unwrap();
    let (health, shutdown) = (Health::new(), Shutdown::new());
    let more = Router::new().route("/more", stafett_http::routing::get("more"));
    let http = HttpServer::new(router(health.clone(), Arc::clone(&registry)).merge(more));
    let shared = Shared::new(shutdown.clone(), ByteBudget::new(BudgetSettings { bytes: 0 }));
    let served = TaskTracker::new().spawn(serve(listener, Arc::new(http), shared));
    let get = async |path: &str| -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };

    for (state, code, word) in [
        (State::Starting, 503, "starting"),
        (State::Recovering, 503, "recovering"),
        (State::Ready, 200, "ok"),
        (State::Draining, 503, "draining"),
    ] {
        health.set(state);
        let answer = get("/health").await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{answer}");
        assert!(
            answer.ends_with(&format!("{{\"status\":\"{word}\"}}\n")),
            "{answer}"
        );
        assert_eq!(state.word(), word);
    }
    let counter = Counter::<u64>::default();
    counter.inc_by(7);
    registry
        .write()
        .unwrap()
        .register("late", "Registered late", counter);
    assert!(get("/metrics").await.contains("late_total 7"));
    assert!(get("/more").await.ends_with("more"));
    let refused = get("/none").await;
    assert!(refused.starts_with("HTTP/1.1 404 ") && refused.contains("\"no_such_path\""));

    shutdown.drain();
    served.await.unwrap();
}
