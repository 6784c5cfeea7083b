//! Operational laws on measured points (R. Jain, *The Art of Computer Systems Performance Analysis*, 1991,
//! chapter 33): relations that hold for any system, so a difference says that something was not counted.
//!
//! | law | holds for |
//! |---|---|
//! | interactive response time, R = N / X − Z | closed loops with a known window: N messages under way |
//! | Little, N = X · R | one role that sends and one that receives: N messages sent and not yet received |
//! | bound, X ≤ 1 / D | the processors: D is the time that a message takes of all cores |

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_http::api::get;
use stafett_http::{Api, Code, Path, Problem};

use super::Lab;
use crate::experiment::{Does, Plan, Rate, Source};
use crate::results::{Point, ProcessKind, RoleResult, Run};

/// A difference above this share is told as one.
const TOLD: f64 = 0.05;
/// Little's law takes its number of messages from one look a second.
const TOLD_LITTLE: f64 = 0.2;
const LOOKS_MIN: usize = 5;

pub(super) fn routes(api: Api<Lab>) -> Api<Lab> {
    api.route(
        get(
            "/lab/v1/runs/{id}/laws",
            "Holds the points of a run against operational laws.",
        )
        .answers::<Laws>(200)
        .refuses(&[Code::NoSuchRun]),
        laws,
    )
}

/// Laws of a run.
#[derive(Debug, Serialize, JsonSchema)]
struct Laws {
    items: Vec<Line>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Law {
    InteractiveResponseTime,
    Little,
    Bound,
}

/// One law at one point.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Line {
    pub point: u32,
    pub system: String,
    pub durability: String,
    pub law: Law,
    /// Name of the role, where the law is about one.
    pub role: Option<String>,
    pub unit: &'static str,
    pub measured: f64,
    pub computed: f64,
    /// Share of the measured value by which the other one is larger.
    pub difference: f64,
    /// True if the difference is larger than measuring explains.
    pub told: bool,
    /// Meaning of a difference that is told.
    pub text: Option<String>,
}

async fn laws(State(lab): State<Lab>, Path(id): Path<String>) -> Result<Json<Laws>, Problem> {
    let (run, folder) = lab.run_of(&id)?;
    let read = tokio::task::spawn_blocking(move || {
        let points = folder.read_points(&run)?;
        Ok::<_, crate::results::StoreError>(of_run(&run, &points))
    });
    let items = read
        .await
        .map_err(|error| Problem::new(Code::Unreadable, error))?
        .map_err(|error| Problem::new(Code::Unreadable, error))?;
    Ok(Json(Laws { items }))
}

fn of_run(run: &Run, points: &[Point]) -> Vec<Line> {
    let source = Source::new(run.name.clone(), run.source.clone());
    let cores = f64::from(run.environment.cores.max(1));
    let mut lines = Vec::new();
    for point in points {
        if let Ok(plan) = source.plan(run.scale, &point.parameters) {
            lines.extend(of_point(point, &plan, cores));
        }
    }
    lines
}

/// Returns the laws that can be looked at in a point.
pub fn of_point(point: &Point, plan: &Plan, cores: f64) -> Vec<Line> {
    let mut lines: Vec<Line> = point
        .roles
        .iter()
        .filter_map(|role| interactive(point, role, plan))
        .collect();
    lines.extend(little(point, plan));
    lines.extend(bound(point, cores));
    lines
}

fn line(
    point: &Point,
    law: Law,
    unit: &'static str,
    measured: f64,
    computed: f64,
    told_from: f64,
) -> Option<Line> {
    let difference = (computed - measured) / measured;
    let told = difference.abs() > told_from;
    difference.is_finite().then(|| Line {
        point: point.number,
        system: point.system.clone(),
        durability: point.durability.given.clone(),
        law,
        role: None,
        unit,
        measured,
        computed,
        difference,
        told,
        text: None,
    })
}

/// A role whose clients wait for each answer, or think.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ClosedLoop {
    /// Messages that are under way or thought about: clients, each with its window.
    pub(super) clients: f64,
    pub(super) rate: f64,
    pub(super) response_s: f64,
    pub(super) think_s: f64,
}

