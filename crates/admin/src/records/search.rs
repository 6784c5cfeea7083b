//! Search over all partitions of a topic, newest or oldest records first.
//!
//! Each partition is a lane that is read window by window; the lanes are merged by time. A lane keeps its
//! order: a record that is out of order by its timestamp counts as being of the time of the one before it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_broker::Broker;
use stafett_http::api::get;
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot};
use stafett_journal::Visibility;
use stafett_topics::{Topic, TopicCatalog};

use super::choice::Choice;
use super::lane::{Lane, Scan};
use super::position::{self, Position};
use super::read::{BYTES, BYTES_MAX, COUNT, COUNT_MAX, SHOWN, visibility};
use super::record::RecordShown;
use super::{Reads, cursor};
use crate::content::Form;
use crate::topics::{find, reach};
use crate::{Routes, answer};

/// Records that one search looks at, at most.
const LOOKED_AT_MAX: usize = 100_000;
/// Bytes that one search reads, at most.
const READ_BYTES_MAX: usize = 256 << 20;
/// Offsets of the windows of all lanes together.
const WINDOWS: u64 = 50_000;
/// Offsets of a window of a search with conditions.
const WINDOW: u64 = 1000;

/// Records of all partitions.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "TopicRecords")]
struct Answer {
    topic: String,
    records: Vec<RecordShown>,
    /// Records that the search looked at.
    looked_at: usize,
    /// Value of `after` to go on; null where nothing is left. A search that reached its bounds has one, too.
    next: Option<String>,
}

/// Order of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Newest,
    Oldest,
}

struct Search {
    lanes: Vec<Lane>,
    count: usize,
    bytes: usize,
    scan: Scan,
}

pub(super) fn routes(routes: Routes) -> Routes {
    routes.route(
        get(
            "/v1/topics/{topic}/records",
            "Looks over the records of all partitions, by time. A search ends where it has looked at 100,000 records \
             or read 256 MiB, and next goes on.",
        )
        .query(&[
            Parameter::text("order", "`newest`, the default, or `oldest` records first."),
            Parameter::text("from", "Only records from a time on, or `-N`: the last N of each partition."),
            Parameter::text("after", "The `next` of the answer before."),
            Parameter::number("count", COUNT_MAX, "Records of the answer; 100 if it is absent."),
            Parameter::number(
                "bytes",
                BYTES_MAX,
                "Bytes of records after which the answer ends; 1 MiB if it is absent.",
            ),
        ])
        .query(&Choice::KEYS)
        .query(&SHOWN)
        .answers::<Answer>(200)
        .refuses(&[Code::NotServing, Code::NoSuchTopic, Code::OutOfRange, Code::Unreadable, Code::Overloaded]),
        search,
    )
}

async fn search(
    State(broker): State<Slot<Broker>>,
    State(reads): State<Reads>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let order = match query.get("order") {
        None | Some("newest") => Order::Newest,
        Some("oldest") => Order::Oldest,
        Some(other) => {
            return Err(Problem::bad_request(format!(
                "order is newest or oldest, not {other:?}"
            )));
        }
    };
    let from = query.get("from").map(from).transpose()?;
    let usize =
        |number: Option<u64>, default: u64| usize::try_from(number.unwrap_or(default)).unwrap_or(usize::MAX);
    let count = usize(query.number("count", COUNT_MAX)?, COUNT).max(1);
    let bytes = usize(query.number("bytes", BYTES_MAX)?, BYTES);
    let choice = Choice::of(&query)?;
    let (form, visibility) = (Form::of(query.get("as"))?, visibility(&query)?);
    let broker = broker.get()?;
    let topic = searchable(&broker, &name).await?;
    let after = query
        .get("after")
        .map(|text| cursor::read(&topic, text))
        .transpose()?;
    let catalog = broker.catalog();
    let _turn = reads.turn().await?;
    let window = if choice == Choice::default() {
        count as u64
    } else {
        WINDOW
    };
    let mut search = Search {
        lanes: lanes(
            catalog,
            &topic,
            order,
            from,
            after.unwrap_or_default(),
            visibility,
        )
        .await?,
        count,
        bytes,
        scan: Scan {
            order,
            window: window.min(WINDOWS / u64::from(topic.partitions()).max(1)).max(1),
            choice,
            form,
            visibility,
            looked_at: 0,
            bytes_read: 0,
            kept: 0,
        },
    };
    let records = Box::pin(search.run(catalog, &topic)).await?;
    let next = search.lanes.iter().any(|lane| !lane.is_at_end());
    let next = next.then(|| cursor::text(&topic, search.lanes.iter().map(|lane| lane.place(order))));
    let found = Answer {
        topic: topic.name.to_string(),
        records,
        looked_at: search.scan.looked_at,
        next,
    };
    Ok(answer(StatusCode::OK, &found))
}

