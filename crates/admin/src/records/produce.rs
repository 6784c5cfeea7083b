//! Storing records in a topic.

use std::collections::HashMap;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_broker::Broker;
use stafett_http::api::post;
use stafett_http::coding::packing;
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot, body, openapi, stamp};
use stafett_store::{NotStored, wall_ms};
use stafett_topics::{
    Outcome, PlacedBatch, RecordError, RecordRefusal, RecordsAppend, Refusal, Topic, TopicCatalog,
};

use super::cloud_events;
use super::incoming::{Format, Incoming, REFUSED_MAX, RecordBody, Template};
use crate::caller::Caller;
use crate::content::JSON;
use crate::key::{self, Key};
use crate::refusals::{self, of_storage};
use crate::send::{NDJSON, content_type};
use crate::topics::{check_mutable, find, id_text, no_such_partition, no_such_topic};
use crate::{Routes, answer};

const LIMIT: body::Limit = body::Limit {
    bytes_max: 16 << 20,
    setting: "of a body with records",
};

/// Records that were stored.
#[derive(Debug, Serialize, JsonSchema)]
struct Produced {
    /// Records in the body.
    read: usize,
    /// Records with a key.
    keyed: usize,
    /// Records that are stored; null with `ack=none`.
    stored: Option<usize>,
    /// Records that are not stored, with `partial=true`.
    refused: usize,
    /// The refused ones by line, with `partial=true`.
    refusals: Vec<RefusedRecord>,
    /// Documents without the field of the key, which were left out.
    skipped: usize,
    /// Durability that the records have now.
    durability: String,
    /// True if an earlier request with the same `Idempotency-Key` stored them.
    repeated: bool,
    places: Vec<Place>,
}

/// A record that is not stored.
#[derive(Debug, Serialize, JsonSchema)]
struct RefusedRecord {
    /// Line in the body, or place in a list, from 1.
    line: usize,
    #[schemars(schema_with = "openapi::refusal")]
    refusal: serde_json::Value,
}

/// Place of records that stand together.
#[derive(Debug, Serialize, JsonSchema)]
struct Place {
    partition: u32,
    /// Offset of the first.
    base: u64,
    count: u32,
}

pub(super) fn routes(routes: Routes) -> Routes {
    routes.route(
        post(
            "/v1/topics/{topic}/records",
            "Stores records, all or none. A body of application/json is a value, in application/x-ndjson each line \
             is one; CloudEvents in JSON are records with their attributes as headers; of any other type the body is the \
             value as it is. It may be compressed by gzip or zstd. Without a partition, the key decides as \
             with Kafka's Java client; without a key, all records of the request go to one. With the header \
             Idempotency-Key, sending again stores once.",
        )
        .query(&[
            Parameter::text(
                "as",
                "`value`, the default; `list`: each element is a value; `record`: objects that describe records.",
            ),
            Parameter::text("key", "Key of all records."),
            Parameter::text("key_field", "Field of a JSON value that is its key; a.b for a field in a field."),
            Parameter::text("keyless", "`refuse`, the default, `store` or `skip` values without that field."),
            Parameter::number("partition", u64::from(u32::MAX), "Partition of all records."),
            Parameter::text("header.", "Header of all records."),
            Parameter::flag(
                "partial",
                "Stores the records beside refused ones, of which there are 100 at most; the answer has those.",
            ),
            Parameter::text("ack", "`stored`, the default, or `none`: answered before it is stored."),
        ])
        .headers(&[key::HEADER])
        .body::<RecordBody>()
        .takes(&[
            "application/x-ndjson",
            "application/cloudevents+json",
            "application/cloudevents-batch+json",
            "application/octet-stream",
        ])
        .answers::<Produced>(200)
        .answers::<Produced>(202)
        .refuses(&refusals::STORAGE)
        .refuses(&[
            Code::NoSuchTopic,
            Code::NoSuchPartition,
            Code::NoKey,
            Code::OutOfRange,
            Code::UnsupportedType,
            Code::Immutable,
        ]),
        produce,
    )
}

