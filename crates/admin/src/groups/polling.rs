//! Members over HTTP: they join, poll records and commit, beside members that speak other protocols.
//!
//! A poll is the member's sign of life: it takes the partitions that the group assigns to it, and gives back
//! others. A member that does not poll within the group's session ends. Members of other protocols keep in
//! their own memory the state that lies here: the epoch, the partitions, and how far each of them is read.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_broker::Broker;
use stafett_groups::GroupKind;
use stafett_groups::consumer::{Member as GroupMember, Partition};
use stafett_http::api::post;
use stafett_http::body::{self, Object};
use stafett_http::{Code, Draining, Path, Problem, Slot, server};
use stafett_model::Lock;
use tokio::time::Instant;

use super::member::{Assigned, assigned, leave_assigned};
use super::offsets::{check_name, readable};
use super::polled_member::{Begins, Key, Member, PolledRecord, no_such_member};
use crate::caller::Caller;
use crate::records::Reads;
use crate::records::read::{COUNT, COUNT_MAX};
use crate::refusals;
use crate::topics::no_such_partition;
use crate::{Routes, answer};

const TOPICS_MAX: usize = 1000;
const MEMBERS_MAX: usize = 10_000;
const WAIT_MAX: Duration = Duration::from_mins(1);
const NAME: &str = "http";

/// Members that poll over HTTP. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct PollingMembers(Arc<Lock<HashMap<Key, Option<Box<Member>>>>>);

/// A member that a request uses. No other request has it meanwhile.
struct Taken {
    members: PollingMembers,
    key: Key,
    member: Option<Box<Member>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "GroupJoin")]
struct Join {
    /// Topics to read.
    topics: Vec<String>,
    /// Place in partitions without a commit: `earliest`, the default, or `latest`.
    #[serde(default)]
    from: Begins,
}

/// A member that has joined.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "GroupJoined")]
struct Joined {
    member: String,
    /// Time within which it has to poll, at the latest.
    poll_within_ms: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Commits {
    /// The records of the answer before are committed.
    #[default]
    Auto,
    None,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "GroupPoll")]
struct Poll {
    /// Number of the last answer that came. Without it, every answer counts as one that came.
    after: Option<u64>,
    /// Records of the answer; 100 by default.
    count: Option<u64>,
    /// Time to wait for a record, up to a minute.
    wait_ms: u64,
    /// `auto`, the default, or `none`.
    commit: Commits,
}

/// Records of a member's partitions.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "GroupRecords")]
struct Polled {
    /// Number of this answer.
    number: u64,
    records: Vec<PolledRecord>,
    /// All partitions that the member has.
    assigned: Vec<Assigned>,
    /// Partitions that it no longer has. Their records that were given and not committed come to other
    /// members.
    revoked: Vec<Assigned>,
    poll_within_ms: u32,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "MemberCommit")]
struct Commit {
    /// Next offsets to read; without them, all that was given.
    offsets: Vec<Object<CommitOf>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "MemberOffset")]
struct CommitOf {
    topic: String,
    partition: u32,
    offset: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "MemberCommitted")]
struct Committed {
    commits: usize,
}

const REFUSALS: [Code; 6] = [
    Code::NoSuchGroup,
    Code::NoSuchMember,
    Code::InUse,
    Code::Overloaded,
    Code::Immutable,
    Code::NoSuchTopic,
];

pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            post(
                "/v1/groups/{group}/members",
                "Joins a group as a member that polls. The broker assigns partitions to it, beside members of other \
                 protocols.",
            )
            .body::<Join>()
            .answers::<Joined>(201)
            .refuses(&refusals::STORAGE)
            .refuses(&REFUSALS),
            join,
        )
        .route(
            post(
                "/v1/groups/{group}/members/{member}/poll",
                "Fetches records of the member's partitions, and is its sign of life.",
            )
            .body::<Poll>()
            .answers::<Polled>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&REFUSALS)
            .refuses(&[Code::Unreadable]),
            poll,
        )
        .route(
            post(
                "/v1/groups/{group}/members/{member}/commit",
                "Commits offsets of a member that polls.",
            )
            .body::<Commit>()
            .answers::<Committed>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&REFUSALS)
            .refuses(&[Code::NoSuchPartition]),
            commit,
        )
}

