//! The setting: systems, load and duration, in a few lines; the whole file behind them.

use maud::{Markup, html};

use crate::experiment::{Codec, Delivery, Does, Experiment, Rate, Role, Size, TopicKind};
use crate::report::figures::capital;
use crate::report::{names, numbers};
use crate::results::Run;

pub(super) fn section(run: &Run) -> Markup {
    let experiment = &run.experiment;
    let systems: Vec<String> = experiment
        .systems
        .iter()
        .map(|name| names::system(name))
        .collect();
    let settings = &experiment.run;
    let planned = run.order.iter().map(|planned| planned.repetition);
    let repetitions = planned.max().unwrap_or(settings.repetitions);
    html! {
        dl.setting {
            div { dt { "Systems" } dd { (systems.join(", ")) } }
            @for (name, topics) in &experiment.topics {
                @let varied = |setting: &str| experiment.grid.contains_key(&format!("topics.{name}.{setting}"));
                div { dt { (match topics.kind { TopicKind::Topic => "Topics", TopicKind::Queue => "Queues", TopicKind::Live => "Live topics" }) }
                    dd {
                        @if !varied("count") { (numbers::plain(f64::from(topics.count), 0)) } @else { "varied number" }
                        @if topics.kind == TopicKind::Topic && !varied("partitions") {
                            " with " (topics.partitions) @if topics.partitions == 1 { " partition" } @else { " partitions" }
                        }
                        @if let Some(kind) = &topics.queue_type { ", " (kind) }
                        @if let Some(kind) = topics.exchange { ", behind a " (kind.name()) " exchange" }
                    }
                }
            }
            @for (name, role) in roles(experiment) {
                div { dt { (capital(name)) } dd { (describe(name, role, run)) } }
            }
            div { dt { "Duration" } dd {
                (settings.duration) " measured after " (settings.warmup) " of warm-up, "
                @if let Some(protocol) = settings.protocol { "over " (protocol.name()) ", " }
                (repetitions) @if repetitions == 1 { " repetition" } @else { " repetitions" }
                @if (run.scale - 1.0).abs() > 1e-9 { ", times shortened or stretched by " (run.scale) }
            } }
            @for (path, values) in &experiment.grid {
                @let all: Vec<String> = experiment.grid.keys().cloned().collect();
                div { dt { "Varied: " (names::short(path, &all)) } dd { (values.iter().map(names::value).collect::<Vec<_>>().join(" · ")) } }
            }
            @for (path, value) in at_this_scale(run) {
                div { dt { "At this scale: " (names::short(path, &[])) } dd { (names::value(value)) } }
            }
        }
        details.source {
            summary { "The experiment's file" }
            pre { code { (run.source) } }
        }
    }
}

/// Returns the settings that differ in a smaller run; the repetitions are those of the run anyway.
fn at_this_scale(run: &Run) -> impl Iterator<Item = (&str, &serde_json::Value)> {
    let small = run.experiment.small.iter().filter(|_| run.scale < 1.0);
    let named = small.map(|(path, value)| (path.strip_prefix("grid.").unwrap_or(path), value));
    named.filter(|(path, _)| *path != "run.repetitions")
}

/// Those that send first.
fn roles(experiment: &Experiment) -> Vec<(&String, &Role)> {
    let mut roles: Vec<_> = experiment.roles.iter().collect();
    roles.sort_by_key(|(_, role)| !matches!(role.does, Does::Produce | Does::Relay | Does::Request));
    roles
}

fn describe(name: &str, role: &Role, run: &Run) -> String {
    let varied = |setting: &str| {
        run.experiment
            .grid
            .contains_key(&format!("roles.{name}.{setting}"))
    };
    let mut parts = Vec::new();
    if !varied("clients") {
        let plural = if role.clients == 1 { "client" } else { "clients" };
        parts.push(format!("{} {plural}", role.clients));
    }
    let sends = matches!(role.does, Does::Produce | Does::Relay | Does::Request);
    if sends && !varied("size") {
        parts.push(match &role.size {
            Size::Fixed(bytes) => format!("{bytes} messages"),
            Size::Distributed(_) => "messages of distributed size".to_owned(),
        });
    }
    if sends && !varied("rate") {
        parts.push(match &role.rate {
            Rate::Closed => "as fast as acknowledgements come".to_owned(),
            Rate::Fixed(rate) => format!("{} per second", numbers::plain(*rate, 0)),
            Rate::Poisson(rate) => format!("Poisson, {} per second on average", numbers::plain(*rate, 0)),
            Rate::Steps(_) => "faster step by step".to_owned(),
            Rate::Adaptive(adaptive) => format!("as fast as p99 stays below {}", adaptive.p99),
        });
    }
    if sends && role.does == Does::Produce {
        if !varied("batch") {
            parts.push(format!("batches of {}", role.batch));
        }
        if !varied("linger") {
            parts.push(format!("linger {}", role.linger));
        }
        if role.compression != Codec::None && !varied("compression") {
            parts.push(format!("{:?}", role.compression).to_lowercase());
        }
    }
    if !varied("delivery") {
        parts.push(match role.delivery {
            Delivery::AtMostOnce => "at most once".to_owned(),
            Delivery::AtLeastOnce => "at least once".to_owned(),
            Delivery::ExactlyOnce => "exactly once".to_owned(),
        });
    }
    if role.fan_out {
        parts.push("everyone gets everything".to_owned());
    }
    parts.join(", ")
}
