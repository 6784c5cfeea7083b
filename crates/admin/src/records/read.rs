//! Reading a partition on from a place, with a wait for records.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_broker::Broker;
use stafett_http::api::get;
use stafett_http::{Code, Draining, Parameter, Path, Problem, Query, Slot};
use stafett_journal::Visibility;
use stafett_model::{LogId, Offset};
use stafett_topics::{ReadEnd, RecordItem, RecordTail, SkipReason, Skipped, Topic, TopicCatalog};
use tokio::time::{Instant, timeout_at};

use super::Reads;
use super::position::{self, Position};
use super::record::{RecordShown, size};
use crate::content::Form;
use crate::refusals;
use crate::topics::{away, find, no_such_partition, no_such_topic};
use crate::{Routes, answer};

pub(crate) const COUNT: u64 = 100;
pub(crate) const COUNT_MAX: u64 = 1000;
pub(crate) const BYTES: u64 = 1 << 20;
pub(super) const BYTES_MAX: u64 = 4 << 20;
const WAIT_MAX: Duration = Duration::from_mins(1);
/// Bytes that one request reads from the log, at most: some may have nothing to show.
const READ_BYTES_MAX: usize = 64 << 20;

/// Keys of queries about how records are shown.
pub(super) const SHOWN: [Parameter; 2] = [
    Parameter::text("as", "Form of values: `auto`, `text`, `json` or `base64`."),
    Parameter::text(
        "isolation",
        "`committed`, the default, or `uncommitted`: also records of open and aborted transactions.",
    ),
];

/// Records of a partition.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PartitionRecords")]
pub(crate) struct Answer {
    topic: String,
    partition: u32,
    /// First offset of the partition.
    start: u64,
    /// Offset behind its last record that can be seen.
    end: u64,
    pub(crate) records: Vec<RecordShown>,
    /// Offset to go on from.
    pub(crate) next: u64,
    /// Range at the wanted place that cannot be read. The records follow it.
    gap: Option<Gap>,
}

/// A range without records that can be read.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub(super) struct Gap {
    from: u64,
    to: u64,
    why: &'static str,
}

impl Gap {
    pub(super) fn of(skipped: Skipped) -> Self {
        Self {
            from: skipped.from.0,
            to: skipped.to.0,
            why: match skipped.why {
                SkipReason::Expired => "expired",
                SkipReason::Damaged => "damaged",
                SkipReason::Gap => "empty",
            },
        }
    }
}

/// Wanted records of a partition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) partition: u32,
    pub(crate) log: LogId,
    pub(crate) count: usize,
    pub(crate) bytes: usize,
    pub(crate) form: Form,
    pub(crate) visibility: Visibility,
}

pub(super) fn routes(routes: Routes) -> Routes {
    routes.route(
        get(
            "/v1/topics/{topic}/partitions/{partition}/records",
            "Reads a partition on from a place. What lies there and cannot be read is named as gap.",
        )
        .query(&[
            Parameter::text(
                "from",
                "An offset, `earliest` (the default), `latest`, `-N` (the last N records), or a time.",
            ),
            Parameter::number("count", COUNT_MAX, "Records of the answer; 100 if it is absent."),
            Parameter::number(
                "bytes",
                BYTES_MAX,
                "Bytes of records after which the answer ends; 1 MiB if it is absent.",
            ),
            Parameter::duration(
                "wait",
                WAIT_MAX,
                "Time to wait for a record if there is none; 0s, up to 60s.",
            ),
        ])
        .query(&SHOWN)
        .answers::<Answer>(200)
        .refuses(&[
            Code::NotServing,
            Code::NoSuchTopic,
            Code::NoSuchPartition,
            Code::OutOfRange,
            Code::Unreadable,
            Code::Overloaded,
        ]),
        read,
    )
}

async fn read(
    State(broker): State<Slot<Broker>>,
    State(reads): State<Reads>,
    Draining(draining): Draining,
    Path((name, partition)): Path<(String, String)>,
    query: Query,
) -> Result<Response, Problem> {
    let wait = query.duration("wait", WAIT_MAX)?.unwrap_or_default();
    let deadline = Instant::now() + wait;
    let from = query
        .get("from")
        .map(|text| Position::of("from", text))
        .transpose()?;
    let broker = broker.get()?;
    let topic = find(&broker, &name)?;
    let wanted = Wanted::of(&query, &topic, &partition)?;
    let catalog = broker.catalog();
    if !catalog.reach_logs(&[wanted.log]).await {
        return Err(away(&name));
    }
    let watch = catalog.watch();
    if !wait.is_zero() {
        catalog.watch_log(&watch, wanted.log, 0);
    }
    let mut from = Box::pin(start(catalog, wanted, from.unwrap_or(Position::Earliest), &name)).await?;
    loop {
        // While it waits, a request keeps nothing of its reads.
        let found = Box::pin(wanted.read(catalog, &topic, from, &reads)).await?;
        let is_over = Instant::now() >= deadline || draining.is_cancelled();
        if is_over || !found.records.is_empty() || found.gap.is_some() {
            return Ok(answer(StatusCode::OK, &found));
        }
        from = found.next;
        drop(found);
        // At the end of the wait, the log is read once more.
        let _grown = timeout_at(deadline, draining.run_until_cancelled(watch.grown())).await;
    }
}

