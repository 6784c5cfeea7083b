//! Transactions over two cells: the coordinator's end decides, and the other cell hears of it as often as it
//! takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stafett_broker::{Broker, BrokerSettings};
use stafett_journal::{Append, Journal, ManualJournal, MemoryJournal, Outcome};
use stafett_model::{LogId, TransactionEnd};
use stafett_topics::{Cells, NewTopic, Topic, TopicSettings, cell_of};
use stafett_transactions::{
    Coordinator, Instance, Marker, Parts, Place, RemoteMarker, Status, TransactionError,
};
use tokio::time::timeout;

use crate::transactions::{NOBODY, TIMEOUT_MS, batch, commit_of, committed, committed_offset};

const ID: &str = "id";
const COMMIT: TransactionEnd = TransactionEnd::Commit;
const ABORT: TransactionEnd = TransactionEnd::Abort;
/// Epoch of the first cell.
const EPOCH: i32 = 1;

/// The first cell and the second, with a topic that has a partition in each.
struct World {
    /// That of the first cell.
    journal: Arc<MemoryJournal>,
    /// That of the second cell.
    other: Arc<ManualJournal>,
    cells: [Arc<Broker>; 2],
    topic: Arc<Topic>,
    /// Number of the connection from the first cell to the other.
    connection: u64,
}

async fn start(journal: &Arc<impl Journal + 'static>, own: u32) -> Arc<Broker> {
    let journal = Arc::clone(journal) as Arc<dyn Journal>;
    let settings = BrokerSettings {
        cells: Some(Cells { own, count: 2 }),
        ..BrokerSettings::default()
    };
    Arc::new(Broker::start(journal, settings).await.unwrap())
}

impl World {
    async fn new() -> Self {
        Self::with(2).await
    }

    /// `partitions`: those of the topic, half of them in each cell.
    async fn with(partitions: u32) -> Self {
        let (journal, other) = (Arc::<MemoryJournal>::default(), Arc::<ManualJournal>::default());
        let cells = [start(&journal, 0).await, start(&other, 1).await];
        let new = NewTopic {
            name: "wide".into(),
            partitions: Some(partitions),
            settings: TopicSettings {
                spread: Some(true),
                ..TopicSettings::default()
            },
        };
        let topic = cells[0].catalog().create(vec![new]).await.remove(0).unwrap();
        cells[1].follow_topics(&cells[0].copy_topics().1).await.unwrap();
        Self {
            journal,
            other,
            cells,
            topic,
            connection: 1,
        }
    }

    fn first(&self) -> &Arc<Broker> {
        &self.cells[0]
    }

    /// The log of a cell, and its partition.
    fn part(&self, cell: usize) -> (LogId, Place) {
        let [first, second] = &self.cells;
        let broker = if cell == 0 { first } else { second };
        let topic = broker.topics().named("wide").unwrap();
        let partition = (0..2).find(|number| cell_of(topic.log(*number).unwrap()).is_none());
        let partition = partition.unwrap();
        (topic.log(partition).unwrap(), (topic.id, partition))
    }

    /// The partitions of all cells, as the first one has them.
    fn parts(&self) -> Parts {
        let mut parts = Parts::default();
        assert!((0..2).all(|number| parts.add(&self.topic, number)));
        assert_eq!((parts.logs.len(), parts.elsewhere.len()), (1, 1));
        parts
    }

    async fn begin(&self) -> Instance {
        self.first()
            .transactions()
            .begin_producer(ID, TIMEOUT_MS, None)
            .await
            .unwrap()
    }

    /// Adds the partitions of both cells to the transaction.
    async fn add(&self, by: Instance) -> Result<(), TransactionError> {
        let transactions = self.first().transactions();
        transactions.add_parts(ID, by, self.parts()).await
    }

    /// Begins a transaction with the partitions of both cells.
    async fn begun() -> (Self, Instance) {
        let world = Self::new().await;
        let by = world.begin().await;
        world.add(by).await.unwrap();
        (world, by)
    }

