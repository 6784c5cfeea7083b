//! The numbers behind a figure of effects: allocation of variation, and the sign table.

use maud::{Markup, html};

use super::sign;
use crate::factorial::{Analysis, Effect};
use crate::report::figures::{Analysed, Drawn, factor_names};
use crate::report::{names, numbers};

pub(super) fn tables(drawn: &Drawn) -> Markup {
    html! {
        @for analysed in &drawn.analyses {
            section.analysis {
                h4 { (names::system(&analysed.system)) ": " (analysed.metric.label) " " (sign::durability(&analysed.durability)) }
                @match &analysed.result {
                    Ok(analysis) => { (effects(analysed, analysis)) (signs(analysed, analysis)) },
                    Err(error) => p.nothing { "No analysis: " (error) "." },
                }
            }
        }
    }
}

fn scale(analysed: &Analysed, analysis: &Analysis) -> numbers::Scale {
    numbers::Scale::alone(analysed.metric.unit, analysis.mean.value)
}

fn effects(analysed: &Analysed, analysis: &Analysis) -> Markup {
    let scale = scale(analysed, analysis);
    let reach = |effect: &Effect| {
        let Some(interval) = effect.interval else {
            return "–".to_owned();
        };
        format!("{} … {}", scale.fine(interval.low), scale.fine(interval.high))
    };
    html! {
        div.scroll { table.numbers {
            thead { tr {
                th scope="col" { "Effect" }
                th scope="col" { "Factors" }
                th.num scope="col" { "Value" @if !scale.unit.is_empty() { ", " (scale.unit) } }
                th.num scope="col" { "95 % interval" }
                th.num scope="col" { "Variation" }
                th scope="col" { "Told from chance" }
            } }
            tbody {
                tr { th scope="row" { "I" } td { "mean" } td.num { (scale.fine(analysis.mean.value)) }
                    td.num { (reach(&analysis.mean)) } td.num { "" } td { "" } }
                @for effect in analysis.by_share() {
                    tr {
                        th scope="row" { (effect.name) @for alias in &effect.aliases { " + " (alias) } }
                        td { (factor_names(analysis, effect.set)) }
                        td.num { (scale.fine(effect.value)) }
                        td.num { (reach(effect)) }
                        td.num { @if let Some(share) = effect.share { (numbers::percent(share)) } @else { "–" } }
                        td { (match effect.significant() { Some(true) => "yes", Some(false) => "no", None => "not known" }) }
                    }
                }
                @if let Some(error) = analysis.error {
                    tr { th scope="row" { "e" } td { "experimental error" } td.num { (scale.fine(error.deviation)) }
                        td.num { "" } td.num { @if let Some(share) = error.share { (numbers::percent(share)) } } td { "" } }
                }
            }
        } }
        @if analysis.error.is_none() {
            p.notes { "One repetition of each combination: without replication there is no experimental error, and so no confidence "
                "interval." }
        } @else {
            p.notes { (analysis.repetitions) " repetitions of each combination"
                @if analysis.left_out > 0 { "; " (analysis.left_out) " further values left out, so that all have as many" }
                "." }
        }
    }
}

fn signs(analysed: &Analysed, analysis: &Analysis) -> Markup {
    let scale = scale(analysed, analysis);
    let design = &analysis.design;
    html! {
        details {
            summary { "Sign table" }
            div.scroll { table.numbers.signs {
                thead { tr {
                    @for factor in design.factors() { th scope="col" { (factor.name) } }
                    th.num scope="col" { "I" }
                    @for effect in &analysis.effects { th.num scope="col" { (effect.name) } }
                    th.num scope="col" { "Mean response" @if !scale.unit.is_empty() { ", " (scale.unit) } }
                } }
                tbody {
                    @for (row, response) in analysis.responses.iter().enumerate() {
                        tr {
                            @for (index, factor) in design.factors().iter().enumerate() {
                                td { (if design.is_high(row, index) { &factor.high } else { &factor.low }) }
                            }
                            td.num { "1" }
                            @for effect in &analysis.effects {
                                td.num { (if design.sign(effect.set, row) > 0 { "1" } else { "\u{2212}1" }) }
                            }
                            td.num { (scale.fine(*response)) }
                        }
                    }
                }
                tfoot { tr {
                    th colspan=(design.factors().len()) scope="row" { "Effect" }
                    td.num { (scale.fine(analysis.mean.value)) }
                    @for effect in &analysis.effects { td.num { (scale.fine(effect.value)) } }
                    td {}
                } }
            } }
        }
    }
}
