//! `ListGroups`: all groups, or those in given states and of given types.

use stafett_access::{Action, Resource};
use stafett_groups::{Group, GroupKind};
use stafett_kafka_wire::messages::list_groups::ListedGroup;
use stafett_kafka_wire::messages::{ListGroupsRequest, ListGroupsResponse};
use stafett_kafka_wire::{Decoder, Str};

use super::group_names::{state_name, text};
use crate::call::{Call, ResponseResult};
use crate::context::RequestContext;
use crate::operation::write_sized;
use crate::response_queue::{HandlerResult, PendingResponse};

/// Protocol types of groups of the consumer protocol and of share groups.
const CONSUMERS: &str = "consumer";
const SHARERS: &str = "share";
const STATES_FROM: i16 = 4;
const TYPES_FROM: i16 = 5;
/// Groups from which on an answer counts as large.
const LARGE: usize = 10_000;

pub(super) fn list_groups(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: ListGroupsRequest = call.read(body)?;
    if context.stands_for_other_node() {
        return Ok(call
            .answer::<ListGroupsRequest>(&ListGroupsResponse::default())?
            .into());
    }
    Ok(PendingResponse::in_turn(move |context| {
        let is_large = context.shared.broker.groups().len() >= LARGE;
        write_sized(context, is_large, move |context| run(context, call, &request))
    }))
}

fn run(context: &RequestContext, call: Call, request: &ListGroupsRequest) -> ResponseResult {
    let caller = context.caller();
    let sees_all = caller.may(Action::Describe, &Resource::CLUSTER);
    let mut groups = Vec::new();
    context.shared.broker.groups().each(|group| {
        if !sees_all && !caller.may(Action::Describe, &Resource::group(&group.name)) {
            return;
        }
        let listed = listed(call.version, group);
        let state = state_name(group.kind.state());
        let kind = group.kind.state().kind.name();
        if is_wanted(&request.states_filter, state) && is_wanted(&request.types_filter, kind) {
            groups.push(listed);
        }
    });
    let response = ListGroupsResponse {
        groups,
        ..ListGroupsResponse::default()
    };
    call.answer::<ListGroupsRequest>(&response)
}

fn is_wanted(filter: &[Str], value: &str) -> bool {
    filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(value))
}

fn listed(version: i16, group: &Group) -> ListedGroup {
    let state = group.kind.state();
    let purpose = match &group.kind {
        GroupKind::Classic(classic) => classic.purpose(),
        GroupKind::Consumer(_) => Some(CONSUMERS),
        GroupKind::Share(_) => Some(SHARERS),
    };
    ListedGroup {
        group_id: Str::copy_from(&group.name),
        protocol_type: text(purpose),
        group_state: if version >= STATES_FROM {
            state_name(state).into()
        } else {
            Str::default()
        },
        group_type: if version >= TYPES_FROM {
            kind_name(state.kind.name())
        } else {
            Str::default()
        },
    }
}

/// Returns Kafka's name of a kind, which is the core's name.
fn kind_name(name: &'static str) -> Str {
    Str::from_static(name)
}
