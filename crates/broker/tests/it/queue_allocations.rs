//! Number of allocations in a message's life: per batch, not per message.

use std::sync::Arc;

use bytes::Bytes;
use stafett_broker::{Broker, BrokerSettings};
use stafett_delivery::{ConsumerSpec, DeliveryBatch, DeliveryId, Outbox, Settle};
use stafett_journal::MemoryJournal;
use stafett_messaging::queues::{Declare, OwnerId, Publication, Queue, Targets};
use stafett_model::{Message, Namespace};

/// Counts the allocations of publishing `count` messages, their delivery and their settlement.
async fn allocations(broker: &Broker, queue: &Arc<Queue>, outbox: &Outbox, count: usize) -> u64 {
    let body = Bytes::from(vec![b'x'; 100]);
    let messages: Vec<Message> = (0..count)
        .map(|_| Message {
            value: body.clone(),
            routing_key: "key".into(),
            ..Message::default()
        })
        .collect();
    let mut publication = Publication::with_capacity(count);
    let route = publication.route(Targets {
        queues: std::iter::once(Arc::clone(queue)).collect(),
        ..Targets::default()
    });
    for message in messages {
        publication.push(message, route);
    }
    let mut ticket = None;
    let published =
        allocation_counter::measure(|| ticket = Some(broker.messaging().queues().append(publication)));
    ticket.unwrap().await;
    let mut runs: Vec<DeliveryBatch> = Vec::with_capacity(16);
    let mut events = Vec::new();
    let delivered = allocation_counter::measure(|| queue.dispatch_now());
    outbox.take(&mut runs, &mut events);
    let got: Vec<(DeliveryId, Settle)> = runs
        .iter()
        .flat_map(|run| &run.deliveries)
        .map(|delivery| (delivery.id, Settle::Complete))
        .collect();
    assert_eq!(got.len(), count);
    let settled = allocation_counter::measure(|| {
        queue.settle(&got);
    });
    published.count_total + delivered.count_total + settled.count_total
}

#[tokio::test]
async fn memory_is_taken_per_batch_not_per_message() {
    let broker = Broker::start(Arc::new(MemoryJournal::new()), BrokerSettings::default())
        .await
        .unwrap();
    let declared = broker
        .messaging()
        .queues()
        .declare(&Namespace::default(), "q", Declare::default());
    let queue = declared.await.unwrap();
    let outbox = Outbox::new(1 << 20);
    let spec = ConsumerSpec {
        settles: true,
        exclusive: false,
        priority: 0,
        credit: Some(10_000),
        shared_credit: None,
        filter: None,
    };
    let _consumer = queue.consume(OwnerId(0), spec, Arc::clone(&outbox), 1).unwrap();
    // Warm-up: reused buffers are allocated first.
    allocations(&broker, &queue, &outbox, 800).await;
    let few = allocations(&broker, &queue, &outbox, 10).await;
    let many = allocations(&broker, &queue, &outbox, 800).await;
    assert!(few < 60, "{few}");
    assert!(many < few + 40, "{few} for 10 messages, {many} for 800");
}
