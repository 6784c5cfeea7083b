//! Committed offsets of a group without members: set, moved, forgotten.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_access::{Action, Resource};
use stafett_broker::Broker;
use stafett_groups::{CommitSender, GroupError, NewCommit};
use stafett_http::api::{delete, post, put};
use stafett_http::body::{self, Object};
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot, stamp};
use stafett_topics::{Topic, TopicCatalog, cell_of};

use super::{IF_EPOCH, check_epoch, no_such_group};
use crate::access;
use crate::records::position::{Position, SHAPE};
use crate::refusals::{self, of_group};
use crate::topics::{find as find_topic, no_such_partition, no_such_topic, reach};
use crate::{Routes, answer};

/// Bound on offsets, which JavaScript would round beyond it.
const OFFSET_MAX: u64 = (1 << 53) - 1;
/// Bound on the offsets of one request.
const OFFSETS_MAX: usize = 100_000;
/// Not a member of the group.
const NO_MEMBER: CommitSender<'static> = CommitSender {
    member: "",
    instance: None,
    epoch: -1,
    is_transactional: false,
};

/// Offsets to commit.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewOffsets {
    offsets: Vec<Object<NewOffset>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewOffset {
    topic: String,
    partition: u32,
    /// Next offset to read.
    #[schemars(range(max = OFFSET_MAX))]
    offset: u64,
    metadata: Option<String>,
}

/// A move of commits.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Reset {
    /// Topic to move in; if it is absent, all partitions with commits.
    topic: Option<String>,
    /// Partitions of the topic; all if it is absent.
    partitions: Option<Vec<u32>>,
    /// `earliest`, `latest`, an offset, `-N` or a time.
    to: Option<Place>,
    /// Number of offsets forward, or back if it is below 0.
    by: Option<i64>,
    /// True to show the moves only.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "ResetPlace")]
enum Place {
    Offset(u64),
    Text(String),
}

/// Moves of commits.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "CommitMoves")]
struct Moves {
    moved: Vec<Move>,
}

/// Offset of a partition, before and after.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "CommitMove")]
struct Move {
    topic: String,
    partition: u32,
    /// Null without a commit.
    before: Option<i64>,
    after: u64,
}

/// Number of commits that a request concerned.
#[derive(Debug, Serialize, JsonSchema)]
struct CommitCount {
    commits: usize,
}

/// Target of a move.
enum To {
    Place(Position),
    By(i64),
}

/// Partitions with their committed offsets, by topic.
type Chosen = Vec<(Arc<Topic>, BTreeMap<u32, Option<i64>>)>;

pub(super) fn routes(routes: Routes) -> Routes {
    let codes = [Code::NoSuchTopic, Code::NoSuchPartition, Code::OutOfRange];
    routes
        .route(
            post(
                "/v1/groups/{group}/reset",
                "Moves the commits of a group without members, within the bounds of their partitions. A group that does \
                 not exist yet can be given some.",
            )
            .event("group.reset")
            .query(&[IF_EPOCH])
            .body::<Reset>()
            .answers::<Moves>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&refusals::GROUPS)
            .refuses(&codes)
            .refuses(&[Code::Changed]),
            reset,
        )
        .route(
            put(
                "/v1/groups/{group}/offsets",
                "Commits offsets of a group without members, which need not exist.",
            )
            .event("group.changed")
            .body::<NewOffsets>()
            .answers::<CommitCount>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&refusals::GROUPS)
            .refuses(&codes),
            commit,
        )
        .route(
            delete(
                "/v1/groups/{group}/offsets",
                "Forgets commits of a group without members, in one topic or in all.",
            )
            .event("group.changed")
            .query(&[Parameter::text("topic", "Only commits in this topic.")])
            .answers::<CommitCount>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&refusals::GROUPS)
            .refuses(&[Code::NoSuchTopic]),
            forget,
        )
}

