//! A server of AMQP 0-9-1 that stores nothing: the rate that a client reaches against it is the client's own
//! ceiling.
//!
//! Every queue exists. Messages are confirmed and forgotten, but for the first one of each
//! address, which is given out again and again to the consumers of that address, as fast as acknowledgements
//! allow.
//!
//! - [`samples`]: the messages that are given out
//! - [`session`]: a client; [`channel`]: one of its channels

mod channel;
mod samples;
mod session;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Buf as _;
use stafett_amqp_wire::frame::PROTOCOL_HEADER;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::socket::{Socket, SocketError};
use samples::Samples;
use session::{Ended, Session};

/// Time between two looks for a first message of a queue that has consumers.
const LOOK: Duration = Duration::from_millis(1);
/// So much waits to be written before deliveries pause.
const OUTPUT_BYTES: usize = 64 << 10;

/// The stub.
#[derive(Debug)]
pub struct Stub {
    listener: TcpListener,
    samples: Arc<Samples>,
}

impl Stub {
    pub async fn bind(address: &str) -> std::io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind(address).await?,
            samples: Arc::default(),
        })
    }

    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves one connection and no other.
    #[cfg(test)]
    pub(super) async fn serve_one(self) {
        let (stream, _) = self.listener.accept().await.expect("it listens");
        let _ended = converse(stream, self.samples).await;
    }

    /// Serves for ever.
    pub async fn serve(self) -> std::io::Result<()> {
        let tasks = TaskTracker::new();
        loop {
            let (stream, _) = self.listener.accept().await?;
            let samples = Arc::clone(&self.samples);
            tasks.spawn(async move {
                // A client that breaks off ends its connection, and nothing else.
                let _ended = converse(stream, samples).await;
            });
        }
    }
}

async fn converse(stream: TcpStream, samples: Arc<Samples>) -> Result<(), Ended> {
    let mut socket = Socket::new(stream).map_err(SocketError::from)?;
    while socket.input().len() < PROTOCOL_HEADER.len() {
        socket.read().await?;
    }
    if !socket.input().starts_with(&PROTOCOL_HEADER) {
        return Err(Ended::NotSpoken);
    }
    socket.input().advance(PROTOCOL_HEADER.len());
    let mut session = Session::new(samples);
    Session::greet(socket.output());
    loop {
        socket.frames(|frame, out| session.on_frame(frame, out))?;
        session.confirm(socket.output());
        if socket.output().len() < OUTPUT_BYTES {
            session.deliver(socket.output(), OUTPUT_BYTES);
        }
        if session.looks_out() {
            // Either something comes, or it is time to look again.
            if let Ok(read) = timeout(LOOK, socket.read()).await {
                read?;
            }
        } else if session.delivers() {
            socket.read_or_write().await?;
        } else {
            socket.read().await?;
        }
        if session.has_ended() {
            socket.write().await?;
            return Ok(());
        }
    }
}
