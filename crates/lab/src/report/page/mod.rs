//! The HTML page: one file, without scripts, that loads nothing.
//!
//! - [`experiment`]: a run with its question, figures and tables; [`glance`]: all runs in one table;
//!   [`compared`]: folders of runs against each other
//! - [`setting`], [`table`], [`sides`], [`effects`], [`instrument`], [`problems`], [`environment`]: the parts
//!   of a run
//! - [`sign`]: durability, as it stands beside every number

mod compared;
mod effects;
mod environment;
mod experiment;
mod glance;
mod instrument;
mod problems;
mod setting;
mod sides;
mod sign;
mod table;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::chart::STYLE;
use super::load::Recorded;

pub(crate) use experiment::main_metric;
pub(crate) use sign::LEVELS_BETWEEN;

/// Nothing is loaded from anywhere, whatever a measured system has written into its messages.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// The page of one run, or of several.
pub(crate) fn runs(runs: &[Recorded]) -> String {
    let articles = runs
        .iter()
        .map(|run| experiment::article(run, runs.len() == 1))
        .collect::<Vec<_>>();
    let title = match runs {
        [only] => only.run.experiment.question.clone(),
        _ => "Measured side by side".to_owned(),
    };
    let body = html! {
        (top(&title, runs))
        main {
            @if runs.len() > 1 { (glance::table(runs)) }
            @for article in &articles { (article) }
            (reading())
            (environment::section(runs))
        }
    };
    document(&title, &body)
}

/// The page that sets folders of runs beside each other.
pub(crate) fn comparison(sides: &[(String, Vec<Recorded>)]) -> String {
    let names: Vec<&str> = sides.iter().skip(1).map(|(name, _)| name.as_str()).collect();
    let base = sides.first().map_or("", |(name, _)| name.as_str());
    let title = format!("{} against {base}", names.join(", "));
    let all: Vec<Recorded> = sides.iter().flat_map(|(_, runs)| runs.iter().cloned()).collect();
    let body = html! {
        (top(&title, &all))
        main {
            (compared::compared(sides))
            (reading())
            (environment::section(&all))
        }
    };
    document(&title, &body)
}

fn document(title: &str, body: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Stafett lab" }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    }
    .into_string()
}

fn top(title: &str, runs: &[Recorded]) -> Markup {
    let started = runs.iter().map(|recorded| recorded.run.started_ms).min();
    let machine = runs.first().map(|recorded| &recorded.run.environment);
    html! {
        header.top {
            p.eyebrow { "Stafett lab" }
            h1 { (title) }
            @if let Some(machine) = machine {
                p.meta {
                    @if let Some(day) = started.and_then(environment::day) { span { (day) } }
                    @if !machine.cpu.is_empty() { span { (machine.cpu) } }
                    @if machine.cores > 0 { span { (machine.cores) @if machine.cores == 1 { " core" } @else { " cores" } } }
                    @if machine.memory_bytes > 0 { span { (environment::gibibytes(machine.memory_bytes)) " memory" } }
                }
            }
        }
    }
}

/// Explanations that a reader needs once.
fn reading() -> Markup {
    html! {
        section.reading {
            h2 #reading { "How to read this" }
            div.columns {
                div {
                    h3 { "Durability" }
                    p { "A number without the durability it was measured at says little, so its sign stands beside every one. An "
                        "acknowledged message survives:" }
                    dl.levels {
                        @for (level, survives) in sign::LEVELS {
                            dt { (sign::durability(level)) }
                            dd { (survives) }
                        }
                    }
                    p { "Where a system lacks the level that was asked for, its sign is that of the next lower one." }
                }
                div {
                    h3 { "How sure a number is" }
                    p { "± is the half width of the 95 % confidence interval of the mean over repetitions, by Student's "
                        "distribution. One repetition has none. Repetitions were run in blocks, in shuffled order, after a warm-up "
                        "that does not count." }
                    h3 { "Latency" }
                    p { "In an open loop it is taken from the moment a message was meant to be sent, so that a stall is seen by all "
                        "the messages it held up. In a closed loop, where a client sends when it has its answers, a stall is seen by "
                        "those alone that were under way." }
                    h3 { "The client's part" }
                    p { "Client and system share a machine unless it says otherwise. " em { "Client" } " is the share of all cores "
                        "that the client itself used; " em { "of ceiling" } " sets the rate against what the same client reaches when "
                        "a stub answers at once and stores nothing. Near 100 % it is the client that was measured." }
                }
            }
        }
    }
}
