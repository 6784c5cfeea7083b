//! `ConsumerGroupDescribe`: groups of the consumer protocol (KIP-848).

use stafett_access::Action;
use stafett_groups::consumer::{ConsumerGroup, Member, Partitions};
use stafett_groups::{self, GroupKind};
use stafett_kafka_wire::messages::consumer_group_describe::{
    Assignment, DescribedGroup, Member as DescribedMember, TopicPartitions,
};
use stafett_kafka_wire::messages::{ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};
use stafett_topics::Topics;

use super::group_names::{GROUP_OPERATIONS, HIDDEN_TOPICS, state_name};
use crate::call::Call;
use crate::context::RequestContext;
use crate::response_queue::HandlerResult;

/// Member type: member of the consumer protocol.
const MEMBER_CONSUMER: i8 = 1;
/// Member type: member of the classic protocol.
const MEMBER_CLASSIC: i8 = 0;

pub(super) fn consumer_group_describe(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: ConsumerGroupDescribeRequest = call.read(body)?;
    let shared = &context.shared;
    let broker = &shared.broker;
    let groups = request.group_ids.iter().map(|name| {
        let described = broker.groups().with_group(name, |group| {
            let GroupKind::Consumer(kind) = &group?.kind else {
                return None;
            };
            Some(DescribedGroup {
                group_state: state_name(group?.kind.state()).into(),
                ..describe(kind.group(), broker.topics(), call.version)
            })
        });
        let mut described = described.unwrap_or_else(|| {
            let (code, message) = if name.is_empty() {
                (ErrorCode::InvalidGroupId, "a group needs a name".to_owned())
            } else {
                let message = format!("there is no consumer group {:?}", name.as_str());
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
    let response = ConsumerGroupDescribeResponse {
        groups: groups.collect(),
        ..ConsumerGroupDescribeResponse::default()
    };
    Ok(call.answer::<ConsumerGroupDescribeRequest>(&response)?.into())
}

/// Returns true if the caller may see all topics of the members. Else Kafka does not describe the group.
fn may_see(context: &RequestContext, group: &DescribedGroup) -> bool {
    let assigned = |member: &DescribedMember| {
        let assignments = [&member.assignment, &member.target_assignment].into_iter();
        let mut topics = assignments.flat_map(|assignment| &assignment.topic_partitions);
        topics.all(|topic| context.check_topic(Action::Describe, &topic.topic_name).is_ok())
    };
    context.caller().is_unrestricted() || group.members.iter().all(assigned)
}

fn describe(group: &ConsumerGroup, topics: &Topics, version: i16) -> DescribedGroup {
    DescribedGroup {
        group_epoch: group.epoch(),
        assignment_epoch: group.target_epoch(),
        assignor_name: group.assignor().name().into(),
        members: group
            .members()
            .map(|member| describe_member(group, member, topics, version))
            .collect(),
        ..DescribedGroup::default()
    }
}

fn describe_member(group: &ConsumerGroup, member: &Member, topics: &Topics, version: i16) -> DescribedMember {
    let subscription = group.subscription(member);
    let names = subscription
        .map(stafett_groups::consumer::Subscription::names)
        .unwrap_or_default();
    DescribedMember {
        member_id: Str::copy_from(&member.id),
        instance_id: member.instance.as_deref().map(Str::copy_from),
        rack_id: member.rack.as_deref().map(Str::copy_from),
        member_epoch: member.epoch,
        client_id: Str::copy_from(&member.client_id),
        client_host: Str::copy_from(&member.host),
        subscribed_topic_names: names.iter().map(|name| Str::copy_from(name)).collect(),
        subscribed_topic_regex: subscription
            .and_then(stafett_groups::consumer::Subscription::pattern)
            .map(Str::copy_from),
        assignment: assignment(&member.assigned.partitions(), topics),
        target_assignment: assignment(&member.target, topics),
        member_type: match &member.classic {
            _ if version < 1 => -1,
            Some(_) => MEMBER_CLASSIC,
            None => MEMBER_CONSUMER,
        },
    }
}

/// Converts partitions. Those of deleted topics are left out.
fn assignment(partitions: &Partitions, topics: &Topics) -> Assignment {
    let runs = partitions.by_topic().filter_map(|run| {
        let topic = topics.with_id(run.first()?.topic)?;
        Some(TopicPartitions {
            topic_id: topic.id.0.into(),
            topic_name: Str::copy_from(&topic.name),
            partitions: run
                .iter()
                .filter_map(|one| i32::try_from(one.index).ok())
                .collect(),
        })
    });
    Assignment {
        topic_partitions: runs.collect(),
    }
}
