//! The last hour of counters and levels: of the node, and of single objects.
//!
//! - `series`: series of the kinds of objects, with their names in answers
//! - `text`: counters of single objects as `OpenMetrics`

mod series;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_broker::{Broker, NODE_SERIES, STEP_MS, STEPS_MAX, Timeline};
use stafett_http::api::get;
use stafett_http::{Code, Parameter, Problem, Query, Slot, query};
use stafett_model::Namespace;

use crate::time::rfc3339;
use crate::{Routes, answer, exchanges, groups, namespace, queues, topics};
use series::{Kind, Named};

pub(crate) use text::router;

/// Objects of one request.
const OF_MAX: usize = 200;
const HOUR: Duration = Duration::from_hours(1);

/// Samples of an object.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "History")]
struct HistoryShown {
    of: String,
    /// True if there is no such object.
    missing: bool,
    /// Time of the first sample.
    from: String,
    /// Time of the last sample, the latest one that there is.
    until: String,
    step_s: u32,
    /// Time before which nothing is known; null if nothing is. An object that was idle for an hour, or
    /// colder than many others, begins anew.
    begins: Option<String>,
    /// Samples by series, oldest first: levels at the ends of the steps, or rates per second within them.
    /// Null before the beginning.
    series: BTreeMap<&'static str, Vec<Option<f64>>>,
}

/// Samples of one object, or of several.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum Histories {
    One(HistoryShown),
    Many(Vec<HistoryShown>),
}

/// A series.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Series")]
struct SeriesShown {
    name: &'static str,
    unit: &'static str,
    about: &'static str,
    /// Expression of Prometheus for times more than an hour ago; null if the broker has no metric of it.
    prometheus: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SeriesNames")]
struct Names {
    items: Vec<SeriesShown>,
}

/// Steps that a request asks for.
#[derive(Debug, Clone, Copy)]
struct Window {
    /// Steps of 5 s in one step of the answer.
    length: u32,
    count: u32,
}

/// Object of a request.
struct Object {
    of: String,
    kind: Kind,
    name: String,
}

pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            get(
                "/v1/metrics/history",
                "Shows the last hour of objects: each 5 s of the last 15 minutes, each 30 s before; of the node each \
                 5 s. Several are answered by a list.",
            )
            .query(&[
                Parameter::texts(
                    "of",
                    "`node`, `queue:NAME`, `topic:NAME`, `exchange:NAME` or `group:NAME`; 200 at most.",
                ),
                Parameter::text("namespace", "Namespace of queues and exchanges; / if it is absent."),
                Parameter::text("names", "Names of series, with commas; all if it is absent."),
                Parameter::text("from", "Time of the first sample, or `-15m`; an hour ago if it is absent."),
                Parameter::duration("step", HOUR, "Length of a step, a multiple of 5 s; 5 s if it is absent."),
            ])
            .answers::<Histories>(200)
            .refuses(&[
                Code::NotServing,
                Code::NoSuchQueue,
                Code::NoSuchTopic,
                Code::NoSuchExchange,
                Code::NoSuchGroup,
            ]),
            history,
        )
        .route(
            get("/v1/metrics/names", "Lists the series of a kind of objects.")
                .query(&[Parameter::text(
                    "of",
                    "`node`, `queue`, `topic`, `exchange` or `group`; `node` if it is absent.",
                )])
                .answers::<Names>(200),
            names,
        )
}

async fn names(query: Query) -> Result<Response, Problem> {
    let kind = Kind::read(query.get("of").unwrap_or("node"))?;
    let items = kind.series().into_iter().map(|named| SeriesShown {
        name: named.name,
        unit: named.unit,
        about: named.about,
        prometheus: named.prometheus,
    });
    let names = Names {
        items: items.collect(),
    };
    Ok(answer(StatusCode::OK, &names))
}

