//! Clients of a virtual host that is deleted, or cannot be made.

use std::sync::Arc;

use stafett_access::Caller;
use stafett_amqp_wire::methods::{Basic, Connection, basic};
use stafett_amqp_wire::{Method, ReplyCode};
use stafett_model::Namespace;

use crate::support::{Client, Server};

async fn is_ended(mut client: Client) {
    let mut last = client.method().await;
    // A consumer first gets a cancel for its queue.
    while matches!(last, Method::Basic(Basic::Cancel(_))) {
        last = client.method().await;
    }
    let Method::Connection(Connection::Close(close)) = last else {
        panic!("{last:?}");
    };
    assert_eq!(close.reply_code, ReplyCode::ConnectionForced.code());
    assert_eq!(close.reply_text, "CONNECTION_FORCED - vhost 'shop' is deleted");
}

#[tokio::test]
async fn a_client_that_does_nothing_and_wants_no_heartbeats_is_told_too() {
    let server = Server::start().await;
    let mut idle = server.client_in("shop").await;
    assert_eq!(idle.waiting().await, 0);
    let shop = Namespace::new("shop");
    server
        .broker
        .delete_namespace(&Arc::new(Caller::internal()), &shop)
        .await
        .unwrap();
    // The client's own virtual host is gone, even if a new one has its name.
    let (_, stored) = server
        .broker
        .messaging()
        .exchanges()
        .create_namespace(&shop)
        .unwrap();
    stored.await.unwrap();
    is_ended(idle).await;
}

#[tokio::test]
async fn consumers_and_publishers_of_a_deleted_virtual_host_are_told_and_others_go_on() {
    let server = Server::start().await;
    let (mut consumer, mut publisher) = (server.client_in("shop").await, server.client_in("shop").await);
    let mut elsewhere = server.client(true).await;
    assert_eq!(elsewhere.waiting().await, 0);
    assert_eq!(consumer.waiting().await, 0);
    let consume = basic::Consume {
        queue: "q".into(),
        ..basic::Consume::default()
    };
    consumer.send(1, consume).await;
    consumer.method().await;
    publisher.want_confirms().await;
    let shop = Namespace::new("shop");
    server
        .broker
        .delete_namespace(&Arc::new(Caller::internal()), &shop)
        .await
        .unwrap();
    is_ended(consumer).await;
    publisher.publish(&["too late"]).await;
    is_ended(publisher).await;
    assert_eq!(elsewhere.waiting().await, 0);
}

#[tokio::test]
async fn a_virtual_host_that_finds_no_space_is_refused_for_that() {
    let server = Server::start().await;
    server.journal.set_used_up(true);
    let (_, answer) = Client::knock(server.address, true, "shop", 0).await;
    let Method::Connection(Connection::Close(close)) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(close.reply_code, ReplyCode::InternalError.code());
    assert_eq!(
        close.reply_text,
        "INTERNAL_ERROR - vhost 'shop' cannot be stored: the disk is full"
    );
    assert_eq!((close.class_id, close.method_id), (10, 40));
    // Those that are there are open to everybody.
    let (_, answer) = Client::knock(server.address, true, "/", 0).await;
    assert!(
        matches!(answer, Method::Connection(Connection::OpenOk(_))),
        "{answer:?}"
    );
    server.journal.set_used_up(false);
    server.client_in("shop").await;
}
