//! Lists transactional ids, and shows the records that wait for their open transactions.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_broker::Broker;
use stafett_http::api::get;
use stafett_http::list::List;
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot};
use stafett_model::TransactionEnd;
use stafett_store::wall_ms;
use stafett_transactions::{Description, Status};

use crate::{Routes, answer};

const LIST: List<Description, Transaction> = List {
    name: |found| ("", &found.id),
    sorts: &[("open_ms", |found| open_ms(found).unwrap_or(0))],
    shown,
};

/// A transactional id.
#[derive(Debug, Serialize, JsonSchema)]
struct Transaction {
    id: String,
    /// `empty`, `open`, `committing`, `aborting`, `committed`, `aborted` or `gone`.
    state: &'static str,
    /// Id of the producer.
    producer: String,
    /// Epoch of the producer.
    epoch: i16,
    /// Time after which an open transaction is aborted.
    timeout_ms: u32,
    /// Time for which the transaction has been open.
    open_ms: Option<u64>,
    /// Groups whose commits wait for its end.
    groups: Vec<String>,
}

/// A transactional id with the partitions of its open transaction.
#[derive(Debug, Serialize, JsonSchema)]
struct TransactionDetails {
    #[serde(flatten)]
    transaction: Transaction,
    partitions: Vec<WaitingPartition>,
}

/// A partition with records of an open transaction.
#[derive(Debug, Serialize, JsonSchema)]
struct WaitingPartition {
    topic: String,
    partition: u32,
    /// Offset of the transaction's first record.
    first: Option<u64>,
    /// Offset at which readers of committed records wait.
    stable: Option<u64>,
    /// Offsets behind it.
    waiting: Option<u64>,
    /// True if those readers wait for this transaction, false if they wait for an older one.
    holds: bool,
}

/// Returns the routes of transactions.
pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            get("/v1/transactions", "Lists transactional ids.")
                .query(&[Parameter::flag("open", "Only those with an open transaction.")])
                .lists(&LIST)
                .refuses(&[Code::NotServing]),
            list,
        )
        .route(
            get(
                "/v1/transactions/{id}",
                "Shows a transactional id, and the partitions of its open transaction.",
            )
            .answers::<TransactionDetails>(200)
            .refuses(&[Code::NotServing, Code::NoSuchTransaction]),
            show,
        )
}

async fn list(State(broker): State<Slot<Broker>>, query: Query) -> Result<Response, Problem> {
    let only_open = query.flag("open")?;
    let mut all = broker.get()?.transactions().list();
    all.retain(|found| !only_open || found.began_at.is_some());
    Ok(answer(StatusCode::OK, &LIST.page(&query, all)?))
}

async fn show(State(broker): State<Slot<Broker>>, Path(id): Path<String>) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let found = broker.transactions().describe(&id).ok_or_else(|| {
        let why = format!("there is no transactional id {id:?}");
        Problem::new(Code::NoSuchTransaction, why)
    })?;
    let mut open = broker.catalog().open_transactions();
    open.retain(|open| open.producer == found.instance.producer);
    let mut partitions = Vec::new();
    for (topic, numbers) in broker.topics().partitions_of(&found.logs) {
        for partition in numbers {
            let log = topic.log(partition);
            let bounds = log.and_then(|log| broker.catalog().bounds(log));
            let first = open
                .iter()
                .find(|open| Some(open.log) == log)
                .map(|open| open.first);
            let stable = bounds.map(|bounds| bounds.stable);
            partitions.push(WaitingPartition {
                topic: topic.name.to_string(),
                partition,
                first: first.map(|first| first.0),
                stable: stable.map(|stable| stable.0),
                waiting: bounds.map(|bounds| bounds.end.0.saturating_sub(bounds.stable.0)),
                holds: first.is_some() && first == stable,
            });
        }
    }
    let details = TransactionDetails {
        transaction: shown(&found),
        partitions,
    };
    Ok(answer(StatusCode::OK, &details))
}

fn shown(found: &Description) -> Transaction {
    Transaction {
        id: found.id.to_string(),
        state: state(found.status),
        producer: found.instance.producer.0.to_string(),
        epoch: found.instance.epoch,
        timeout_ms: found.timeout_ms,
        open_ms: open_ms(found),
        groups: found.groups.iter().map(ToString::to_string).collect(),
    }
}

/// Returns the time for which the transaction has been open.
fn open_ms(found: &Description) -> Option<u64> {
    let open_ms = wall_ms().saturating_sub(found.began_at?);
    Some(u64::try_from(open_ms).unwrap_or(0))
}

fn state(status: Status) -> &'static str {
    match status {
        Status::Empty => "empty",
        Status::Ongoing => "open",
        Status::Ending(TransactionEnd::Commit) => "committing",
        Status::Ending(TransactionEnd::Abort) => "aborting",
        Status::Ended(TransactionEnd::Commit) => "committed",
        Status::Ended(TransactionEnd::Abort) => "aborted",
        Status::Gone => "gone",
    }
}