async fn produce(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    caller: Caller,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let template = Template::of(&query)?;
    let waits = waits(&query)?;
    let kind = content_type(request.headers()).map(str::to_owned);
    let format = format(kind.as_deref());
    let packing = packing(request.headers())?;
    let attributes = cloud_events::attributes(request.headers(), format)?;
    let topic = find(&*broker.get()?, &name)?;
    check_mutable(&topic)?;
    // Waits here for the next owner of a cell, if one has lost its own, and not with the memory of a body.
    broker.get()?.catalog().reach(&topic).await;
    // A topic that is made again under the name has none of the records.
    let key = Key::of(request.headers(), &caller, &["topic", &id_text(&topic)])?;
    let body = body::read_packed(request, LIMIT, packing).await?;
    let mut incoming = template.read(body.bytes(), format, kind.as_deref(), attributes)?;
    let broker = broker.get()?;
    // The settings may be others than before the body came.
    let topic = broker
        .topics()
        .with_id(topic.id)
        .ok_or_else(|| no_such_topic(&name))?;
    let keyless = key.map_or_else(|| uuid::Uuid::new_v4().into_bytes(), |key| key.request().0);
    let keyless = keyless.first_chunk().copied().map_or(0, u32::from_le_bytes);
    let catalog = broker.catalog();
    let built = build(catalog, &topic, &mut incoming, (keyless, template.partial));
    let RecordsAppend { mut append, batches } = built?;
    let mut produced = Produced {
        read: incoming.read,
        keyed: incoming.keyed,
        stored: waits.then_some(incoming.records.len()),
        refused: incoming.refused.len(),
        skipped: (incoming.read).saturating_sub(incoming.records.len() + incoming.refused.len()),
        durability: catalog.log_spec(&topic).durability.to_string(),
        repeated: false,
        places: Vec::new(),
        refusals: refusals_of(std::mem::take(&mut incoming.refused)),
    };
    drop(incoming);
    if batches.is_empty() {
        return Ok(answer(StatusCode::OK, &produced));
    }
    append.request = key.map(Key::request);
    let ticket = catalog.append(vec![append]);
    if !waits {
        // Refused at once, as on a full disk.
        if ticket.glance().committed() == Some(false) {
            stored(stamp::storing(ticket).await, &name)?;
            return Ok(answer(StatusCode::ACCEPTED, &produced));
        }
        // The memory of the body stays taken until its records are written.
        drop(catalog.changes().begin(async move {
            let _outcome = ticket.await;
            drop(body);
            Ok::<(), NotStored>(())
        }));
        return Ok(answer(StatusCode::ACCEPTED, &produced));
    }
    let placed = stored(stamp::storing(ticket).await, &name)?;
    produced.repeated = placed.iter().any(|batch| batch.duplicate);
    produced.places = places(&topic, &placed, &batches);
    Ok(answer(StatusCode::OK, &produced))
}

/// Builds the append of the records, without those that the topic refuses if `partial` is true.
fn build(
    catalog: &TopicCatalog,
    topic: &Topic,
    incoming: &mut Incoming,
    (keyless, partial): (u32, bool),
) -> Result<RecordsAppend, Problem> {
    loop {
        let left = if partial {
            REFUSED_MAX.saturating_sub(incoming.refused.len())
        } else {
            0
        };
        let rules = (wall_ms(), left + 1);
        let built = catalog.records_append_or_all(topic, &incoming.records, keyless, rules);
        let mut errors = match built {
            Ok(built) => return Ok(built),
            Err(errors) => errors,
        };
        // From the last one on, so that the places of the others stay.
        errors.sort_by_key(|error| std::cmp::Reverse(error.index));
        errors.dedup_by_key(|error| error.index);
        for (at, why) in errors.iter().rev().enumerate() {
            if at >= left {
                return Err(refused(why, incoming, topic));
            }
        }
        for why in errors {
            let problem = refused(&why, incoming, topic);
            incoming.refuse(why.index, problem);
        }
    }
}

