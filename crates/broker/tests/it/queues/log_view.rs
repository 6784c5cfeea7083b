//! A queue as seen by clients that read logs.

use stafett_delivery::Settle;
use stafett_messaging::queues::{Declare, QueueSettings};
use stafett_model::{Message, Offset};
use stafett_topics::{DeleteError, NewTopic, ReadFrom, ReadRequest, Visibility};

use super::support::{World, durable, message, messages, settle_down};

#[tokio::test(start_paused = true)]
async fn a_queue_is_a_topic_with_a_partition_per_priority() {
    let world = World::new().await;
    let settings = QueueSettings {
        priority_max: 5,
        ..QueueSettings::default()
    };
    let queue = world
        .declare(
            "my orders",
            Declare {
                settings,
                ..durable()
            },
        )
        .await;
    world.publish(&queue, messages(0..3)).await;
    let topics = world.broker.topics();
    assert_eq!(topics.named("queue.my_20orders").unwrap().partitions(), 1);
    let urgent = Message {
        priority: 2,
        ..message("urgent")
    };
    world.publish(&queue, [urgent]).await;
    let topic = topics.named("queue.my_20orders").unwrap();
    assert_eq!(topic.partitions(), 3);
    let end = |partition| {
        world
            .broker
            .catalog()
            .bounds(topic.log(partition).unwrap())
            .unwrap()
            .end
            .0
    };
    assert_eq!([end(0), end(1), end(2)], [3, 0, 1]);
    let read = ReadRequest {
        logs: vec![ReadFrom {
            log: topic.log(0).unwrap(),
            offset: Offset(1),
            bytes_max: 1 << 20,
            visibility: Visibility::Stored,
        }],
        bytes_max: 1 << 20,
        first_batch_whole: true,
    };
    let read = world.broker.catalog().read(read).finish().await.unwrap();
    assert!(read[0].as_ref().unwrap().bytes > 0);
    assert_eq!(queue.counts().ready, 4, "reading settles nothing");
    let (taken, _) = queue.take_one(true).await.unwrap();
    queue.settle(&[(taken.id, Settle::Complete)]);
    settle_down().await;
    let urgent = world.broker.catalog().bounds(topic.log(2).unwrap()).unwrap();
    assert_eq!((urgent.start.0, urgent.end.0), (1, 1), "what is settled is gone");
    let deleted = world.broker.delete_topic(topic.id).await;
    assert_eq!(
        deleted,
        Err(DeleteError::NoSuchTopic),
        "the queue is deleted as a queue"
    );
    let world = world.restart().await;
    let topic_id = world.broker.topics().named("queue.my_20orders").unwrap().id;
    assert_eq!(
        topic_id, topic.id,
        "who committed offsets goes on where they were"
    );
}

#[tokio::test(start_paused = true)]
async fn a_topic_keeps_its_name_from_a_queue() {
    let world = World::new().await;
    let new = NewTopic {
        name: "queue.q".into(),
        partitions: None,
        settings: stafett_topics::TopicSettings::default(),
    };
    let created = world.broker.catalog().create(vec![new]).await;
    let id = created[0].as_ref().unwrap().id;
    world.declare("q", durable()).await;
    assert_eq!(world.broker.topics().named("queue.q").unwrap().id, id);
    world.declare("transient", Declare::default()).await;
    assert!(world.broker.topics().named("queue.transient").is_none());
}
