//! `DescribeTransactions`, `ListTransactions`: transactional ids and their transactions.

use std::sync::Arc;

use regex::Regex;
use stafett_access::{Action, Kind, Resource};
use stafett_kafka_wire::messages::describe_transactions::{TopicData, TransactionState};
use stafett_kafka_wire::messages::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, ListTransactionsRequest,
    ListTransactionsResponse, list_transactions,
};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};
use stafett_model::TransactionEnd;
use stafett_store::wall_ms;
use stafett_topics::{Topic, Topics};
use stafett_transactions::{Description, Status};

use crate::call::Call;
use crate::context::RequestContext;
use crate::response_queue::HandlerResult;

const STATES: &[&str] = &[
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
];

fn state(status: Status) -> &'static str {
    match status {
        Status::Empty => "Empty",
        Status::Ongoing => "Ongoing",
        Status::Ending(TransactionEnd::Commit) => "PrepareCommit",
        Status::Ending(TransactionEnd::Abort) => "PrepareAbort",
        Status::Ended(TransactionEnd::Commit) => "CompleteCommit",
        Status::Ended(TransactionEnd::Abort) => "CompleteAbort",
        Status::Gone => "Dead",
    }
}

pub(super) fn describe_transactions(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: DescribeTransactionsRequest = call.read(body)?;
    let broker = &context.shared.broker;
    let states = request.transactional_ids.into_iter().map(|transactional_id| {
        let found = broker.transactions().describe(&transactional_id);
        let code = match &found {
            _ if transactional_id.is_empty() => ErrorCode::InvalidRequest,
            None => ErrorCode::TransactionalIdNotFound,
            Some(_) => ErrorCode::None,
        };
        let mut described = found
            .map(|found| describe(&found, broker.topics()))
            .unwrap_or_default();
        described
            .topics
            .retain(|topic| context.may_topic(Action::Describe, &topic.topic));
        TransactionState {
            error_code: context.shared.metrics.error(call.api, code),
            transactional_id,
            ..described
        }
    });
    let response = DescribeTransactionsResponse {
        throttle_time_ms: 0,
        transaction_states: states.collect(),
    };
    Ok(call.answer::<DescribeTransactionsRequest>(&response)?.into())
}

fn describe(found: &Description, topics: &Topics) -> TransactionState {
    let data = |(topic, numbers): (Arc<Topic>, Vec<u32>)| TopicData {
        topic: Str::copy_from(&topic.name),
        partitions: numbers
            .into_iter()
            .map(|number| i32::try_from(number).unwrap_or(i32::MAX))
            .collect(),
    };
    TransactionState {
        transaction_state: state(found.status).into(),
        transaction_timeout_ms: i32::try_from(found.timeout_ms).unwrap_or(i32::MAX),
        transaction_start_time_ms: found.began_at.unwrap_or(-1),
        producer_id: found.instance.producer.0,
        producer_epoch: found.instance.epoch,
        topics: partitions(found, topics).into_iter().map(data).collect(),
        ..TransactionState::default()
    }
}

/// Returns the partitions of a transaction, by topic.
fn partitions(found: &Description, topics: &Topics) -> Vec<(Arc<Topic>, Vec<u32>)> {
    let mut all = topics.partitions_of(&found.logs);
    for (id, partition) in &found.elsewhere {
        let Some(topic) = topics.with_id(*id) else {
            continue;
        };
        match all.iter_mut().find(|(topic, _)| topic.id == *id) {
            Some((_, numbers)) => numbers.push(*partition),
            None => all.push((topic, vec![*partition])),
        }
    }
    all
}

pub(super) fn list_transactions(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: ListTransactionsRequest = call.read(body)?;
    let pattern = request
        .transactional_id_pattern
        .as_deref()
        .filter(|text| !text.is_empty());
    let Ok(pattern) = pattern
        .map(|text| Regex::new(&format!("^(?:{text})$")))
        .transpose()
    else {
        let code = ErrorCode::InvalidRegularExpression;
        let response = ListTransactionsResponse {
            error_code: context.shared.metrics.error(call.api, code),
            ..ListTransactionsResponse::default()
        };
        return Ok(call.answer::<ListTransactionsRequest>(&response)?.into());
    };
    let (unknown, states): (Vec<Str>, Vec<Str>) = request
        .state_filters
        .into_iter()
        .partition(|state| !STATES.contains(&&**state));
    let is_filtered = !states.is_empty() || !unknown.is_empty();
    let now = wall_ms();
    let is_wanted = |found: &Description| {
        let lasts_ms = found.began_at.map_or(-1, |began| now.saturating_sub(began));
        let producers = &request.producer_id_filters;
        (!is_filtered || states.iter().any(|wanted| **wanted == *state(found.status)))
            && (producers.is_empty() || producers.contains(&found.instance.producer.0))
            && (request.duration_filter < 0 || lasts_ms > request.duration_filter)
            && pattern.as_ref().is_none_or(|pattern| pattern.is_match(&found.id))
            && context
                .caller()
                .may(Action::Describe, &Resource::new(Kind::TransactionalId, &found.id))
    };
    let all = if context.stands_for_other_node() {
        Vec::new()
    } else {
        context.shared.broker.transactions().list()
    };
    let listed = all.iter().filter(|found| is_wanted(found));
    let response = ListTransactionsResponse {
        unknown_state_filters: unknown,
        transaction_states: listed
            .map(|found| list_transactions::TransactionState {
                transactional_id: Str::copy_from(&found.id),
                producer_id: found.instance.producer.0,
                transaction_state: state(found.status).into(),
            })
            .collect(),
        ..ListTransactionsResponse::default()
    };
    Ok(call.answer::<ListTransactionsRequest>(&response)?.into())
}