/// Returns refused records by line.
fn refusals_of(mut refused: Vec<(usize, Problem)>) -> Vec<RefusedRecord> {
    refused.sort_by_key(|(line, _)| *line);
    let shown = refused.into_iter().map(|(line, why)| RefusedRecord {
        line,
        refusal: why.to_value(),
    });
    shown.collect()
}

/// True if the answer comes once the records are stored.
fn waits(query: &Query) -> Result<bool, Problem> {
    match query.get("ack") {
        None | Some("stored") => Ok(true),
        Some("none") => Ok(false),
        Some(other) => Err(Problem::bad_request(format!(
            "ack is stored or none, not {other:?}"
        ))),
    }
}

fn format(kind: Option<&str>) -> Format {
    let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    match kind.map(str::to_ascii_lowercase).as_deref() {
        Some(JSON) => Format::Json,
        Some(NDJSON) => Format::Lines,
        Some("application/cloudevents+json") => Format::Event,
        Some("application/cloudevents-batch+json") => Format::Events,
        Some(_) | None => Format::Raw,
    }
}

fn refused(error: &RecordError, incoming: &Incoming, topic: &Topic) -> Problem {
    let line = incoming
        .lines
        .get(error.index)
        .copied()
        .unwrap_or(error.index + 1);
    let said = format!("line {line}: {}", error.why);
    refusal(&error.why, said, topic)
        .with("line", line)
        .with("stored", 0)
}

/// Refuses a record for a reason.
pub(super) fn refusal(why: &RecordRefusal, said: String, topic: &Topic) -> Problem {
    match *why {
        RecordRefusal::Internal => Problem::new(Code::Immutable, said),
        RecordRefusal::NoSuchPartition(partition) => no_such_partition(topic, partition),
        RecordRefusal::WithoutKey => Problem::new(Code::NoKey, said),
        RecordRefusal::TooLarge { bytes_max } => {
            Problem::new(Code::TooLarge, said).with("bytes_max", bytes_max)
        }
        RecordRefusal::Time { min, max, .. } => Problem::new(Code::OutOfRange, said)
            .with("field", "timestamp")
            .with("min", min)
            .with("max", max),
        RecordRefusal::Batch(_) => Problem::bad_request(said),
    }
}

/// Returns the places of a stored append.
pub(super) fn stored(
    outcomes: impl IntoIterator<Item = Outcome>,
    name: &str,
) -> Result<Vec<PlacedBatch>, Problem> {
    match outcomes.into_iter().next() {
        Some(Outcome::Committed(placed)) => Ok(placed.into_vec()),
        // The topic is deleted meanwhile.
        Some(Outcome::Refused(Refusal::NoSuchLog(_))) => Err(no_such_topic(name)),
        Some(Outcome::Refused(why)) => Err(of_storage(NotStored::Refused(why), why).with("stored", 0)),
        Some(Outcome::Unknown) | None => Err(of_storage(NotStored::Unknown, NotStored::Unknown)),
    }
}

/// Returns the places of batches; those of a partition that stand together are one.
fn places(topic: &Topic, stored: &[PlacedBatch], batches: &[(u32, u32)]) -> Vec<Place> {
    let numbers: HashMap<_, u32> = (0..topic.partitions())
        .filter_map(|number| Some((topic.log(number)?, number)))
        .collect();
    let mut places: Vec<Place> = Vec::new();
    for (batch, (_, count)) in stored.iter().zip(batches) {
        let Some(partition) = numbers.get(&batch.log).copied() else {
            continue;
        };
        match places.last_mut() {
            Some(last)
                if last.partition == partition && last.base + u64::from(last.count) == batch.base.0 =>
            {
                last.count += count;
            }
            _ => places.push(Place {
                partition,
                base: batch.base.0,
                count: *count,
            }),
        }
    }
    places
}
