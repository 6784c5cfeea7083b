//! The machine, and the runs on it.

use jiff::Timestamp;
use maud::{Markup, html};

use crate::report::cells::grouped;
use crate::report::load::Recorded;
use crate::report::{names, numbers};
use crate::results::Environment;

pub(super) fn section(runs: &[Recorded]) -> Markup {
    let runs_of = runs.iter().map(|recorded| &recorded.run);
    let machines = grouped(runs_of.map(|run| (&run.environment, run.name.as_str())));
    html! {
        section.environment {
            h2 #environment { "Environment" }
            @for (environment, of) in &machines {
                @if machines.len() > 1 { p.notes { "Of " (of.join(", ")) ":" } }
                (machine(environment))
            }
            h3 { "Runs" }
            dl.setting { @for recorded in runs { div {
                dt { code { (recorded.run.name) } }
                dd {
                    (period(recorded)) ", seed " (recorded.run.seed) br;
                    code { (recorded.run.command) }
                }
            } } }
        }
    }
}

fn machine(environment: &Environment) -> Markup {
    // Unknown numbers are 0.
    let cores = Some(environment.cores).filter(|cores| *cores > 0);
    let memory = Some(environment.memory_bytes).filter(|bytes| *bytes > 0);
    let revision = environment.revision.as_ref();
    let revision = revision.map_or_else(String::new, |revision| format!(" ({revision})"));
    let rows: [(&str, String); 8] = [
        ("Processor", environment.cpu.clone()),
        ("Cores", cores.map_or_else(String::new, |cores| cores.to_string())),
        ("Memory", memory.map_or_else(String::new, gibibytes)),
        ("Kernel", environment.kernel.clone()),
        ("System", environment.distribution.clone()),
        ("Disk", environment.disk.clone()),
        ("Stafett", format!("{}{revision}", environment.stafett)),
        ("Other machines", environment.agents.join(", ")),
    ];
    html! {
        dl.setting {
            @for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
                div { dt { (name) } dd { (value) } }
            }
            @for (system, version) in environment.versions.iter().filter(|(system, _)| *system != "stafett") {
                div { dt { (names::system(system)) } dd { (version) } }
            }
        }
    }
}

fn period(recorded: &Recorded) -> String {
    let run = &recorded.run;
    let began = moment(run.started_ms).unwrap_or_else(|| "unknown time".to_owned());
    match run.ended_ms {
        Some(ended) => {
            let minutes = (ended - run.started_ms).max(0) / 60_000;
            format!(
                "{began}, {} min, {} points",
                numbers::plain(minutes as f64, 0),
                recorded.points.len()
            )
        }
        None => format!("{began}, {} points", recorded.points.len()),
    }
}

pub(super) fn day(started_ms: i64) -> Option<String> {
    moment(started_ms)?.split(' ').next().map(str::to_owned)
}

/// In UTC, to the minute.
fn moment(ms: i64) -> Option<String> {
    let text = Timestamp::from_millisecond(ms).ok()?.to_string();
    let (day, time) = text.split_once('T')?;
    Some(format!("{day} {} UTC", time.get(..5)?))
}

pub(super) fn gibibytes(bytes: u64) -> String {
    numbers::alone(bytes as f64 / f64::from(1 << 20), "MiB")
}