async fn history(State(broker): State<Slot<Broker>>, query: Query) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let objects = objects(&query)?;
    let swept_ms = broker.histories().swept_ms();
    let swept_ms = swept_ms.unwrap_or_else(|| Timestamp::now().as_millisecond());
    let window = Window::read(&query, swept_ms)?;
    let namespace = namespace(&query);
    let wanted: Option<Vec<&str>> = query.get("names").map(|names| names.split(',').collect());
    let mut shown = Vec::with_capacity(objects.len());
    let is_alone = objects.len() == 1;
    for object in objects {
        let series = chosen(&object, wanted.as_deref(), is_alone)?;
        let found = samples(&broker, &namespace, &object, &series, window);
        let found = match found {
            Err(why) if is_alone => return Err(why),
            found => found,
        };
        shown.push(HistoryShown::of(object.of, &series, found.ok(), window, swept_ms));
    }
    let one = if is_alone { shown.pop() } else { None };
    let histories = one.map_or_else(|| Histories::Many(shown), Histories::One);
    Ok(answer(StatusCode::OK, &histories))
}

fn objects(query: &Query) -> Result<Vec<Object>, Problem> {
    let all = query.pairs().filter(|(key, _)| *key == "of");
    let objects: Vec<Object> = all.map(|(_, of)| Object::read(of)).collect::<Result<_, _>>()?;
    match objects.len() {
        0 => Err(Problem::bad_request("of=… is missing")),
        1..=OF_MAX => Ok(objects),
        count => Err(Problem::bad_request(format!(
            "of is there {count} times, and {OF_MAX} are possible"
        ))),
    }
}

/// Returns the series of an object that a request wants. Of several objects each has some of them.
fn chosen(object: &Object, wanted: Option<&[&str]>, is_alone: bool) -> Result<Vec<Named>, Problem> {
    let mut series = object.kind.series();
    let Some(wanted) = wanted else {
        return Ok(series);
    };
    if is_alone {
        let unknown = wanted
            .iter()
            .find(|name| series.iter().all(|named| named.name != **name));
        if let Some(name) = unknown {
            let why =
                format!("names: there is no series {name:?}; /v1/metrics/names lists those that there are");
            return Err(Problem::new(Code::UnknownField, why).with("field", *name));
        }
    }
    series.retain(|named| wanted.contains(&named.name));
    Ok(series)
}

/// Values of series, oldest first, and the number of steps of 5 s that are known.
type Found = (Vec<Vec<Option<f64>>>, u32);

fn samples(
    broker: &Broker,
    namespace: &Namespace,
    object: &Object,
    series: &[Named],
    window: Window,
) -> Result<Found, Problem> {
    let name = &object.name;
    let timelines = match object.kind {
        Kind::Node => return Ok(of_node(broker, series, window)),
        Kind::Queue => vec![queues::find(broker, namespace, name)?.timeline()],
        Kind::Topic => broker.topics().traffic().timelines(&*topics::find(broker, name)?),
        Kind::Exchange => {
            exchanges::find(broker, namespace, name)?;
            let exchanges = broker.messaging().exchanges();
            let traffic = exchanges.traffic(namespace, name);
            let timeline = |traffic: Arc<_>| exchanges.sampler().timeline(&*traffic);
            traffic.map(timeline).into_iter().collect()
        }
        Kind::Group => {
            let counts = broker
                .groups()
                .with_group(name, |group| group.map(|group| group.counts().cloned()));
            let counts = counts.ok_or_else(|| groups::no_such_group(name))?;
            let timeline = |counts: Arc<_>| broker.groups().sampler().timeline(&*counts);
            counts.map(timeline).into_iter().collect()
        }
    };
    Ok(of_timelines(&timelines, series, window))
}

fn of_timelines(timelines: &[Timeline], series: &[Named], window: Window) -> Found {
    let count = window.count as usize;
    let known = timelines
        .iter()
        .map(|timeline| (timeline.ends + 1).saturating_sub(timeline.begins))
        .max()
        .unwrap_or_default();
    let seconds = f64::from(window.length) * STEP_MS as f64 / 1000.0;
    let of = |named: &Named| {
        let mut sums = vec![0_u64; count];
        for timeline in timelines {
            for at in named.places {
                let samples = timeline.samples(*at, window.length, count);
                for (sum, sample) in sums.iter_mut().zip(samples) {
                    *sum += if named.is_level {
                        sample.value
                    } else {
                        sample.increase
                    };
                }
            }
        }
        let value = |(back, sum): (usize, u64)| {
            let is_known = u32::try_from(back).is_ok_and(|back| back.saturating_mul(window.length) < known);
            let value = if named.is_level {
                sum as f64
            } else {
                sum as f64 / seconds
            };
            is_known.then_some(value)
        };
        let mut values: Vec<Option<f64>> = sums.into_iter().enumerate().map(value).collect();
        values.reverse();
        values
    };
    (series.iter().map(of).collect(), known)
}

