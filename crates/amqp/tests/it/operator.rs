//! An operator sees connections, channels and consumers, and ends them. Nothing that they held is lost.

#![expect(clippy::wildcard_enum_match_arm, reason = "other methods fail the test")]

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use stafett_amqp_wire::methods::{Basic, Connection, basic, channel, connection, tx};
use stafett_amqp_wire::{ContentHeader, Encoder, FrameKind, Method, Properties, ReplyCode};
use stafett_messaging::queues::Queue;
use stafett_messaging::{ConsumerEntry, ConsumerSource};
use stafett_model::Namespace;
use stafett_net::ConnectionEntry;
use stafett_net::registry::{ChannelState, State, Wait, ask_channels};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::support::{Client, PATIENCE, Server};

impl Server {
    /// Returns the newest connection.
    fn newest(&self) -> Arc<ConnectionEntry> {
        self.connections.all().pop().unwrap()
    }

    fn queue(&self) -> Arc<Queue> {
        let queues = self.broker.messaging().queues();
        queues.get(&Namespace::default(), "q").unwrap()
    }

    fn consumers(&self) -> Vec<Arc<ConsumerEntry>> {
        let consumers = self.broker.messaging().consumers();
        consumers.of(ConsumerSource::Queue(self.queue().id))
    }

    async fn until(&self, what: impl Fn(&Self) -> bool) {
        let reached = async {
            while !what(self) {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, reached).await.unwrap();
    }

    /// Checks that messages in flight are those of living consumers.
    async fn none_is_lost(&self, ready: u64, in_flight: usize) {
        self.until(|server| {
            let counts = server.queue().counts();
            (counts.ready, counts.in_flight) == (ready, in_flight)
        })
        .await;
        assert_eq!(self.queue().held_by_consumers(), in_flight);
    }
}

impl Client {
    /// Expects the end of the connection, and answers it.
    async fn is_ended_because(&mut self, reason: &str) {
        let close = loop {
            match self.method().await {
                Method::Connection(Connection::Close(close)) => break close,
                Method::Basic(Basic::Deliver(_)) => {
                    self.frame().await;
                    self.frame().await;
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(close.reply_code, ReplyCode::ConnectionForced.code());
        assert_eq!(close.reply_text, format!("CONNECTION_FORCED - {reason}"));
        self.send(0, connection::CloseOk {}).await;
    }
}

async fn channels(entry: &Arc<ConnectionEntry>) -> Vec<ChannelState> {
    ask_channels(std::slice::from_ref(entry), PATIENCE).await;
    entry.client().unwrap().channels().unwrap().last()
}

#[tokio::test]
async fn channels_are_shown_with_what_they_hold() {
    let server = Server::start().await;
    let mut client = server.client(true).await;
    client.waiting().await;
    let entry = server.newest();
    assert_eq!((entry.state(), entry.waits_for()), (State::Running, None));
    let words = entry.client().unwrap().words();
    assert_eq!(
        (words.user.as_deref(), words.namespace.as_deref()),
        (Some("guest"), Some("/"))
    );
    assert!(
        words
            .properties
            .contains(&("capabilities.connection.blocked".to_owned(), "true".to_owned()))
    );

    client.want_confirms().await;
    client.send(2, channel::Open::default()).await;
    client.send(2, tx::Select {}).await;
    client.send(3, channel::Open::default()).await;
    let qos = basic::Qos {
        prefetch_size: 0,
        prefetch_count: 7,
        global: true,
    };
    client.send(3, qos).await;
    for _ in 0..4 {
        client.method().await;
    }
    server.journal.hold();
    client.publish(&["one", "two"]).await;
    server.until_undecided(1).await;
    let shown = channels(&entry).await;
    let state = |number| ChannelState {
        number,
        ..ChannelState::default()
    };
    let one = ChannelState {
        confirms: true,
        unconfirmed: 2,
        ..state(1)
    };
    let two = ChannelState {
        transacts: true,
        ..state(2)
    };
    let three = ChannelState {
        prefetch_shared: 7,
        ..state(3)
    };
    assert_eq!(shown, [one, two, three]);
    assert_eq!(entry.waits_for(), Some(Wait::Journal));
}

#[tokio::test]
async fn consumers_are_shown_with_their_channel_and_messages() {
    let server = Server::start().await;
    let mut client = server.client(true).await;
    client.waiting().await;
    let entry = server.newest();
    client.want_confirms().await;
    client.publish(&["one", "two"]).await;
    client.confirmed(2).await;
    client.consume("q", "c", false).await;
    client.delivery().await;
    client.delivery().await;
    let shown = channels(&entry).await;
    assert_eq!(
        (shown[0].unconfirmed, shown[0].unsettled, shown[0].consumers),
        (0, 2, 1)
    );
    let consumers = server.consumers();
    let facts = &consumers[0].facts;
    assert_eq!(
        (facts.connection, facts.channel, &*facts.name),
        (entry.id, 1, "c")
    );
    assert_eq!(consumers[0].state().unwrap().in_flight, 2);
    let traffic = entry.traffic();
    assert!(
        traffic.received_bytes > 100 && traffic.sent_bytes > 100 && traffic.reads > 3 && traffic.writes > 3
    );

    drop(client);
    server.until(|server| server.connections.is_empty()).await;
    assert!(server.consumers().is_empty());
    server.none_is_lost(2, 0).await;
}

/// Moments at which an operator ends the connection.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Moment {
    Idle,
    Consuming,
    InTransaction,
    InLargeMessage,
    Blocked,
}

async fn bring_to(server: &Server, client: &mut Client, moment: Moment) {
    match moment {
        Moment::Idle => {}
        Moment::Consuming => {
            client.consume("q", "c", false).await;
            client.delivery().await;
        }
        Moment::InTransaction => {
            client.want_transactions().await;
            client.consume("q", "c", false).await;
            let delivered = client.delivery().await;
            client.ack(delivered.delivery_tag).await;
            client.publish(&["never committed"]).await;
            // The answer shows that the messages before it are taken.
            client.waiting().await;
        }
        Moment::InLargeMessage => {
            let publish = basic::Publish {
                routing_key: "q".into(),
                ..basic::Publish::default()
            };
            let mut out = BytesMut::new();
            Method::from(publish).encode(1, &mut out);
            let header = ContentHeader {
                body_size: 15_000_000,
                properties: Properties::NONE,
            };
            Encoder::frame(&mut out, FrameKind::Header, 1, |e| header.encode(e));
            Encoder::frame(&mut out, FrameKind::Body, 1, |e| e.raw(&vec![7; 100_000]));
            let before = server.newest().traffic().received_bytes;
            client.stream.write_all(&out).await.unwrap();
            let sent = before + out.len() as u64;
            server
                .until(|server| server.newest().traffic().received_bytes >= sent)
                .await;
        }
        Moment::Blocked => {
            server.journal.set_space_short(true);
            client.publish(&["waits"]).await;
            client.is_blocked().await;
            assert_eq!((server.blocked(), server.newest().state()), (1, State::Blocked));
        }
    }
}

#[tokio::test]
async fn a_connection_is_ended_at_any_moment_with_the_reason_and_loses_nothing() {
    for moment in [
        Moment::Idle,
        Moment::Consuming,
        Moment::InTransaction,
        Moment::InLargeMessage,
        Moment::Blocked,
    ] {
        let server = Server::start().await;
        let mut publisher = server.client(true).await;
        publisher.waiting().await;
        publisher.want_confirms().await;
        publisher.publish(&["one"]).await;
        publisher.confirmed(1).await;
        let mut client = server.client(true).await;
        let entry = server.newest();
        bring_to(&server, &mut client, moment).await;
        let reason = format!("{moment:?} is over");
        assert!(server.connections.end(&entry, &reason), "{moment:?}");
        assert!(!server.connections.end(&entry, "again"), "{moment:?}");
        assert_eq!(entry.state(), State::Closing);
        client.is_ended_because(&reason).await;
        server.until(|server| server.connections.len() == 1).await;
        assert_eq!(server.blocked(), 0, "{moment:?}");
        server.none_is_lost(1, 0).await;
        assert!(server.consumers().is_empty());
    }
}

#[tokio::test]
async fn a_connection_that_does_not_answer_its_end_goes_and_gives_back_what_it_held() {
    let server = Server::start().await;
    let mut client = server.client(true).await;
    client.waiting().await;
    client.publish(&["one", "two"]).await;
    client.consume("q", "c", false).await;
    client.delivery().await;
    assert!(server.connections.end(&server.newest(), "silent"));
    // Its consumers end before the client answers.
    server.none_is_lost(2, 0).await;
    server.until(|server| server.connections.is_empty()).await;
}

#[tokio::test]
async fn a_connection_that_drains_is_ended_too() {
    let server = Server::start().await;
    let mut client = server.client(true).await;
    client.waiting().await;
    let entry = server.newest();
    server.shutdown.drain();
    server.connections.end(&entry, "late");
    let Method::Connection(Connection::Close(close)) = client.method().await else {
        panic!("it is closed");
    };
    assert_eq!(close.reply_code, ReplyCode::ConnectionForced.code());
    client.send(0, connection::CloseOk {}).await;
    server.until(|server| server.connections.is_empty()).await;
}

#[tokio::test]
async fn a_reason_of_any_length_is_cut_to_what_the_protocol_takes() {
    let server = Server::start().await;
    let mut client = server.client(true).await;
    assert!(server.connections.end(&server.newest(), &"ö\u{0}\n".repeat(500)));
    let Method::Connection(Connection::Close(close)) = client.method().await else {
        panic!("it is closed");
    };
    assert!(close.reply_text.starts_with("CONNECTION_FORCED - ö") && close.reply_text.len() <= 255);
}

#[tokio::test]
async fn a_cancelled_consumer_is_told_and_its_waiting_messages_go_to_others() {
    let server = Server::start().await;
    let (mut first, mut second) = (server.client(true).await, server.client(true).await);
    first.waiting().await;
    first.want_confirms().await;
    let qos = basic::Qos {
        prefetch_size: 0,
        prefetch_count: 1,
        global: false,
    };
    first.send(1, qos).await;
    first.method().await;
    first.consume("q", "c", false).await;
    first.publish(&["one"]).await;
    let mut tag = 0;
    for _ in 0..2 {
        match first.method().await {
            Method::Basic(Basic::Deliver(delivered)) => {
                tag = delivered.delivery_tag;
                first.frame().await;
                first.frame().await;
            }
            Method::Basic(Basic::Ack(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    first.publish(&["two"]).await;
    first.confirmed(2).await;
    second.consume("q", "d", false).await;
    second.delivery().await;
    first.publish(&["three"]).await;
    second.delivery().await;
    let consumers = server.consumers();
    assert_eq!(consumers.len(), 2);
    assert!(consumers[0].cancel());
    assert!(!consumers[0].cancel(), "once");
    // The client lacks the capability and is not told, as in RabbitMQ.
    server.until(|server| server.consumers().len() == 1).await;
    // The message that the client has stays its own until it settles it.
    let counts = server.queue().counts();
    assert_eq!((counts.ready, counts.in_flight, counts.consumers), (0, 3, 1));
    first.ack(tag).await;
    server.none_is_lost(0, 2).await;
}

#[tokio::test]
async fn deliveries_without_settlement_come_before_the_end_of_their_consumer() {
    let server = Server::start().await;
    let mut client = server.client(true).await;
    client.waiting().await;
    client.consume("q", "c", true).await;
    for round in 0..20_u64 {
        client.publish(&["one", "two", "three"]).await;
        if round == 10 {
            server.consumers()[0].cancel();
        }
    }
    let ready = u64::from(client.waiting().await);
    assert!(server.consumers().is_empty());
    server.none_is_lost(ready, 0).await;
    assert_eq!(client.delivered.len() as u64 + ready, 60);
}

#[tokio::test]
async fn many_connections_come_and_go_and_none_stays_in_the_list() {
    let server = Server::start().await;
    for round in 0..200 {
        let mut client = server.client(round % 2 == 0).await;
        client.waiting().await;
        client.consume("q", "c", false).await;
        if round % 3 == 0 {
            server.connections.end(&server.newest(), "churn");
        }
    }
    server.until(|server| server.connections.is_empty()).await;
    assert!(server.broker.messaging().consumers().is_empty());
    server.none_is_lost(0, 0).await;
}

#[tokio::test]
async fn a_connection_that_is_stuck_shows_its_channels_as_they_were_last() {
    let server = Server::start().await;
    let mut client = server.client(true).await;
    client.waiting().await;
    let entry = server.newest();
    assert_eq!(channels(&entry).await.len(), 1);
    server.journal.hold();
    // The transaction waits for the journal, and with it the connection.
    client.want_transactions().await;
    client.publish(&["one"]).await;
    client.send(1, tx::Commit {}).await;
    server.until_undecided(1).await;
    server
        .until(|server| server.newest().waits_for() == Some(Wait::Journal))
        .await;
    let patience = Duration::from_millis(50);
    let begun = tokio::time::Instant::now();
    ask_channels(std::slice::from_ref(&entry), patience).await;
    assert!(begun.elapsed() >= patience);
    let board = entry.client().unwrap();
    let last = board.channels().unwrap().last();
    assert_eq!((last.len(), last[0].transacts), (1, false));
}
