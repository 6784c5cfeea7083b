//! The cases that every target has to pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use stafett_model::{Headers, Offset, StoredRecord};
use stafett_sinks::convert::{Converter, OnUnknown};
use stafett_sinks::definition::Definition;
use stafett_sinks::flush::{DeadLetters, FlushError, StoredLetters, flush};
use stafett_sinks::gather::{Cause, FlushRules, Gather, Poison};
use stafett_sinks::positions::pass_gap;
use stafett_sinks::target::{Opened, Part, Place, Start, Steps, Target, TargetError};
use uuid::Uuid;

#[path = "halves.rs"]
pub(crate) mod halves;

/// A store, and its contents as a reader sees them.
#[async_trait]
pub(crate) trait Store: Sync {
    fn definition(&self) -> &Definition;
    fn target(&self, steps: Steps) -> Box<dyn Target>;
    /// Numbers of the rows of a place, in the order of the store.
    async fn rows(&self, place: &Place) -> Vec<u64>;
    /// Position of a place, wherever it is kept.
    async fn position(&self, place: &Place) -> Option<u64> {
        let positions = self.target(Steps::default()).positions().await.unwrap();
        let found = positions.iter().find(|(found, _)| found == place);
        found.map(|(_, next)| *next)
    }
    /// True if the store refuses rows whose number is 1,000 or more.
    fn refuses(&self) -> bool;
}

pub(crate) const RECORDS: u64 = 40;
const FLUSH_RECORDS: usize = 7;

pub(crate) fn place(partition: u32) -> Place {
    Place {
        topic: "events".to_owned(),
        partition,
    }
}

pub(crate) fn record(offset: u64, value: &str) -> StoredRecord {
    StoredRecord {
        offset: Offset(offset),
        timestamp: 0,
        key: None,
        value: Some(Bytes::copy_from_slice(value.as_bytes())),
        headers: Headers::default(),
    }
}

/// Records with two gaps in their offsets, as transactions and compaction leave them.
pub(crate) fn log() -> Vec<StoredRecord> {
    (0..RECORDS)
        .filter(|offset| ![9, 21].contains(offset))
        .map(|offset| record(offset, &format!("{{\"n\":{offset},\"text\":\"row {offset}\"}}")))
        .collect()
}

/// Dead letters of one place, in memory. As the real ones, they take no record twice.
#[derive(Debug, Default)]
pub(crate) struct Letters(pub(crate) Vec<u64>, StoredLetters);

#[async_trait]
impl DeadLetters for Letters {
    async fn store(&mut self, _: &Place, poison: &[Poison]) -> Result<(), FlushError> {
        let missing = self.1.missing(poison);
        self.0.extend(missing.iter().map(|found| found.offset));
        self.1.add(&missing);
        Ok(())
    }
}

fn rules() -> FlushRules {
    FlushRules {
        records: FLUSH_RECORDS,
        bytes: 1 << 20,
        every_ms: 1000,
    }
}

fn converter(definition: &Definition) -> Converter {
    Converter::new(
        definition.columns.clone(),
        definition.steps.clone(),
        OnUnknown::Rest,
    )
}

/// Writes the log from the target's position to its end. Ends at the first error.
pub(crate) async fn life(
    definition: &Definition,
    target: &mut dyn Target,
    place: &Place,
    log: &[StoredRecord],
    letters: &mut Letters,
) -> Result<(), FlushError> {
    let opened = target.open(place, Start::at(0)).await?;
    let mut converter = converter(definition);
    let mut gather = Gather::new(
        place.clone(),
        rules(),
        definition.columns.len(),
        opened.next,
        opened.begun,
        0,
    )
    .summing(definition.rollup.as_ref());
    let end = log.last().map_or(0, |last| last.offset.0 + 1);
    let mut ahead = log
        .iter()
        .filter(|record| record.offset.0 >= opened.next)
        .peekable();
    loop {
        while let Some(record) =
            ahead.next_if(|record| !gather.is_full() && gather.push(record, &mut converter))
        {
            assert!(gather.next() > record.offset.0);
        }
        if ahead.peek().is_none() {
            gather.pass(end);
        }
        let cause = gather
            .due(0)
            .or_else(|| (!gather.is_empty()).then_some(Cause::Stop));
        let Some(cause) = cause else {
            return Ok(());
        };
        let batch = gather.take(cause, 0);
        flush(target, opened.epoch, &batch, letters).await?;
    }
}