/// Returns the offset of a place.
async fn start(catalog: &TopicCatalog, wanted: Wanted, from: Position, topic: &str) -> Result<u64, Problem> {
    let bounds = catalog.bounds(wanted.log).ok_or_else(|| no_such_topic(topic))?;
    let end = position::end(bounds, wanted.visibility);
    let offset = from.offset(catalog, wanted.log, bounds, end).await?;
    if offset > bounds.end.0 {
        // Of another cell, the end that was heard last may be some milliseconds old.
        let now = catalog.bounds_now(wanted.log).await;
        let now = now.map_err(|why| of_read(&ReadEnd::Failed(why), topic))?;
        if now.is_some_and(|now| offset <= now.end.0) {
            return Ok(offset);
        }
        return Err(refusals::out_of_range(
            "from",
            bounds.start.0,
            bounds.end.0,
            offset,
        ));
    }
    Ok(offset)
}

impl Wanted {
    fn of(query: &Query, topic: &Topic, partition: &str) -> Result<Self, Problem> {
        let number: u32 = partition.parse().map_err(|_| {
            let why = format!("a partition is a number, counted from 0, not {partition:?}");
            Problem::new(Code::NoSuchPartition, why)
        })?;
        let usize = |number: Option<u64>, default: u64| {
            usize::try_from(number.unwrap_or(default)).unwrap_or(usize::MAX)
        };
        Ok(Self {
            partition: number,
            log: topic
                .log(number)
                .ok_or_else(|| no_such_partition(topic, number))?,
            count: usize(query.number("count", COUNT_MAX)?, COUNT).max(1),
            bytes: usize(query.number("bytes", BYTES_MAX)?, BYTES),
            form: Form::of(query.get("as"))?,
            visibility: visibility(query)?,
        })
    }

    pub(crate) async fn read(
        self,
        catalog: &TopicCatalog,
        topic: &Topic,
        from: u64,
        reads: &Reads,
    ) -> Result<Answer, Problem> {
        let _turn = reads.turn().await?;
        let mut tail = RecordTail::new(self.log, Offset(from), self.bytes.max(1), self.visibility);
        let (mut records, mut bytes, mut gap) = (Vec::new(), 0, None);
        let mut next = from;
        while records.len() < self.count && (bytes < self.bytes || records.is_empty()) {
            match tail.item() {
                Some(RecordItem::Record(record)) => {
                    bytes += size(&record);
                    records.push(RecordShown::of(self.partition, &record, self.form));
                }
                // A range behind records is the first of the next answer.
                Some(RecordItem::Skipped(_)) if !records.is_empty() => break,
                Some(RecordItem::Skipped(skipped)) => gap = gap.or_else(|| Some(Gap::of(skipped))),
                None if tail.bytes_read() >= READ_BYTES_MAX => break,
                None => match tail.read(catalog).await {
                    Ok(()) => {}
                    Err(ReadEnd::AtEnd) => break,
                    Err(why) if records.is_empty() => return Err(of_read(&why, &topic.name)),
                    Err(_) => break,
                },
            }
            next = tail.next_offset().0;
        }
        let traffic = catalog.topics().traffic();
        traffic.count_out(self.log, records.len() as u64, bytes as u64);
        let bounds = catalog
            .bounds(self.log)
            .ok_or_else(|| no_such_topic(&topic.name))?;
        Ok(Answer {
            topic: topic.name.to_string(),
            partition: self.partition,
            start: bounds.start.0,
            end: position::end(bounds, self.visibility),
            records,
            next,
            gap,
        })
    }
}

pub(super) fn visibility(query: &Query) -> Result<Visibility, Problem> {
    match query.get("isolation") {
        None | Some("committed") => Ok(Visibility::Committed),
        Some("uncommitted") => Ok(Visibility::Stored),
        Some(other) => Err(Problem::bad_request(format!(
            "isolation is committed or uncommitted, not {other:?}"
        ))),
    }
}

/// Refuses a read that failed.
pub(super) fn of_read(error: &ReadEnd, topic: &str) -> Problem {
    match error {
        ReadEnd::NoSuchLog => no_such_topic(topic),
        ReadEnd::Stopped => Problem::new(Code::NotServing, error),
        ReadEnd::Failed(_) | ReadEnd::AtEnd => Problem::new(Code::Unreadable, error),
    }
}
