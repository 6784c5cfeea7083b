//! Faults of a system under load: its process is killed, stopped or held, and is back after a while, at the
//! same addresses and with its stored data.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::experiment::{Fault, FaultKind, Plan};
use crate::systems::process::{Hold, Process};
use crate::systems::{self, Place, System};
use crate::workload::Loaded;
use crate::workload::load::Stage;

/// A fault and its time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Planned<'a> {
    at: Duration,
    fault: &'a Fault,
}

/// Returns the faults of a plan in the order of their times.
fn planned(plan: &Plan) -> Vec<Planned<'_>> {
    let end = plan.run.warmup.0 + plan.run.duration.0;
    let mut all = Vec::new();
    for fault in plan.faults.values() {
        let mut at = fault.at.0;
        while at < end {
            all.push(Planned { at, fault });
            let Some(every) = fault.every else { break };
            at += every.0;
        }
    }
    all.sort_by_key(|planned| planned.at);
    all
}

/// Carries out the faults of a plan. Returns if the system ends without one, or does not come back, with the
/// reason.
pub(super) async fn carry_out(plan: &Plan, system: &mut System, place: &Place, stage: &Stage) -> String {
    if let Some(status) = ends_before(system, stage.begun.cancelled()).await {
        return status;
    }
    let started = Instant::now();
    for (number, Planned { at, fault }) in planned(plan).into_iter().enumerate() {
        if let Some(status) = ends_before(system, sleep_until(started + at)).await {
            return status;
        }
        let from_s = started.elapsed().as_secs_f64();
        let until_s = from_s + fault.away.0.as_secs_f64();
        stage.outages.lock().push((from_s, until_s));
        let place = Place {
            logs: place.logs.join(format!("again-{}", number + 1)),
            kept: system.addresses.clone(),
            ..place.clone()
        };
        if let Err(reason) = strike(fault, plan, system, &place, stage).await {
            return reason;
        }
    }
    if let Some(process) = &system.process {
        process.ended.cancelled().await;
    }
    status(system)
}

fn status(system: &System) -> String {
    let status = system.process.as_ref().and_then(Process::status);
    status.unwrap_or_else(|| "it ended".to_owned())
}

/// Returns how the system ended, if it does so before something else.
async fn ends_before(system: &System, other: impl Future<Output = ()>) -> Option<String> {
    let process = system.process.as_ref()?;
    tokio::select! {
        () = process.ended.cancelled() => Some(status(system)),
        () = other => None,
    }
}

async fn strike(
    fault: &Fault,
    plan: &Plan,
    system: &mut System,
    place: &Place,
    stage: &Stage,
) -> Result<(), String> {
    let Some(process) = system.process.take() else {
        return Err("it is not there".to_owned());
    };
    match fault.does {
        FaultKind::Pause => {
            // It goes on even if the load ends meanwhile.
            let held = Hold::of(&process);
            system.process = Some(process);
            sleep(fault.away.0).await;
            drop(held);
            return Ok(());
        }
        FaultKind::Kill => process.kill().await,
        FaultKind::Stop => process.stop().await,
    }
    sleep(fault.away.0).await;
    let again = systems::start(&system.name, plan, place).await;
    let again = again.map_err(|error| format!("it did not come back: {error}"))?;
    let pid = again.process.as_ref().map(|process| process.pid);
    stage.fresh.lock().extend(pid);
    system.process = again.process;
    Ok(())
}

/// Returns the longest time from a fault to the first answer behind it, and the time without answers of all
/// faults together.
pub(in super::super) fn consequences(outages: &[(f64, f64)], loaded: &Loaded) -> Option<(f64, f64)> {
    let (mut recovered, mut unavailable) = (None, 0.0);
    for (from, to) in outages {
        let touches = |silence: &&(f64, f64)| silence.0 <= *to && silence.1 > *from;
        let of_fault = loaded.silences.iter().filter(touches);
        let (last, sum) = of_fault.fold((*from, 0.0), |(last, sum), (begins, ends)| {
            (f64::max(last, *ends), sum + ends - begins)
        });
        recovered = Some(f64::max(recovered.unwrap_or(0.0), last - from));
        unavailable += sum;
    }
    recovered.map(|recovered| (recovered, unavailable))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::experiment::Source;

    #[test]
    fn faults_come_at_their_times_until_the_load_ends() {
        let text = "question = \"?\"\nsystems = [\"stafett\"]\n[run]\nwarmup = \"0s\"\nduration = \"10s\"\n\
                    [roles.p]\ndoes = \"produce\"\n[faults.kill]\ndoes = \"kill\"\nat = \"2s\"\nfor = \"1s\"\nevery = \"4s\"\n\
                    [faults.held]\ndoes = \"pause\"\nat = \"4s\"\nfor = \"1s\"";
        let plan = Source::new("x", text).plan(1.0, &BTreeMap::new()).unwrap();
        let at: Vec<u64> = planned(&plan)
            .iter()
            .map(|planned| planned.at.as_secs())
            .collect();
        assert_eq!(at, [2, 4, 6]);
    }
}
