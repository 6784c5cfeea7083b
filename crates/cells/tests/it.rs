//! Two cells: the first uses logs of the second, while that has owners, loses them, and finds its topics
//! late.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stafett_cells::{CellJournal, LogsDoor, Ways};
use stafett_journal::{
    Append, Frame, Journal, MemoryJournal, Outcome, PlacedBatch, Precondition, ReadError, ReadFrom,
    ReadRequest, Refusal, RequestId, TimeQuery, Visibility,
};
use stafett_model::{BatchBuilder, Codec, Lock, LogId, Offset, Record, Tenure};
use stafett_net::{Reached, ToCell};
use stafett_topics::{
    Cells, NewTopic, RecordItem, RecordTail, Topic, TopicCatalog, TopicDefaults, TopicSettings, cell_of,
};
use tokio::io::{AsyncReadExt as _, duplex};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const CELLS: u32 = 2;

/// State of the way to the other cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Open,
    /// The cell has no owner.
    NoOwner,
    /// Questions are taken, and then the connection ends; the next one is open.
    Cuts,
}

#[derive(Debug)]
struct ToOther {
    door: Arc<LogsDoor>,
    way: Lock<Way>,
    /// Cancelled to end connections.
    end: Lock<CancellationToken>,
    served: Lock<JoinSet<()>>,
}

impl Ways for ToOther {
    fn reach(&self, _cell: u32) -> Reached<'_> {
        Box::pin(async {
            for _ in 0..80 {
                let way = *self.way.lock();
                if way != Way::NoOwner {
                    return Some(self.connect(way));
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            None
        })
    }
}

impl ToOther {
    fn new(catalog: &Arc<TopicCatalog>, tenure: Tenure) -> Arc<Self> {
        Arc::new(Self {
            door: Arc::new(LogsDoor::new(catalog, tenure)),
            way: Lock::new(Way::Open),
            end: Lock::default(),
            served: Lock::default(),
        })
    }

    fn connect(&self, way: Way) -> ToCell {
        let (here, mut there) = duplex(1 << 16);
        let (door, end) = (Arc::clone(&self.door), self.end.lock().clone());
        if way == Way::Cuts {
            *self.way.lock() = Way::Open;
        }
        self.served.lock().spawn(async move {
            if way == Way::Cuts {
                let mut question = vec![0; 1 << 16];
                // The followed logs, and the question behind them.
                while !question
                    .windows(6)
                    .any(|text| text == b"Append" || text == br#""Read""#)
                {
                    if there.read(&mut question).await.unwrap() == 0 {
                        break;
                    }
                }
                return;
            }
            let _ = door.serve(there, &end).await;
        });
        ToCell {
            stream: Box::new(here),
            lost: Box::pin(std::future::pending()),
        }
    }
}

struct World {
    journal: Arc<CellJournal>,
    first: Arc<TopicCatalog>,
    second: Arc<TopicCatalog>,
    way: Arc<ToOther>,
    _running: JoinSet<()>,
}

fn journal(own: u32) -> CellJournal {
    let cells = Cells { own, count: CELLS };
    CellJournal::new(Arc::new(MemoryJournal::new()), cells, Duration::ZERO)
}

fn catalog(journal: Arc<dyn Journal>, own: u32) -> Arc<TopicCatalog> {
    let catalog = Arc::new(TopicCatalog::load(journal, TopicDefaults::default()).unwrap());
    catalog.spread_over(Cells { own, count: CELLS });
    catalog
}

impl World {
    fn new() -> Self {
        Self::with_tenure(Tenure::default())
    }

    fn with_tenure(tenure: Tenure) -> Self {
        let journal = Arc::new(journal(0));
        let first = catalog(Arc::<CellJournal>::clone(&journal), 0);
        let second = catalog(Arc::new(MemoryJournal::new()), 1);
        let way = ToOther::new(&second, tenure);
        let mut running = JoinSet::new();
        let (asked, topics, ways) = (Arc::clone(&journal), Arc::clone(first.topics()), Arc::clone(&way));
        running.spawn(async move { asked.run(&topics, ways).await });
        Self {
            journal,
            first,
            second,
            way,
            _running: running,
        }
    }

    /// Creates a topic with a partition in each cell; the second one does not know it yet.
    async fn create(&self, name: &str) -> Arc<Topic> {
        create(&self.first, name).await
    }

    async fn follow(&self) {
        for gone in self.second.follow(&self.first.copy()).await.unwrap() {
            self.second.delete(gone, |_| {}).await.unwrap();
        }
    }

    async fn topic(&self, name: &str) -> (LogId, LogId) {
        let topic = self.create(name).await;
        self.follow().await;
        logs(&topic)
    }

