//! Messages without a key for a stream that is compacted: they are refused, and the client is told.

use stafett_amqp_wire::Method;
use stafett_amqp_wire::methods::{Basic, Channel, tx};
use stafett_topics::{CleanupPolicy, NewTopic, TopicSettings};

use crate::support::Server;

async fn compacted(server: &Server) {
    let new = NewTopic {
        name: "latest".into(),
        partitions: Some(1),
        settings: TopicSettings {
            cleanup: Some(CleanupPolicy {
                compacts: true,
                deletes: false,
                names_delete_first: false,
            }),
            ..TopicSettings::default()
        },
    };
    server.broker.catalog().create(vec![new]).await.remove(0).unwrap();
}

#[tokio::test]
async fn a_message_without_a_key_is_nacked() {
    let server = Server::start().await;
    compacted(&server).await;
    let mut client = server.client(false).await;
    client.want_confirms().await;
    client.publish_to("latest", "without a key").await;
    let answer = client.method().await;
    assert!(matches!(answer, Method::Basic(Basic::Nack(nack)) if nack.delivery_tag == 1));
}

#[tokio::test]
async fn a_transaction_with_such_a_message_ends_the_channel() {
    let server = Server::start().await;
    compacted(&server).await;
    let mut client = server.client(false).await;
    client.declare("q").await;
    client.want_transactions().await;
    client.publish(&["to a queue"]).await;
    client.publish_to("latest", "without a key").await;
    client.send(1, tx::Commit {}).await;
    let Method::Channel(Channel::Close(close)) = client.method().await else {
        panic!("the channel is closed");
    };
    let text = "PRECONDITION_FAILED - the transaction is rolled back: a topic is compacted by key, and the message has none";
    assert_eq!((close.reply_code, &*close.reply_text), (406, text));
    assert_eq!(server.client(false).await.waiting().await, 0, "nothing is stored");
}