/// Returns the loop of a role; `None` if its clients are in none.
pub(super) fn in_loop(role: &RoleResult, plan: &Plan) -> Option<ClosedLoop> {
    let settings = plan.roles.get(&role.name)?;
    let is_loop = matches!(settings.does, Does::Produce | Does::Request)
        && settings.rate == Rate::Closed
        && settings.arrive.is_none()
        && settings.kill.is_none();
    let think_s = settings.think.map_or(0.0, |think| think.mean().as_secs_f64());
    let window = settings.window.filter(|_| is_loop)?;
    let latency = ["round_trip", "acknowledged"]
        .iter()
        .find_map(|name| role.latencies.get(*name))?;
    Some(ClosedLoop {
        clients: f64::from(role.clients) * f64::from(window),
        rate: role.rate,
        response_s: latency.mean_us / 1e6,
        think_s,
    })
}

/// R = N / X − Z: clients in a closed loop that wait, or think.
fn interactive(point: &Point, role: &RoleResult, plan: &Plan) -> Option<Line> {
    let of = in_loop(role, plan)?;
    let mut line = line(
        point,
        Law::InteractiveResponseTime,
        "µs",
        of.response_s * 1e6,
        (of.clients / of.rate - of.think_s) * 1e6,
        TOLD,
    )?;
    line.role = Some(role.name.clone());
    if line.told {
        let text = if line.difference > 0.0 {
            "clients were not in the loop all the time: they waited for something that the latency does not contain"
        } else {
            "more messages were under way than the window allows, or answers were counted twice"
        };
        line.text = Some(text.to_owned());
    }
    Some(line)
}

/// N = X · R, over the seconds that count.
fn little(point: &Point, plan: &Plan) -> Option<Line> {
    let of = |wanted: Does| {
        let mut roles = point.roles.iter().filter(move |role| {
            plan.roles
                .get(&role.name)
                .is_some_and(|settings| settings.does == wanted && !settings.fan_out)
        });
        let first = roles.next();
        first.filter(|_| roles.next().is_none())
    };
    let (sender, receiver) = (of(Does::Produce)?, of(Does::Consume)?);
    let latency = receiver.latencies.get("delivery")?;
    let (mut sent, mut taken) = (0_u64, 0_u64);
    let mut present = Vec::new();
    for (out, into) in sender.samples.iter().zip(&receiver.samples) {
        sent += out.sent;
        taken += into.received;
        if out.at_s > point.warmup_s {
            present.push(sent.saturating_sub(taken) as f64);
        }
    }
    let measured = present.iter().sum::<f64>() / present.len() as f64;
    let computed = receiver.rate * latency.mean_us / 1e6;
    // Of few messages, or few looks, the moment at which both sides are counted makes the difference.
    if measured < 100.0 || present.len() < LOOKS_MIN {
        return None;
    }
    let mut line = line(point, Law::Little, "messages", measured, computed, TOLD_LITTLE)?;
    if line.told {
        line.text = Some(
            "the backlog is another one than the latency explains: it grew or shrank meanwhile".to_owned(),
        );
    }
    Some(line)
}

/// Returns the rate of a point, and the processor time of all programs for a message, in s.
pub(super) fn processor_demand(point: &Point) -> Option<(f64, f64)> {
    let rate = ["consume_rate", "produce_rate"]
        .iter()
        .filter_map(|name| point.metrics.get(*name))
        .fold(0.0, |most: f64, rate| most.max(*rate));
    let mut cpu_s = 0.0;
    let mut has_broker = false;
    for process in &point.processes {
        has_broker |= process.kind == ProcessKind::Broker;
        let counted = process
            .samples
            .iter()
            .filter(|sample| sample.at_s > point.warmup_s);
        cpu_s += counted
            .map(|sample| sample.cpu_user_s + sample.cpu_system_s)
            .sum::<f64>();
    }
    if rate <= 0.0 || cpu_s <= 0.0 || !has_broker {
        return None;
    }
    Some((rate, cpu_s / (rate * point.measured_s)))
}

/// X ≤ 1 / D.
fn bound(point: &Point, cores: f64) -> Option<Line> {
    let (rate, demand_s) = processor_demand(point)?;
    let mut line = line(point, Law::Bound, "1/s", rate, cores / demand_s, f64::INFINITY)?;
    line.told = line.difference < 0.1;
    if line.told {
        line.text = Some("the processors of broker and clients together are the limit".to_owned());
    }
    Some(line)
}
