//! `basic.qos` with `global`: the consumers of a channel share a limit.

use std::collections::BTreeMap;

use stafett_amqp_wire::Method;
use stafett_amqp_wire::methods::{Basic, basic};

use crate::support::{Client, Server};

async fn limit(client: &mut Client, prefetch_count: u16) {
    let qos = basic::Qos {
        prefetch_count,
        global: true,
        ..basic::Qos::default()
    };
    client.send(1, qos).await;
    let answer = client.method().await;
    assert!(matches!(answer, Method::Basic(Basic::QosOk(_))), "{answer:?}");
}

/// With limit 1, three consumers and more messages than each gets: returns how many of the first 99 messages
/// each consumer has.
async fn shares(queues: [&'static str; 3]) -> BTreeMap<String, usize> {
    let server = Server::start().await;
    let mut client = server.client(false).await;
    limit(&mut client, 1).await;
    for queue in queues {
        client.declare(queue).await;
    }
    for queue in queues {
        for _ in 0..99 {
            client.publish_to(queue, "x").await;
        }
    }
    let mut got = BTreeMap::new();
    for (queue, tag) in queues.iter().zip(["one", "two", "three"]) {
        client.consume(queue, tag, false).await;
    }
    let mut early = std::mem::take(&mut client.delivered).into_iter();
    for _ in 0..99 {
        let delivery = match early.next() {
            Some(delivery) => delivery,
            None => client.delivery().await,
        };
        *got.entry(delivery.consumer_tag.to_string()).or_default() += 1;
        client.ack(delivery.delivery_tag).await;
    }
    got
}

#[tokio::test]
async fn consumers_of_a_queue_share_a_limit_of_one_evenly() {
    let got = shares(["q"; 3]).await;
    assert!(
        got.len() == 3 && got.values().all(|count| *count >= 30),
        "{got:?}"
    );
}

#[tokio::test]
async fn consumers_of_several_queues_share_a_limit_of_one_evenly() {
    let got = shares(["q", "q2", "q3"]).await;
    assert!(
        got.len() == 3 && got.values().all(|count| *count >= 30),
        "{got:?}"
    );
}

#[tokio::test]
async fn a_limit_that_comes_after_the_consumer_counts_what_it_holds() {
    let server = Server::start().await;
    let mut client = server.client(false).await;
    client.declare("q").await;
    client.consume("q", "ended", false).await;
    client.publish(&["1"]).await;
    client.delivery().await;
    client.cancel("ended").await;
    client.consume("q", "running", false).await;
    client.publish(&["2", "3"]).await;
    client.delivery().await;
    client.delivery().await;
    limit(&mut client, 2).await;
    client.publish(&["4", "5"]).await;
    assert_eq!(client.waiting().await, 2, "three are held");
    client.ack(1).await;
    assert_eq!(client.waiting().await, 2, "two are held");
    client.ack(2).await;
    assert_eq!(client.delivery().await.delivery_tag, 4);
    assert_eq!(client.waiting().await, 1);
    client.ack(3).await;
    client.ack(4).await;
    assert_eq!(client.delivery().await.delivery_tag, 5);
}

#[tokio::test]
async fn a_used_up_limit_stops_consumers_without_acknowledgements_which_use_nothing_of_it() {
    let server = Server::start().await;
    let mut client = server.client(false).await;
    limit(&mut client, 1).await;
    client.declare("q").await;
    client.declare("q2").await;
    client.consume("q", "automatic", true).await;
    client.consume("q2", "manual", false).await;
    client.publish(&["1", "2"]).await;
    client.delivery().await;
    client.delivery().await;
    client.publish_to("q2", "x").await;
    let held = client.delivery().await;
    assert_eq!(held.consumer_tag, "manual");
    client.publish(&["3", "4"]).await;
    assert_eq!(client.waiting().await, 2);
    client.ack(held.delivery_tag).await;
    client.delivery().await;
    client.delivery().await;
    assert_eq!(client.waiting().await, 0);
}

#[tokio::test]
async fn a_consumer_that_has_gone_leaves_its_turn_to_the_next() {
    let server = Server::start().await;
    let mut client = server.client(false).await;
    limit(&mut client, 1).await;
    for queue in ["q", "q2", "q3"] {
        client.declare(queue).await;
        client.consume(queue, queue, false).await;
        client.publish_to(queue, "x").await;
    }
    let held = client.delivery().await;
    assert_eq!(held.consumer_tag, "q");
    client.waiting().await;
    client.cancel("q2").await;
    client.ack(held.delivery_tag).await;
    assert_eq!(client.delivery().await.consumer_tag, "q3");
}

#[tokio::test]
async fn what_a_transaction_acknowledges_counts_until_it_is_committed() {
    let server = Server::start().await;
    let mut client = server.client(false).await;
    limit(&mut client, 1).await;
    client.declare("q").await;
    client.publish(&["1", "2"]).await;
    client.want_transactions().await;
    client.consume("q", "c", false).await;
    let held = client.delivery().await;
    client.ack(held.delivery_tag).await;
    assert_eq!(client.waiting().await, 1);
    client.commit().await;
    assert_eq!(client.delivery().await.delivery_tag, 2);
}
