//! A client that sends bindings without waiting for each answer gets all answers once they are stored.

use stafett_amqp_wire::methods::{Channel, Connection, Queue, channel, queue};
use stafett_amqp_wire::{Method, ReplyCode};

use crate::support::Server;

fn bind(exchange: &str, key: &str) -> Method {
    let bind = queue::Bind {
        queue: "q".into(),
        exchange: exchange.into(),
        routing_key: key.into(),
        ..queue::Bind::default()
    };
    bind.into()
}

fn is_bound(method: &Method) -> bool {
    matches!(method, Method::Queue(Queue::BindOk(_)))
}

/// Lets the connection continue until `count` changes wait to be stored.
async fn until_undecided(server: &Server, count: usize) {
    while server.journal.undecided() < count {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.journal.undecided(), count);
}

#[tokio::test]
async fn bindings_that_come_together_wait_together_and_are_answered_in_order() {
    let server = Server::start().await;
    let mut client = server.client(true).await;
    client.waiting().await;
    server.journal.hold();
    let flow = channel::Flow { active: true };
    let binds = ["a", "b", "c"].map(|key| bind("amq.topic", key));
    client.send_together(binds.into_iter().chain([flow.into()])).await;
    until_undecided(&server, 3).await;
    for _ in 0..3 {
        assert!(server.journal.commit(0));
    }
    server.journal.release();
    for _ in 0..3 {
        let answer = client.method().await;
        assert!(is_bound(&answer), "{answer:?}");
    }
    let last = client.method().await;
    assert!(matches!(last, Method::Channel(Channel::FlowOk(_))), "{last:?}");
}

#[tokio::test]
async fn a_binding_that_is_not_stored_ends_the_connection_behind_the_answers_to_those_that_are() {
    let server = Server::start().await;
    let mut client = server.client(true).await;
    client.waiting().await;
    server.journal.hold();
    client
        .send_together(["a", "b", "c"].map(|key| bind("amq.topic", key)))
        .await;
    until_undecided(&server, 3).await;
    assert!(server.journal.commit(0));
    assert!(server.journal.refuse(0));
    assert!(server.journal.commit(0));
    server.journal.release();
    let first = client.method().await;
    assert!(is_bound(&first), "{first:?}");
    let closed = client.method().await;
    let Method::Connection(Connection::Close(close)) = closed else {
        panic!("{closed:?}");
    };
    assert_eq!(close.reply_code, ReplyCode::InternalError.code());
    assert_eq!((close.class_id, close.method_id), (50, 20));
}

#[tokio::test]
async fn a_binding_that_cannot_be_ends_the_channel_behind_the_answers_to_those_before() {
    let server = Server::start().await;
    let mut client = server.client(true).await;
    client.waiting().await;
    let binds = [
        bind("amq.topic", "a"),
        bind("amq.topic", "b"),
        bind("absent", "c"),
    ];
    client.send_together(binds).await;
    for _ in 0..2 {
        let answer = client.method().await;
        assert!(is_bound(&answer), "{answer:?}");
    }
    let closed = client.method().await;
    let Method::Channel(Channel::Close(close)) = closed else {
        panic!("{closed:?}");
    };
    assert_eq!(close.reply_code, ReplyCode::NotFound.code());
}