async fn join(
    State(broker): State<Slot<Broker>>,
    State(members): State<PollingMembers>,
    Path(group): Path<String>,
    Caller(client): Caller,
    request: Request,
) -> Result<Response, Problem> {
    let host = server::peer(&request).map_or_else(String::new, |peer| format!("/{peer}"));
    let wanted: Join = body::json(request).await?;
    let broker = broker.get()?;
    check_name(&group)?;
    if wanted.topics.is_empty() || wanted.topics.len() > TOPICS_MAX {
        let why = format!("a member reads 1 to {TOPICS_MAX} topics");
        return Err(Problem::bad_request(why).with("field", "topics"));
    }
    for topic in &wanted.topics {
        readable(&broker, topic)?;
    }
    members.check_room(&broker)?;
    let client = client.unwrap_or_else(|| NAME.to_owned());
    let id = format!("{client}-{}", uuid::Uuid::new_v4());
    let mut member = Member::new(wanted.topics, wanted.from, &client, host);
    let key = (group, id);
    member.beat(&broker, &key).await?;
    let joined = Joined {
        member: key.1.clone(),
        poll_within_ms: member.heartbeat_ms,
    };
    members.0.lock().insert(key, Some(Box::new(member)));
    Ok(answer(StatusCode::CREATED, &joined))
}

async fn poll(
    State(broker): State<Slot<Broker>>,
    State(members): State<PollingMembers>,
    State(reads): State<Reads>,
    Draining(draining): Draining,
    Path(key): Path<Key>,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Poll = body::json(request).await?;
    let broker = broker.get()?;
    let mut taken = members.take(&broker, key).await?;
    let deadline = Instant::now() + Duration::from_millis(wanted.wait_ms).min(WAIT_MAX);
    let count = usize::try_from(wanted.count.unwrap_or(COUNT).clamp(1, COUNT_MAX)).unwrap_or(1);
    taken.member()?.answered(wanted.after)?;
    if wanted.commit == Commits::Auto {
        taken.commit_given(&broker).await?;
    }
    let mut revoked = Vec::new();
    loop {
        revoked.extend(taken.beat(&broker).await?);
        let group = taken.key.0.clone();
        let member = taken.member()?;
        let until = deadline.min(Instant::now() + Duration::from_millis(member.heartbeat_ms.into()));
        let found = Box::pin(member.read_until((&broker, &group), &reads, count, until, &draining)).await?;
        let is_over = Instant::now() >= deadline || draining.is_cancelled();
        if is_over || !found.records.is_empty() || !revoked.is_empty() {
            let records = member.give(found);
            let polled = Polled {
                number: member.answers,
                records,
                assigned: assigned(&broker, &member.owned),
                revoked: assigned(&broker, &revoked.into_iter().collect()),
                poll_within_ms: member.heartbeat_ms,
            };
            return Ok(answer(StatusCode::OK, &polled));
        }
    }
}

async fn commit(
    State(broker): State<Slot<Broker>>,
    State(members): State<PollingMembers>,
    Path(key): Path<Key>,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Commit = body::json(request).await?;
    let broker = broker.get()?;
    let mut taken = members.take(&broker, key).await?;
    let commits = if wanted.offsets.is_empty() {
        taken.commit_given(&broker).await?
    } else {
        let member = taken.member()?;
        let mut places = BTreeMap::new();
        for Object(one) in wanted.offsets {
            let topic = readable(&broker, &one.topic)?;
            let place = Partition {
                topic: topic.id,
                index: one.partition,
            };
            if !member.owned.contains(place) {
                return Err(no_such_partition(&topic, one.partition));
            }
            places.insert(place, one.offset);
        }
        taken.commit(&broker, &places).await?;
        let is_open =
            |place: &Partition, next: &mut u64| places.get(place).is_none_or(|offset| offset < next);
        taken.member()?.given.retain(is_open);
        places.len()
    };
    Ok(answer(StatusCode::OK, &Committed { commits }))
}