/// Returns a hook that fails at the n-th step, and the count of steps.
pub(crate) fn killing_at(n: u64) -> (Steps, Arc<AtomicU64>) {
    let reached = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&reached);
    let steps = Steps::new(move |step| {
        if count.fetch_add(1, Ordering::Relaxed) + 1 == n {
            return Err(TargetError::Retry(format!("killed behind {step}")));
        }
        Ok(())
    });
    (steps, reached)
}

fn expected() -> Vec<u64> {
    log().iter().map(|record| record.offset.0).collect()
}

async fn check(store: &dyn Store, place: &Place, about: &str) {
    assert_eq!(store.rows(place).await, expected(), "{about}");
    assert_eq!(store.position(place).await, Some(RECORDS), "{about}");
}

/// Kills the sink behind every step, and lets another one go on. Each kill has a place of its own.
pub(crate) async fn nothing_is_lost_or_doubled_by_kills(store: &dyn Store) {
    let (definition, log) = (store.definition(), log());
    let (counting, reached) = killing_at(u64::MAX);
    let mut letters = Letters::default();
    let mut target = store.target(counting);
    life(definition, &mut *target, &place(0), &log, &mut letters)
        .await
        .unwrap();
    check(store, &place(0), "without a kill").await;
    let steps = reached.load(Ordering::Relaxed);
    assert!(steps >= 6, "{steps} steps");
    for n in 1..=steps {
        let place = place(u32::try_from(n).unwrap());
        let mut letters = Letters::default();
        let mut target = store.target(killing_at(n).0);
        let killed = life(definition, &mut *target, &place, &log, &mut letters).await;
        let why = killed.unwrap_err().to_string();
        drop(target);
        let mut target = store.target(Steps::default());
        life(definition, &mut *target, &place, &log, &mut letters)
            .await
            .unwrap();
        check(store, &place, &format!("{why}, the {n}. step")).await;
    }
}

/// The same, but the sink itself goes on: the outcome of what failed is not known to it.
pub(crate) async fn unknown_outcomes_are_looked_up(store: &dyn Store) {
    let (definition, log) = (store.definition(), log());
    let (counting, reached) = killing_at(u64::MAX);
    let mut letters = Letters::default();
    let first = place(1000);
    life(
        definition,
        &mut *store.target(counting),
        &first,
        &log,
        &mut letters,
    )
    .await
    .unwrap();
    for n in 1..=reached.load(Ordering::Relaxed) {
        let place = place(1000 + u32::try_from(n).unwrap());
        let mut target = store.target(killing_at(n).0);
        let failed = life(definition, &mut *target, &place, &log, &mut letters).await;
        assert!(failed.is_err(), "the {n}. step fails");
        life(definition, &mut *target, &place, &log, &mut letters)
            .await
            .unwrap();
        check(store, &place, &format!("{failed:?}")).await;
    }
}

/// Writes rows `from..next` of the log under an epoch.
pub(crate) async fn write(
    store: &dyn Store,
    target: &mut dyn Target,
    place: &Place,
    opened: Opened,
    next: u64,
) -> Result<(), TargetError> {
    let definition = store.definition();
    let mut gather = Gather::new(
        place.clone(),
        rules(),
        definition.columns.len(),
        opened.next,
        None,
        0,
    );
    let mut converter = converter(definition);
    for record in log()
        .iter()
        .filter(|record| (opened.next..next).contains(&record.offset.0))
    {
        assert!(gather.push(record, &mut converter));
    }
    gather.pass(next);
    let batch = gather.take(Cause::Stop, 0);
    let part = Part {
        place,
        epoch: opened.epoch,
        from: batch.from,
        next: batch.next,
        batch: (batch.from, batch.next),
        rows: batch.rows.all(),
        records: batch.records,
    };
    target.write(&part).await
}

/// Of two writers of a partition, the later one counts.
pub(crate) async fn an_earlier_writer_is_fenced(store: &dyn Store) {
    let place = place(2000);
    let (mut one, mut other) = (store.target(Steps::default()), store.target(Steps::default()));
    let before = one.open(&place, Start::at(0)).await.unwrap();
    let after = other.open(&place, Start::at(0)).await.unwrap();
    assert_eq!((before.next, after.next), (0, 0));
    write(store, &mut *other, &place, after, 5).await.unwrap();
    let refused = write(store, &mut *one, &place, before, 6).await;
    assert_eq!(refused, Err(TargetError::Fenced(place.clone())));
    assert_eq!(store.rows(&place).await, [0, 1, 2, 3, 4]);
    let mut letters = Letters::default();
    life(store.definition(), &mut *other, &place, &log(), &mut letters)
        .await
        .unwrap();
    check(store, &place, "behind the fence").await;
}

