//! Plans of runs: the number of points, their time, and mistakes, before anything runs.

use std::collections::BTreeMap;
use std::path::Path;

use axum::Json;
use axum::extract::{Request, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stafett_http::api::post;
use stafett_http::{Api, Code, Problem, body};

use super::Lab;
use crate::experiment::{Design, ExperimentError, Source, fraction};
use crate::factorial;
use crate::{run, systems};

/// A run is named long above this time.
const LONG_S: f64 = 3600.0;
const POINTS_MAX: usize = 10_000;

pub(super) fn routes(api: Api<Lab>) -> Api<Lab> {
    api.route(
        post(
            "/lab/v1/check",
            "Tells how an experiment would run, and mistakes in it.",
        )
        .body::<Asked>()
        .answers::<Checked>(200),
        check,
    )
}

/// An experiment to check.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Asked {
    /// Text of the experiment.
    toml: String,
    /// Factor of durations and totals; 1 if absent.
    scale: Option<f64>,
    /// Only these systems.
    systems: Option<Vec<String>>,
    repetitions: Option<u32>,
}

/// A mistake, and its place in the text.
#[derive(Debug, Serialize, JsonSchema)]
struct Mistake {
    /// From 1; null if the mistake has no place.
    line: Option<usize>,
    message: String,
}

/// Values of one setting.
#[derive(Debug, Serialize, JsonSchema)]
struct Axis {
    path: String,
    values: Vec<Value>,
}

/// A run as it would be.
#[derive(Debug, Default, Serialize, JsonSchema)]
struct Checked {
    /// Points, repetitions included.
    points: usize,
    repetitions: u32,
    /// Time of all points under load, without starts of systems.
    seconds: f64,
    order_seed: u64,
    systems: Vec<String>,
    errors: Vec<Mistake>,
    warnings: Vec<String>,
    grid: Vec<Axis>,
    /// Points that would be skipped, by system and reason.
    skipped: Vec<Skipped>,
    /// Factors of a factorial design, with their letters.
    factors: Vec<FactorShown>,
    /// Effects that a fraction cannot tell apart, each with those that fall together with it.
    aliases: Vec<Aliases>,
    /// Fewest factors of a product that is the same in all combinations of a fraction.
    resolution: Option<u32>,
}

/// Points of a system that cannot be measured here.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
struct Skipped {
    system: String,
    why: String,
    points: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
struct FactorShown {
    letter: char,
    name: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Aliases {
    effect: String,
    with: Vec<String>,
}

async fn check(State(lab): State<Lab>, request: Request) -> Result<Json<Checked>, Problem> {
    let asked: Asked = body::json(request).await?;
    let scale = asked.scale.unwrap_or(1.0);
    if !(0.001..=1000.0).contains(&scale) {
        return Err(Problem::bad_request("scale is 0.001 to 1000"));
    }
    let read = tokio::task::spawn_blocking(move || planned(&asked, scale, &lab.settings.exe));
    let checked = read
        .await
        .map_err(|error| Problem::new(Code::Unreadable, error))?;
    Ok(Json(checked))
}

fn planned(asked: &Asked, scale: f64, exe: &Path) -> Checked {
    let source = Source::new("text", asked.toml.clone());
    try_planned(asked, &source, scale, exe).unwrap_or_else(|error| Checked {
        errors: vec![mistake(&error)],
        ..Checked::default()
    })
}

fn try_planned(asked: &Asked, source: &Source, scale: f64, exe: &Path) -> Result<Checked, ExperimentError> {
    let experiment = source.experiment()?;
    let systems = asked.systems.clone().unwrap_or(experiment.systems);
    let (order, seed) = run::order(source, scale, &systems, asked.repetitions)?;
    let repetitions = order.iter().map(|planned| planned.repetition).max().unwrap_or(0);
    let programs = systems::Programs::beside(exe);
    let (mut seconds, mut skipped) = (0.0, BTreeMap::new());
    for planned in order.iter().filter(|planned| planned.repetition == 1) {
        let plan = source.plan(scale, &planned.parameters)?;
        seconds += (plan.run.warmup.0 + plan.run.duration.0).as_secs_f64();
        if let Some(why) = programs.lack(&planned.system, &plan) {
            *skipped.entry((planned.system.clone(), why)).or_insert(0) +=
                usize::try_from(repetitions).unwrap_or(1);
        }
    }
    seconds *= f64::from(repetitions);
    let mut warnings = Vec::new();
    if seconds > LONG_S {
        let minutes = (seconds / 60.0).round();
        warnings.push(format!(
            "{} points take {minutes} min at least; a scale below 1 takes less",
            order.len()
        ));
    }
    if order.len() > POINTS_MAX {
        warnings.push(format!("{} points are more than {POINTS_MAX}", order.len()));
    }
    if repetitions == 1 {
        warnings.push("one repetition gives no confidence intervals".to_owned());
    }
    let grid = source.grid(scale)?;
    let factors = match experiment.run.design {
        Design::Factorial => fraction::factors(&grid, Value::to_string),
        Design::Grid => Vec::new(),
    };
    let factors: Vec<_> = factors.into_iter().map(|(_, factor)| factor).collect();
    let shown = factors.iter().map(|factor| FactorShown {
        letter: factor.letter,
        name: factor.name.clone(),
    });
    let shown = shown.collect();
    let fraction = experiment.run.fraction.as_deref();
    let design = fraction.and_then(|text| factorial::Design::fraction(factors, text).ok());
    Ok(Checked {
        points: order.len(),
        repetitions,
        seconds,
        order_seed: seed,
        systems,
        errors: Vec::new(),
        warnings,
        grid: grid
            .into_iter()
            .map(|(path, values)| Axis { path, values })
            .collect(),
        skipped: skipped
            .into_iter()
            .map(|((system, why), points)| Skipped { system, why, points })
            .collect(),
        factors: shown,
        resolution: design.as_ref().and_then(factorial::Design::resolution),
        aliases: design.as_ref().map(aliases).unwrap_or_default(),
    })
}

/// Returns the effects that fall together.
fn aliases(design: &factorial::Design) -> Vec<Aliases> {
    let sets = design.effect_sets().into_iter();
    let of = |set: usize| Aliases {
        effect: design.effect_name(set),
        with: design
            .aliases(set)
            .into_iter()
            .map(|alias| design.effect_name(alias))
            .collect(),
    };
    sets.map(of).collect()
}

/// The line stands behind the place of the text, where there is one.
fn mistake(error: &ExperimentError) -> Mistake {
    match error {
        ExperimentError::Wrong { place, message } => Mistake {
            line: place.rsplit_once(':').and_then(|(_, line)| line.parse().ok()),
            message: message.clone(),
        },
        ExperimentError::Unreadable { .. } => Mistake {
            line: None,
            message: error.to_string(),
        },
    }
}
