//! Making, changing and deleting topics.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use stafett_broker::Broker;
use stafett_http::api::{delete, patch, put};
use stafett_http::body::{self, Object};
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot, stamp};
use stafett_topics::{CreateError, NewTopic, PARTITIONS_MAX, Topic, TopicSettings, is_internal};

use super::settings::{FieldChange, Settings, SettingsChange};
use super::{TopicShown, Totals, check_mutable, find, id_text, live_prefixes, queues_over};
use crate::definition;
use crate::refusals::{self, of_alteration, of_creation, of_growth, of_topic_deletion};
use crate::{Routes, answer};

/// Parameter of routes that destroy.
pub(super) const IF_ID: Parameter = Parameter::text("if_id", "Only if the topic has this id.");

const DRY_RUN: Parameter = Parameter::flag("dry_run", "Only shows what would change.");

/// A topic to make. All fields are optional.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "NewTopic")]
struct WantedTopic {
    /// Number of partitions.
    #[schemars(range(min = 1, max = PARTITIONS_MAX))]
    partitions: Option<u32>,
    settings: Object<SettingsChange>,
    /// Settings of Kafka's clients that have no meaning here.
    other: BTreeMap<String, String>,
    /// Declaration by another protocol, in base64, as definitions show it.
    declared: Option<String>,
}

/// A change of a topic. All fields are optional.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct TopicChange {
    /// Number of partitions; never less than there are.
    #[schemars(range(min = 1, max = PARTITIONS_MAX))]
    partitions: Option<u32>,
    settings: Object<SettingsChange>,
}

/// Effect that a request would have.
#[derive(Debug, Serialize, JsonSchema)]
struct DryRun {
    /// True if the topic would be made.
    creates: bool,
    /// Values that would change.
    changes: Vec<FieldChange>,
}

/// Records and bytes that a deletion freed.
#[derive(Debug, Serialize, JsonSchema)]
struct Freed {
    records: u64,
    bytes: u64,
}

pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            put(
                "/v1/topics/{topic}",
                "Makes a topic. One that is there stays as it is; if what the request names differs, it is refused.",
            )
            .event("topic.made")
            .query(&[DRY_RUN])
            .body::<WantedTopic>()
            .answers::<TopicShown>(201)
            .answers::<MadeOrChanges>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&[
                Code::ExistsDifferently,
                Code::NameTaken,
                Code::Closing,
                Code::LimitReached,
                Code::OutOfRange,
                Code::Immutable,
            ]),
            make,
        )
        .route(
            patch(
                "/v1/topics/{topic}",
                "Changes settings and adds partitions. A setting that is null goes back to that of the broker.",
            )
            .event("topic.changed")
            .query(&[DRY_RUN])
            .body::<TopicChange>()
            .answers::<MadeOrChanges>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&[Code::NoSuchTopic, Code::OutOfRange, Code::Immutable, Code::TopicHasApps]),
            change,
        )
        .route(
            delete("/v1/topics/{topic}", "Deletes a topic with its records.")
                .event("topic.deleted")
                .query(&[
                    IF_ID,
                    Parameter::flag("force", "Also if queues lie over it, live topics store into it, or apps read it."),
                ])
                .answers::<Freed>(200)
                .refuses(&refusals::STORAGE)
                .refuses(&[Code::NoSuchTopic, Code::InUse, Code::Changed, Code::Immutable]),
            delete_topic,
        )
}

/// The topic, or with `dry_run` its changes.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes the answers")]
enum MadeOrChanges {
    Topic(Box<TopicShown>),
    DryRun(DryRun),
}

async fn make(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let WantedTopic {
        partitions,
        settings,
        other,
        declared,
    } = body::json(request).await?;
    let wanted = TopicChange { partitions, settings };
    let declared = definition::declared(declared.as_deref())?;
    let broker = broker.get()?;
    check_partitions(wanted.partitions)?;
    if let Some(topic) = broker.topics().named(&name) {
        return found(&broker, &topic, &wanted, &query);
    }
    if is_internal(&name) {
        let why = format!("the broker makes the topic {name:?} when it needs it");
        return Err(Problem::new(Code::Immutable, why));
    }
    let new = NewTopic {
        name: name.as_str().into(),
        partitions: wanted.partitions,
        settings: TopicSettings {
            declared,
            other: other
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            ..wanted.settings.0.apply(&TopicSettings::default())?
        },
    };
    let catalog = broker.catalog();
    if query.flag("dry_run")? {
        for checked in catalog.check_all(&[new]) {
            checked.map_err(|why| of_creation(&why))?;
        }
        let changes = Vec::new();
        return Ok(answer(
            StatusCode::OK,
            &DryRun {
                creates: true,
                changes,
            },
        ));
    }
    match stamp::storing(catalog.create(vec![new])).await.pop() {
        Some(Ok(topic)) => Ok(answer(StatusCode::CREATED, &TopicShown::of(&broker, &topic))),
        // Made meanwhile by another request.
        Some(Err(CreateError::Exists)) => found(&broker, &*find(&broker, &name)?, &wanted, &query),
        Some(Err(why)) => Err(of_creation(&why)),
        None => Err(of_creation(&CreateError::Changing)),
    }
}

