//! `ShareGroupDescribe`: share groups and their members (KIP-932).

use stafett_access::Action;
use stafett_groups::GroupKind;
use stafett_groups::consumer::{ConsumerGroup, Member, Subscription};
use stafett_kafka_wire::messages::share_group_describe::{
    Assignment, DescribedGroup, Member as DescribedMember, TopicPartitions,
};
use stafett_kafka_wire::messages::{ShareGroupDescribeRequest, ShareGroupDescribeResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};
use stafett_topics::Topics;

use super::group_names::{GROUP_OPERATIONS, HIDDEN_TOPICS, state_name};
use crate::call::Call;
use crate::context::RequestContext;
use crate::response_queue::HandlerResult;

pub(super) fn share_group_describe(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: ShareGroupDescribeRequest = call.read(body)?;
    let shared = &context.shared;
    let broker = &shared.broker;
    let groups = request.group_ids.iter().map(|name| {
        let described = broker.groups().with_group(name, |group| match &group?.kind {
            GroupKind::Share(kind) => Some(DescribedGroup {
                group_state: state_name(group?.kind.state()).into(),
                ..describe(kind.group(), broker.topics())
            }),
            GroupKind::Classic(_) | GroupKind::Consumer(_) => None,
        });
        let mut described = described.unwrap_or_else(|| {
            let (code, message) = if name.is_empty() {
                (ErrorCode::InvalidGroupId, "a group needs a name".to_owned())
            } else {
                let message = format!("Group {} not found.", name.as_str());
                (ErrorCode::GroupIdNotFound, message)
            };
            DescribedGroup {
                error_code: shared.metrics.error(call.api, code),
                error_message: Some(message.into()),
                ..DescribedGroup::default()
            }
        });
        if !may_see(context, &described) {
            let code = ErrorCode::TopicAuthorizationFailed;
            described = DescribedGroup {
                error_code: shared.metrics.error(call.api, code),
                error_message: Some(HIDDEN_TOPICS.into()),
                ..DescribedGroup::default()
            };
        }
        described.group_id = name.clone();
        if request.include_authorized_operations && described.error_code == 0 {
            described.authorized_operations = GROUP_OPERATIONS;
        }
        described
    });
    let response = ShareGroupDescribeResponse {
        groups: groups.collect(),
        ..ShareGroupDescribeResponse::default()
    };
    Ok(call.answer::<ShareGroupDescribeRequest>(&response)?.into())
}

/// Returns true if the caller may see all topics of the members. Else Kafka does not describe the group.
fn may_see(context: &RequestContext, group: &DescribedGroup) -> bool {
    let mut members = group.members.iter();
    context.caller().is_unrestricted()
        || members.all(|member| {
            let mut topics = member.assignment.topic_partitions.iter();
            topics.all(|topic| context.check_topic(Action::Describe, &topic.topic_name).is_ok())
        })
}

fn describe(group: &ConsumerGroup, topics: &Topics) -> DescribedGroup {
    DescribedGroup {
        group_epoch: group.epoch(),
        assignment_epoch: group.target_epoch(),
        assignor_name: group.assignor().name().into(),
        members: group
            .members()
            .map(|member| describe_member(group, member, topics))
            .collect(),
        ..DescribedGroup::default()
    }
}

fn describe_member(group: &ConsumerGroup, member: &Member, topics: &Topics) -> DescribedMember {
    let names = group
        .subscription(member)
        .map(Subscription::names)
        .unwrap_or_default();
    let assigned = member.assigned.partitions();
    // Those of deleted topics are left out.
    let runs = assigned.by_topic().filter_map(|run| {
        let topic = topics.with_id(run.first()?.topic)?;
        let indexes = run.iter().filter_map(|one| i32::try_from(one.index).ok());
        Some(TopicPartitions {
            topic_id: topic.id.0.into(),
            topic_name: Str::copy_from(&topic.name),
            partitions: indexes.collect(),
        })
    });
    DescribedMember {
        member_id: Str::copy_from(&member.id),
        rack_id: member.rack.as_deref().map(Str::copy_from),
        member_epoch: member.epoch,
        client_id: Str::copy_from(&member.client_id),
        client_host: Str::copy_from(&member.host),
        subscribed_topic_names: names.iter().map(|name| Str::copy_from(name)).collect(),
        assignment: Assignment {
            topic_partitions: runs.collect(),
        },
    }
}
