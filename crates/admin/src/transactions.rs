//! Lists transactional ids, and shows the records that wait for their open transactions.

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use stafett_broker::Broker;
use stafett_http::list::List;
use stafett_http::{Problem, Query, Slot};
use stafett_model::TransactionEnd;
use stafett_store::wall_ms;
use stafett_transactions::{Description, Status};

use crate::{answer, list_query};

const LIST: List<Description> = List {
    name: |found| ("", &found.id),
    sorts: &[("open_ms", |found| open_ms(found).unwrap_or(0))],
    shown,
};

pub(crate) async fn list(
    State(broker): State<Slot<Broker>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = list_query(query.as_deref(), &["open"])?;
    let only_open = query.flag("open")?;
    let mut all = broker.get()?.transactions().list();
    all.retain(|found| !only_open || found.began_at.is_some());
    Ok(answer(StatusCode::OK, &LIST.page(&query, all)?))
}

/// Shows an id. Of each partition of its open transaction: the offset at which readers of committed records
/// wait, and the number of offsets behind it.
pub(crate) async fn show(
    State(broker): State<Slot<Broker>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    Query::strict(query.as_deref(), &[])?;
    let broker = broker.get()?;
    let found = broker.transactions().describe(&id).ok_or_else(|| {
        let why = format!("there is no transactional id {id:?}");
        Problem::new(StatusCode::NOT_FOUND, "no_such_transaction", why)
    })?;
    let mut partitions = Vec::new();
    for (topic, numbers) in broker.topics().partitions_of(&found.logs) {
        for number in numbers {
            let bounds = topic.log(number).and_then(|log| broker.catalog().bounds(log));
            let waits = bounds.map(|bounds| bounds.end.0.saturating_sub(bounds.stable.0));
            partitions.push(json!({
                "topic": &*topic.name,
                "partition": number,
                "stable": bounds.map(|bounds| bounds.stable.0),
                "waiting": waits,
            }));
        }
    }
    let mut shown = shown(&found);
    if let Some(shown) = shown.as_object_mut() {
        shown.insert("partitions".to_owned(), partitions.into());
    }
    Ok(answer(StatusCode::OK, &shown))
}

fn shown(found: &Description) -> Value {
    json!({
        "id": &*found.id,
        "state": state(found.status),
        "producer": found.instance.producer.0.to_string(),
        "epoch": found.instance.epoch,
        "timeout_ms": found.timeout_ms,
        "open_ms": open_ms(found),
        "groups": found.groups,
    })
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
