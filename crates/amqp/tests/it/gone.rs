//! Deletion of queues and exchanges that are gone already.

use stafett_amqp_wire::Method;
use stafett_amqp_wire::methods::{Exchange, Queue, exchange, queue};

use crate::support::Server;

#[tokio::test]
async fn a_deletion_in_progress_is_not_acknowledged_to_another_client_before_it_is_stored() {
    let server = Server::start().await;
    let (mut one, mut two) = (server.client(true).await, server.client(true).await);
    assert_eq!(one.waiting().await, 0);
    server.journal.hold();
    let delete = || queue::Delete {
        queue: "q".into(),
        ..queue::Delete::default()
    };
    one.send(1, delete()).await;
    server.until_undecided(1).await;
    two.send(1, delete()).await;
    server.until_undecided(2).await;
    while server.journal.commit(0) {}
    for client in [&mut one, &mut two] {
        let answer = client.method().await;
        assert!(matches!(answer, Method::Queue(Queue::DeleteOk(_))), "{answer:?}");
    }
    let exchange = exchange::Delete {
        exchange: "e".into(),
        ..exchange::Delete::default()
    };
    two.send(1, exchange).await;
    server.until_undecided(1).await;
    assert!(server.journal.commit(0));
    let answer = two.method().await;
    assert!(
        matches!(answer, Method::Exchange(Exchange::DeleteOk(_))),
        "{answer:?}"
    );
    server.journal.release();
}
