//! Missing logs of a queue, as after damage to the files.

use stafett_journal::{Append, Frame, Journal, StateWait};
use stafett_messaging::queues::OwnerId;
use stafett_model::{LogId, Namespace};
use stafett_store::spaces;

use super::support::{World, durable, messages};

#[tokio::test(start_paused = true)]
async fn a_queue_whose_log_is_gone_can_be_deleted_and_declared_again() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    world.publish(&queue, messages(0..1)).await;
    drop(queue);
    let newest = world.journal.allocate(1).0 - 1;
    let delete = Frame::DeleteLogs {
        first: LogId(newest),
        count: 1,
    };
    let append = Append::state([delete], StateWait::Written);
    world.journal.append(vec![append]).await;
    assert_eq!(world.journal.bounds(LogId(newest)), None);
    let world = world.crash().await;
    let queues = world.broker.messaging().queues();
    let namespace = Namespace::default();
    let deleted = queues.delete(&namespace, "q", false, false, OwnerId(0));
    deleted.await.unwrap();
    let queue = world.declare("q", durable()).await;
    world.publish(&queue, messages(1..2)).await;
    assert_eq!(world.ready("q"), 1);
}

#[tokio::test(start_paused = true)]
async fn of_two_queues_with_one_name_the_later_stays_and_the_earlier_is_deleted() {
    let world = World::new().await;
    world
        .publish(&world.declare("q", durable()).await, messages(0..3))
        .await;
    let stored = |world: &World| {
        let mut rows = Vec::new();
        let loaded = spaces::QUEUES.load_values(&*world.journal, |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            Some(())
        });
        loaded.unwrap();
        rows
    };
    let world = world.crash().await;
    let [(key, value)] = stored(&world).try_into().unwrap();
    let queues = world.broker.messaging().queues();
    let namespace = Namespace::default();
    queues
        .delete(&namespace, "q", false, false, OwnerId(0))
        .await
        .unwrap();
    world
        .publish(&world.declare("q", durable()).await, messages(3..4))
        .await;
    // The deletion is lost, except that of the log.
    let put = spaces::QUEUES.put(key, value);
    world
        .journal
        .append(vec![Append::state([put], StateWait::Written)])
        .await;
    let world = world.crash().await;
    assert_eq!(world.ready("q"), 1);
    assert_eq!(world.broker.messaging().queues().all().len(), 1);
    let world = world.crash().await;
    assert_eq!(stored(&world).len(), 1, "the earlier definition is deleted");
    assert_eq!(world.ready("q"), 1);
}
