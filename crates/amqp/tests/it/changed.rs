//! Queues whose settings were changed beside the protocol, and paused ones.

use stafett_amqp_wire::methods::{Basic, Channel, Queue, basic, queue};
use stafett_amqp_wire::{Method, TableBuilder, Value};
use stafett_messaging::queues::Setting;
use stafett_model::Namespace;

use crate::support::{Client, Server};

async fn declare(client: &mut Client, ttl_ms: i32) -> Method {
    let arguments = TableBuilder::new().with("x-message-ttl", Value::I32(ttl_ms));
    let declare = queue::Declare {
        queue: "q".into(),
        durable: true,
        arguments: arguments.finish(),
        ..queue::Declare::default()
    };
    client.send(1, declare).await;
    client.method().await
}

fn is_declared(answer: &Method) -> bool {
    matches!(answer, Method::Queue(Queue::DeclareOk(_)))
}

#[tokio::test]
async fn a_declaration_is_compared_with_the_one_before_and_not_with_what_was_changed() {
    let server = Server::start().await;
    let mut client = server.client(true).await;
    assert!(is_declared(&declare(&mut client, 60_000).await));
    let queues = server.broker.messaging().queues();
    let queue = queues.get(&Namespace::default(), "q").unwrap();
    let changed = queues.change_settings(&queue, |_| {
        vec![Setting::TtlMs(None), Setting::LengthMax(Some(5))]
    });
    changed.await.unwrap();
    assert!(is_declared(&declare(&mut client, 60_000).await));
    let refused = declare(&mut client, 30_000).await;
    assert!(
        matches!(refused, Method::Channel(Channel::Close(_))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_paused_queue_gives_nothing_to_clients_and_takes_their_messages() {
    let server = Server::start().await;
    let mut client = server.client(true).await;
    assert_eq!(client.waiting().await, 0);
    let queues = server.broker.messaging().queues();
    let queue = queues.get(&Namespace::default(), "q").unwrap();
    queues.pause(&queue, true).await.unwrap();
    client.want_confirms().await;
    client.publish(&["one"]).await;
    client.confirmed(1).await;
    let consume = basic::Consume {
        queue: "q".into(),
        no_ack: true,
        ..basic::Consume::default()
    };
    let get = basic::Get {
        queue: "q".into(),
        ..basic::Get::default()
    };
    client.send(1, consume).await;
    assert!(matches!(
        client.method().await,
        Method::Basic(Basic::ConsumeOk(_))
    ));
    client.send(1, get).await;
    assert!(matches!(client.method().await, Method::Basic(Basic::GetEmpty(_))));
    queues.pause(&queue, false).await.unwrap();
    assert!(matches!(client.method().await, Method::Basic(Basic::Deliver(_))));
}
