//! Copies records of a topic into another one, as an operation.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_access::{Action, Resource};
use stafett_broker::Broker;
use stafett_http::api::post;
use stafett_http::{Code, Path, Problem, Query, Slot, body};
use stafett_journal::Visibility;
use stafett_model::{LogId, Offset, StoredRecord};
use stafett_store::wall_ms;
use stafett_topics::{NewRecord, ReadEnd, RecordItem, RecordTail, Topic};

use super::position::{self, Position, SHAPE};
use super::produce::{refusal, stored};
use super::read::of_read;
use super::record::size;
use crate::operations::{self, Operations, Plan, Progress};
use crate::topics::{check_mutable, find, no_such_topic, reach};
use crate::{Routes, access, refusals};

/// Records and bytes that are stored together.
const RECORDS: usize = 1000;
const BYTES: usize = 1 << 20;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "TopicCopy")]
struct Copy {
    /// Topic to copy to. With as many partitions each record keeps its own, otherwise its key chooses.
    to: String,
    /// Place in each partition to begin at: `earliest`, the default, `latest`, an offset, `-N` or a time.
    from: Option<String>,
    /// Place in each partition to end before; `latest` by default, as it is at the beginning.
    until: Option<String>,
}

/// Records that were copied.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "TopicCopied")]
struct Copied {
    records: u64,
    /// `stopped`, if the operation was.
    stopped: Option<&'static str>,
}

/// Part of a partition.
struct Part {
    partition: u32,
    log: LogId,
    from: u64,
    until: u64,
}

pub(super) fn routes(routes: Routes) -> Routes {
    routes.route(
        operations::begins::<Copied>(post(
            "/v1/topics/{topic}/copy",
            "Copies records into another topic, with their keys, headers and timestamps. Records of aborted and open \
             transactions are left out.",
        ))
        .event("topic.copied")
        .body::<Copy>()
        .refuses(&refusals::STORAGE)
        .refuses(&[
            Code::NoSuchTopic,
            Code::Immutable,
            Code::NoKey,
            Code::OutOfRange,
            Code::Unreadable,
        ]),
        copy,
    )
}

async fn copy(
    State(broker): State<Slot<Broker>>,
    State(operations): State<Operations>,
    Path(name): Path<String>,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Copy = body::json(request).await?;
    let broker = broker.get()?;
    let from = find(&broker, &name)?;
    access::check(&broker, Action::Write, &Resource::topic(&wanted.to))?;
    let to = find(&broker, &wanted.to)?;
    check_mutable(&to)?;
    if from.id == to.id {
        return Err(Problem::bad_request("to is another topic").with("field", "to"));
    }
    reach(&broker, &from).await?;
    // A topic that was just created comes to other cells a moment later.
    reach(&broker, &to).await?;
    let begins = place("from", wanted.from.as_deref(), Position::Earliest)?;
    let ends = place("until", wanted.until.as_deref(), Position::Latest)?;
    let mut parts = Vec::new();
    for partition in 0..from.partitions() {
        let catalog = broker.catalog();
        let known = from.log(partition);
        let known = known.and_then(|log| Some((log, catalog.bounds(log)?)));
        let (log, bounds) = known.ok_or_else(|| no_such_topic(&name))?;
        let end = position::end(bounds, Visibility::Committed);
        let within = |offset: u64| offset.clamp(bounds.start.0, end.max(bounds.start.0));
        parts.push(Part {
            partition,
            log,
            from: within(begins.offset(catalog, log, bounds, end).await?),
            until: within(ends.offset(catalog, log, bounds, end).await?),
        });
    }
    let plan = Plan {
        what: "copy",
        on: [("topic", name), ("to", wanted.to)].into(),
        unit: "records",
        stops: true,
    };
    let run = operations.run(plan, &query, move |progress| async move {
        copy_parts(&broker, (&from, &to), &parts, &progress).await
    });
    run.await
}

fn place(field: &'static str, text: Option<&str>, otherwise: Position) -> Result<Position, Problem> {
    let Some(text) = text else { return Ok(otherwise) };
    Position::read(text)
        .ok_or_else(|| Problem::bad_request(format!("{field} is {SHAPE}")).with("field", field))
}

async fn copy_parts(
    broker: &Broker,
    (from, to): (&Topic, &Arc<Topic>),
    parts: &[Part],
    progress: &Progress,
) -> Result<Copied, Problem> {
    let lengths = parts.iter().map(|part| part.until.saturating_sub(part.from));
    let (of, mut done, mut records) = (lengths.sum(), 0, 0);
    progress.set(0, of);
    for part in parts {
        let mut tail = RecordTail::new(part.log, Offset(part.from), BYTES, Visibility::Committed);
        loop {
            if progress.stops() {
                let stopped = Some("stopped");
                return Ok(Copied { records, stopped });
            }
            let keeps = (from.partitions() == to.partitions()).then_some(part.partition);
            let batch = next(broker, from, part, &mut tail, keeps).await?;
            let next = tail.next_offset().0.min(part.until);
            progress.set(done + next.saturating_sub(part.from), of);
            if batch.is_empty() {
                break;
            }
            records += batch.len() as u64;
            store(broker, to, &batch, records).await?;
        }
        done += part.until.saturating_sub(part.from);
    }
    let stopped = None;
    Ok(Copied { records, stopped })
}

/// Reads the next records of a part; none at its end.
async fn next(
    broker: &Broker,
    topic: &Topic,
    part: &Part,
    tail: &mut RecordTail,
    partition: Option<u32>,
) -> Result<Vec<NewRecord>, Problem> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while batch.len() < RECORDS && bytes < BYTES && tail.next_offset().0 < part.until {
        match tail.item() {
            Some(RecordItem::Record(record)) if record.offset.0 < part.until => {
                bytes += size(&record);
                batch.push(new_record(record, partition));
            }
            Some(RecordItem::Record(_)) => break,
            Some(RecordItem::Skipped(_)) => {}
            None => match tail.read(broker.catalog()).await {
                Ok(()) => {}
                Err(ReadEnd::AtEnd) => break,
                Err(why) => return Err(of_read(&why, &topic.name)),
            },
        }
    }
    Ok(batch)
}

fn new_record(record: StoredRecord, partition: Option<u32>) -> NewRecord {
    let headers = record.headers.iter().map(|(name, value)| {
        let owned = bytes::Bytes::copy_from_slice;
        (owned(name), value.map(owned))
    });
    NewRecord {
        partition,
        headers: headers.collect(),
        timestamp: (record.timestamp >= 0).then_some(record.timestamp),
        key: record.key,
        value: record.value,
    }
}

async fn store(broker: &Broker, to: &Topic, batch: &[NewRecord], so_far: u64) -> Result<(), Problem> {
    let catalog = broker.catalog();
    // The settings may have changed, and the topic may be gone.
    let to = catalog
        .topics()
        .with_id(to.id)
        .ok_or_else(|| no_such_topic(&to.name))?;
    let keyless = u32::try_from(so_far % u64::from(u32::MAX)).unwrap_or(0);
    let built = catalog.records_append(&to, batch, keyless, wall_ms());
    let append = built
        .map_err(|why| refusal(&why.why, why.to_string(), &to))?
        .append;
    stored(catalog.append(vec![append]).await, &to.name).map(drop)
}
