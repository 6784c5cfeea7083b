//! The instrument's own figures: each client against a stub, and the way between clients and systems.

use maud::{Markup, html};

use super::sign;
use super::table::parameters;
use crate::report::cells::grouped;
use crate::report::{names, numbers};
use crate::results::{Ceiling, Network, Reached, Run};

pub(super) fn section(run: &Run) -> Markup {
    if run.ceilings.is_empty() && run.network.is_none() && run.reached.is_empty() {
        return html! {};
    }
    html! {
        section {
            h3 { "What the instrument can do" }
            (ceilings(&run.ceilings))
            @if let Some(network) = &run.network { (between(network)) }
            @for way in &run.reached { (reached(way)) }
        }
    }
}

/// Rates of clients against a stub, and reasons for missing ones.
fn ceilings(ceilings: &[Ceiling]) -> Markup {
    let measured = || {
        let has_figure = |ceiling: &&Ceiling| ceiling.produce_rate.or(ceiling.consume_rate).is_some();
        ceilings.iter().filter(has_figure)
    };
    let rates = measured().flat_map(|ceiling| [ceiling.produce_rate, ceiling.consume_rate]);
    let scale = numbers::Scale::of("1/s", rates.flatten().collect::<Vec<_>>().into_iter());
    let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| scale.number(value));
    html! {
        @if measured().next().is_some() {
            p { "Each client against a stub that answers at once and stores nothing (" (sign::durability("none")) ")." }
            div.scroll tabindex="0" { table.numbers {
                thead { tr {
                    th.key scope="col" { "Driver" }
                    th scope="col" { "With" }
                    th.num scope="col" { "Produce" span.unit { (scale.unit) } }
                    th.num scope="col" { "Consume" span.unit { (scale.unit) } }
                    th.num scope="col" { "CPU per million" span.unit { "s" } }
                } }
                tbody { @for ceiling in measured() { tr {
                    th.key scope="row" { (ceiling.driver) }
                    td { (parameters(&ceiling.parameters)) }
                    td.num { (number(ceiling.produce_rate)) }
                    td.num { (number(ceiling.consume_rate)) }
                    td.num { @match ceiling.client_cpu_per_million {
                        Some(cpu) => (numbers::Scale::alone("s", cpu).number(cpu)),
                        None => "–",
                    } }
                } } }
            } }
        }
        @let without = without(ceilings);
        @if !without.is_empty() {
            ul.remarks { @for text in &without { li { (text) } } }
        }
    }
}

/// Returns the reasons of missing ceilings, of each driver: with their settings, or the number of these.
fn without(ceilings: &[Ceiling]) -> Vec<String> {
    let missing = ceilings
        .iter()
        .filter_map(|ceiling| Some(((&ceiling.driver, ceiling.reason.as_ref()?), ceiling)));
    let said = grouped(missing).into_iter().map(|((driver, reason), with)| {
        let settings = match with.as_slice() {
            [one] if one.parameters.is_empty() => String::new(),
            [one] => format!(" with {}", parameters(&one.parameters)),
            several => format!(" with {} combinations of settings", several.len()),
        };
        format!("Without a ceiling: {driver}{settings}: {reason}.")
    });
    said.collect()
}

fn between(network: &Network) -> Markup {
    html! {
        p { "The network alone (" (network.path) "): " (numbers::alone(network.bytes_per_second, "B/s"))
            @if let Some(back) = network.back_bytes_per_second { ", " (numbers::alone(back, "B/s")) " back" }
            @if let Some((there, back)) = network.both_bytes_per_second {
                ", " (numbers::alone(there, "B/s")) " and " (numbers::alone(back, "B/s")) " at once"
            }
            ", round trip of a byte "
            (numbers::alone(network.round_trip.p50_us as f64, "µs")) " (median), "
            (numbers::alone(network.round_trip.p99_us as f64, "µs")) " (p99)." }
    }
}

fn reached(way: &Reached) -> Markup {
    html! {
        p { "The way to " (names::system(&way.system)) " at " (way.address) ": "
            @if let Some(connect) = &way.connect {
                "a connection, which is a round trip, takes " (numbers::alone(connect.p50_us as f64, "µs")) " (median), "
                (numbers::alone(connect.max_us as f64, "µs")) " (longest of " (connect.count) "); "
            }
            @if let Some(reason) = &way.reason { "its round trip was not measured (" (reason) "); " }
            "its throughput was not measured."
        }
    }
}
