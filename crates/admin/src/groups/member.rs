//! Members of groups in answers.

use schemars::JsonSchema;
use serde::Serialize;
use stafett_broker::Broker;
use stafett_groups::Groups;
use stafett_groups::classic::MemberView;
use stafett_groups::consumer::Member;

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
struct Assigned {
    topic: String,
    partitions: Vec<u32>,
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
        let partitions = member.assigned.partitions();
        let assigned = partitions.by_topic().filter_map(|run| {
            let topic = broker.topics().with_id(run.first()?.topic)?;
            Some(Assigned {
                topic: topic.name.to_string(),
                partitions: run.iter().map(|one| one.index).collect(),
            })
        });
        Self {
            member: member.id.to_string(),
            client: member.client_id.to_string(),
            host: member.host.trim_start_matches('/').to_owned(),
            instance: member.instance.as_deref().map(str::to_owned),
            assigned: Some(assigned.collect()),
        }
    }
}
