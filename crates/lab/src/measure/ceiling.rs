//! Ceilings of clients: their rates against a stub that answers without storing, once per run, for each of
//! the grid's values that concerns the client.

mod stub;

use std::collections::BTreeSet;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use self::stub::fill;
use crate::agents::Crew;
use crate::clients::{self, Client};
use crate::experiment::{Does, Plan, Protocol};
use crate::grid::{self, Parameters};
use crate::results::Ceiling;
use crate::run::{Request, RunError};
use crate::systems;

/// A ceiling is measured for so long, or as long as a point if that is shorter.
const MEASURED: Duration = Duration::from_secs(2);
const WARMUP: Duration = Duration::from_millis(500);
/// Of more combinations than this the first are measured.
const COMBINATIONS_MAX: usize = 8;
/// The same of runs that are a look and no measurement.
const COMBINATIONS_MAX_OF_A_LOOK: usize = 2;
const LOOK_BELOW: f64 = 0.1;
const TOPICS_MAX: u32 = 1000;
/// Messages for consumers to read: batches as the producers make them.
const FILL: u64 = 20_000;

/// Measures the ceilings of an experiment: of the agents that run its loads, or else of this machine.
pub async fn measure(
    request: &Request,
    mut crew: Option<&mut Crew>,
    stop: &CancellationToken,
) -> Result<Vec<Ceiling>, RunError> {
    let mut lists = request.source.grid(request.scale)?;
    // The system is another one here, and how many topics there are is its business.
    lists.retain(|path, _| {
        path.starts_with("roles.")
            || path.ends_with(".partitions")
            || ["run.protocol", "run.driver"].contains(&path.as_str())
    });
    let all = request.source.grid(request.scale)?.into_iter();
    let first: Parameters = all
        .filter_map(|(path, values)| Some((path, values.into_iter().next()?)))
        .collect();
    let mut ceilings = Vec::new();
    let most = if request.scale < LOOK_BELOW {
        COMBINATIONS_MAX_OF_A_LOOK
    } else {
        COMBINATIONS_MAX
    };
    for (place, parameters) in grid::combinations(&lists).into_iter().enumerate() {
        if stop.is_cancelled() {
            break;
        }
        let mut all = first.clone();
        all.extend(parameters.clone());
        let plan = request.source.plan(request.scale, &all)?;
        for protocol in protocols(request, &plan)? {
            let crew = crew.as_deref_mut();
            let parameters = parameters.clone();
            if place >= most {
                let reason = format!(
                    "of a run, the first {most} combinations of what concerns the client are measured"
                );
                ceilings.push(unmeasured(&plan, protocol, parameters, Some(reason)));
                continue;
            }
            if let Some(ceiling) = of_plan(request, &plan, protocol, parameters, crew, stop).await {
                ceilings.push(ceiling);
            }
        }
    }
    Ok(ceilings)
}

/// Returns the protocols that are spoken to the systems.
fn protocols(request: &Request, plan: &Plan) -> Result<BTreeSet<Protocol>, RunError> {
    let systems = match &request.systems {
        Some(systems) => systems.clone(),
        None => request.source.experiment()?.systems,
    };
    let spoken = systems
        .iter()
        .filter_map(|system| systems::protocol(system, plan).ok());
    Ok(spoken.collect())
}

async fn of_plan(
    request: &Request,
    plan: &Plan,
    protocol: Protocol,
    parameters: Parameters,
    crew: Option<&mut Crew>,
    stop: &CancellationToken,
) -> Option<Ceiling> {
    let produces = plan.roles.values().any(|role| role.does == Does::Produce);
    let are_few = plan.topics.values().all(|topics| topics.count <= TOPICS_MAX);
    let system = match stood_in_for(protocol) {
        Some(system) if produces && are_few => system,
        other => {
            let reason = match other {
                None => format!("nothing stands in for {}", protocol.name()),
                Some(_) if produces => format!("the stub has at most {TOPICS_MAX} topics"),
                Some(_) => "only roles that produce or consume are measured against a stub".to_owned(),
            };
            return (!plan.roles.is_empty()).then(|| unmeasured(plan, protocol, parameters, Some(reason)));
        }
    };
    let mut ceiling = unmeasured(plan, protocol, parameters, None);
    let logs = request.out.join("logs").join("stub");
    let mut client = None;
    if systems::wants_client(system, plan) && crew.is_none() {
        // Where the program is not there, or lacks something, the points say so.
        let program = clients::find(request.clients.as_deref(), &request.exe).ok()?;
        let mut started = Client::start(&program, &logs).await.ok()?;
        let described = started.describe(system, plan).await.ok()?;
        if described.lacks.is_some() {
            return None;
        }
        ceiling.driver = described.name;
        client = Some(started);
    } else if !systems::wants_client(system, plan) {
        // As with the others: the points say that it is lacking.
        let lean = systems::driver(system, "", plan).ok()?;
        if lean.lacks(plan).is_some() {
            return None;
        }
    }
    let by = (crew, client.as_mut());
    if let Err(reason) = fill(request, plan, (protocol, system), by, &mut ceiling, stop).await {
        ceiling.reason = Some(reason);
    }
    if let Some(client) = client {
        client.end().await;
    }
    Some(ceiling)
}

