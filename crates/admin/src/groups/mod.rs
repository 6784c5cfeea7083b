//! Groups of consumers: listed, shown and deleted.
//!
//! - `member`: members and their partitions, and their end
//! - `polling`: members over HTTP; `polled_member`: one of them
//! - `offsets`: committed offsets are set, moved and forgotten

mod member;
mod offsets;
mod polled_member;
mod polling;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_broker::Broker;
use stafett_groups::{CommittedOffset, Group, GroupCounts, GroupKind, GroupProtocol, Groups, lag};
use stafett_http::api::{delete, get};
use stafett_http::list::List;
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot};
use stafett_topics::{TopicCatalog, TopicId};

use self::member::MemberShown;
pub use self::polling::PollingMembers;
use crate::refusals::{self, of_group};
use crate::time::rfc3339;
use crate::topics::find as find_topic;
use crate::{Routes, answer};

/// Members and commits that one answer shows, at most.
const SHOWN_MAX: usize = 10_000;

/// Condition of requests that change a group.
const IF_EPOCH: Parameter =
    Parameter::number("if_epoch", i32::MAX as u64, "Only if the group has this epoch.");

/// A committed offset, by topic and partition.
type Commit = (TopicId, u32, i64);

/// A group in a list, with a lag that is computed only if a request needs it.
struct Row {
    catalog: Arc<TopicCatalog>,
    name: Arc<str>,
    kind: Kind,
    state: &'static str,
    members: usize,
    commits: Vec<Commit>,
    lag: OnceCell<u64>,
}

const LIST: List<Row, GroupEntry> = List {
    name: |row| ("", &row.name),
    sorts: &[
        ("lag", Row::lag),
        ("members", |row| row.members as u64),
        ("partitions", |row| row.commits.len() as u64),
    ],
    shown: GroupEntry::of,
};

/// Kind of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "GroupKind")]
enum Kind {
    /// Its members agree on their partitions.
    Classic,
    /// The broker assigns its members' partitions.
    Assigned,
    /// Its members share partitions.
    Share,
}

/// A group and its totals.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "GroupEntry")]
pub(crate) struct GroupEntry {
    name: String,
    kind: Kind,
    /// `empty`, `preparing`, `completing`, `assigning`, `reconciling` or `stable`.
    state: &'static str,
    members: usize,
    /// Topics with commits, by name.
    topics: Vec<String>,
    /// Partitions with commits.
    partitions: usize,
    /// Offsets from the commits to the ends of their partitions; null for a group that shares.
    lag: Option<u64>,
}

/// A group with its members and commits.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Group")]
struct GroupShown {
    name: String,
    kind: Kind,
    state: &'static str,
    /// Epoch, or generation of a classic group.
    epoch: i32,
    /// Strategy by which partitions are assigned.
    assignor: Option<String>,
    /// Of the commits that are shown; null for a group that shares.
    lag: Option<u64>,
    members_total: usize,
    /// Members by id, 10,000 at most.
    members: Vec<MemberShown>,
    commits_total: usize,
    /// Commits by topic and partition, 10,000 at most.
    commits: Vec<CommitShown>,
}

/// A committed offset.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Commit")]
struct CommitShown {
    topic: String,
    partition: u32,
    committed: i64,
    /// Offset behind the last record of the partition; null if another cell of the cluster has it.
    end: Option<u64>,
    lag: Option<u64>,
    metadata: String,
    at: String,
}

/// Name of a group that is gone.
#[derive(Debug, Serialize, JsonSchema)]
struct DeletedGroup {
    name: String,
}

pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            get("/v1/groups", "Lists groups of consumers.")
                .query(&[
                    Parameter::text("kind", "Only groups that are `classic`, `assigned` or `share`."),
                    Parameter::text("state", "Only groups in this state."),
                    Parameter::text("topic", "Only groups with commits in this topic."),
                ])
                .lists(&LIST)
                .refuses(&[Code::NotServing, Code::NoSuchTopic]),
            list,
        )
        .route(
            get(
                "/v1/topics/{topic}/groups",
                "Lists groups with commits in a topic. Partitions and lag are those in this topic.",
            )
            .lists(&LIST)
            .refuses(&[Code::NotServing, Code::NoSuchTopic]),
            list_of_topic,
        )
        .route(
            get(
                "/v1/groups/{group}",
                "Shows a group with its members and commits.",
            )
            .query(&[Parameter::text("topic", "Only commits in this topic.")])
            .answers::<GroupShown>(200)
            .refuses(&[Code::NotServing, Code::NoSuchGroup, Code::NoSuchTopic]),
            show,
        )
        .route(
            delete(
                "/v1/groups/{group}",
                "Deletes a group that has no members, with its commits.",
            )
            .event("group.deleted")
            .query(&[IF_EPOCH])
            .answers::<DeletedGroup>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&refusals::GROUPS)
            .refuses(&[Code::Changed]),
            delete_group,
        )
        .with(offsets::routes)
        .with(member::routes)
        .with(polling::routes)
}

