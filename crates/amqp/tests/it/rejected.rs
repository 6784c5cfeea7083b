//! A rejected message has been dead-lettered when a later method is answered.

use stafett_amqp_wire::methods::{Basic, Queue, basic, queue};
use stafett_amqp_wire::{Method, TableBuilder, Value};
use stafett_model::Namespace;

use crate::support::{PATIENCE, Server};

fn get(queue: &'static str) -> Method {
    let get = basic::Get {
        queue: queue.into(),
        no_ack: queue == "dead",
        ..basic::Get::default()
    };
    get.into()
}

#[tokio::test]
async fn a_get_right_behind_a_reject_finds_the_dead_letter() {
    let server = Server::start().await;
    let mut client = server.client(true).await;
    let dead_to = TableBuilder::new()
        .with("x-dead-letter-exchange", Value::LongString("".into()))
        .with("x-dead-letter-routing-key", Value::LongString("dead".into()));
    for (name, arguments) in [("q", dead_to), ("dead", TableBuilder::new())] {
        let declare = queue::Declare {
            queue: name.into(),
            durable: true,
            arguments: arguments.finish(),
            ..queue::Declare::default()
        };
        client.send(1, declare).await;
        client.method().await;
    }
    client.want_confirms().await;
    for tag in 1..=20 {
        client.publish(&["rejected"]).await;
        client.confirmed(tag).await;
        client.send_together([get("q")]).await;
        let got = client.method().await;
        let Method::Basic(Basic::GetOk(got)) = got else {
            panic!("{got:?}");
        };
        client.frame().await;
        client.frame().await;
        let reject = basic::Reject {
            delivery_tag: got.delivery_tag,
            requeue: false,
        };
        client.send_together([reject.into(), get("dead")]).await;
        let dead = client.method().await;
        assert!(matches!(dead, Method::Basic(Basic::GetOk(_))), "{tag}: {dead:?}");
        client.frame().await;
        client.frame().await;
    }
}

#[tokio::test]
async fn a_passive_declaration_uses_the_queue() {
    let server = Server::start().await;
    let mut client = server.client(true).await;
    let declare = queue::Declare {
        queue: "q".into(),
        durable: true,
        arguments: TableBuilder::new()
            .with("x-expires", Value::I32(600_000))
            .finish(),
        ..queue::Declare::default()
    };
    client.send(1, declare).await;
    client.method().await;
    let declared = server
        .broker
        .messaging()
        .queues()
        .get(&Namespace::new("/"), "q")
        .unwrap();
    let before = declared.used_ms();
    let used_again = async {
        while declared.used_ms() == before {
            let passive = queue::Declare {
                queue: "q".into(),
                passive: true,
                ..queue::Declare::default()
            };
            client.send(1, passive).await;
            let answer = client.method().await;
            assert!(matches!(answer, Method::Queue(Queue::DeclareOk(_))), "{answer:?}");
        }
    };
    tokio::time::timeout(PATIENCE, used_again).await.unwrap();
}
