//! `DeleteGroups`: deletes groups without members, and their commits.

use std::collections::HashSet;
use std::sync::Arc;

use stafett_groups::GroupError;
use stafett_kafka_wire::messages::delete_groups::DeletableGroupResult;
use stafett_kafka_wire::messages::{DeleteGroupsRequest, DeleteGroupsResponse};
use stafett_kafka_wire::{Decoder, ErrorCode};

use crate::error;
use crate::response_queue::PendingResponse;
use crate::session::{Call, Close, Context};

pub(super) fn delete_groups(context: &Context, call: Call, body: Decoder) -> Result<PendingResponse, Close> {
    let request: DeleteGroupsRequest = call.read(body)?;
    let shared = Arc::clone(&context.shared);
    let groups = shared.broker.groups();
    let mut seen = HashSet::new();
    let deletions: Vec<_> = request
        .groups_names
        .into_iter()
        .filter(|name| seen.insert(name.clone()))
        .map(|name| {
            let deletion = groups.delete(&name);
            (name, deletion)
        })
        .collect();
    Ok(PendingResponse::Task(Box::pin(async move {
        let mut results = Vec::with_capacity(deletions.len());
        for (group_id, deletion) in deletions {
            let deleted = match deletion {
                Ok(deletion) => deletion.durable().await.map_err(GroupError::from),
                Err(why) => Err(why),
            };
            let code = deleted.map_or_else(|why| error::group(&why), |()| Ok(ErrorCode::None))?;
            results.push(DeletableGroupResult {
                group_id,
                error_code: shared.metrics.error(call.api, code),
            });
        }
        let response = DeleteGroupsResponse {
            throttle_time_ms: 0,
            results,
        };
        call.answer::<DeleteGroupsRequest>(&response)
    })))
}
