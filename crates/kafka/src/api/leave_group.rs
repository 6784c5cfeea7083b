//! `LeaveGroup`: members leave, or an administrator removes static members by their instance.

use stafett_groups::GroupError;
use stafett_groups::classic::Leave;
use stafett_kafka_wire::messages::leave_group::{MemberIdentity, MemberResponse};
use stafett_kafka_wire::messages::{LeaveGroupRequest, LeaveGroupResponse};
use stafett_kafka_wire::{Decoder, ErrorCode};

use crate::call::Call;
use crate::context::RequestContext;
use crate::error;
use crate::response_queue::HandlerResult;

/// First version with several members per request.
const MANY_FROM: i16 = 3;

pub(super) fn leave_group(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: LeaveGroupRequest = call.read(body)?;
    let members = if call.version >= MANY_FROM {
        request.members
    } else {
        vec![MemberIdentity {
            member_id: request.member_id,
            ..MemberIdentity::default()
        }]
    };
    let leaves: Vec<_> = members
        .iter()
        .map(|member| Leave {
            member: (&*member.member_id).into(),
            instance: member.group_instance_id.as_deref().map(Into::into),
        })
        .collect();
    let left = match context.shared.broker.groups().leave(&request.group_id, &leaves) {
        // A group that does not exist has no members.
        Err(GroupError::NoSuchGroup) => Ok(vec![Err(GroupError::UnknownMember); members.len()]),
        left => left,
    };
    let count = |code| context.shared.metrics.error(call.api, code);
    let mut response = LeaveGroupResponse::default();
    match left {
        Ok(results) => {
            for (member, result) in members.into_iter().zip(results) {
                let code = result.map_or_else(|error| error::group(&error), |()| Ok(ErrorCode::None))?;
                response.members.push(MemberResponse {
                    member_id: member.member_id,
                    group_instance_id: member.group_instance_id,
                    error_code: count(code),
                });
            }
        }
        Err(error) => response.error_code = count(error::group(&error)?),
    }
    if call.version < MANY_FROM
        && let Some(only) = response.members.pop()
    {
        response.error_code = only.error_code;
    }
    Ok(call.answer::<LeaveGroupRequest>(&response)?.into())
}