/// The same batch again is refused: it is there.
pub(crate) async fn a_batch_counts_once(store: &dyn Store) {
    let place = place(2001);
    let mut target = store.target(Steps::default());
    let opened = target.open(&place, Start::at(0)).await.unwrap();
    write(store, &mut *target, &place, opened, 5).await.unwrap();
    let again = write(store, &mut *target, &place, opened, 5).await;
    assert_eq!(again, Err(TargetError::Fenced(place.clone())));
    assert_eq!(store.rows(&place).await, [0, 1, 2, 3, 4]);
}

/// A batch without rows moves the position.
pub(crate) async fn records_without_rows_are_passed(store: &dyn Store) {
    let place = place(2002);
    let mut target = store.target(Steps::default());
    let mut letters = Letters::default();
    let nonsense: Vec<_> = (0..3).map(|offset| record(offset, "not JSON")).collect();
    life(store.definition(), &mut *target, &place, &nonsense, &mut letters)
        .await
        .unwrap();
    assert_eq!(letters.0, [0, 1, 2]);
    assert_eq!(store.rows(&place).await, [0_u64; 0]);
    assert_eq!(target.open(&place, Start::at(0)).await.unwrap().next, 3);
}

/// Rows that the store refuses go to the dead letters, wherever they are in their batch.
pub(crate) async fn poison_is_found_wherever_it_is(store: &dyn Store) {
    assert!(store.refuses());
    for (case, bad) in [
        vec![0],
        vec![6],
        vec![3, 4],
        vec![0, 1, 2, 3, 4, 5, 6],
        vec![6, 7, 13],
    ]
    .into_iter()
    .enumerate()
    {
        let place = place(3000 + u32::try_from(case).unwrap());
        let number = |offset: u64| {
            if bad.contains(&offset) {
                offset + 1000
            } else {
                offset
            }
        };
        let log: Vec<_> = (0..14)
            .map(|offset| record(offset, &format!("{{\"n\":{},\"text\":\"\"}}", number(offset))))
            .collect();
        let mut letters = Letters::default();
        let mut target = store.target(Steps::default());
        life(store.definition(), &mut *target, &place, &log, &mut letters)
            .await
            .unwrap();
        assert_eq!(letters.0, bad, "{bad:?}");
        let good: Vec<u64> = (0..14).filter(|offset| !bad.contains(offset)).collect();
        assert_eq!(store.rows(&place).await, good, "{bad:?}");
    }
}

/// Positions are set by hand, and fence as any other writer.
pub(crate) async fn positions_are_set(store: &dyn Store) {
    let place = place(2003);
    let mut target = store.target(Steps::default());
    let opened = target.open(&place, Start::at(0)).await.unwrap();
    write(store, &mut *target, &place, opened, 5).await.unwrap();
    store
        .target(Steps::default())
        .set_position(&place, Start::at(8))
        .await
        .unwrap();
    let behind = Opened { next: 5, ..opened };
    assert!(write(store, &mut *target, &place, behind, 7).await.is_err());
    assert_eq!(target.open(&place, Start::at(0)).await.unwrap().next, 8);
}

/// Returns the begin of a place whose topic has an id.
fn begin_of(topic: u128) -> Start {
    Start {
        topic: Some(Uuid::from_u128(topic)),
        ..Start::at(0)
    }
}

/// A position is one of a topic: another topic of the same name begins only once that is accepted.
pub(crate) async fn another_topic_of_the_same_name_is_noticed(store: &dyn Store) {
    let place = place(2004);
    let mut earlier = store.target(Steps::default());
    let opened = earlier.open(&place, begin_of(1)).await.unwrap();
    write(store, &mut *earlier, &place, opened, 5).await.unwrap();
    let before = earlier.open(&place, begin_of(1)).await.unwrap();
    assert_eq!(before.next, 5);
    for _ in 0..2 {
        let refused = store.target(Steps::default()).open(&place, begin_of(2)).await;
        assert_eq!(refused, Err(TargetError::MadeAgain(place.clone())));
    }
    let mut target = store.target(Steps::default());
    target.set_position(&place, begin_of(2)).await.unwrap();
    let opened = target.open(&place, begin_of(2).with_next(7)).await.unwrap();
    assert_eq!(opened.next, 0);
    write(store, &mut *target, &place, opened, 3).await.unwrap();
    // One that was taken for dead, with records of the former topic.
    write(store, &mut *earlier, &place, before, 8).await.unwrap_err();
    assert_eq!(store.rows(&place).await, [0, 1, 2, 3, 4, 0, 1, 2]);
    let former = store.target(Steps::default()).open(&place, begin_of(1)).await;
    assert_eq!(former, Err(TargetError::MadeAgain(place.clone())));
}