async fn list(State(broker): State<Slot<Broker>>, query: Query) -> Result<Response, Problem> {
    let kind = query.get("kind").map(Kind::read).transpose()?;
    let state = query.get("state").map(state).transpose()?;
    let broker = broker.get()?;
    let topic = query
        .get("topic")
        .map(|name| find_topic(&broker, name))
        .transpose()?;
    let mut rows = rows(&broker, None);
    rows.retain(|row| {
        kind.is_none_or(|kind| row.kind == kind)
            && state.is_none_or(|state| row.state == state)
            && topic
                .as_ref()
                .is_none_or(|topic| row.commits.iter().any(|(id, ..)| *id == topic.id))
    });
    Ok(answer(StatusCode::OK, &LIST.page(&query, rows)?))
}

/// Words for states of groups.
const STATES: [&str; 6] = [
    "empty",
    "preparing",
    "completing",
    "assigning",
    "reconciling",
    "stable",
];

fn state(word: &str) -> Result<&str, Problem> {
    if STATES.contains(&word) {
        return Ok(word);
    }
    let why = format!("state is one of {}, not {word:?}", STATES.join(", "));
    Err(Problem::bad_request(why))
}

async fn list_of_topic(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let topic = find_topic(&broker, &name)?;
    let mut rows = rows(&broker, Some(topic.id));
    rows.retain(|row| !row.commits.is_empty());
    Ok(answer(StatusCode::OK, &LIST.page(&query, rows)?))
}

/// Returns all groups, with their commits in one topic or in all.
fn rows(broker: &Broker, topic: Option<TopicId>) -> Vec<Row> {
    let mut rows = Vec::new();
    broker.groups().each(|group| {
        let state = group.kind.state();
        rows.push(Row {
            catalog: Arc::clone(broker.catalog()),
            name: Arc::clone(&group.name),
            kind: Kind::of(state.kind),
            state: state.name,
            members: members(group),
            commits: commits(group, topic),
            lag: OnceCell::new(),
        });
    });
    rows
}

fn commits(group: &Group, topic: Option<TopicId>) -> Vec<Commit> {
    let offsets = |id: TopicId, partitions: &[(u32, CommittedOffset)]| -> Vec<Commit> {
        let commits = partitions.iter();
        commits
            .map(|(partition, committed)| (id, *partition, committed.offset))
            .collect()
    };
    match topic {
        Some(id) => offsets(id, group.commits.of_topic(id)),
        None => group
            .commits
            .topics()
            .flat_map(|(id, all)| offsets(id, all))
            .collect(),
    }
}

fn members(group: &Group) -> usize {
    match &group.kind {
        GroupKind::Classic(classic) => classic.members().count(),
        GroupKind::Consumer(kind) | GroupKind::Share(kind) => kind.group().members().len(),
    }
}

async fn show(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let topic = query
        .get("topic")
        .map(|name| find_topic(&broker, name))
        .transpose()?;
    let shown = broker.groups().with_group(&name, |group| {
        group.map(|group| GroupShown::of(&broker, group, topic.as_ref().map(|topic| topic.id)))
    });
    let shown = shown.ok_or_else(|| no_such_group(&name))?;
    Ok(answer(StatusCode::OK, &shown))
}

async fn delete_group(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    check_epoch(&query, broker.groups(), &name)?;
    let deleted = broker.delete_group(&name).await;
    deleted.map_err(|why| of_group(&why, &name))?;
    Ok(answer(StatusCode::OK, &DeletedGroup { name }))
}

/// Returns the lags of all groups.
pub(crate) fn lags(broker: &Broker) -> Vec<(Arc<str>, u64)> {
    let rows = rows(broker, None);
    rows.iter()
        .map(|row| (Arc::clone(&row.name), row.lag()))
        .collect()
}

/// Numbers of a group.
pub(crate) struct Measured {
    pub(crate) name: Arc<str>,
    pub(crate) members: u64,
    pub(crate) lag: u64,
    pub(crate) commits: u64,
}

/// Returns the numbers of the groups that `wants` accepts by name and counters.
pub(crate) fn measured(
    broker: &Broker,
    wants: impl Fn(&str, Option<&Arc<GroupCounts>>) -> bool,
) -> Vec<Measured> {
    let mut counted = BTreeMap::new();
    broker.groups().each(|group| {
        if wants(&group.name, group.counts()) {
            let commits = group.counts().map_or(0, |counts| counts.commits());
            counted.insert(Arc::clone(&group.name), commits);
        }
    });
    let rows = rows(broker, None).into_iter();
    rows.filter_map(|row| {
        Some(Measured {
            commits: *counted.get(&row.name)?,
            members: row.members as u64,
            lag: row.lag(),
            name: row.name,
        })
    })
    .collect()
}

pub(crate) fn no_such_group(name: &str) -> Problem {
    Problem::new(Code::NoSuchGroup, format!("there is no group {name:?}"))
}

