//! A client that sends each message by itself, and waits for no answer, is read less often and loses nothing.
//! A client that sends faster than its frames are processed does not starve others.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use stafett_amqp::AmqpSettings;
use stafett_amqp_wire::Method;
use stafett_amqp_wire::methods::{Channel, Queue, channel, queue};
use tokio::io::AsyncWriteExt;

use crate::support::{Client, Server};

const FLOOD: u32 = 3000;

async fn purge(client: &mut Client) -> u32 {
    let purge = queue::Purge {
        queue: "q".into(),
        ..queue::Purge::default()
    };
    client.send(1, purge).await;
    let purged = client.method().await;
    let Method::Queue(Queue::PurgeOk(purged)) = purged else {
        panic!("{purged:?}");
    };
    purged.message_count
}

#[tokio::test]
async fn every_message_of_a_flood_arrives_and_whoever_asks_behind_it_is_answered() {
    let server = Server::start().await;
    let mut client = server.client(false).await;
    client.stream.set_nodelay(true).unwrap();
    client.waiting().await;
    for _ in 0..3 {
        for _ in 0..FLOOD {
            client.publish(&["hello"]).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(purge(&mut client).await, FLOOD);
        client.publish(&["alone"]).await;
        client.send(1, channel::Flow { active: true }).await;
        let answer = client.method().await;
        assert!(
            matches!(answer, Method::Channel(Channel::FlowOk(_))),
            "{answer:?}"
        );
        assert_eq!(purge(&mut client).await, 1);
    }
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_a_flood_has_sent_what_it_sent() {
    let server = Server::start().await;
    let mut other = server.client(false).await;
    other.waiting().await;
    let mut client = server.client(false).await;
    client.stream.set_nodelay(true).unwrap();
    for _ in 0..FLOOD {
        client.publish(&["hello"]).await;
        tokio::task::yield_now().await;
    }
    // The beginning of a frame.
    client.stream.write_all(&[1, 0, 1]).await.unwrap();
    client.stream.shutdown().await.unwrap();
    // The server closes the connection once it has read everything.
    let mut rest = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut client.stream, &mut rest)
        .await
        .unwrap();
    assert_eq!(purge(&mut other).await, FLOOD);
}

/// Sends the protocol header and then heartbeats without pause, from its own thread, until a write fails.
fn flood_before_login(address: SocketAddr) -> JoinHandle<()> {
    const HEARTBEAT: [u8; 8] = [8, 0, 0, 0, 0, 0, 0, 0xCE];
    std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .write_all(&stafett_amqp_wire::frame::PROTOCOL_HEADER)
            .unwrap();
        let many = HEARTBEAT.repeat(8192);
        while stream.write_all(&many).is_ok() {}
    })
}

#[tokio::test]
async fn who_sends_heartbeats_without_end_before_logging_in_is_sent_away_in_time_and_others_are_served() {
    let server = Server::start_with(AmqpSettings {
        handshake_timeout: Duration::from_secs(3),
        ..AmqpSettings::default()
    })
    .await;
    // The other client has to log in in time, too.
    let mut other = server.client(false).await;
    other.waiting().await;
    let floods = [(); 4].map(|()| flood_before_login(server.address));
    for _ in 0..10 {
        other.publish(&["hello"]).await;
        assert_eq!(purge(&mut other).await, 1);
    }
    // Their writes fail once the server closes the connections.
    let floods = tokio::task::spawn_blocking(|| floods.map(JoinHandle::join));
    for flood in tokio::time::timeout(crate::support::PATIENCE, floods)
        .await
        .expect("they are sent away")
        .unwrap()
    {
        flood.unwrap();
    }
}
