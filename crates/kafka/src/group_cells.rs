//! Requests about groups, where these are spread over the cells of a cluster: each is executed in the cell of
//! its groups, and another one sends the client to look for the coordinator again.

use stafett_kafka_wire::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, DeleteGroupsRequest, DescribeGroupsRequest,
    FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, OffsetCommitRequest,
    OffsetDeleteRequest, OffsetFetchRequest, SyncGroupRequest, TxnOffsetCommitRequest,
};
use stafett_kafka_wire::{ApiKey, Decoder, ErrorCode, Str};
use stafett_transactions::Place as StoredPlace;

use crate::call::{Call, Close};
use crate::cells::Place;
use crate::context::{KafkaContext, RequestContext};
use crate::operation::{Operation, Step, then};
use crate::produce_results::Staging;
use crate::response_queue::PendingResponse;
use crate::transaction_operation::TransactionOperation;
use crate::{api, gate};

/// First version of `OffsetFetch` with several groups.
const MANY_FROM: i16 = 8;
/// Key type of groups in `FindCoordinator`.
pub(crate) const GROUP: i8 = 0;

/// Returns the place of a request about groups. `None` if it is about others.
pub(crate) fn place(shared: &KafkaContext, call: Call, body: &Decoder) -> Result<Option<Place>, Close> {
    let groups = shared.broker.groups();
    if !groups.are_spread() {
        return Ok(None);
    }
    let own = shared.broker.catalog().cells().own;
    if call.api == ApiKey::FindCoordinator {
        let asked: FindCoordinatorRequest = call.read(body.clone())?;
        // The first cell keeps groups of any name that were there before.
        let is_of_first = asked.key_type == GROUP && own != 0;
        return Ok(is_of_first.then_some(Place::First));
    }
    let Some(names) = names(call, body)? else {
        return Ok(None);
    };
    let are_in = |cell| names.iter().all(|name| groups.cell_of(name) == cell);
    Ok(Some(if are_in(own) {
        Place::Here
    } else if are_in(0) {
        Place::First
    } else {
        Place::OtherCoordinator
    }))
}

/// In another cell than the first one: deletes groups, or commits of theirs, once the coordinator of
/// transactions says that no commits wait for them, which would bring them back. `None` for another request.
pub(crate) fn delete(
    context: &RequestContext,
    call: Call,
    body: &Decoder,
) -> Result<Option<Operation>, Close> {
    let is_deletion = matches!(call.api, ApiKey::DeleteGroups | ApiKey::OffsetDelete);
    if !is_deletion || !context.shared.is_further_cell() {
        return Ok(None);
    }
    let groups = names(call, body)?.unwrap_or_default();
    let body = body.clone();
    let asked = then(move |context, pending: Option<Vec<Vec<StoredPlace>>>| {
        if !pending.is_some_and(|pending| pending.iter().all(Vec::is_empty)) {
            // Clients try it again.
            let code = ErrorCode::CoordinatorLoadInProgress;
            return gate::refuse(context, call, &body, code).map(Step::Respond);
        }
        let executed = api::dispatch(context, call, None, body, 0, &mut Staging::default())?;
        match executed {
            PendingResponse::Awaiting(Some(operation), _) => Ok(Step::Await(operation)),
            PendingResponse::Ready(response) => response.map(Step::Respond),
            PendingResponse::Awaiting(None, _) | PendingResponse::Produce(_) => {
                Err(Close::NotServed(call.api))
            }
        }
    });
    let operation = TransactionOperation::Pending(groups, asked);
    Ok(Some(Operation::Transaction(operation)))
}

/// Function that reads the names of the groups of a request.
type Names = fn(Call, Decoder) -> Result<Vec<Str>, Close>;

/// The one group of a request.
macro_rules! group {
    ($request:ident) => {
        |call, body| Ok(vec![call.read::<$request>(body)?.group_id])
    };
}

/// Requests about groups. Share groups are all in the first cell.
const NAMES: &[(ApiKey, Names)] = &[
    (ApiKey::JoinGroup, group!(JoinGroupRequest)),
    (ApiKey::SyncGroup, group!(SyncGroupRequest)),
    (ApiKey::Heartbeat, group!(HeartbeatRequest)),
    (ApiKey::LeaveGroup, group!(LeaveGroupRequest)),
    (
        ApiKey::ConsumerGroupHeartbeat,
        group!(ConsumerGroupHeartbeatRequest),
    ),
    (ApiKey::OffsetCommit, group!(OffsetCommitRequest)),
    (ApiKey::TxnOffsetCommit, group!(TxnOffsetCommitRequest)),
    (ApiKey::OffsetDelete, group!(OffsetDeleteRequest)),
    (ApiKey::OffsetFetch, |call, body| {
        let asked: OffsetFetchRequest = call.read(body)?;
        if call.version < MANY_FROM {
            return Ok(vec![asked.group_id]);
        }
        Ok(asked.groups.into_iter().map(|group| group.group_id).collect())
    }),
    (ApiKey::DescribeGroups, |call, body| {
        Ok(call.read::<DescribeGroupsRequest>(body)?.groups)
    }),
    (ApiKey::ConsumerGroupDescribe, |call, body| {
        Ok(call.read::<ConsumerGroupDescribeRequest>(body)?.group_ids)
    }),
    (ApiKey::DeleteGroups, |call, body| {
        Ok(call.read::<DeleteGroupsRequest>(body)?.groups_names)
    }),
];

/// Returns the names of the groups that a request is about. `None` if it is about others.
fn names(call: Call, body: &Decoder) -> Result<Option<Vec<Str>>, Close> {
    let known = NAMES.iter().find(|(api, _)| *api == call.api);
    known.map(|(_, names)| names(call, body.clone())).transpose()
}
