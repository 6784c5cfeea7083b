//! After every end of a consumer, a channel or a connection, only what living consumers hold is in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stafett_amqp_wire::methods::{Basic, Channel, Connection, basic, channel, connection};
use stafett_amqp_wire::{FrameKind, Method};
use stafett_delivery::Counts;
use stafett_model::{Namespace, Tenure};
use tokio::io::AsyncReadExt;

use crate::support::{Client, PATIENCE, Server};

/// More messages than the broker hands out to a client that does not read.
const MESSAGES: u64 = 2_000;
const BODY_BYTES: usize = 16 << 10;
/// Messages that fit into an outbox.
const OUTBOX_MESSAGES: usize = (256 << 10) / BODY_BYTES;

impl Server {
    fn counts(&self) -> Counts {
        let queue = self.broker.messaging().queues().get(&Namespace::new("/"), "q");
        queue.unwrap().counts()
    }

    /// Returns the number of messages taken out of outboxes.
    fn delivered(&self) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("amqp_delivered_total "));
        line.unwrap().parse().unwrap()
    }

    /// Waits until the counts of the queue match.
    async fn comes_to(&self, what: &str, is_wanted: impl Fn(&Counts) -> bool) {
        let wanted = async {
            while !is_wanted(&self.counts()) {
                tokio::task::yield_now().await;
            }
        };
        let came = tokio::time::timeout(PATIENCE, wanted).await;
        assert!(came.is_ok(), "{what}: {:?}", self.counts());
    }

    /// Fills the queue with many messages.
    async fn filled(&self) {
        let mut publisher = self.client(true).await;
        publisher.waiting().await;
        publisher.want_confirms().await;
        let body: &str = "x".repeat(BODY_BYTES).leak();
        for _ in 0..MESSAGES / 100 {
            publisher.publish(&vec![body; 100]).await;
        }
        publisher.confirmed(MESSAGES).await;
    }

    /// Opens a client that was sent more than fits between it and the queue, and that reads nothing.
    async fn flooded(&self, consumers: usize) -> Client {
        let before = self.delivered();
        let mut client = self.client(true).await;
        for consumer in 0..consumers {
            let consume = basic::Consume {
                queue: "q".into(),
                consumer_tag: format!("c{consumer}").into(),
                no_wait: true,
                ..basic::Consume::default()
            };
            client.send(1, consume).await;
        }
        // The outbox is no longer emptied, so it stays full.
        let is_full = |counts: &Counts| {
            let sent = usize::try_from(self.delivered() - before).unwrap();
            counts.in_flight >= sent + OUTBOX_MESSAGES
        };
        self.comes_to("the outbox is full", is_full).await;
        assert!(
            self.counts().ready > 0,
            "more than a client takes that does not read"
        );
        client
    }

    async fn all_wait_again(&self) {
        self.comes_to("all wait again", |counts| {
            (counts.ready, counts.in_flight, counts.consumers) == (MESSAGES, 0, 0)
        })
        .await;
    }
}

impl Client {
    /// Reads methods until one matches; returns the number of deliveries before it.
    async fn until(&mut self, is_wanted: impl Fn(&Method) -> bool) -> usize {
        let mut deliveries = 0;
        loop {
            let frame = self.frame().await;
            if FrameKind::of(frame.kind) != Some(FrameKind::Method) {
                continue;
            }
            let method = Method::decode(frame.payload).unwrap();
            if is_wanted(&method) {
                return deliveries;
            }
            deliveries += usize::from(matches!(method, Method::Basic(Basic::Deliver(_))));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_connection_had_not_written_waits_again_when_it_breaks() {
    let server = Server::start().await;
    server.filled().await;
    for consumers in [1, 3] {
        drop(server.flooded(consumers).await);
        server.all_wait_again().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_connection_had_not_written_waits_again_when_it_closes() {
    let server = Server::start().await;
    server.filled().await;
    let mut client = server.flooded(2).await;
    client.send(0, connection::Close::default()).await;
    let is_closed = |method: &Method| matches!(method, Method::Connection(Connection::CloseOk(_)));
    client.until(is_closed).await;
    server.all_wait_again().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_channel_had_not_written_waits_again_when_it_closes_although_its_client_reads_nothing() {
    let server = Server::start().await;
    server.filled().await;
    let mut client = server.flooded(2).await;
    client.send(1, channel::Close::default()).await;
    server.all_wait_again().await;
    let is_closed = |method: &Method| matches!(method, Method::Channel(Channel::CloseOk(_)));
    client.until(is_closed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_consumer_keeps_only_what_it_was_sent() {
    let server = Server::start().await;
    server.filled().await;
    let mut client = server.flooded(1).await;
    let cancel = basic::Cancel {
        consumer_tag: "c0".into(),
        no_wait: false,
    };
    client.send(1, cancel).await;
    let is_cancelled = |method: &Method| matches!(method, Method::Basic(Basic::CancelOk(_)));
    let sent = client.until(is_cancelled).await;
    let counts = server.counts();
    assert_eq!((counts.in_flight, counts.consumers), (sent, 0));
    assert_eq!(counts.ready + sent as u64, MESSAGES);
    drop(client);
    server.all_wait_again().await;
}

#[tokio::test]
async fn a_node_that_may_own_its_cell_no_longer_answers_nothing() {
    let owned = Arc::new(AtomicBool::new(true));
    let holds = Arc::clone(&owned);
    let server = Server::start_while(Tenure::new(move || holds.load(Ordering::Relaxed))).await;
    let mut client = server.client(true).await;
    client.waiting().await;
    owned.store(false, Ordering::Relaxed);
    let get = basic::Get {
        queue: "q".into(),
        no_ack: true,
        ..basic::Get::default()
    };
    client.send(1, get).await;
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, client.stream.read_to_end(&mut rest));
    // Its request may not have been read.
    let _ = ended.await.unwrap();
    assert!(rest.is_empty(), "its state may be old");
}