fn of_node(broker: &Broker, series: &[Named], window: Window) -> Found {
    let samples = broker
        .histories()
        .node(window.length.saturating_mul(window.count));
    let known = samples.series.first().map_or(0, |steps| {
        let known = steps.iter().filter(|step| step.is_some()).count();
        u32::try_from(known).unwrap_or(u32::MAX)
    });
    let length = window.length as usize;
    let of = |named: &Named| {
        let at = named.places.first().copied().unwrap_or_default();
        let steps = samples.series.get(at).map(Vec::as_slice).unwrap_or_default();
        let mut values: Vec<Option<f64>> = steps
            .rchunks(length)
            .take(window.count as usize)
            .map(|steps| mean_or_last(steps, NODE_SERIES.get(at).is_some_and(|series| series.is_counter)))
            .collect();
        values.resize(window.count as usize, None);
        values.reverse();
        values
    };
    (series.iter().map(of).collect(), known)
}

fn mean_or_last(steps: &[Option<f64>], is_counter: bool) -> Option<f64> {
    if !is_counter {
        return steps.last().copied().flatten();
    }
    let known: Vec<f64> = steps.iter().copied().flatten().collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

impl Object {
    fn read(of: &str) -> Result<Self, Problem> {
        let (kind, name) = of.split_once(':').unwrap_or((of, ""));
        let kind = Kind::read(kind)?;
        if (kind == Kind::Node) != (of == "node") {
            return Err(Problem::bad_request(format!(
                "of is `node`, or a kind with a name such as `queue:NAME`, not {of:?}"
            )));
        }
        Ok(Self {
            of: of.to_owned(),
            kind,
            name: name.to_owned(),
        })
    }
}

impl Window {
    fn read(query: &Query, now_ms: i64) -> Result<Self, Problem> {
        let step = query.duration("step", HOUR)?.unwrap_or_default();
        let step_ms = i64::try_from(step.as_millis()).unwrap_or(STEP_MS).max(1);
        let length =
            u32::try_from(step_ms.div_euclid(STEP_MS) + i64::from(step_ms % STEP_MS != 0)).unwrap_or(1);
        let ago_ms = match query.get("from") {
            None => STEP_MS * i64::from(STEPS_MAX),
            Some(text) => ago(text, now_ms)?,
        };
        let steps = u32::try_from(ago_ms / STEP_MS)
            .unwrap_or(STEPS_MAX)
            .clamp(1, STEPS_MAX);
        Ok(Self {
            length,
            count: steps.div_ceil(length),
        })
    }
}

/// Returns the milliseconds since a time, which is a length such as `-15m` or RFC 3339.
fn ago(text: &str, now_ms: i64) -> Result<i64, Problem> {
    let length = text.strip_prefix('-').and_then(query::duration);
    let length = length.and_then(|length| i64::try_from(length.as_millis()).ok());
    let time = || text.parse::<Timestamp>().ok();
    let since = length.or_else(|| Some(now_ms.saturating_sub(time()?.as_millisecond())));
    let why = || format!("from is a length such as -15m or a time (RFC 3339), not {text:?}");
    since
        .map(|since| since.max(0))
        .ok_or_else(|| Problem::bad_request(why()))
}

impl HistoryShown {
    fn of(of: String, series: &[Named], found: Option<Found>, window: Window, swept_ms: i64) -> Self {
        let missing = found.is_none();
        let (values, known) = found.unwrap_or_default();
        let step_ms = i64::from(window.length) * STEP_MS;
        let at = |steps_ms: i64| rfc3339(swept_ms.saturating_sub(steps_ms));
        Self {
            of,
            missing,
            from: at(i64::from(window.count - 1) * step_ms),
            until: rfc3339(swept_ms),
            step_s: u32::try_from(step_ms / 1000).unwrap_or(u32::MAX),
            begins: known.checked_sub(1).map(|steps| at(i64::from(steps) * STEP_MS)),
            series: series.iter().map(|named| named.name).zip(values).collect(),
        }
    }
}
