//! Messages that wait for their time.

use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;
use stafett_broker::Namespace;
use stafett_broker::queues::{Publication, Targets};
use stafett_model::Message;

use crate::support::{World, body, durable, message, settle_down};

async fn delay(world: &World, body: &str, delay_ms: u64) {
    let queues = world.broker.queues();
    let mut publication = Publication::default();
    let route = publication.route(Targets {
        queues: smallvec![queues.delayed(&Namespace::default(), delay_ms)],
        logs: smallvec![],
    });
    let message = Message {
        routing_key: "q".into(),
        delay_ms: Some(delay_ms),
        ..message(body)
    };
    publication.push(message, route);
    queues.append(publication).await;
}

async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
    settle_down().await;
}

#[tokio::test(start_paused = true)]
async fn messages_are_routed_when_their_time_has_come_also_over_a_restart() {
    let world = World::new().await;
    world.route_by_name();
    world.declare("q", durable()).await;
    delay(&world, "late", 90_000).await;
    delay(&world, "soon", 1_000).await;
    delay(&world, "sooner", 500).await;
    assert_eq!(world.ready("q"), 0);
    pass(600).await;
    assert_eq!(world.ready("q"), 1);
    pass(500).await;
    let seen: Vec<_> = world.drain("q").await.iter().map(body).collect();
    assert_eq!(seen, ["sooner", "soon"]);
    let world = world.restart().await;
    world.route_by_name();
    pass(100_000).await;
    let late = world.drain("q").await;
    assert_eq!(late.iter().map(body).collect::<Vec<_>>(), ["late"]);
    assert_eq!(late[0].message.delay_ms(), None);
}

#[tokio::test(start_paused = true)]
async fn messages_of_far_ahead_move_through_coarser_queues() {
    let world = World::new().await;
    world.route_by_name();
    world.declare("q", durable()).await;
    let hour = 3_600_000;
    for hours in [3, 5, 70] {
        delay(&world, &hours.to_string(), hours * hour).await;
    }
    pass(2 * hour).await;
    assert_eq!(world.ready("q"), 0);
    pass(hour + 1000).await;
    assert_eq!(world.ready("q"), 1);
    pass(66 * hour).await;
    assert_eq!(world.ready("q"), 2);
    pass(hour + 1000).await;
    let seen: Vec<_> = world.drain("q").await.iter().map(body).collect();
    assert_eq!(seen, ["3", "5", "70"]);
    pass(48 * hour).await;
    let left: Vec<_> = world.broker.queues().all().iter().map(Arc::clone).collect();
    assert_eq!(left.len(), 1, "hidden queues go: {left:?}");
}
