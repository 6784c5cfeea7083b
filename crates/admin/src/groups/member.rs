//! Members of groups: shown, and ended.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_broker::Broker;
use stafett_groups::classic::{Leave, MemberView};
use stafett_groups::consumer::{EPOCH_LEAVE, Heartbeat, HeartbeatError, Member, Partitions};
use stafett_groups::{ConsumerError, GroupError, GroupKind, Groups};
use stafett_http::api::delete;
use stafett_http::{Code, Path, Problem, Slot};

use super::no_such_group;
use crate::refusals::{self, of_group};
use crate::{Routes, answer};

/// A member of a group.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Member")]
pub(super) struct MemberShown {
    member: String,
    client: String,
    host: String,
    instance: Option<String>,
    /// Partitions by topic; null if the assignment of a classic member cannot be read.
    assigned: Option<Vec<Assigned>>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Assigned {
    topic: String,
    partitions: Vec<u32>,
}

pub(super) fn routes(routes: Routes) -> Routes {
    routes.route(
        delete(
            "/v1/groups/{group}/members/{member}",
            "Ends a member: its partitions go to the others. Its client is told at its next request, and most join \
             again.",
        )
        .event("group.member_ended")
        .answers::<MemberShown>(200)
        .refuses(&refusals::STORAGE)
        .refuses(&[Code::NoSuchGroup, Code::NoSuchMember, Code::InUse, Code::Immutable, Code::Overloaded]),
        end,
    )
}

async fn end(
    State(broker): State<Slot<Broker>>,
    Path((name, id)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let groups = broker.groups();
    let none = || {
        let why = format!("there is no member {id:?} in group {name:?}");
        Problem::new(Code::NoSuchMember, why)
    };
    let found = groups.with_group(&name, |group| match &group?.kind {
        GroupKind::Classic(classic) => {
            let mut members = classic.members();
            let member = members.find(|member| **member.id == *id);
            Some(member.map(|member| (MemberShown::of_classic(groups, &member), None)))
        }
        GroupKind::Consumer(kind) | GroupKind::Share(kind) => {
            let member = kind.group().member(&id);
            let shares = kind.group().shares();
            Some(member.map(|member| (MemberShown::of_assigned(&broker, member), Some(shares))))
        }
    });
    let (shown, shares) = found.ok_or_else(|| no_such_group(&name))?.ok_or_else(none)?;
    let left = match shares {
        None => leave_classic(groups, &name, &id),
        Some(shares) => leave_assigned(groups, &name, &id, shown.instance.as_deref(), shares).await,
    };
    left.map_err(|why| {
        if why == GroupError::UnknownMember {
            // It has left meanwhile.
            return none();
        }
        of_group(&why, &name)
    })?;
    Ok(answer(StatusCode::OK, &shown))
}

fn leave_classic(groups: &Groups, name: &str, id: &str) -> Result<(), GroupError> {
    let leave = Leave {
        member: id.into(),
        instance: None,
    };
    let left = groups.leave(name, &[leave])?;
    left.into_iter().next().unwrap_or(Err(GroupError::UnknownMember))
}

pub(super) async fn leave_assigned(
    groups: &Groups,
    name: &str,
    id: &str,
    instance: Option<&str>,
    shares: bool,
) -> Result<(), GroupError> {
    let beat = Heartbeat {
        member: id.into(),
        epoch: EPOCH_LEAVE,
        instance: instance.map(Into::into),
        ..Heartbeat::default()
    };
    let stepped = if shares {
        groups.share_heartbeat(name, beat)
    } else {
        groups.consumer_heartbeat(name, beat)
    };
    let stepped = stepped.map_err(|why| match why {
        ConsumerError::Group(why) => why,
        ConsumerError::Heartbeat(HeartbeatError::FencedInstance { .. }) => GroupError::FencedInstance,
        ConsumerError::Heartbeat(_) => GroupError::UnknownMember,
    })?;
    groups.consumer_stored(name, stepped).await.map(drop)
}

impl MemberShown {
    pub(super) fn of_classic(groups: &Groups, member: &MemberView<'_>) -> Self {
        let assigned = if member.assignment.is_empty() {
            Some(Vec::new())
        } else {
            groups.read_assignment(&member.assignment)
        };
        let assigned = assigned.map(|topics| {
            let topics = topics.into_iter();
            let one = topics.map(|(topic, partitions)| Assigned {
                topic: topic.into(),
                partitions,
            });
            one.collect()
        });
        Self {
            member: member.id.to_string(),
            client: member.client_id.to_owned(),
            host: member.client_host.trim_start_matches('/').to_owned(),
            instance: member.instance.map(str::to_owned),
            assigned,
        }
    }

    pub(super) fn of_assigned(broker: &Broker, member: &Member) -> Self {
        Self {
            member: member.id.to_string(),
            client: member.client_id.to_string(),
            host: member.host.trim_start_matches('/').to_owned(),
            instance: member.instance.as_deref().map(str::to_owned),
            assigned: Some(assigned(broker, &member.assigned.partitions())),
        }
    }
}

/// Returns partitions by the names of their topics.
pub(super) fn assigned(broker: &Broker, partitions: &Partitions) -> Vec<Assigned> {
    let runs = partitions.by_topic().filter_map(|run| {
        let topic = broker.topics().with_id(run.first()?.topic)?;
        Some(Assigned {
            topic: topic.name.to_string(),
            partitions: run.iter().map(|one| one.index).collect(),
        })
    });
    runs.collect()
}