async fn commit(
    State(broker): State<Slot<Broker>>,
    Path(group): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let NewOffsets { offsets } = body::json(request).await?;
    let broker = broker.get()?;
    if offsets.len() > OFFSETS_MAX {
        let why = format!("a request commits {OFFSETS_MAX} offsets at most");
        return Err(Problem::bad_request(why));
    }
    let text_max = broker.groups().settings().commit_text_bytes_max;
    let mut commits = Vec::with_capacity(offsets.len());
    for Object(one) in offsets {
        let topic = readable(&broker, &one.topic)?;
        if one.partition >= topic.partitions() {
            return Err(no_such_partition(&topic, one.partition));
        }
        if one.offset > OFFSET_MAX {
            return Err(refusals::out_of_range("offset", 0, OFFSET_MAX, one.offset));
        }
        let text = one.metadata.filter(|text| !text.is_empty());
        if text.as_ref().is_some_and(|text| text.len() > text_max) {
            let why = format!("metadata has at most {text_max} bytes");
            return Err(Problem::bad_request(why).with("field", "metadata"));
        }
        commits.push(new_commit(&topic, one.partition, one.offset, text));
    }
    let count = commits.len();
    store(&broker, &group, commits).await?;
    Ok(answer(StatusCode::OK, &CommitCount { commits: count }))
}

/// Finds a topic whose records the caller may read: offsets tell of them.
pub(super) fn readable(broker: &Broker, name: &str) -> Result<Arc<Topic>, Problem> {
    check_readable(broker, name)?;
    find_topic(broker, name)
}

fn check_readable(broker: &Broker, name: &str) -> Result<(), Problem> {
    access::check(broker, Action::Read, &Resource::topic(name))
}

fn new_commit(topic: &Topic, partition: u32, offset: u64, text: Option<String>) -> NewCommit {
    NewCommit {
        topic: topic.id,
        partition,
        offset: i64::try_from(offset).unwrap_or(i64::MAX),
        leader_epoch: -1,
        text: text.map(Into::into),
    }
}

async fn store(broker: &Broker, group: &str, commits: Vec<NewCommit>) -> Result<(), Problem> {
    check_name(group)?;
    let staged = broker.groups().commit(group, &NO_MEMBER, commits);
    let staged = staged.map_err(|why| of_group(&why, group))?;
    let stored = stamp::storing(staged.durable()).await;
    stored.map_err(|why| refusals::of_storage(why, why))
}

pub(super) fn check_name(group: &str) -> Result<(), Problem> {
    if group.chars().any(char::is_control) || group.trim().is_empty() {
        let why = "a group's name has letters, and no control characters";
        return Err(Problem::bad_request(why));
    }
    Ok(())
}

async fn reset(
    State(broker): State<Slot<Broker>>,
    Path(group): Path<String>,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Reset = body::json(request).await?;
    let broker = broker.get()?;
    check_name(&group)?;
    check_epoch(&query, broker.groups(), &group)?;
    // That it has no members is checked again with the commit.
    let checked = broker.groups().check_commit(&group, &NO_MEMBER, &[]);
    checked.map_err(|why| of_group(&why, &group))?;
    let to = wanted.target()?;
    let chosen = chosen(&broker, &group, &wanted)?;
    let (mut moves, mut commits) = (Vec::new(), Vec::new());
    for (topic, partitions) in chosen {
        reach(&broker, &topic).await?;
        for (partition, before) in partitions {
            let after = place(&broker, &topic, partition, before, &to).await?;
            let Some(after) = after else { continue };
            commits.push(new_commit(&topic, partition, after, None));
            moves.push(Move {
                topic: topic.name.to_string(),
                partition,
                before,
                after,
            });
        }
    }
    if !wanted.dry_run {
        store(&broker, &group, commits).await?;
    }
    Ok(answer(StatusCode::OK, &Moves { moved: moves }))
}

impl Reset {
    fn target(&self) -> Result<To, Problem> {
        let position = match (&self.to, self.by) {
            (Some(Place::Offset(offset)), None) => Some(Position::Offset(*offset)),
            (Some(Place::Text(text)), None) => Position::read(text),
            (None, Some(by)) => return Ok(To::By(by)),
            _ => return Err(Problem::bad_request("a reset has either to or by")),
        };
        let position = position.map(To::Place);
        position.ok_or_else(|| Problem::bad_request(format!("to is {SHAPE}")).with("field", "to"))
    }
}

