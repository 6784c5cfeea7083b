//! Deviations from the plan: failures, refusals, losses and skipped points are results too.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::table::parameters;
use crate::report::cells::{Cell, distinct};
use crate::report::names;
use crate::results::{OutcomeKind, Point};

/// Points that ended alike.
struct Ended<'a> {
    system: &'a str,
    kind: OutcomeKind,
    reason: &'a str,
    durability: BTreeSet<&'a str>,
    points: Vec<&'a Point>,
}

pub(super) fn section(cells: &[Cell<'_>]) -> Markup {
    let ended = ended(cells);
    let remarks = remarks(cells);
    html! {
        @if !ended.is_empty() {
            section {
                h3 { "Results without a figure" }
                ul.problems { @for ended in &ended { li {
                    p { span class={ "outcome " (class(ended.kind)) } { (word(ended.kind)) } " " strong { (names::system(ended.system)) }
                        @for level in &ended.durability { " " (super::sign::durability(level)) }
                        ": " (ended.reason) }
                    p.notes { (where_(ended)) }
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
    let mut all: Vec<Ended<'a>> = Vec::new();
    for point in cells.iter().flat_map(|cell| &cell.points) {
        let outcome = &point.outcome;
        if outcome.kind == OutcomeKind::Done {
            continue;
        }
        let reason = outcome.reason.as_deref().unwrap_or("no reason was recorded");
        let same = all.iter_mut().find(|ended| {
            ended.system == point.system && ended.kind == outcome.kind && ended.reason == reason
        });
        match same {
            Some(ended) => {
                ended.points.push(point);
                ended.durability.insert(&point.durability.given);
            }
            None => all.push(Ended {
                system: &point.system,
                kind: outcome.kind,
                reason,
                durability: BTreeSet::from([point.durability.given.as_str()]),
                points: vec![point],
            }),
        }
    }
    for ended in &mut all {
        ended.durability.remove("");
    }
    all
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
fn where_(ended: &Ended<'_>) -> String {
    const NAMED: usize = 4;
    let with = ended.points.iter().map(|point| parameters(&point.parameters));
    let mut with = distinct(with.filter(|text| !text.is_empty()));
    let more = with.len().saturating_sub(NAMED);
    with.truncate(NAMED);
    let count = ended.points.len();
    let plural = if count == 1 { "" } else { "s" };
    let mut text = format!("{count} point{plural}");
    if !with.is_empty() {
        text = format!("{text}: {}", with.join("; "));
    }
    if more > 0 {
        text = format!("{text}; and {more} more");
    }
    if let Some(first) = ended
        .points
        .first()
        .filter(|_| ended.kind != OutcomeKind::Skipped)
    {
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
