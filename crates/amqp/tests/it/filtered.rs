//! Consumers with filters whose ends come while their deliveries are being recorded.

use stafett_amqp_wire::methods::{Basic, basic};
use stafett_amqp_wire::{Method, TableBuilder};
use stafett_model::Namespace;

use crate::support::{PATIENCE, Server};

#[tokio::test]
async fn messages_of_a_consumer_that_ends_before_they_are_recorded_return() {
    for no_ack in [false, true] {
        let server = Server::start().await;
        let mut client = server.client(false).await;
        client.declare("q").await;
        client.want_confirms().await;
        client.publish(&[r#"{"n":1}"#, r#"{"n":2}"#, r#"{"n":3}"#]).await;
        client.confirmed(3).await;
        let counts = || {
            let queue = server.broker.messaging().queues().get(&Namespace::new("/"), "q");
            let counts = queue.unwrap().counts();
            (counts.ready, counts.in_flight)
        };
        server.journal.hold();
        let consume = basic::Consume {
            queue: "q".into(),
            consumer_tag: "odd".into(),
            no_ack,
            arguments: TableBuilder::new()
                .with("x-stafett-filter", "value.n % 2 == 1")
                .finish(),
            ..basic::Consume::default()
        };
        client.send(1, consume).await;
        let answer = client.method().await;
        assert!(matches!(answer, Method::Basic(Basic::ConsumeOk(_))), "{answer:?}");
        server.until_undecided(1).await;
        assert_eq!(counts(), (1, 2), "taken, and not recorded");
        client.cancel("odd").await;
        assert!(client.delivered.is_empty());
        server.journal.release();
        while server.journal.commit(0) {}
        let returned = async {
            while counts() != (3, 0) {
                tokio::task::yield_now().await;
            }
        };
        let returned = tokio::time::timeout(PATIENCE, returned).await;
        assert!(returned.is_ok(), "no_ack {no_ack}: {:?}", counts());
    }
}
