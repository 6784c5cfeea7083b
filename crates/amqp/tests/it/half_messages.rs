//! Messages that are announced and do not arrive take no memory from others.

use std::time::Duration;

use bytes::BytesMut;
use stafett_amqp_wire::methods::{Basic, Connection, basic};
use stafett_amqp_wire::{ContentHeader, Encoder, FrameKind, Method, Properties, ReplyCode};
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use crate::support::{Client, Server};

const FRAME_BYTES: usize = 131_000;

/// Announces a message of `announced` bytes and sends the first `sent` of them.
async fn send_part(client: &mut Client, announced: usize, sent: usize) {
    let mut out = BytesMut::new();
    let publish = basic::Publish {
        routing_key: "q".into(),
        ..basic::Publish::default()
    };
    Method::from(publish).encode(1, &mut out);
    let header = ContentHeader {
        body_size: announced as u64,
        properties: Properties::NONE,
    };
    Encoder::frame(&mut out, FrameKind::Header, 1, |e| header.encode(e));
    for piece in vec![7; sent].chunks(FRAME_BYTES) {
        Encoder::frame(&mut out, FrameKind::Body, 1, |e| e.raw(piece));
    }
    client.stream.write_all(&out).await.unwrap();
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
async fn thirty_half_messages_do_not_hold_up_a_large_one_of_another() {
    let server = Server::start().await;
    let mut silent = Vec::new();
    for _ in 0..30 {
        let mut client = server.client(false).await;
        send_part(&mut client, 15_000_000, 70_000).await;
        silent.push(client);
    }
    let mut other = server.client(false).await;
    other.waiting().await;
    other.want_confirms().await;
    for (bytes, tag) in [(900_000, 1), (15_000_000, 2)] {
        send_part(&mut other, bytes, bytes).await;
        other.confirmed(tag).await;
    }
    assert_eq!(other.waiting().await, 2);
}

#[tokio::test]
async fn half_messages_that_fill_the_memory_make_way_within_seconds() {
    let server = Server::start().await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        let mut client = server.client(false).await;
        send_part(&mut client, 1_900_000, 70_000).await;
        silent.push(client);
    }
    let mut other = server.client(false).await;
    other.waiting().await;
    other.want_confirms().await;
    tokio::time::pause();
    let start = Instant::now();
    let published = async {
        send_part(&mut other, 900_000, 900_000).await;
        let confirmed = other.method().await;
        assert!(matches!(confirmed, Method::Basic(Basic::Ack(_))), "{confirmed:?}");
    };
    tokio::select! {
        () = published => {}
        () = fast_forward(Duration::from_mins(1)) => panic!("it still waits"),
    }
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    let closed = silent[0].method().await;
    let Method::Connection(Connection::Close(closed)) = closed else {
        panic!("{closed:?}");
    };
    assert_eq!(closed.reply_code, ReplyCode::ResourceError as u16);
}