impl PollingMembers {
    /// Takes a member out for a request. One of a broker before this one leaves its group: the group is
    /// stored, and would keep the member's partitions until its session is over.
    async fn take(&self, broker: &Broker, key: Key) -> Result<Taken, Problem> {
        let found = self.0.lock().get_mut(&key).map(Option::take);
        match found {
            Some(Some(member)) => Ok(Taken {
                members: self.clone(),
                key,
                member: Some(member),
            }),
            Some(None) => {
                let why = format!("another request of the member {:?} is under way", key.1);
                Err(Problem::new(Code::InUse, why))
            }
            None => {
                let (group, id) = &key;
                if member_of(broker, group, id, has_polled) {
                    // It may have left meanwhile; another failure leaves it to the end of its session.
                    let _ = leave_assigned(broker.groups(), group, id, None, false).await;
                }
                Err(no_such_member(&key))
            }
        }
    }

    /// Refuses another member if there are too many. Those that their groups have ended are forgotten.
    fn check_room(&self, broker: &Broker) -> Result<(), Problem> {
        let mut members = self.0.lock();
        // Now and then, so that each of them is rarely looked at.
        if members.len() < MEMBERS_MAX && !members.len().is_power_of_two() {
            return Ok(());
        }
        members.retain(|(group, id), member| member.is_none() || member_of(broker, group, id, |_| true));
        if members.len() >= MEMBERS_MAX {
            let why = format!("{MEMBERS_MAX} members poll over HTTP, and no more can");
            return Err(Problem::new(Code::Overloaded, why));
        }
        Ok(())
    }
}

/// Returns true if a group has such a member.
fn member_of(broker: &Broker, group: &str, id: &str, is_it: impl FnOnce(&GroupMember) -> bool) -> bool {
    broker
        .groups()
        .with_group(group, |group| match group.map(|group| &group.kind) {
            Some(GroupKind::Consumer(kind)) => kind.group().member(id).is_some_and(is_it),
            Some(GroupKind::Classic(_) | GroupKind::Share(_)) | None => false,
        })
}

/// Returns true if the id of a member is one of those that are given over HTTP.
fn has_polled(member: &GroupMember) -> bool {
    let id = member.id.strip_prefix(&*member.client_id);
    let id = id.and_then(|id| id.strip_prefix('-'));
    id.is_some_and(|id| uuid::Uuid::parse_str(id).is_ok())
}

impl Taken {
    fn member(&mut self) -> Result<&mut Member, Problem> {
        let key = &self.key;
        self.member.as_deref_mut().ok_or_else(|| no_such_member(key))
    }

    /// Gives a sign of life.
    async fn beat(&mut self, broker: &Broker) -> Result<Vec<Partition>, Problem> {
        let key = self.key.clone();
        let beaten = self.member()?.beat(broker, &key).await;
        self.unless_ended(beaten)
    }

    async fn commit_given(&mut self, broker: &Broker) -> Result<usize, Problem> {
        let key = self.key.clone();
        let committed = self.member()?.commit_given(broker, &key).await;
        self.unless_ended(committed)
    }

    async fn commit(&mut self, broker: &Broker, places: &BTreeMap<Partition, u64>) -> Result<(), Problem> {
        let key = self.key.clone();
        let committed = self.member()?.commit(broker, &key, places).await;
        self.unless_ended(committed)
    }

    /// Forgets the member if its group has ended it.
    fn unless_ended<T>(&mut self, done: Result<T, Problem>) -> Result<T, Problem> {
        if done.as_ref().is_err_and(|why| why.code == Code::NoSuchMember) {
            self.member = None;
        }
        done
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let key = std::mem::take(&mut self.key);
        let mut members = self.members.0.lock();
        match self.member.take() {
            Some(member) => drop(members.insert(key, Some(member))),
            None => drop(members.remove(&key)),
        }
    }
}
