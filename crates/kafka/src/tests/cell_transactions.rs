//! Messages of two cells about transactions, over connections in memory that end at the worst moments.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stafett_broker::{Broker, BrokerSettings};
use stafett_journal::MemoryJournal;
use stafett_kafka_wire::ErrorCode;
use stafett_model::{BatchBuilder, Codec, LogId, Record, TransactionEnd};
use stafett_topics::{Append, Cells as CellsOfTopics, NewTopic, Topic, TopicSettings, cell_of};
use stafett_transactions::{Instance, Parts, Status};
use tokio::io::{duplex, join};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cell_transactions::{Joining, ToCoordinators, TransactionDoor, mark_cell};
use stafett_net::{Reached, ToCell};

use crate::cells::Cells;

pub(super) const ID: &str = "id";

/// The ways between two cells in one process. Of the connections to the other one, as many as `cut` end before the
/// answer to their first message.
#[derive(Debug, Default)]
pub(super) struct Ways {
    brokers: std::sync::OnceLock<[Arc<Broker>; 2]>,
    pub(super) cut: AtomicU64,
    served: std::sync::Mutex<JoinSet<()>>,
}

#[derive(Debug, Clone)]
pub(super) struct From {
    pub(super) ways: Arc<Ways>,
}

impl Cells for From {
    fn epoch(&self) -> i32 {
        1
    }

    fn is_owner(&self) -> bool {
        true
    }

    fn epoch_of_first(&self) -> i32 {
        1
    }

    fn reach(&self, cell: u32) -> Reached<'_> {
        let (near, mut far) = duplex(1 << 10);
        let broker = Arc::clone(&self.ways.brokers.get().unwrap()[cell as usize]);
        let is_cut = self.ways.cut.load(Ordering::Relaxed) > 0;
        self.ways.cut.fetch_sub(u64::from(is_cut), Ordering::Relaxed);
        let door = TransactionDoor::new(&broker, Arc::new(self.clone()));
        self.ways.served.lock().unwrap().spawn(async move {
            let drain = CancellationToken::new();
            if is_cut {
                // It does its work, and its answer is lost.
                let (deaf, _) = duplex(1);
                let _ = door.serve(&mut join(far, deaf), &drain).await;
            } else {
                let _ = door.serve(&mut far, &drain).await;
            }
        });
        Box::pin(async move {
            Some(ToCell {
                stream: Box::new(near),
                lost: Box::pin(std::future::pending()),
            })
        })
    }
}

async fn broker(own: u32) -> Arc<Broker> {
    let settings = BrokerSettings {
        cells: Some(CellsOfTopics { own, count: 2 }),
        ..BrokerSettings::default()
    };
    Arc::new(
        Broker::start(Arc::new(MemoryJournal::new()), settings)
            .await
            .unwrap(),
    )
}

pub(super) struct World {
    pub(super) brokers: [Arc<Broker>; 2],
    pub(super) topic: Arc<Topic>,
    pub(super) from: From,
}

pub(super) async fn world() -> World {
    let brokers = [broker(0).await, broker(1).await];
    let new = NewTopic {
        name: "wide".into(),
        partitions: Some(2),
        settings: TopicSettings {
            spread: Some(true),
            ..TopicSettings::default()
        },
    };
    let topic = brokers[0].catalog().create(vec![new]).await.remove(0).unwrap();
    brokers[1]
        .follow_topics(&brokers[0].copy_topics().1)
        .await
        .unwrap();
    let ways = Arc::<Ways>::default();
    ways.brokers.set(brokers.clone()).unwrap();
    World {
        brokers,
        topic,
        from: From { ways },
    }
}

/// The partition that lies in the second cell, and its log there.
fn there(world: &World) -> (u32, LogId) {
    let topic = world.brokers[1].topics().named("wide").unwrap();
    let number = (0..2).find(|number| cell_of(topic.log(*number).unwrap()).is_none());
    (number.unwrap(), topic.log(number.unwrap()).unwrap())
}