fn from(text: &str) -> Result<Position, Problem> {
    match Position::read(text) {
        Some(position @ (Position::Time(_) | Position::BeforeEnd(_))) => Ok(position),
        _ => Err(Problem::bad_request(format!(
            "from is a time such as 2026-11-22T16:00:00Z, or -N, not {text:?}"
        ))),
    }
}

/// Refuses a topic with more partitions than a cursor may have.
pub(super) fn check_partitions(topic: &Topic) -> Result<(), Problem> {
    let partitions = topic.partitions();
    if partitions as usize <= cursor::PARTITIONS_MAX {
        return Ok(());
    }
    let why = format!(
        "the topic {:?} has {partitions} partitions: more than {} are read one by one",
        topic.name,
        cursor::PARTITIONS_MAX
    );
    Err(Problem::new(Code::OutOfRange, why)
        .with("field", "partitions")
        .with("min", 0)
        .with("max", cursor::PARTITIONS_MAX))
}

async fn searchable(broker: &Broker, name: &str) -> Result<Arc<Topic>, Problem> {
    let topic = find(broker, name)?;
    check_partitions(&topic)?;
    reach(broker, &topic).await?;
    Ok(topic)
}

async fn lanes(
    catalog: &TopicCatalog,
    topic: &Topic,
    order: Order,
    from: Option<Position>,
    after: Vec<u64>,
    visibility: Visibility,
) -> Result<Vec<Lane>, Problem> {
    let mut lanes = Vec::new();
    for partition in 0..topic.partitions() {
        let log = topic.log(partition);
        let Some((log, bounds)) = log.and_then(|log| Some((log, catalog.bounds(log)?))) else {
            continue;
        };
        let end = position::end(bounds, visibility);
        let start = match from {
            Some(from) => from.offset(catalog, log, bounds, end).await?,
            None => bounds.start.0,
        };
        let after = after.get(partition as usize).copied();
        let range = match order {
            Order::Newest => start..after.unwrap_or(end).min(end),
            Order::Oldest => after.unwrap_or(start).max(start)..end,
        };
        lanes.push(Lane::new(partition, log, range));
    }
    Ok(lanes)
}

impl Search {
    /// Merges the lanes until the answer is full, nothing is left, or a bound is reached.
    async fn run(&mut self, catalog: &TopicCatalog, topic: &Topic) -> Result<Vec<RecordShown>, Problem> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        while records.len() < self.count {
            let ahead = self.lanes.iter_mut().filter(|lane| !lane.is_at_end());
            let Some(lane) = ahead.min_by_key(|lane| lane.rank()) else {
                break;
            };
            let Some(size) = lane.front_bytes() else {
                let scan = &mut self.scan;
                if scan.looked_at >= LOOKED_AT_MAX || scan.bytes_read >= READ_BYTES_MAX {
                    break;
                }
                lane.scan(catalog, scan, &topic.name).await?;
                continue;
            };
            if bytes + size > self.bytes && !records.is_empty() {
                break;
            }
            bytes += size;
            records.extend(lane.pop(catalog, &mut self.scan).await);
        }
        Ok(records)
    }
}
