//! `DeleteGroups`: deletes groups without members, and their commits.

use std::collections::HashSet;

use stafett_groups::GroupError;
use stafett_kafka_wire::messages::delete_groups::DeletableGroupResult;
use stafett_kafka_wire::messages::{DeleteGroupsRequest, DeleteGroupsResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};
use stafett_store::NotStored;

use crate::call::Call;
use crate::context::RequestContext;
use crate::error;
use crate::events::record;
use crate::operation::{GroupOperation, Operation, then};
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};

pub(super) fn delete_groups(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: DeleteGroupsRequest = call.read(body)?;
    let transactions = context.shared.broker.transactions();
    let mut seen = HashSet::new();
    let mut names = request.groups_names;
    names.retain(|name| seen.insert(name.clone()));
    let mut tickets = Vec::with_capacity(names.len());
    let begun = names.into_iter().map(|name| {
        let begun = transactions
            .delete_group(&name)
            .map(|ticket| tickets.push((name.clone(), ticket)));
        (name, begun)
    });
    let begun: Vec<(Str, Result<(), GroupError>)> = begun.collect();
    let deleted = then(move |context, deleted: Vec<Result<(), NotStored>>| {
        let mut deleted = deleted.into_iter();
        let mut results = Vec::with_capacity(begun.len());
        for (group_id, begun) in begun {
            let deleted = begun.and_then(|()| Ok(deleted.next().unwrap_or(Err(NotStored::Unknown))?));
            let code = deleted.map_or_else(|why| error::group(&why), |()| Ok(ErrorCode::None))?;
            if code == ErrorCode::None {
                record(context.caller(), "group.deleted", &group_id);
            }
            results.push(DeletableGroupResult {
                group_id,
                error_code: context.shared.metrics.error(call.api, code),
            });
        }
        let response = DeleteGroupsResponse {
            throttle_time_ms: 0,
            results,
        };
        call.answer::<DeleteGroupsRequest>(&response)
    });
    let operation = Operation::Group(GroupOperation::AwaitDeletions(tickets, deleted));
    Ok(PendingResponse::awaiting(operation, Pipelining::Free))
}