    fn set(&self, way: Way) {
        *self.way.way.lock() = way;
        std::mem::take(&mut *self.way.end.lock()).cancel();
    }

    /// Has the connection end, and the next one after the next question.
    async fn cut_next(&self) {
        self.set(Way::Cuts);
        while *self.way.way.lock() == Way::Cuts {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn append(&self, append: Append) -> Outcome {
        self.journal.append(vec![append]).await.pop().unwrap()
    }

    /// Reads the values of a log from an offset on.
    async fn values(&self, log: LogId, from: u64) -> Vec<String> {
        let mut tail = RecordTail::new(log, Offset(from), 1 << 20, Visibility::Committed);
        let mut values = Vec::new();
        loop {
            match tail.item() {
                Some(RecordItem::Record(record)) => {
                    values.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap());
                }
                Some(RecordItem::Skipped(skipped)) => values.push(format!("{:?}", skipped.why)),
                None if tail.read(&self.first).await.is_err() => return values,
                None => {}
            }
        }
    }
}

/// Creates a topic with a partition in each cell.
async fn create(first: &Arc<TopicCatalog>, name: &str) -> Arc<Topic> {
    let new = NewTopic {
        name: name.into(),
        partitions: Some(CELLS),
        settings: TopicSettings {
            spread: Some(true),
            ..TopicSettings::default()
        },
    };
    first.create(vec![new]).await.remove(0).unwrap()
}

/// Returns the own log of a topic, and the one in the other cell.
fn logs(topic: &Topic) -> (LogId, LogId) {
    let find = |is_other: bool| {
        let mut logs = (0..CELLS).filter_map(|partition| topic.log(partition));
        logs.find(|log| cell_of(*log).is_some() == is_other).unwrap()
    };
    (find(false), find(true))
}

fn batch(value: &str) -> Bytes {
    let mut batch = BatchBuilder::new(Codec::None);
    let record = Record {
        key: None,
        value: Some(value.as_bytes()),
        headers: &[],
        timestamp: 1_000,
    };
    batch.push(&record).unwrap();
    batch.finish().unwrap()
}

fn to(log: LogId, value: &str) -> Append {
    Append::batch(log, batch(value))
}

fn bases(outcome: &Outcome) -> Vec<(LogId, u64, bool)> {
    let Outcome::Committed(placed) = outcome else {
        panic!("{outcome:?}");
    };
    let base = |placed: &PlacedBatch| (placed.log, placed.base.0, placed.duplicate);
    placed.iter().map(base).collect()
}

#[tokio::test]
async fn a_cell_behind_the_first_one_knows_ends_and_appends_nothing_elsewhere() {
    let first = catalog(Arc::new(MemoryJournal::new()), 0);
    let journal = Arc::new(journal(1));
    let second = catalog(Arc::<CellJournal>::clone(&journal), 1);
    let way = ToOther::new(&first, Tenure::default());
    let mut running = JoinSet::new();
    let (asked, topics) = (Arc::clone(&journal), Arc::clone(second.topics()));
    running.spawn(async move { asked.run(&topics, way).await });
    let (in_first, _) = logs(&*create(&first, "t").await);
    second.follow(&first.copy()).await.unwrap();
    let (own, other) = logs(&second.topics().named("t").unwrap());
    assert!(second.reach_logs(&[own, other]).await);
    let watch = journal.watch();
    assert!(journal.watch_log(&watch, other, 7));
    first.append(vec![to(in_first, "a")]).await;
    while second.bounds(other).unwrap().end != Offset(1) {
        watch.grown().await;
        watch.take();
    }
    let found = journal
        .find_time(other, TimeQuery::Latest)
        .finish()
        .await
        .unwrap();
    assert!(found.unwrap().is_some());
    let mut divisible = to(own, "b");
    divisible.frames.extend(to(other, "b").frames);
    divisible.is_divisible = true;
    let refused = journal
        .append(vec![to(other, "b"), divisible, to(own, "c")])
        .await;
    let gone = Outcome::Refused(Refusal::NoSuchLog(other));
    assert_eq!(refused[..2], [gone.clone(), gone]);
    assert_eq!(bases(&refused[2]), [(own, 0, false)]);
    assert_eq!(first.bounds(in_first).unwrap().end, Offset(1));
}

#[tokio::test]
async fn a_log_of_another_cell_is_written_watched_and_read_like_an_own_one() {
    let world = World::new();
    let (own, other) = world.topic("t").await;
    assert!(world.first.reach_logs(&[own, other]).await);
    let watch = world.journal.watch();
    assert!(world.journal.watch_log(&watch, other, 7));
    for number in 0..3 {
        let appends = vec![to(other, &format!("o{number}")), to(own, &format!("w{number}"))];
        let outcomes = world.journal.append(appends).await;
        assert_eq!(bases(&outcomes[0]), [(other, number, false)]);
        assert_eq!(bases(&outcomes[1]), [(own, number, false)]);
    }
    assert_eq!(
        world.journal.bounds(other).unwrap().end,
        Offset(3),
        "an answer tells it"
    );
    watch.grown().await;
    assert_eq!(watch.take(), [7].into());
    assert_eq!(world.values(other, 1).await, ["o1", "o2"]);
    assert_eq!(world.values(own, 2).await, ["w2"]);
    let found = world
        .journal
        .find_time(other, TimeQuery::Latest)
        .finish()
        .await
        .unwrap();
    assert!(found.unwrap().is_some());

    let logs = world.second.topics().named("t").unwrap();
    let log = (0..CELLS).find_map(|partition| logs.log(partition).filter(|log| cell_of(*log).is_none()));
    world.second.append(vec![to(log.unwrap(), "by another")]).await;
    watch.grown().await;
    assert_eq!(
        world.journal.bounds(other).unwrap().end,
        Offset(4),
        "growth is told"
    );

    let cut = world.first.truncate(&[(other, Offset(2))]).await;
    assert_eq!(cut, [Ok(())]);
    assert_eq!(world.values(other, 0).await, ["Expired", "o2", "by another"]);
    assert_eq!(world.journal.bounds(other).unwrap().start, Offset(2));
}

#[tokio::test]
async fn an_append_to_several_cells_is_divided_only_if_it_may_be() {
    let world = World::new();
    let (own, other) = world.topic("t").await;
    let mut both = to(other, "1");
    both.frames.extend(
        [to(own, "2"), to(other, "3")]
            .into_iter()
            .flat_map(|append| append.frames),
    );
    let refused = world.append(both.clone()).await;
    assert_eq!(refused, Outcome::Refused(Refusal::NoSuchLog(other)));
    both.is_divisible = true;
    let expected = [(other, 0, false), (own, 0, false), (other, 1, false)];
    assert_eq!(bases(&world.append(both.clone()).await), expected);

    let logs = vec![own, other].into_iter().map(|log| ReadFrom {
        log,
        offset: Offset::ZERO,
        bytes_max: 100,
        visibility: Visibility::Stored,
    });
    let request = ReadRequest {
        logs: logs.collect(),
        bytes_max: 100,
        first_batch_whole: true,
    };
    let read = world.journal.read(request).finish().await.unwrap();
    assert!(read.iter().all(Result::is_err), "{read:?}");
    assert_eq!(world.values(other, 0).await, ["1", "3"]);
}

#[tokio::test]
async fn a_part_that_is_refused_leaves_the_outcome_unknown() {
    let world = World::new();
    let (own, _) = world.topic("t").await;
    let (_, gone) = world.topic("gone").await;
    let topic = world.first.topics().named("gone").unwrap();
    let mut both = to(own, "1");
    both.frames.extend(to(gone, "2").frames);
    both.is_divisible = true;
    world.first.delete(topic.id, |_| {}).await.unwrap();
    assert_eq!(world.append(both).await, Outcome::Unknown);
    let refused = world.append(to(gone, "3")).await;
    assert_eq!(refused, Outcome::Refused(Refusal::NoSuchLog(gone)));
    let watch = world.journal.watch();
    assert!(!world.journal.watch_log(&watch, gone, 0));
    let error = world
        .journal
        .find_time(gone, TimeQuery::Latest)
        .finish()
        .await
        .unwrap();
    assert_eq!(error, Err(ReadError::NoSuchLog(gone)));
}

#[tokio::test(start_paused = true)]
async fn the_bounds_of_a_topic_that_the_cell_finds_late_are_waited_for() {
    let world = World::new();
    let topic = world.create("t").await;
    let (_, other) = logs(&topic);
    let wanted = [other];
    let reached = world.first.reach_logs(&wanted);
    tokio::pin!(reached);
    let early = tokio::time::timeout(Duration::from_millis(50), &mut reached).await;
    assert!(early.is_err());
    assert_eq!(world.journal.bounds(other), None);
    world.follow().await;
    assert!(reached.await);
    assert_eq!(world.journal.bounds(other).unwrap().end, Offset::ZERO);
}

#[tokio::test]
async fn readers_of_a_deleted_topic_are_told() {
    let world = World::new();
    let (_, other) = world.topic("t").await;
    assert!(world.first.reach_logs(&[other]).await);
    let watch = world.journal.watch();
    assert!(world.journal.watch_log(&watch, other, 0));
    let topic = world.first.topics().named("t").unwrap();
    world.first.delete(topic.id, |_| {}).await.unwrap();
    watch.grown().await;
    assert_eq!(world.journal.bounds(other), None);
}

#[tokio::test(start_paused = true)]
async fn questions_wait_a_moment_for_the_next_owner_and_are_refused_while_there_is_none() {
    let world = World::new();
    let (own, other) = world.topic("t").await;
    assert!(world.first.reach_logs(&[other]).await);
    world.set(Way::NoOwner);
    let waiting = world.journal.append(vec![to(other, "in time")]);
    tokio::time::sleep(Duration::from_millis(500)).await;
    world.set(Way::Open);
    // It may have gone over the connection that ends.
    let outcome = waiting.await.pop().unwrap();
    assert!(!matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    assert!(world.first.reach_logs(&[other]).await);
    let end = world.first.bounds_now(other).await.unwrap().unwrap().end;

    world.set(Way::NoOwner);
    let begun = Instant::now();
    while world.first.reach_logs(&[other]).await {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(begun.elapsed() >= Duration::from_secs(5), "{:?}", begun.elapsed());
    // From now on nothing waits.
    let begun = Instant::now();
    assert_eq!(
        world.append(to(other, "late")).await,
        Outcome::Refused(Refusal::Closed)
    );
    let read = world.journal.read(ReadRequest {
        logs: vec![ReadFrom {
            log: other,
            offset: Offset::ZERO,
            bytes_max: 100,
            visibility: Visibility::Stored,
        }],
        ..ReadRequest::default()
    });
    let read = read.finish().await.unwrap().pop().unwrap();
    assert!(matches!(read, Err(ReadError::Io { .. })), "{read:?}");
    assert!(!world.first.reach_logs(&[own, other]).await);
    assert!(world.first.reach_logs(&[own]).await);
    assert_eq!(
        bases(&world.append(to(own, "own")).await).len(),
        1,
        "others go on"
    );
    assert_eq!(begun.elapsed(), Duration::ZERO);

    world.set(Way::Open);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(world.first.reach_logs(&[other]).await);
    assert_eq!(
        bases(&world.append(to(other, "again")).await),
        [(other, end.0, false)]
    );
}

#[tokio::test(start_paused = true)]
async fn after_a_break_only_what_does_no_harm_is_asked_again() {
    let world = World::new();
    let (_, other) = world.topic("t").await;
    assert!(world.first.reach_logs(&[other]).await);
    let named = || Append {
        request: Some(RequestId([7; 16])),
        ..to(other, "named")
    };
    world.cut_next().await;
    assert_eq!(world.append(to(other, "unnamed")).await, Outcome::Unknown);
    world.cut_next().await;
    assert_eq!(bases(&world.append(named()).await), [(other, 0, false)]);
    world.cut_next().await;
    assert_eq!(bases(&world.append(named()).await), [(other, 0, true)]);
    world.cut_next().await;
    assert_eq!(world.values(other, 0).await, ["named"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_of_an_append_is_stored_while_one_of_its_cells_is_away() {
    let world = World::new();
    let (own, other) = world.topic("t").await;
    assert!(world.first.reach_logs(&[other]).await);
    world.set(Way::NoOwner);
    while world.first.reach_logs(&[other]).await {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut both = to(other, "1");
    both.frames.extend(to(own, "2").frames);
    both.is_divisible = true;
    assert_eq!(world.append(both).await, Outcome::Refused(Refusal::Closed));
    assert_eq!(world.journal.bounds(own).unwrap().end, Offset::ZERO);
    // Nothing is said to be known that is not.
    assert!(world.first.bounds_now(other).await.is_err());
    assert!(world.first.offset_at_time(other, 0).await.is_err());
    assert_eq!(world.first.offset_at_time(own, 0).await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn an_owner_whose_tenure_is_over_answers_nothing() {
    let world = World::with_tenure(Tenure::new(|| false));
    let (_, other) = world.topic("t").await;
    let wanted = [other];
    let reached = world.first.reach_logs(&wanted);
    let reached = tokio::time::timeout(Duration::from_millis(100), reached);
    assert!(reached.await.is_err());
}

#[tokio::test]
async fn conditions_and_state_do_not_go_to_another_cell() {
    let world = World::new();
    let (own, other) = world.topic("t").await;
    let state = Frame::Truncate {
        log: own,
        before: Offset::ZERO,
    };
    let mut mixed = to(other, "1");
    mixed.frames.push(state);
    let required = Append {
        require: [Precondition::NextOffset {
            log: other,
            offset: Offset::ZERO,
        }]
        .into_iter()
        .collect(),
        ..to(other, "2")
    };
    for append in [mixed, required] {
        let refused = world.append(append).await;
        assert_eq!(refused, Outcome::Refused(Refusal::NoSuchLog(other)));
    }
}