/// A ceiling that is not measured, or not yet, of the driver that the points have.
fn unmeasured(plan: &Plan, protocol: Protocol, parameters: Parameters, reason: Option<String>) -> Ceiling {
    let system = stood_in_for(protocol).unwrap_or("stafett");
    let driver = if systems::wants_client(system, plan) {
        clients::name(protocol).to_owned()
    } else {
        let lean = systems::driver(system, "", plan);
        lean.map_or_else(|_| String::new(), |driver| driver.name().to_owned())
    };
    Ceiling {
        driver,
        parameters,
        produce_rate: None,
        consume_rate: None,
        client_cpu_per_million: None,
        reason,
    }
}

/// Returns the system whose protocol a stub speaks.
fn stood_in_for(protocol: Protocol) -> Option<&'static str> {
    match protocol {
        Protocol::Kafka => Some("kafka"),
        Protocol::Amqp => Some("rabbitmq"),
        Protocol::Live | Protocol::Http => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Source;

    async fn ceilings(text: &str) -> Vec<Ceiling> {
        let folder = tempfile::tempdir().unwrap();
        let request = Request {
            name: "x".to_owned(),
            source: Source::new("x", text),
            systems: None,
            repetitions: None,
            scale: 1.0,
            out: folder.path().to_owned(),
            addresses: std::collections::BTreeMap::new(),
            agents: Vec::new(),
            secret: None,
            host: "127.0.0.1".to_owned(),
            clients: None,
            exe: "/nowhere/stafett-lab".into(),
            stafett: "/nowhere/stafett".into(),
            command: String::new(),
        };
        measure(&request, None, &CancellationToken::new()).await.unwrap()
    }

    #[tokio::test]
    async fn a_combination_whose_ceiling_is_not_measured_says_why() {
        let many = "question = \"?\"\nsystems = [\"stafett\"]\n[roles.p]\ndoes = \"produce\"\n[grid]\n\
                    \"roles.p.size\" = [100, 101, 102, 103, 104, 105, 106, 107, 108, 109]";
        let found = ceilings(many).await;
        assert_eq!(found.len(), 10);
        let (tried, rest) = found.split_at(COMBINATIONS_MAX);
        // There is no stub to be had from a program that is not there.
        assert!(tried.iter().all(|ceiling| ceiling.reason.is_some()));
        for ceiling in rest {
            assert_eq!(ceiling.driver, "lean");
            let reason = ceiling.reason.as_deref().unwrap();
            assert!(reason.contains("the first 8 combinations"), "{reason}");
        }
        for (text, said) in [
            (
                "[topics.main]\nkind = \"live\"\n[roles.p]\ndoes = \"produce\"",
                "nothing stands in for the protocol of live topics",
            ),
            ("[roles.p]\ndoes = \"relay\"", "only roles that produce"),
            (
                "[topics.main]\ncount = 1001\n[roles.p]\ndoes = \"produce\"",
                "the stub has at most 1000 topics",
            ),
        ] {
            let found = ceilings(&format!("question = \"?\"\nsystems = [\"stafett\"]\n{text}")).await;
            let [ceiling] = found.as_slice() else {
                panic!("{text}: {found:?}")
            };
            let reason = ceiling.reason.as_deref().unwrap_or_default();
            assert!(reason.contains(said), "{reason}");
        }
    }
}