/// Returns the partitions of a reset: the wanted ones, or all that have commits.
fn chosen(broker: &Broker, group: &str, wanted: &Reset) -> Result<Chosen, Problem> {
    let committed = |topic: &Topic| -> BTreeMap<u32, i64> {
        broker.groups().with_group(group, |group| {
            let commits = group
                .map(|group| group.commits.of_topic(topic.id))
                .unwrap_or_default();
            let commits = commits.iter();
            commits
                .map(|(partition, committed)| (*partition, committed.offset))
                .collect()
        })
    };
    let Some(name) = &wanted.topic else {
        if wanted.partitions.is_some() {
            return Err(Problem::bad_request(
                "partitions are those of a topic, which is missing",
            ));
        }
        let ids = broker.groups().with_group(group, |group| {
            group.map(|group| group.commits.topics().map(|(id, _)| id).collect::<Vec<_>>())
        });
        let topics = ids.ok_or_else(|| no_such_group(group))?.into_iter();
        let mut topics: Vec<Arc<Topic>> = topics.filter_map(|id| broker.topics().with_id(id)).collect();
        topics.sort_by(|one, other| one.name.cmp(&other.name));
        for topic in &topics {
            check_readable(broker, &topic.name)?;
        }
        let all = topics.into_iter().map(|topic| {
            let partitions = committed(&topic).into_iter();
            let partitions = partitions
                .map(|(partition, offset)| (partition, Some(offset)))
                .collect();
            (topic, partitions)
        });
        return Ok(all.collect());
    };
    let topic = readable(broker, name)?;
    let known = committed(&topic);
    let numbers = wanted
        .partitions
        .clone()
        .unwrap_or_else(|| (0..topic.partitions()).collect());
    let mut partitions = BTreeMap::new();
    for partition in numbers {
        if partition >= topic.partitions() {
            return Err(no_such_partition(&topic, partition));
        }
        partitions.insert(partition, known.get(&partition).copied());
    }
    Ok(vec![(topic, partitions)])
}

/// Returns the end of a partition. `None` while nothing is known of it, as it lies in another cell.
pub(super) fn known_end(catalog: &TopicCatalog, topic: &Topic, partition: u32) -> Option<u64> {
    let log = topic.log(partition)?;
    match catalog.bounds(log) {
        Some(bounds) => Some(bounds.end.0),
        None => cell_of(log).is_none().then_some(0),
    }
}

/// Returns the offset that a commit moves to. `None` if there is none to move by a number.
async fn place(
    broker: &Broker,
    topic: &Topic,
    partition: u32,
    before: Option<i64>,
    to: &To,
) -> Result<Option<u64>, Problem> {
    let catalog = broker.catalog();
    let log = topic.log(partition).ok_or_else(|| no_such_topic(&topic.name))?;
    let now = catalog.bounds_now(log).await;
    let now = now.map_err(|why| Problem::new(Code::Unreadable, why))?;
    let bounds = now.ok_or_else(|| no_such_topic(&topic.name))?;
    let (start, end) = (bounds.start.0, bounds.end.0);
    let wanted = match (to, before) {
        (To::Place(position), _) => position.offset(catalog, log, bounds, end).await?,
        (To::By(by), Some(before)) => u64::try_from(before.saturating_add(*by)).unwrap_or(0),
        (To::By(_), None) => return Ok(None),
    };
    Ok(Some(wanted.clamp(start, end.max(start))))
}

async fn forget(
    State(broker): State<Slot<Broker>>,
    Path(group): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let topic = query
        .get("topic")
        .map(|name| find_topic(&broker, name))
        .transpose()?;
    let topic = topic.map(|topic| topic.id);
    let commits = broker
        .groups()
        .with_group(&group, |group| group.map(|group| super::commits(group, topic)));
    let commits = commits.ok_or_else(|| no_such_group(&group))?;
    let places: Vec<_> = commits
        .iter()
        .map(|(topic, partition, _)| (*topic, *partition))
        .collect();
    let is_allowed = |group: &stafett_groups::Group| {
        if group.kind.is_empty() {
            Ok(vec![true; places.len()])
        } else {
            Err(GroupError::NotEmpty)
        }
    };
    let deleted = broker.transactions().delete_commits(&group, &places, is_allowed);
    let (_, ticket) = deleted.map_err(|why| of_group(&why, &group))?;
    let stored = stamp::storing(ticket.durable()).await;
    stored.map_err(|why| refusals::of_storage(why, why))?;
    Ok(answer(
        StatusCode::OK,
        &CommitCount {
            commits: places.len(),
        },
    ))
}