fn joining(world: &World, by: Instance, adds: bool) -> Joining {
    let (number, log) = there(world);
    let mut builder = BatchBuilder::new(Codec::None)
        .producer(by.producer, by.epoch, 0)
        .transactional();
    let record = Record {
        key: None,
        value: Some(b"x"),
        headers: &[],
        timestamp: 1000,
    };
    builder.push(&record).unwrap();
    Joining {
        id: ID.to_owned(),
        by,
        adds,
        parts: vec![(log, (world.topic.id, number))],
        appends: vec![Append::batch(log, builder.finish().unwrap())],
    }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_goes_over_cells_whose_answers_are_lost() {
    let world = world().await;
    let transactions = world.brokers[0].transactions();
    let by = transactions.begin_producer(ID, 60_000, None).await.unwrap();
    let coordinators = ToCoordinators::new(Arc::new(world.from.clone()));
    let asked = coordinators
        .append(&world.brokers[1], joining(&world, by, false))
        .await;
    assert_eq!(
        asked.unwrap_err().0,
        ErrorCode::InvalidTxnState,
        "it is not added"
    );
    // With the later version, the batch adds its partition. The answer is lost.
    world.from.ways.cut.store(1, Ordering::Relaxed);
    let asked = ToCoordinators::new(Arc::new(world.from.clone()));
    let lost = asked.append(&world.brokers[1], joining(&world, by, true)).await;
    assert_eq!(lost.unwrap_err().0, ErrorCode::NotEnoughReplicas);
    let appended = coordinators
        .append(&world.brokers[1], joining(&world, by, true))
        .await;
    assert_eq!(appended.unwrap().await.len(), 1);
    assert_eq!(world.brokers[1].catalog().open_transactions().len(), 1);
    // Two connections with control batches end before their answers.
    world.from.ways.cut.store(2, Ordering::Relaxed);
    let mut marking = JoinSet::new();
    marking.spawn(mark_cell(
        Arc::clone(&world.brokers[0]),
        Arc::new(world.from.clone()),
        1,
    ));
    let ended = transactions.end(ID, by, TransactionEnd::Commit, false).await;
    assert_eq!(ended, Ok(by));
    let status = transactions.describe(ID).unwrap().status;
    assert_eq!(status, Status::Ended(TransactionEnd::Commit));
    assert!(world.brokers[1].catalog().open_transactions().is_empty());
    let stale = coordinators
        .append(&world.brokers[1], joining(&world, by, false))
        .await;
    assert_eq!(stale.unwrap_err().0, ErrorCode::InvalidTxnState);
    let mut parts = Parts::default();
    assert!(parts.add(&world.topic, there(&world).0));
    transactions.add_parts(ID, by, parts).await.unwrap();
}

#[tokio::test]
async fn what_is_no_message_ends_the_connection() {
    let world = world().await;
    let door = TransactionDoor::new(&world.brokers[0], Arc::new(world.from.clone()));
    let json = br#"{"Open":[[1,[2,3]]]}"#;
    let message = [&20_u32.to_be_bytes(), &json[..]].concat();
    let mut too_long = message.clone();
    too_long[0] = 0xff;
    let drain = CancellationToken::new();
    for (bytes, is_fine) in [
        (&message[..], true),
        (&[], true),
        (&message[..message.len() - 1], false),
        (&message[..3], true),
        (&too_long, false),
        (b"\0\0\0\x02{}", false),
        (b"\0\0\0\x0e{\"Open\":[[-1]]}", false),
    ] {
        let mut stream = join(bytes, Vec::new());
        let served = door.serve(&mut stream, &drain).await;
        assert_eq!(served.is_ok(), is_fine, "{bytes:?}: {served:?}");
        let answer: &[u8] = if bytes == message {
            b"\0\0\0\x07[false]"
        } else {
            b""
        };
        assert_eq!(stream.writer(), answer);
    }
}