/// Refuses a request whose condition names another epoch.
fn check_epoch(query: &Query, groups: &Groups, name: &str) -> Result<(), Problem> {
    let Some(wanted) = query.number("if_epoch", i32::MAX as u64)? else {
        return Ok(());
    };
    let epoch = groups.with_group(name, |group| group.map(epoch));
    let epoch = epoch.ok_or_else(|| no_such_group(name))?;
    if u64::try_from(epoch) == Ok(wanted) {
        return Ok(());
    }
    let why = format!("the group {name:?} is in epoch {epoch}, not {wanted}");
    Err(Problem::new(Code::Changed, why).with("epoch", epoch))
}

fn epoch(group: &Group) -> i32 {
    match &group.kind {
        GroupKind::Classic(classic) => classic.generation(),
        GroupKind::Consumer(kind) | GroupKind::Share(kind) => kind.group().epoch(),
    }
}

impl Kind {
    fn of(protocol: GroupProtocol) -> Self {
        match protocol {
            GroupProtocol::Classic => Self::Classic,
            GroupProtocol::Consumer => Self::Assigned,
            GroupProtocol::Share => Self::Share,
        }
    }

    fn read(word: &str) -> Result<Self, Problem> {
        match word {
            "classic" => Ok(Self::Classic),
            "assigned" => Ok(Self::Assigned),
            "share" => Ok(Self::Share),
            other => Err(Problem::bad_request(format!(
                "kind is classic, assigned or share, not {other:?}"
            ))),
        }
    }
}

impl Row {
    fn lag(&self) -> u64 {
        *self.lag.get_or_init(|| {
            let lags = self.commits.iter().filter_map(|(topic, partition, committed)| {
                let end = end(&self.catalog, *topic, *partition)?;
                Some(lag(*committed, end))
            });
            lags.sum()
        })
    }
}

/// Returns the end of a partition. `None` if its topic is gone.
fn end(catalog: &TopicCatalog, topic: TopicId, partition: u32) -> Option<u64> {
    let topic = catalog.topics().with_id(topic)?;
    Some(catalog.bounds(topic.log(partition)?)?.end.0)
}

impl GroupEntry {
    fn of(row: &Row) -> Self {
        let topics = row
            .commits
            .iter()
            .filter_map(|(topic, ..)| row.catalog.topics().with_id(*topic));
        let mut topics: Vec<String> = topics.map(|topic| topic.name.to_string()).collect();
        topics.sort_unstable();
        topics.dedup();
        Self {
            name: row.name.to_string(),
            kind: row.kind,
            state: row.state,
            members: row.members,
            topics,
            partitions: row.commits.len(),
            lag: (row.kind != Kind::Share).then(|| row.lag()),
        }
    }
}

impl GroupShown {
    fn of(broker: &Broker, group: &Group, topic: Option<TopicId>) -> Self {
        let groups = broker.groups();
        let state = group.kind.state();
        let (assignor, shown): (Option<String>, Vec<MemberShown>) = match &group.kind {
            GroupKind::Classic(classic) => (
                classic.strategy().map(str::to_owned),
                classic
                    .members()
                    .take(SHOWN_MAX)
                    .map(|member| MemberShown::of_classic(groups, &member))
                    .collect(),
            ),
            GroupKind::Consumer(kind) | GroupKind::Share(kind) => (
                Some(kind.group().assignor().name().to_owned()),
                kind.group()
                    .members()
                    .take(SHOWN_MAX)
                    .map(|member| MemberShown::of_assigned(broker, member))
                    .collect(),
            ),
        };
        let commits = CommitShown::all(broker.catalog(), group, topic);
        let commits_total = commits.len();
        let kind = Kind::of(state.kind);
        Self {
            name: group.name.to_string(),
            kind,
            state: state.name,
            epoch: epoch(group),
            assignor,
            lag: (kind != Kind::Share).then(|| commits.iter().filter_map(|commit| commit.lag).sum()),
            members_total: members(group),
            members: shown,
            commits_total,
            commits: commits.into_iter().take(SHOWN_MAX).collect(),
        }
    }
}

impl CommitShown {
    /// Returns the commits of a group in topics that exist, by name and partition.
    fn all(catalog: &TopicCatalog, group: &Group, topic: Option<TopicId>) -> Vec<Self> {
        let mut topics = BTreeMap::new();
        for (id, partitions) in group.commits.topics() {
            if topic.is_none_or(|topic| topic == id)
                && let Some(topic) = catalog.topics().with_id(id)
            {
                topics.insert(topic.name.clone(), (topic, partitions));
            }
        }
        let commits = topics.into_values().flat_map(|(topic, partitions)| {
            partitions.iter().map(move |(partition, committed)| {
                let end = offsets::known_end(catalog, &topic, *partition);
                Self {
                    topic: topic.name.to_string(),
                    partition: *partition,
                    committed: committed.offset,
                    end,
                    lag: end.map(|end| lag(committed.offset, end)),
                    metadata: committed.text.as_deref().unwrap_or_default().to_owned(),
                    at: rfc3339(committed.at),
                }
            })
        });
        commits.collect()
    }
}