/// Answers that a topic is there, if it is as it is wanted.
fn found(broker: &Broker, topic: &Topic, wanted: &TopicChange, query: &Query) -> Result<Response, Problem> {
    let changes = changes(broker, topic, wanted)?;
    if let Some(first) = changes.into_iter().next() {
        let why = format!(
            "the topic {:?} is there, and {} is {}, not {}",
            topic.name, first.field, first.is, first.wanted
        );
        let problem = Problem::new(Code::ExistsDifferently, why).with("field", first.field);
        return Err(problem.with("is", first.is).with("wanted", first.wanted));
    }
    if query.flag("dry_run")? {
        return Ok(answer(
            StatusCode::OK,
            &DryRun {
                creates: false,
                changes: Vec::new(),
            },
        ));
    }
    Ok(answer(StatusCode::OK, &TopicShown::of(broker, topic)))
}

/// Returns the values that differ from the wanted ones.
fn changes(broker: &Broker, topic: &Topic, wanted: &TopicChange) -> Result<Vec<FieldChange>, Problem> {
    let own = wanted.settings.0.apply(&topic.settings)?;
    let has = topic.partitions();
    let partitions = wanted.partitions.filter(|wanted| *wanted != has);
    let partitions = partitions.map(|wanted| FieldChange {
        field: "partitions".to_owned(),
        is: json!(has),
        wanted: json!(wanted),
    });
    let defaults = broker.catalog().defaults();
    let settings = Settings::of(&defaults, &topic.settings).changes(&Settings::of(&defaults, &own));
    Ok(partitions.into_iter().chain(settings).collect())
}

fn check_partitions(partitions: Option<u32>) -> Result<(), Problem> {
    match partitions {
        Some(count) if count == 0 || count > PARTITIONS_MAX => Err(refusals::out_of_range(
            "partitions",
            1,
            PARTITIONS_MAX.into(),
            count.into(),
        )),
        _ => Ok(()),
    }
}

async fn change(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: TopicChange = body::json(request).await?;
    let broker = broker.get()?;
    let topic = find(&broker, &name)?;
    check_mutable(&topic)?;
    check_partitions(wanted.partitions)?;
    let has = topic.partitions();
    if let Some(fewer) = wanted.partitions.filter(|wanted| *wanted < has) {
        return Err(refusals::out_of_range(
            "partitions",
            has.into(),
            PARTITIONS_MAX.into(),
            fewer.into(),
        ));
    }
    let changes = changes(&broker, &topic, &wanted)?;
    if query.flag("dry_run")? {
        return Ok(answer(
            StatusCode::OK,
            &DryRun {
                creates: false,
                changes,
            },
        ));
    }
    let TopicChange {
        partitions,
        settings: Object(settings),
    } = wanted;
    let mut topic = topic;
    settings.check_kept(&topic.settings)?;
    if settings.apply(&topic.settings)? != *topic.settings {
        let edit = move |before: &TopicSettings| settings.apply(before).map_err(RefusedEdit);
        let altered = broker.catalog().alter(topic.id, edit).await;
        topic = altered.map_err(|why| of_alteration(why, &name))?;
    }
    if let Some(more) = partitions.filter(|wanted| *wanted > topic.partitions()) {
        topic = grown(&broker, &topic, more).await?;
    }
    Ok(answer(StatusCode::OK, &TopicShown::of(&broker, &topic)))
}

/// Refusal of an edit, as an error.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.detail)]
pub(crate) struct RefusedEdit(pub(crate) Problem);

async fn grown(broker: &Arc<Broker>, topic: &Topic, wanted: u32) -> Result<Arc<Topic>, Problem> {
    let grown = broker.grow_topic(topic.id, wanted).await;
    grown.map_err(|why| of_growth(&why, &topic.name))
}

async fn delete_topic(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let topic = find(&broker, &name)?;
    check_mutable(&topic)?;
    check_id(&query, &topic)?;
    if !query.flag("force")? {
        check_unused(&broker, &topic)?;
    }
    let Totals { records, bytes } = Totals::of(broker.catalog(), &topic);
    let deleted = stamp::storing(broker.delete_topic(topic.id)).await;
    deleted.map_err(|why| of_topic_deletion(why, &name))?;
    Ok(answer(StatusCode::OK, &Freed { records, bytes }))
}

/// Refuses a request whose condition names another topic.
pub(super) fn check_id(query: &Query, topic: &Topic) -> Result<(), Problem> {
    let id = id_text(topic);
    match query.get("if_id") {
        Some(wanted) if wanted != id => {
            let why = format!("the topic {:?} has the id {id}, not {wanted:?}", topic.name);
            Err(Problem::new(Code::Changed, why).with("id", id))
        }
        _ => Ok(()),
    }
}

fn check_unused(broker: &Broker, topic: &Topic) -> Result<(), Problem> {
    if let Some(app) = broker.apps().reader_of(topic.id) {
        let why = format!(
            "the app {:?} reads the topic {:?}; force=true deletes it",
            app.name, topic.name
        );
        return Err(Problem::new(Code::InUse, why).with("app", &*app.name));
    }
    let (queues, prefixes) = (queues_over(broker, topic), live_prefixes(broker, topic));
    if queues.is_empty() && prefixes.is_empty() {
        return Ok(());
    }
    let why = format!(
        "{} queues lie over the topic {:?}, and {} rules of live topics store into it; force=true deletes it",
        queues.len(),
        topic.name,
        prefixes.len()
    );
    let problem = Problem::new(Code::InUse, why);
    Err(problem
        .with("queues_over", json!(queues))
        .with("live_prefixes", prefixes))
}
