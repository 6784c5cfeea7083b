//! Heartbeats of the server.

use stafett_amqp_wire::{FrameKind, frame};
use tokio::io::AsyncReadExt;

use crate::support::{Client, Server};

#[tokio::test]
async fn two_heartbeats_go_out_per_interval_in_which_nothing_else_does() {
    let server = Server::start().await;
    let mut client = Client::open_with(server.address, false, "/", 60).await;
    tokio::time::pause();
    let mut heartbeats = 0;
    // A client that is silent for two intervals is disconnected.
    while client.stream.read_buf(&mut client.buffer).await.unwrap() > 0 {
        while let Some(frame) = frame::split(&mut client.buffer, 0).unwrap() {
            assert_eq!(FrameKind::of(frame.kind), Some(FrameKind::Heartbeat));
            heartbeats += 1;
        }
    }
    assert_eq!(heartbeats, 4);
}