    /// Appends a batch in the second cell, which asks the first.
    async fn send_there(&self, by: Instance, sequence: i32, text: &str) -> Result<bool, TransactionError> {
        let (log, place) = self.part(1);
        let asked = Parts {
            elsewhere: vec![place],
            ..Parts::default()
        };
        let ask = async {
            let checked = self.first().transactions().check_parts(ID, by, &asked);
            checked.map(|()| EPOCH)
        };
        let appends = vec![Append::batch(log, batch(by, sequence, text))];
        let remote = self.cells[1].remote_transactions();
        let ticket = remote.append(ID, by, &[log], appends, ask).await?;
        Ok(matches!(ticket.await[..], [Outcome::Committed(_)]))
    }

    /// Appends a batch in each cell.
    async fn send(&self, by: Instance, sequence: i32, text: &str) {
        let (log, _) = self.part(0);
        let append = vec![Append::batch(log, batch(by, sequence, text))];
        let transactions = self.first().transactions();
        let here = transactions.append(ID, by, false, &[log], append).unwrap();
        assert!(matches!(here.await[..], [Outcome::Committed(_)]));
        assert!(self.send_there(by, sequence, text).await.unwrap());
    }

    /// Returns the records of both cells that count.
    async fn counted(&self) -> [Vec<String>; 2] {
        [
            committed(&self.cells[0], self.part(0).0).await,
            committed(&self.cells[1], self.part(1).0).await,
        ]
    }

    fn status(&self) -> Status {
        self.first().transactions().describe(ID).unwrap().status
    }

    /// Brings control batches to the second cell.
    async fn bring(&self, from: Coordinator, markers: &[Marker]) -> bool {
        let topics = self.cells[1].topics();
        let there = |marker: &Marker| RemoteMarker {
            by: marker.by,
            end: marker.end,
            logs: marker
                .partitions
                .iter()
                .flat_map(|(topic, numbers)| numbers.iter().map(|number| (topic.id, *number)))
                .filter_map(|(topic, number)| topics.with_id(topic)?.log(number))
                .collect(),
        };
        let markers: Vec<_> = markers.iter().map(there).collect();
        let stored = self.cells[1].remote_transactions().mark(from, &markers).await;
        stored.into_iter().all(|is_stored| is_stored)
    }

    /// Returns the control batches that the second cell is owed; `None` if there are none for two minutes.
    async fn owed(&self) -> Option<Vec<Marker>> {
        let owed = self.first().transactions().owed_to(1);
        timeout(Duration::from_mins(2), owed).await.ok()
    }

    async fn deliver(&self) {
        let markers = self.owed().await.unwrap();
        assert!(self.bring((EPOCH, self.connection), &markers).await);
        self.first().transactions().marked(1, markers).await;
    }

    async fn end(&self, by: Instance, end: TransactionEnd) -> Result<Instance, TransactionError> {
        self.first().transactions().end(ID, by, end, false).await
    }