/// Positions of earlier versions name no topic. They go on, and name it from then on.
pub(crate) async fn a_position_without_a_topic_gets_one(store: &dyn Store) {
    let place = place(2005);
    let mut target = store.target(Steps::default());
    let opened = target.open(&place, Start::at(0)).await.unwrap();
    write(store, &mut *target, &place, opened, 5).await.unwrap();
    let opened = target.open(&place, begin_of(1)).await.unwrap();
    assert_eq!(opened.next, 5);
    write(store, &mut *target, &place, opened, 7).await.unwrap();
    let refused = target.open(&place, begin_of(2)).await;
    assert_eq!(refused, Err(TargetError::MadeAgain(place.clone())));
}

/// Two processes accept a gap: rows that one has written since are not written again by the other.
pub(crate) async fn a_gap_is_accepted_once(store: &dyn Store) {
    // A position of the former topic with its id, and one without, as earlier versions left it.
    for (place, former) in [(place(2006), begin_of(1)), (place(2007), Start::at(0))] {
        let mut target = store.target(Steps::default());
        let opened = target.open(&place, former).await.unwrap();
        write(store, &mut *target, &place, opened, 5).await.unwrap();
        for _ in 0..2 {
            let mut target = store.target(Steps::default());
            pass_gap(&mut *target, &place, true, || async { Ok(begin_of(2)) })
                .await
                .unwrap();
            let opened = target.open(&place, begin_of(2)).await.unwrap();
            assert_eq!(opened.topic, begin_of(2).topic);
            if opened.next == 0 {
                write(store, &mut *target, &place, opened, 3).await.unwrap();
            }
        }
        assert_eq!(store.rows(&place).await, [0, 1, 2, 3, 4, 0, 1, 2], "{former:?}");
    }
}

/// A process that was stopped before it set a position does not set it behind another writer.
pub(crate) async fn a_late_position_is_refused(store: &dyn Store) {
    let place = place(2008);
    let (mut late, mut other) = (store.target(Steps::default()), store.target(Steps::default()));
    let opened = late.open(&place, begin_of(1)).await.unwrap();
    write(store, &mut *late, &place, opened, 5).await.unwrap();
    let seen = late.open(&place, begin_of(1).unnamed()).await.unwrap();
    assert_eq!((seen.next, seen.topic), (5, begin_of(1).topic));
    pass_gap(&mut *other, &place, false, || async { Ok(begin_of(2)) })
        .await
        .unwrap();
    let opened = other.open(&place, begin_of(2)).await.unwrap();
    write(store, &mut *other, &place, opened, 3).await.unwrap();
    let refused = late.set_position_since(&place, seen.epoch, begin_of(2)).await;
    assert_eq!(refused, Err(TargetError::Fenced(place.clone())));
    let opened = other.open(&place, begin_of(2)).await.unwrap();
    assert_eq!(opened.next, 3);
    assert_eq!(store.rows(&place).await, [0, 1, 2, 3, 4, 0, 1, 2]);
}

pub(crate) async fn all(store: &dyn Store) {
    nothing_is_lost_or_doubled_by_kills(store).await;
    unknown_outcomes_are_looked_up(store).await;
    all_but_kills(store).await;
}

pub(crate) async fn all_but_kills(store: &dyn Store) {
    an_earlier_writer_is_fenced(store).await;
    a_batch_counts_once(store).await;
    records_without_rows_are_passed(store).await;
    positions_are_set(store).await;
    another_topic_of_the_same_name_is_noticed(store).await;
    a_position_without_a_topic_gets_one(store).await;
    a_gap_is_accepted_once(store).await;
    a_late_position_is_refused(store).await;
    if store.refuses() {
        poison_is_found_wherever_it_is(store).await;
        halves::poison_of_both_kinds_is_kept(store).await;
        halves::kills_within_a_bisection_change_nothing(store).await;
    }
}
