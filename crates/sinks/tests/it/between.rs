//! A server between a client and a store, which answers wrongly, late, in parts or not at all.

use std::net::SocketAddr;
use std::sync::Arc;

use stafett_model::Lock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

/// Fault of the server between, at one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// 503, and nothing is done.
    Before,
    /// The request is executed, and answered with 500.
    After,
    /// The request is executed, and the connection ends without an answer.
    Silent,
    /// The request is executed, and the answer ends in the middle of its body.
    Cut,
    /// The request is executed twice, as by a client that lost the answer; the second answer counts.
    Twice,
}

#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Requests so far.
    count: u64,
    /// Number of the request that fails, and how.
    pub(crate) fault: Option<(u64, Fault)>,
    /// False: the condition of puts is taken away.
    pub(crate) forgets_conditions: bool,
}

/// A server between a client and the store. It ends with the runtime of its test.
pub(crate) struct Between {
    pub(crate) address: SocketAddr,
    pub(crate) plan: Arc<Lock<Plan>>,
    tasks: TaskTracker,
}

/// Reads a request: its head, and its body.
pub(crate) async fn request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let mut body = bytes.split_off(head);
    let head = String::from_utf8(bytes).unwrap();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse::<usize>().unwrap())
    });
    while body.len() < length.unwrap_or(0) {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some((head, body))
}

/// Has the store answer a request, on a connection of its own.
pub(crate) async fn answered(store: SocketAddr, head: &str, body: &[u8], forgets: bool) -> Vec<u8> {
    let lines = head.trim_end().lines();
    let kept = lines.filter(|line| !(forgets && line.to_ascii_lowercase().starts_with("if-none-match")));
    let mut head = kept.collect::<Vec<_>>().join("\r\n");
    head.push_str("\r\nconnection: close\r\n\r\n");
    let mut stream = TcpStream::connect(store).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    answer
}

fn failure(status: &str, code: &str) -> Vec<u8> {
    let body = format!("<Error><Code>{code}</Code></Error>");
    let length = body.len();
    format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}").into_bytes()
}

/// True for a request that ends an upload in parts.
fn completes(head: &str) -> bool {
    head.starts_with("POST ") && head.contains("uploadId=")
}

impl Between {
    pub(crate) async fn start(store: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let between = Self {
            address: listener.local_addr().unwrap(),
            plan: Arc::default(),
            tasks: TaskTracker::new(),
        };
        let (plan, connections) = (Arc::clone(&between.plan), between.tasks.clone());
        between.tasks.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let plan = Arc::clone(&plan);
                connections.spawn(async move {
                    if let Some((head, body)) = request(&mut stream).await {
                        let answer = Self::answer(store, &plan, &head, &body).await;
                        // The client may be gone.
                        let _ = stream.write_all(&answer).await;
                    }
                });
            }
        });
        between
    }

    async fn answer(store: SocketAddr, plan: &Lock<Plan>, head: &str, body: &[u8]) -> Vec<u8> {
        let (fault, forgets) = {
            let mut plan = plan.lock();
            plan.count += 1;
            let count = plan.count;
            let fault = plan.fault.filter(|(at, _)| *at == count).map(|(_, fault)| fault);
            (fault, plan.forgets_conditions)
        };
        if fault == Some(Fault::Before) {
            return failure("503", "Internal");
        }
        let mut answer = answered(store, head, body, forgets).await;
        if fault == Some(Fault::Twice) {
            // The upload has ended. This store answers as before; others do not know it any more.
            answer = if completes(head) {
                failure("404", "NoSuchUpload")
            } else {
                answered(store, head, body, forgets).await
            };
        }
        match fault {
            Some(Fault::After) => failure("500", "Internal"),
            Some(Fault::Silent) => Vec::new(),
            Some(Fault::Cut) => {
                answer.truncate(answer.len() - 1);
                answer
            }
            Some(Fault::Before | Fault::Twice) | None => answer,
        }
    }

    /// Has the n-th request from now on fail.
    pub(crate) fn fail(&self, n: u64, fault: Fault) {
        *self.plan.lock() = Plan {
            fault: Some((n, fault)),
            ..Plan::default()
        };
    }

    pub(crate) fn count(&self) -> u64 {
        self.plan.lock().count
    }
}
