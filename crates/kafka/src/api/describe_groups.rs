//! `DescribeGroups`: state and members of classic groups.

use std::collections::HashSet;

use stafett_groups::classic::MemberView;
use stafett_groups::{Group, GroupKind};
use stafett_kafka_wire::messages::describe_groups::{DescribedGroup, DescribedGroupMember};
use stafett_kafka_wire::messages::{DescribeGroupsRequest, DescribeGroupsResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};

use super::group_names::{GROUP_OPERATIONS, state_name, text};
use crate::call::{Call, ResponseResult};
use crate::context::{KafkaContext, RequestContext};
use crate::operation::write_sized;
use crate::response_queue::{HandlerResult, PendingResponse};

/// First version in which a missing group is an error; older versions report state `Dead`.
const ERRORS_FROM: i16 = 6;
const INSTANCES_FROM: i16 = 4;
/// Operations that were not requested.
const NOT_ASKED: i32 = i32::MIN;
/// Groups from which on an answer may be large.
const LARGE: usize = 100;
/// Maximum bytes of repeated descriptions in one answer: a description is much larger than the name that asks
/// for it.
const REPEATED_BYTES_MAX: usize = 16 << 20;

pub(super) fn describe_groups(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: DescribeGroupsRequest = call.read(body)?;
    Ok(PendingResponse::in_turn(move |context| {
        let is_large = request.groups.len() >= LARGE;
        write_sized(context, is_large, move |context| {
            run(&context.shared, call, request)
        })
    }))
}

fn run(shared: &KafkaContext, call: Call, request: DescribeGroupsRequest) -> ResponseResult {
    let operations = if request.include_authorized_operations {
        GROUP_OPERATIONS
    } else {
        NOT_ASKED
    };
    let mut groups = Vec::with_capacity(request.groups.len());
    let mut seen = HashSet::new();
    let mut repeated_bytes = 0;
    for name in request.groups {
        let found = shared.broker.groups().with_group(&name, |group| {
            group.and_then(|group| described(call.version, group))
        });
        let mut group = found.unwrap_or_else(|| absent(call.version, &name));
        if !seen.insert(name.clone()) {
            repeated_bytes += bytes(&group);
            if repeated_bytes > REPEATED_BYTES_MAX {
                group = repeated_too_often();
            }
        }
        if let Ok(code) = ErrorCode::try_from(group.error_code) {
            shared.metrics.error(call.api, code);
        }
        groups.push(DescribedGroup {
            group_id: name,
            authorized_operations: if group.error_code == 0 {
                operations
            } else {
                NOT_ASKED
            },
            ..group
        });
    }
    let response = DescribeGroupsResponse {
        throttle_time_ms: 0,
        groups,
    };
    call.answer::<DescribeGroupsRequest>(&response)
}

/// Estimates the bytes of a description.
fn bytes(group: &DescribedGroup) -> usize {
    let members = group.members.iter().map(|member| {
        size_of_val(member)
            + member.member_id.len()
            + member.client_id.len()
            + member.member_metadata.len()
            + member.member_assignment.len()
    });
    members.sum()
}

fn repeated_too_often() -> DescribedGroup {
    DescribedGroup {
        error_code: ErrorCode::InvalidRequest.code(),
        error_message: Some("The group is asked for too often in one request.".into()),
        group_state: "Dead".into(),
        ..DescribedGroup::default()
    }
}

fn absent(version: i16, name: &str) -> DescribedGroup {
    let is_error = version >= ERRORS_FROM;
    let code = if is_error {
        ErrorCode::GroupIdNotFound
    } else {
        ErrorCode::None
    };
    DescribedGroup {
        error_code: code.code(),
        error_message: is_error.then(|| format!("Group {name} not found.").into()),
        group_state: "Dead".into(),
        ..DescribedGroup::default()
    }
}

/// Describes a classic group. `None` if the group is of another kind.
fn described(version: i16, group: &Group) -> Option<DescribedGroup> {
    let GroupKind::Classic(classic) = &group.kind else {
        return None;
    };
    // Metadata and assignments are shown only for a stable generation.
    let is_stable = classic.is_stable();
    let member = |member: MemberView<'_>| DescribedGroupMember {
        member_id: Str::copy_from(member.id),
        group_instance_id: member
            .instance
            .filter(|_| version >= INSTANCES_FROM)
            .map(Str::copy_from),
        client_id: Str::copy_from(member.client_id),
        client_host: Str::copy_from(member.client_host),
        member_metadata: if is_stable {
            member.metadata
        } else {
            bytes::Bytes::new()
        },
        member_assignment: if is_stable {
            member.assignment
        } else {
            bytes::Bytes::new()
        },
    };
    Some(DescribedGroup {
        group_state: state_name(group.kind.state()).into(),
        protocol_type: text(classic.purpose()),
        protocol_data: text(classic.strategy().filter(|_| is_stable)),
        members: classic.members().map(member).collect(),
        ..DescribedGroup::default()
    })
}
