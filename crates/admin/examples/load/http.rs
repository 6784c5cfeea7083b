//! Requests over kept connections, one at a time each.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::print_times;

/// A connection to the API.
pub(crate) struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    request: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            received: Vec::new(),
            request: Vec::new(),
        }
    }

    /// Sends a request for a client, which may be empty.
    pub(crate) async fn send(&mut self, request: &str, client: &str, body: &str) {
        use std::io::Write;
        self.request.clear();
        write!(
            self.request,
            "{request} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n",
            body.len()
        )
        .unwrap();
        if !client.is_empty() {
            write!(self.request, "stafett-client: {client}\r\n").unwrap();
        }
        write!(self.request, "\r\n{body}").unwrap();
        self.stream.write_all(&self.request).await.unwrap();
    }

    /// Reads an answer: its status and its body.
    pub(crate) async fn read(&mut self) -> (u16, String) {
        loop {
            if let Some(head) = find(&self.received, b"\r\n\r\n") {
                let text = std::str::from_utf8(&self.received[..head])
                    .unwrap()
                    .to_ascii_lowercase();
                let length = text
                    .split("content-length: ")
                    .nth(1)
                    .map_or(0, |rest| rest.split("\r\n").next().unwrap().parse().unwrap());
                let end = head + 4 + length;
                if self.received.len() >= end {
                    let body = String::from_utf8_lossy(&self.received[head + 4..end]).into_owned();
                    let status = text[9..12].parse().unwrap();
                    self.received.drain(..end);
                    return (status, body);
                }
            }
            assert!(
                self.stream.read_buf(&mut self.received).await.unwrap() > 0,
                "the broker closed"
            );
        }
    }

    pub(crate) async fn ask(&mut self, request: &str, client: &str, body: &str) -> (u16, String) {
        self.send(request, client, body).await;
        self.read().await
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// Makes a new queue.
pub(crate) async fn make_queue(address: &str, name: &str, durability: &str) {
    let mut connection = Connection::open(address).await;
    connection.ask(&format!("DELETE /v1/queues/{name}"), "", "").await;
    let settings = format!(r#"{{"durability": "{durability}", "priority_max": 0}}"#);
    let (status, body) = connection
        .ask(&format!("PUT /v1/queues/{name}"), "", &settings)
        .await;
    assert!(status < 300, "{body}");
}

/// Sends one message a request.
pub(crate) async fn post(address: &str, time: Duration, connections: usize, bytes: usize, durability: &str) {
    make_queue(address, "load", durability).await;
    let body = format!(
        r#"{{"to": {{"queues": ["load"]}}, "content": "{}"}}"#,
        "x".repeat(bytes)
    );
    load(
        address,
        time,
        connections,
        "POST /v1/messages",
        &body,
        |status, _| status == 201,
    )
    .await;
}

/// Receives one message a request.
pub(crate) async fn receive(address: &str, time: Duration, connections: usize, settled: &str) {
    make_queue(address, "load", "sync").await;
    let mut connection = Connection::open(address).await;
    let message = format!(
        r#"{{"to": {{"queues": ["load"]}}, "content": "{}"}}"#,
        "x".repeat(100)
    );
    let some = format!("[{}]", vec![message; 10_000].join(","));
    let thousands = time.as_secs() as usize * 50;
    for _ in 0..thousands.div_ceil(10) {
        assert_eq!(connection.ask("POST /v1/messages", "", &some).await.0, 201);
    }
    let request = format!("POST /v1/queues/load/receive?settled={settled}");
    load(address, time, connections, &request, "", |_, body| {
        body.contains("\"content\":\"x")
    })
    .await;
}

async fn load(
    address: &str,
    time: Duration,
    connections: usize,
    request: &str,
    body: &str,
    is_good: impl Fn(u16, &str) -> bool + Copy + Send + 'static,
) {
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..connections {
        let (address, request, body) = (address.to_owned(), request.to_owned(), body.to_owned());
        tasks.push(tokio::spawn(async move {
            let mut connection = Connection::open(&address).await;
            let (mut times, mut bad) = (Vec::new(), 0_u64);
            while begun.elapsed() < time {
                let asked = Instant::now();
                let (status, answer) = connection.ask(&request, "", &body).await;
                times.push(asked.elapsed());
                bad += u64::from(!is_good(status, &answer));
            }
            (times, bad)
        }));
    }
    let (mut times, mut bad) = (Vec::new(), 0);
    for task in tasks {
        let (more, worse) = task.await.unwrap();
        times.extend(more);
        bad += worse;
    }
    let rate = times.len() as f64 / begun.elapsed().as_secs_f64();
    println!("{request}: {connections} connections, {rate:.0} requests/s, {bad} without success");
    print_times("answers", times);
}

/// Long polls that wait.
pub(crate) async fn polls(address: &str, count: usize) {
    make_queue(address, "load", "os").await;
    let mut all = Vec::new();
    for _ in 0..count {
        let mut connection = Connection::open(address).await;
        connection
            .send("POST /v1/queues/load/receive?wait=60s", "", "")
            .await;
        all.push(connection);
    }
    println!("{count} long polls wait");
    for connection in &mut all {
        connection.read().await;
    }
}
