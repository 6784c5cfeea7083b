//! Deviations from the plan: failures, refusals, losses and skipped points are results too.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::table::parameters;
use crate::report::cells::{Cell, distinct, grouped};
use crate::report::names;
use crate::results::{OutcomeKind, Point};

/// Points that ended alike: their system, how, and why.
type Ended<'a> = ((&'a str, OutcomeKind, &'a str), Vec<&'a Point>);

pub(super) fn section(cells: &[Cell<'_>]) -> Markup {
    let ended = ended(cells);
    let remarks = remarks(cells);
    html! {
        @if !ended.is_empty() {
            section {
                h3 { "Results without a figure" }
                ul.problems { @for ((system, kind, reason), points) in &ended { li {
                    p { span class={ "outcome " (class(*kind)) } { (word(*kind)) } " " strong { (names::system(system)) }
                        @for level in levels(points) { " " (super::sign::durability(level)) }
                        ": " (reason) }
                    p.notes { (where_(*kind, points)) }
                } } }
            }
        }
        @if !remarks.is_empty() {
            section {
                h3 { "Remarks" }
                ul.remarks { @for remark in &remarks { li { (remark) } } }
            }
        }
    }
}

fn ended<'a>(cells: &'a [Cell<'a>]) -> Vec<Ended<'a>> {
    let points = cells.iter().flat_map(|cell| cell.points.iter().copied());
    let without = points.filter(|point| point.outcome.kind != OutcomeKind::Done);
    grouped(without.map(|point| {
        let reason = point
            .outcome
            .reason
            .as_deref()
            .unwrap_or("no reason was recorded");
        ((point.system.as_str(), point.outcome.kind, reason), point)
    }))
}

/// Levels that the points gave, as far as they are known.
fn levels<'a>(points: &[&'a Point]) -> BTreeSet<&'a str> {
    let given = points.iter().map(|point| point.durability.given.as_str());
    given.filter(|given| !given.is_empty()).collect()
}

fn word(kind: OutcomeKind) -> &'static str {
    if kind == OutcomeKind::Lost {
        "lost messages"
    } else {
        kind.name()
    }
}

fn class(kind: OutcomeKind) -> &'static str {
    match kind {
        OutcomeKind::Failed | OutcomeKind::Lost => "bad",
        OutcomeKind::Done | OutcomeKind::Refused | OutcomeKind::Skipped => "quiet",
    }
}

/// With which parameters, how often, and where the systems' own words are.
fn where_(kind: OutcomeKind, points: &[&Point]) -> String {
    const NAMED: usize = 4;
    let with = points.iter().map(|point| parameters(&point.parameters));
    let mut with = distinct(with.filter(|text| !text.is_empty()));
    let more = with.len().saturating_sub(NAMED);
    with.truncate(NAMED);
    let count = points.len();
    let plural = if count == 1 { "" } else { "s" };
    let mut text = format!("{count} point{plural}");
    if !with.is_empty() {
        text = format!("{text}: {}", with.join("; "));
    }
    if more > 0 {
        text = format!("{text}; and {more} more");
    }
    if let Some(first) = points.first().filter(|_| kind != OutcomeKind::Skipped) {
        text = format!("{text}. Logs: logs/{:04}.", first.number);
    }
    text
}

fn remarks(cells: &[Cell<'_>]) -> BTreeSet<String> {
    let mut remarks = BTreeSet::new();
    for point in cells.iter().flat_map(|cell| &cell.points) {
        let system = names::system(&point.system);
        remarks.extend(point.remarks.iter().map(|remark| format!("{system}: {remark}")));
        let note = point.durability.note.iter();
        remarks.extend(note.map(|note| format!("{system}, durability: {note}")));
        let limited = point.driver.limited.iter();
        remarks.extend(limited.map(|why| format!("{system}, the client may be the limit: {why}")));
    }
    remarks
}