    /// Starts the first cell again.
    async fn restart(&mut self) {
        self.first().stop().await;
        self.journal = Arc::new(self.journal.reopen());
        self.cells[0] = start(&self.journal, 0).await;
        self.connection += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_counts_in_both_cells() {
    let world = World::new().await;
    let by = world.begin().await;
    let transactions = world.first().transactions();
    for (number, end) in (0..).zip([COMMIT, ABORT, COMMIT]) {
        transactions.add_parts(ID, by, world.parts()).await.unwrap();
        world.send(by, 2 * number, &format!("{number}")).await;
        world.send(by, 2 * number + 1, &format!("{number}, again")).await;
        let (ended, ()) = tokio::join!(world.end(by, end), world.deliver());
        assert_eq!((ended, world.status()), (Ok(by), Status::Ended(end)));
    }
    let expected = ["0", "0, again", "2", "2, again"];
    assert_eq!(world.counted().await, [expected; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_cell_has_control_batches_once_they_survive_its_owner() {
    let (world, by) = World::begun().await;
    world.send(by, 0, "0").await;
    let ended = world.end(by, COMMIT).await;
    assert_eq!(ended, Ok(by));
    let markers = world.owed().await.unwrap();
    world.other.hold_state();
    let mut bringing = std::pin::pin!(world.bring((EPOCH, 1), &markers));
    assert!(timeout(Duration::from_mins(1), &mut bringing).await.is_err());
    assert!(world.other.commit(0));
    assert!(bringing.await);
}

#[tokio::test(start_paused = true)]
async fn an_end_is_answered_while_the_other_cell_is_away_and_nothing_begins_before_it_has_heard() {
    let (world, by) = World::begun().await;
    let transactions = world.first().transactions();
    world.send(by, 0, "a").await;
    assert_eq!(world.end(by, COMMIT).await, Ok(by));
    assert_eq!(world.status(), Status::Ending(COMMIT));
    assert_eq!(world.counted().await, [vec!["a"], vec![]]);
    let begun = transactions.add_parts(ID, by, world.parts()).await;
    assert_eq!(begun, Err(TransactionError::Busy));
    let begun = transactions.begin_producer(ID, TIMEOUT_MS, None).await;
    assert_eq!(begun, Err(TransactionError::Busy));
    world.deliver().await;
    assert_eq!(world.counted().await, [["a"]; 2]);
    transactions.add_parts(ID, by, world.parts()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_starts_again_goes_on_where_it_was() {
    let (mut world, by) = World::begun().await;
    world.send(by, 0, "a").await;
    // Within the transaction: its partition in the other cell is known.
    world.restart().await;
    let described = world.first().transactions().describe(ID).unwrap();
    assert_eq!(described.status, Status::Ongoing);
    assert_eq!(Vec::from_iter(described.elsewhere), [world.part(1).1]);
    assert!(world.send_there(by, 1, "b").await.unwrap());
    assert_eq!(world.end(by, COMMIT).await, Ok(by));
    // The other cell has not heard of the end.
    world.restart().await;
    assert_eq!(world.status(), Status::Ending(COMMIT));
    world.deliver().await;
    assert_eq!(world.counted().await, [vec!["a"], vec!["a", "b"]]);
    // It has.
    world.restart().await;
    assert_eq!(world.status(), Status::Ended(COMMIT));
    assert!(world.owed().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn control_batches_come_again_after_a_start_and_those_of_earlier_connections_are_late() {
    let (mut world, by) = World::begun().await;
    world.send(by, 0, "a").await;
    assert_eq!(world.end(by, COMMIT).await, Ok(by));
    let first = world.owed().await.unwrap();
    assert!(world.bring((1, 1), &first).await);
    // The answer is lost with the node.
    world.restart().await;
    world.deliver().await;
    let transactions = world.first().transactions();
    transactions.add_parts(ID, by, world.parts()).await.unwrap();
    world.send(by, 1, "b").await;
    assert!(
        !world.bring((1, 1), &first).await,
        "it would end the next transaction"
    );
    assert!(!world.bring((0, 7), &first).await, "of a former owner");
    let (ended, ()) = tokio::join!(world.end(by, ABORT), world.deliver());
    assert_eq!(ended, Ok(by));
    assert_eq!(world.counted().await, [["a"]; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_was_asked_about_before_the_end_is_refused_behind_it() {
    let (world, by) = World::begun().await;
    let (log, _) = world.part(1);
    let asked = AtomicUsize::new(0);
    let ask = async {
        asked.fetch_add(1, Ordering::Relaxed);
        // The coordinator has answered, and ends the transaction before its answer is here.
        let (ended, ()) = tokio::join!(world.end(by, COMMIT), world.deliver());
        ended.map(|_| EPOCH)
    };
    let remote = world.cells[1].remote_transactions();
    let append = vec![Append::batch(log, batch(by, 0, "late"))];
    let late = remote.append(ID, by, &[log], append, ask).await;
    assert_eq!(late.unwrap_err(), TransactionError::NotAdded);
    assert_eq!(asked.into_inner(), 1);
    assert!(world.cells[1].catalog().open_transactions().is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_that_is_not_part_of_a_transaction() {
    let world = World::new().await;
    let by = world.begin().await;
    let refused = world.send_there(by, 0, "x").await;
    assert_eq!(refused, Err(TransactionError::NotAdded));
    let transactions = world.first().transactions();
    transactions.add_parts(ID, by, world.parts()).await.unwrap();
    assert!(world.send_there(by, 0, "x").await.unwrap());
    // No other id joins it by the producer's id: the coordinator is asked, and does not know the pair.
    let (log, _) = world.part(1);
    let remote = world.cells[1].remote_transactions();
    let forged = remote.append_known("other", by, &[log], vec![Append::batch(log, batch(by, 1, "f"))]);
    assert_eq!(forged.unwrap_err().len(), 1);
    // A later instance of the producer aborts it, and the former is fenced in both cells.
    let (later, ()) = tokio::join!(world.begin(), world.deliver());
    assert!(later.epoch > by.epoch);
    let refused = world.send_there(by, 1, "y").await;
    assert_eq!(refused, Err(TransactionError::Fenced));
    assert_eq!(world.counted().await, [const { Vec::<String>::new() }; 2]);
    let (_, status) = (world.status(), world.status());
    assert_eq!(status, Status::Empty);
}

#[tokio::test(start_paused = true)]
async fn commits_of_groups_count_with_the_end() {
    let (world, by) = World::begun().await;
    let transactions = world.first().transactions();
    world.send(by, 0, "a").await;
    let commits = commit_of(&world.topic, 7);
    let sent = transactions.commit_offsets(ID, by, true, ("g", &NOBODY), commits);
    sent.await.unwrap();
    assert_eq!(committed_offset(world.first(), "g", &world.topic), None);
    let (ended, ()) = tokio::join!(world.end(by, COMMIT), world.deliver());
    assert_eq!(ended, Ok(by));
    assert_eq!(committed_offset(world.first(), "g", &world.topic), Some(7));
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_takes_too_long_ends_in_both_cells() {
    let (world, by) = World::begun().await;
    world.send(by, 0, "a").await;
    world.deliver().await;
    let (log, _) = world.part(1);
    assert_eq!(world.counted().await, [const { Vec::<String>::new() }; 2]);
    assert!(world.cells[1].catalog().open_transactions().is_empty(), "{log}");
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_is_deleted_holds_no_end_up() {
    let (world, by) = World::begun().await;
    world.send(by, 0, "a").await;
    assert_eq!(world.end(by, COMMIT).await, Ok(by));
    world.first().delete_topic(world.topic.id).await.unwrap();
    let follow = async || {
        let copy = world.first().copy_topics().1;
        world.cells[1].follow_topics(&copy).await.unwrap();
    };
    follow().await;
    world.deliver().await;
    assert_eq!(world.status(), Status::Ended(COMMIT));
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_its_coordinator_does_not_know_is_aborted_after_some_looks() {
    let (world, by) = World::begun().await;
    let transactions = world.first().transactions();
    world.send(by, 0, "a").await;
    let remote = world.cells[1].remote_transactions();
    let open = || world.cells[1].catalog().open_transactions().len();
    let known = async |asked: &[_]| Some(transactions.are_open(asked));
    let unknown = async |asked: &[_]| Some(vec![false; asked.len()]);
    for _ in 0..10 {
        remote.abort_abandoned(known).await;
        remote.abort_abandoned(async |_| None).await;
        remote.abort_abandoned(unknown).await;
    }
    assert_eq!(open(), 1, "it is known, or nothing answered, in between");
    for looks in 1..=2 {
        remote.abort_abandoned(unknown).await;
        assert_eq!(open(), usize::from(looks < 2), "{looks}");
    }
    assert_eq!(world.counted().await[1], [""; 0]);
    // The coordinator still knows it, and its next batch is asked about.
    assert!(world.send_there(by, 1, "b").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_end_that_other_cells_have_not_heard_of_is_not_abandoned_and_is_answered_again() {
    let (world, by) = World::begun().await;
    let transactions = world.first().transactions();
    world.send(by, 0, "a").await;
    // With the later version of the protocol, each end begins another epoch.
    let ended = transactions.end(ID, by, COMMIT, true).await.unwrap();
    assert_eq!(ended.epoch, by.epoch + 1);
    let again = transactions.end(ID, by, COMMIT, true).await;
    assert_eq!(again, Err(TransactionError::Busy), "it was not heard of");
    let asked = [(by.producer, world.part(1).1), (by.producer, world.part(0).1)];
    assert_eq!(transactions.are_open(&asked), [true, false]);
    world.deliver().await;
    assert_eq!(transactions.end(ID, by, COMMIT, true).await, Ok(ended));
    assert_eq!(transactions.are_open(&asked), [false, false]);
    assert_eq!(world.counted().await, [["a"]; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_transaction_took_too_long_goes_on_once_all_cells_know() {
    let (world, by) = World::begun().await;
    let transactions = world.first().transactions();
    world.send(by, 0, "a").await;
    let markers = world.owed().await.unwrap();
    let abort = async || transactions.end(ID, by, ABORT, true).await;
    assert_eq!(abort().await, Err(TransactionError::Busy));
    assert!(world.bring((EPOCH, 1), &markers).await);
    transactions.marked(1, markers).await;
    assert_eq!(abort().await.map(|next| next.epoch), Ok(by.epoch + 1));
}

#[tokio::test(start_paused = true)]
async fn a_report_about_an_earlier_end_is_passed_over() {
    let (world, by) = World::begun().await;
    let transactions = world.first().transactions();
    world.send(by, 0, "a").await;
    assert_eq!(world.end(by, COMMIT).await, Ok(by));
    let first = world.owed().await.unwrap();
    assert!(world.bring((EPOCH, 1), &first).await);
    transactions.marked(1, first.clone()).await;
    transactions.add_parts(ID, by, world.parts()).await.unwrap();
    world.send(by, 1, "b").await;
    assert_eq!(world.end(by, COMMIT).await, Ok(by));
    transactions.marked(1, first).await;
    assert_eq!(world.status(), Status::Ending(COMMIT));
    world.deliver().await;
    assert_eq!(world.counted().await, [["a", "b"]; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_former_coordinator_is_not_believed() {
    let (world, by) = World::begun().await;
    assert!(world.bring((EPOCH + 1, 1), &[]).await);
    let refused = world.send_there(by, 0, "x").await;
    assert_eq!(refused, Err(TransactionError::NotAdded));
}

#[tokio::test(start_paused = true)]
async fn all_partitions_of_an_end_are_known_until_it_is_everywhere() {
    let world = World::with(8).await;
    let by = world.begin().await;
    let transactions = world.first().transactions();
    let mut parts = Parts::default();
    assert!((0..8).all(|number| parts.add(&world.topic, number)));
    let asked: Vec<_> = parts
        .elsewhere
        .iter()
        .map(|place| (by.producer, *place))
        .collect();
    assert_eq!(asked.len(), 4);
    transactions.add_parts(ID, by, parts).await.unwrap();
    assert_eq!(transactions.are_open(&asked), [true; 4]);
    assert_eq!(world.end(by, COMMIT).await, Ok(by));
    assert_eq!(transactions.are_open(&asked), [true; 4]);
    world.deliver().await;
    assert_eq!(transactions.are_open(&asked), [false; 4]);
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_is_deleted_while_an_end_is_stored_holds_nothing_up() {
    let (world, by) = World::begun().await;
    let delete = world.first().delete_topic(world.topic.id);
    let (ended, deleted) = tokio::join!(world.end(by, COMMIT), delete);
    deleted.unwrap();
    assert_eq!(ended, Ok(by));
    if world.status() != Status::Ended(COMMIT) {
        world.deliver().await;
    }
    assert_eq!(world.status(), Status::Ended(COMMIT));
}
