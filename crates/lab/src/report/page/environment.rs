//! The machine, and the runs on it.

use jiff::Timestamp;
use maud::{Markup, html};

use crate::report::load::Recorded;
use crate::report::{names, numbers};
use crate::results::Environment;

pub(super) fn section(runs: &[Recorded]) -> Markup {
    let mut machines: Vec<(&Environment, Vec<&str>)> = Vec::new();
    for recorded in runs {
        let name = recorded.run.name.as_str();
        match machines
            .iter_mut()
            .find(|(environment, _)| **environment == recorded.run.environment)
        {
            Some((_, names)) => names.push(name),
            None => machines.push((&recorded.run.environment, vec![name])),
        }
    }
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
    let rows: [(&str, String); 8] = [
        ("Processor", environment.cpu.clone()),
        (
            "Cores",
            if environment.cores > 0 {
                environment.cores.to_string()
            } else {
                String::new()
            },
        ),
        (
            "Memory",
            if environment.memory_bytes > 0 {
                gibibytes(environment.memory_bytes)
            } else {
                String::new()
            },
        ),
        ("Kernel", environment.kernel.clone()),
        ("System", environment.distribution.clone()),
        ("Disk", environment.disk.clone()),
        (
            "Stafett",
            match &environment.revision {
                Some(revision) => format!("{} ({revision})", environment.stafett),
                None => environment.stafett.clone(),
            },
        ),
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
