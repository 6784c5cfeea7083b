//! Partitions of a topic: bounds, producers, truncation.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stafett_broker::Broker;
use stafett_http::api::{get, post};
use stafett_http::body::{self, Object};
use stafett_http::list::List;
use stafett_http::{Code, Path, Problem, Query, Slot};
use stafett_journal::RecoveryReport;
use stafett_model::{BatchHeader, Offset};
use stafett_topics::{Bounds, TimeQuery, Topic, TopicCatalog, TruncateError};

use super::changes::{IF_ID, check_id};
use super::{check_mutable, find, reach};
use crate::journal::JournalDesk;
use crate::refusals::{self, of_storage};
use crate::time::rfc3339;
use crate::{Routes, answer};

/// Partitions whose latest batches are looked up at the same time.
const READ_TOGETHER: usize = 32;

/// A partition and its bounds.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Partition")]
pub(crate) struct PartitionStatus {
    partition: u32,
    /// First offset.
    start: u64,
    /// Offset behind the last record.
    end: u64,
    /// End of the records that are committed: before the first open transaction.
    stable: u64,
    /// Offsets between start and end; compaction and damage leave some without a record.
    records: u64,
    /// Stored bytes, approximately.
    bytes: u64,
    /// Number of this start of the broker, which new batches get.
    epoch: u32,
    /// Latest timestamp of its records; null without one. With `columns` it needs `partition` beside it.
    last_at: Option<String>,
    /// `ok`; `damaged`: the start found offsets lost; `fenced`: damage in it, so that it takes no appends;
    /// `away`: its cell of a cluster has no owner, and the numbers are those
    /// that were known last.
    state: &'static str,
    /// Offsets that were lost to damage.
    lost: Vec<LostOffsets>,
    /// Digits that sort as the number does.
    #[serde(skip)]
    name: String,
}

/// Offsets that were lost, the last one excluded.
#[derive(Debug, Clone, Serialize, JsonSchema)]
struct LostOffsets {
    from: u64,
    to: u64,
}

/// Returns the partitions whose cell of a cluster has no owner.
async fn away(catalog: &TopicCatalog, topic: &Topic) -> Vec<u32> {
    let mut away = Vec::new();
    if catalog.reach(topic).await {
        return away;
    }
    for partition in 0..topic.partitions() {
        if let Some(log) = topic.log(partition)
            && !catalog.is_reached(&[log])
        {
            away.push(partition);
        }
    }
    away
}

const PARTITIONS: List<PartitionStatus, PartitionStatus> = List {
    name: |partition| ("", &partition.name),
    sorts: &[
        ("records", |partition| partition.records),
        ("bytes", |partition| partition.bytes),
    ],
    shown: Clone::clone,
};

/// An idempotent producer that a partition knows.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Producer")]
pub(crate) struct ProducerShown {
    partition: u32,
    producer: String,
    epoch: i16,
    /// Sequence number of its last record.
    sequence: i32,
    /// Arrival of its last batch.
    last_at: String,
    /// First offset of its open transaction.
    open_from: Option<u64>,
    /// Digits that sort as the numbers do.
    #[serde(skip)]
    name: (String, String),
}

const PRODUCERS: List<ProducerShown, ProducerShown> = List {
    name: |producer| (&producer.name.0, &producer.name.1),
    sorts: &[],
    shown: Clone::clone,
};

/// A truncation.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Truncation {
    /// Partitions, each once.
    before: Vec<Object<Cut>>,
}

/// Place before which the records of a partition go.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Cut {
    partition: u32,
    /// An offset; null for the end.
    offset: Option<u64>,
}

/// Partitions after a truncation.
#[derive(Debug, Serialize, JsonSchema)]
struct Truncated {
    partitions: Vec<Start>,
}

/// Start of a partition.
#[derive(Debug, Serialize, JsonSchema)]
struct Start {
    partition: u32,
    start: u64,
}

pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            get("/v1/topics/{topic}/partitions", "Lists the partitions of a topic by number.")
                .lists(&PARTITIONS)
                .refuses(&[Code::NotServing, Code::NoSuchTopic]),
            list,
        )
        .route(
            get(
                "/v1/topics/{topic}/producers",
                "Lists the idempotent producers that the partitions of a topic know.",
            )
            .lists(&PRODUCERS)
            .refuses(&[Code::NotServing, Code::NoSuchTopic]),
            producers,
        )
        .route(
            post(
                "/v1/topics/{topic}/truncate",
                "Frees the records before an offset, for each of some partitions. Durable when it is answered.",
            )
            .event("topic.truncated")
            .query(&[IF_ID])
            .body::<Truncation>()
            .answers::<Truncated>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&[
                Code::NoSuchTopic,
                Code::NoSuchPartition,
                Code::OutOfRange,
                Code::Immutable,
                Code::Changed,
            ]),
            truncate,
        )
}

async fn list(
    State(broker): State<Slot<Broker>>,
    State(desk): State<JournalDesk>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let topic = find(&broker, &name)?;
    let away = away(broker.catalog(), &topic).await;
    let journal = desk.journal.get().ok();
    let report = journal.as_ref().map(|journal| journal.report());
    let of = |partition| status(broker.catalog(), &topic, partition, (report, &away));
    let all = (0..topic.partitions()).filter_map(of);
    let mut page = PARTITIONS.page(&query, all.collect())?;
    for some in page.items.chunks_mut(READ_TOGETHER) {
        // All are begun before the first is awaited, as each may read from the disk.
        let begun = some.iter().map(|shown| {
            shown.get("last_at")?;
            let number = shown.get("partition").and_then(Value::as_u64)?;
            let log = topic.log(u32::try_from(number).ok()?)?;
            let bounds = broker.catalog().bounds(log)?;
            (bounds.end > bounds.start).then(|| broker.catalog().find_time(log, TimeQuery::Latest))
        });
        let begun: Vec<_> = begun.collect();
        for (shown, found) in some.iter_mut().zip(begun) {
            if let (Some(found), Some(last)) = (found, shown.get_mut("last_at")) {
                let batch = found.finish().await.ok().and_then(Result::ok).flatten();
                *last = batch.and_then(|batch| latest_in(&batch)).map(rfc3339).into();
            }
        }
    }
    Ok(answer(StatusCode::OK, &page))
}

