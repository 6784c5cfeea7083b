//! A client that publishes while space is short waits, and loses nothing.

use stafett_amqp_wire::methods::{Basic, Connection, basic, connection};
use stafett_amqp_wire::{Method, ReplyCode};

use crate::support::{PATIENCE, Server};

#[tokio::test]
async fn who_publishes_while_space_is_short_is_told_waits_and_goes_on() {
    let server = Server::start().await;
    let (mut publisher, mut consumer) = (server.client(true).await, server.client(true).await);
    assert_eq!(publisher.waiting().await, 0);
    publisher.want_confirms().await;
    publisher.publish(&["before"]).await;
    publisher.confirmed(1).await;

    server.journal.set_space_short(true);
    publisher.publish(&["one", "two", "three"]).await;
    publisher.is_blocked().await;
    publisher.publish(&["four"]).await;
    // A consumer continues and is not notified.
    assert_eq!(consumer.waiting().await, 1);
    let get = basic::Get {
        queue: "q".into(),
        no_ack: true,
        ..basic::Get::default()
    };
    consumer.send(1, get).await;
    let got = consumer.method().await;
    assert!(matches!(got, Method::Basic(Basic::GetOk(_))), "{got:?}");
    consumer.frame().await;
    assert_eq!(consumer.frame().await.payload, "before");
    assert_eq!(server.blocked(), 1);

    server.journal.set_space_short(false);
    publisher.is_unblocked().await;
    publisher.confirmed(5).await;
    assert_eq!(consumer.waiting().await, 4);
    assert_eq!(server.blocked(), 0);
}

#[tokio::test]
async fn a_client_that_cannot_be_told_waits_as_well() {
    let server = Server::start().await;
    let (mut publisher, mut other) = (server.client(false).await, server.client(true).await);
    assert_eq!(publisher.waiting().await, 0);
    publisher.want_confirms().await;
    server.journal.set_space_short(true);
    publisher.publish(&["one"]).await;
    // The client is not notified of the block, so the test watches the metric.
    while server.blocked() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(other.waiting().await, 0);
    server.journal.set_space_short(false);
    publisher.confirmed(1).await;
    assert_eq!(other.waiting().await, 1);
}

#[tokio::test]
async fn a_blocked_connection_ends_with_the_process_and_is_not_counted_any_more() {
    let server = Server::start().await;
    let mut publisher = server.client(true).await;
    assert_eq!(publisher.waiting().await, 0);
    server.journal.set_space_short(true);
    publisher.publish(&["one"]).await;
    publisher.is_blocked().await;
    server.shutdown.drain();
    let closed = publisher.method().await;
    let Method::Connection(Connection::Close(close)) = closed else {
        panic!("{closed:?}");
    };
    assert_eq!(close.reply_code, ReplyCode::ConnectionForced.code());
    publisher.send(0, connection::CloseOk {}).await;
    server.tasks.close();
    tokio::time::timeout(PATIENCE, server.tasks.wait()).await.unwrap();
    assert_eq!(server.blocked(), 0);
}
