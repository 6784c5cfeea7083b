//! Behaviour of RabbitMQ that clients rely on, beyond the text of the specification.

use stafett_amqp_wire::methods::{
    Basic, Channel, Connection, Exchange, Queue, Tx, basic, connection, exchange, queue, tx,
};
use stafett_amqp_wire::{Method, Table, Value, frame};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::{Client, Server};

async fn started(server: &Server) -> (Client, connection::Start) {
    let stream = TcpStream::connect(server.address).await.unwrap();
    let mut client = Client::over(stream);
    client.stream.write_all(&frame::PROTOCOL_HEADER).await.unwrap();
    let start = client.method().await;
    let Method::Connection(Connection::Start(start)) = start else {
        panic!("{start:?}");
    };
    (client, start)
}

#[tokio::test]
async fn the_server_calls_itself_rabbitmq_where_clients_decide_by_it() {
    let server = Server::start().await;
    let (_, start) = started(&server).await;
    let property = |name| match start.server_properties.get(name) {
        Some(Value::LongString(text)) => String::from_utf8(text.to_vec()).unwrap(),
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(
        (&*property("product"), &*property("version")),
        ("RabbitMQ", "4.0.5")
    );
    assert_eq!(property("server_product"), "Stafett");
    assert_eq!(property("server_version"), env!("CARGO_PKG_VERSION"));
}

#[tokio::test]
async fn who_says_nothing_of_himself_comes_in_as_guest_from_this_machine() {
    let server = Server::start().await;
    let (mut client, start) = started(&server).await;
    let mechanisms = std::str::from_utf8(&start.mechanisms).unwrap();
    assert!(
        mechanisms.split(' ').any(|name| name == "ANONYMOUS"),
        "{mechanisms}"
    );
    let start_ok = connection::StartOk {
        client_properties: Table::default(),
        mechanism: "ANONYMOUS".into(),
        response: "trace@example.org".into(),
        locale: "en_US".into(),
    };
    client.send(0, start_ok).await;
    let tune = client.method().await;
    assert!(
        matches!(tune, Method::Connection(Connection::Tune(_))),
        "{tune:?}"
    );
}

#[tokio::test]
async fn a_new_secret_of_a_user_with_a_password_is_taken_whatever_it_is() {
    let server = Server::start().await;
    let mut client = server.client(false).await;
    let update = connection::UpdateSecret {
        new_secret: "another".into(),
        reason: "it is old".into(),
    };
    client.send(0, update).await;
    let answer = client.method().await;
    assert!(
        matches!(answer, Method::Connection(Connection::UpdateSecretOk(_))),
        "{answer:?}"
    );
}

#[tokio::test]
async fn an_uncommitted_acknowledgement_is_not_recovered() {
    let server = Server::start().await;
    let mut client = server.client(false).await;
    client.declare("q").await;
    client.publish(&["1", "2"]).await;
    client.want_transactions().await;
    let first = client.get("q").await.unwrap();
    client.ack(first.delivery_tag).await;
    client.send(1, basic::Recover { requeue: true }).await;
    let recovered = client.method().await;
    assert!(
        matches!(recovered, Method::Basic(Basic::RecoverOk(_))),
        "{recovered:?}"
    );
    let second = client.get("q").await.unwrap();
    assert!(!second.redelivered);
    assert_eq!(client.get("q").await, None);
    client.commit().await;
    client.ack(second.delivery_tag).await;
    client.commit().await;
    assert_eq!(client.waiting().await, 0);
    client.close_channel().await;
    let mut other = server.client(false).await;
    assert_eq!(other.waiting().await, 0, "both are settled");
}

#[tokio::test]
async fn what_was_acknowledged_before_a_rollback_is_held_as_before() {
    let server = Server::start().await;
    let mut client = server.client(false).await;
    client.declare("q").await;
    client.publish(&["1", "2", "3"]).await;
    client.want_transactions().await;
    for _ in 0..3 {
        client.get("q").await.unwrap();
    }
    client.ack(2).await;
    client.ack(1).await;
    client.send(1, tx::Rollback {}).await;
    let answer = client.method().await;
    assert!(matches!(answer, Method::Tx(Tx::RollbackOk(_))), "{answer:?}");
    let all = basic::Ack {
        delivery_tag: 2,
        multiple: true,
    };
    client.send(1, all).await;
    client.commit().await;
    client.send(1, basic::Recover { requeue: true }).await;
    client.method().await;
    let third = client.get("q").await.unwrap();
    assert!(third.redelivered);
    assert_eq!(client.get("q").await, None);
}

#[tokio::test]
async fn what_was_acknowledged_in_a_transaction_that_is_never_committed_comes_again() {
    let server = Server::start().await;
    let mut client = server.client(false).await;
    client.declare("q").await;
    client.publish(&["1"]).await;
    client.want_transactions().await;
    let first = client.get("q").await.unwrap();
    client.ack(first.delivery_tag).await;
    // A second settlement of the same delivery is an error.
    client.ack(first.delivery_tag).await;
    let closed = client.method().await;
    assert!(matches!(closed, Method::Channel(Channel::Close(_))), "{closed:?}");
    let mut other = server.client(false).await;
    assert_eq!(other.waiting().await, 1);
}

#[tokio::test]
async fn an_empty_queue_and_an_empty_key_bind_by_the_name_of_the_last_queue() {
    let server = Server::start().await;
    let mut client = server.client(false).await;
    client.declare("q").await;
    client.bind("", "amq.direct", "").await;
    client.publish_through("amq.direct", "q", "x").await;
    client.publish_through("amq.direct", "", "x").await;
    assert_eq!(client.waiting().await, 1);
    client.bind("q", "amq.direct", "").await;
    client.publish_through("amq.direct", "", "x").await;
    assert_eq!(client.waiting().await, 2);
    let unbind = queue::Unbind {
        exchange: "amq.direct".into(),
        ..queue::Unbind::default()
    };
    client.send(1, unbind).await;
    let answer = client.method().await;
    assert!(matches!(answer, Method::Queue(Queue::UnbindOk(_))), "{answer:?}");
    client.publish_through("amq.direct", "q", "x").await;
    client.publish_through("amq.direct", "", "x").await;
    assert_eq!(client.waiting().await, 3);
}

#[tokio::test]
async fn names_that_are_declared_bound_or_deleted_lose_their_line_breaks() {
    let server = Server::start().await;
    let mut client = server.client(false).await;
    assert_eq!(client.declare("\r\nq\n").await.queue, "q");
    let declare = exchange::Declare {
        exchange: "e\n\rx".into(),
        kind: "fanout".into(),
        ..exchange::Declare::default()
    };
    client.send(1, declare).await;
    let answer = client.method().await;
    assert!(
        matches!(answer, Method::Exchange(Exchange::DeclareOk(_))),
        "{answer:?}"
    );
    client.bind("q\n", "\rex", "k\n").await;
    client.publish_through("ex", "", "x").await;
    assert_eq!(client.waiting().await, 1);
    let delete = exchange::Delete {
        exchange: "ex\n".into(),
        ..exchange::Delete::default()
    };
    client.send(1, delete).await;
    client.method().await;
    let delete = queue::Delete {
        queue: "q\r\n".into(),
        ..queue::Delete::default()
    };
    client.send(1, delete).await;
    let answer = client.method().await;
    let Method::Queue(Queue::DeleteOk(deleted)) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(deleted.message_count, 1);
    // A name that is only looked up is used unchanged.
    client.declare("q").await;
    let purge = queue::Purge {
        queue: "q\n".into(),
        ..queue::Purge::default()
    };
    client.send(1, purge).await;
    let answer = client.method().await;
    assert!(matches!(answer, Method::Channel(Channel::Close(_))), "{answer:?}");
}

#[tokio::test]
async fn an_idle_consumer_goes_before_a_get_behind_the_message() {
    for automatic in [true, false] {
        let server = Server::start().await;
        let mut client = server.client(false).await;
        client.declare("q").await;
        client.consume("q", "idle", automatic).await;
        for _ in 0..50 {
            client.publish_and_get("q").await;
        }
        for _ in 0..50 {
            client.delivery().await;
        }
    }
}