/// Returns the latest timestamp in a batch.
fn latest_in(batch: &[u8]) -> Option<i64> {
    let header = BatchHeader::parse(batch).ok()?;
    Some(header.max_timestamp).filter(|time| *time >= 0)
}

fn status(
    catalog: &TopicCatalog,
    topic: &Topic,
    partition: u32,
    (report, away): (Option<&RecoveryReport>, &[u32]),
) -> Option<PartitionStatus> {
    let log = topic.log(partition)?;
    let is_away = away.contains(&partition);
    let bounds = match catalog.bounds(log) {
        Some(bounds) => bounds,
        None if is_away => Bounds {
            start: Offset::ZERO,
            end: Offset::ZERO,
            stable: Offset::ZERO,
            bytes: 0,
        },
        None => return None,
    };
    let lost = report.into_iter().flat_map(|report| &report.damaged);
    let lost = lost.filter(|(damaged, ..)| *damaged == log);
    let lost: Vec<LostOffsets> = lost
        .map(|(_, from, to)| LostOffsets {
            from: from.0,
            to: to.0,
        })
        .collect();
    let is_fenced = report.is_some_and(|report| report.fenced.contains(&log));
    Some(PartitionStatus {
        state: match (is_fenced, lost.is_empty()) {
            _ if is_away => "away",
            (true, _) => "fenced",
            (false, false) => "damaged",
            (false, true) => "ok",
        },
        lost,
        partition,
        start: bounds.start.0,
        end: bounds.end.0,
        stable: bounds.stable.0,
        records: bounds.end.0.saturating_sub(bounds.start.0),
        bytes: bounds.bytes,
        epoch: catalog.epoch().0,
        // Of those that are shown alone, as it is read from the journal.
        last_at: None,
        name: format!("{partition:05}"),
    })
}

async fn producers(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let topic = find(&broker, &name)?;
    let logs = (0..topic.partitions()).filter_map(|partition| Some((partition, topic.log(partition)?)));
    let all = logs.flat_map(|(partition, log)| {
        let known = broker.catalog().producers(log).unwrap_or_default();
        known.into_iter().map(move |producer| ProducerShown {
            partition,
            producer: producer.id.0.to_string(),
            epoch: producer.epoch,
            sequence: producer.sequence,
            last_at: rfc3339(producer.at),
            open_from: producer.open.map(|offset| offset.0),
            name: (format!("{partition:05}"), format!("{:020}", producer.id.0)),
        })
    });
    Ok(answer(StatusCode::OK, &PRODUCERS.page(&query, all.collect())?))
}

async fn truncate(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Truncation = body::json(request).await?;
    let broker = broker.get()?;
    let topic = find(&broker, &name)?;
    check_mutable(&topic)?;
    check_id(&query, &topic)?;
    let catalog = broker.catalog();
    reach(&broker, &topic).await?;
    let mut cuts = Vec::with_capacity(wanted.before.len().min(topic.partitions() as usize));
    let mut numbers = std::collections::BTreeSet::new();
    for Object(Cut { partition, offset }) in wanted.before {
        if !numbers.insert(partition) {
            let why = format!("before: partition {partition} stands there twice");
            return Err(Problem::bad_request(why));
        }
        // The end that was heard last of another cell may be some milliseconds old.
        if let Some(log) = topic.log(partition) {
            let now = catalog.bounds_now(log).await;
            now.map_err(|why| Problem::new(Code::Unreadable, why))?;
        }
        let cut = catalog.check_truncation(&topic, partition, offset.map(Offset));
        let (log, before) = cut.map_err(|why| refused(why, &topic, partition, offset))?;
        cuts.push((partition, log, before));
    }
    let logs: Vec<_> = cuts.iter().map(|(_, log, before)| (*log, *before)).collect();
    let outcomes = catalog.truncate(&logs).await;
    let mut partitions = Vec::with_capacity(cuts.len());
    for ((partition, log, _), outcome) in cuts.into_iter().zip(outcomes) {
        outcome.map_err(|why| {
            let said = format!("partition {partition}: {why}");
            of_storage(why, said).with("truncated", serde_json::json!(partitions))
        })?;
        // The partition may go meanwhile, with its topic.
        let start = catalog.bounds(log).map_or(0, |bounds| bounds.start.0);
        partitions.push(Start { partition, start });
    }
    Ok(answer(StatusCode::OK, &Truncated { partitions }))
}

fn refused(why: TruncateError, topic: &Topic, partition: u32, offset: Option<u64>) -> Problem {
    match why {
        TruncateError::Internal => Problem::new(Code::Immutable, why),
        TruncateError::NoSuchPartition => no_such_partition(topic, partition),
        TruncateError::BehindEnd(end) => {
            let offset = offset.unwrap_or_default();
            refusals::out_of_range("offset", 0, end.0, offset).with("partition", partition)
        }
    }
}

/// Refuses a partition that the topic does not have.
pub(crate) fn no_such_partition(topic: &Topic, partition: u32) -> Problem {
    let why = format!(
        "the topic {:?} has {} partitions, counted from 0, and no partition {partition}",
        topic.name,
        topic.partitions()
    );
    Problem::new(Code::NoSuchPartition, why).with("partitions", topic.partitions())
}
