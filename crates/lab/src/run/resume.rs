//! A run from its beginning, or one that was begun before and goes on: with the same systems, on the same
//! machine, or not at all.

use std::collections::BTreeSet;

use super::{Request, RunError, now_ms};
use crate::environment;
use crate::experiment::check::speaks;
use crate::experiment::{Experiment, ExperimentError, RunSettings, Source};
use crate::grid;
use crate::results::{Environment, FORMAT, Folder, Planned, Run, RunRequest, Status, StoreError};

/// Path under which the grid varies the protocol.
pub(super) const PROTOCOL: &str = "run.protocol";

/// A run from its beginning.
pub(super) fn planned(request: &Request, experiment: Experiment) -> Result<Run, RunError> {
    let asked = asked(request, &experiment)?;
    let (order, seed) = order(
        &request.source,
        request.scale,
        &asked.systems,
        Some(asked.repetitions),
    )?;
    std::fs::create_dir_all(&request.out).map_err(|source| StoreError::Write {
        path: request.out.clone(),
        source,
    })?;
    Ok(Run {
        format: FORMAT,
        name: request.name.clone(),
        experiment,
        source: request.source.text.clone(),
        command: request.command.clone(),
        scale: request.scale,
        asked: Some(asked),
        seed,
        environment: environment::describe(&request.out, &request.exe),
        network: None,
        reached: Vec::new(),
        ceilings: Vec::new(),
        started_ms: now_ms(),
        ended_ms: None,
        status: Status::Running,
        reason: None,
        order,
    })
}

/// Returns all points of a run in their order, and its seed. Without a number of repetitions, those of the
/// experiment hold.
pub fn order(
    source: &Source,
    scale: f64,
    systems: &[String],
    repetitions: Option<u32>,
) -> Result<(Vec<Planned>, u64), ExperimentError> {
    let run = first_settings(source, scale)?;
    let parameters = source.points(scale)?;
    let mut order = grid::order(
        systems,
        &parameters,
        repetitions.unwrap_or(run.repetitions),
        run.seed,
    );
    // Where the protocol is varied, each system is asked in those that it speaks.
    order.retain(|planned| {
        let protocol = planned.parameters.get(PROTOCOL);
        let protocol = protocol.and_then(|value| serde_json::from_value(value.clone()).ok());
        protocol.is_none_or(|protocol| speaks(&planned.system, protocol))
    });
    Ok((order, run.seed))
}

/// Returns the settings of the first point.
fn first_settings(source: &Source, scale: f64) -> Result<RunSettings, ExperimentError> {
    let first = source.points(scale)?.into_iter().next();
    Ok(source.plan(scale, &first.unwrap_or_default())?.run)
}

/// Returns the request, with the experiment's values where it has none.
fn asked(request: &Request, experiment: &Experiment) -> Result<RunRequest, RunError> {
    let settings = first_settings(&request.source, request.scale)?;
    let agents = request.agents.iter();
    let systems = request.systems.as_ref().unwrap_or(&experiment.systems);
    let clients = request.clients.as_ref();
    let asked = RunRequest {
        systems: systems.clone(),
        repetitions: request.repetitions.unwrap_or(settings.repetitions),
        addresses: request.addresses.clone(),
        agents: agents
            .map(|agent| format!("{}={}", agent.name, agent.address))
            .collect(),
        clients: clients.map(|program| program.display().to_string()),
    };
    Ok(asked)
}

/// A run that was begun before, if it is the same.
pub(super) fn resumed(request: &Request, experiment: &Experiment, folder: &Folder) -> Result<Run, RunError> {
    let mut run = folder.read_run()?;
    let now = asked(request, experiment)?;
    if let Some(difference) = difference(&run, request, &now) {
        return Err(RunError::Request(format!(
            "{} holds another run ({}): {difference}. Give another folder with --out, or delete it",
            request.out.display(),
            run.name,
        )));
    }
    run.status = Status::Running;
    run.reason = None;
    Ok(run)
}

/// Returns the difference between a run and the present request. Results in one folder are compared, so they
/// have to be alike.
fn difference(run: &Run, request: &Request, now: &RunRequest) -> Option<String> {
    if run.source != request.source.text {
        return Some("its experiment is another one, or has been changed since".to_owned());
    }
    if (run.scale - request.scale).abs() > 1e-9 {
        return Some(format!("its scale is {}, and not {}", run.scale, request.scale));
    }
    let Some(then) = &run.asked else {
        return Some("it was begun by an older program, which did not write down what was asked".to_owned());
    };
    let sorted = |systems: &[String]| {
        let systems: BTreeSet<&str> = systems.iter().map(String::as_str).collect();
        systems.into_iter().collect::<Vec<_>>().join(", ")
    };
    let addresses = |asked: &RunRequest| {
        let given = asked.addresses.iter();
        given
            .map(|(system, address)| format!("{system}={address}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let program = |asked: &RunRequest| asked.clients.clone().unwrap_or_default();
    let machine = |environment: &Environment| format!("{} ({} cores)", environment.cpu, environment.cores);
    let here = environment::describe(&request.out, &request.exe);
    let rows = [
        ("systems", sorted(&then.systems), sorted(&now.systems)),
        (
            "repetitions",
            then.repetitions.to_string(),
            now.repetitions.to_string(),
        ),
        ("addresses", addresses(then), addresses(now)),
        ("agents", then.agents.join(", "), now.agents.join(", ")),
        ("program with clients", program(then), program(now)),
        ("machine", machine(&run.environment), machine(&here)),
    ];
    let said = |text: String| if text.is_empty() { "none".to_owned() } else { text };
    let different = rows.into_iter().find(|(_, then, now)| then != now);
    different.map(|(name, then, now)| format!("its {name}: {}; asked for now: {}", said(then), said(now)))
}
