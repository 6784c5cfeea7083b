//! Durability, as it stands beside every number: a disc that is the fuller the more survives.

use maud::{Markup, html};

/// Levels and the failures that they survive, as the report explains them.
pub(super) const LEVELS: [(&str, &str); 5] = [
    ("none", "nothing was acknowledged at all"),
    ("memory", "nothing: it was accepted"),
    ("os", "a killed process"),
    (
        "interval",
        "a killed process; a power loss but for the last few records or moments",
    ),
    ("sync", "a power loss"),
];

/// Between levels, where there are several.
pub(crate) const LEVELS_BETWEEN: &str = " / ";

/// Returns the class of the disc, by its filling.
fn fill(level: &str) -> &'static str {
    match level.split(':').next().unwrap_or_default() {
        "memory" => "f1",
        "os" => "f2",
        "interval" => "f3",
        "sync" => "f4",
        "shared" => "f5",
        _ => "f0",
    }
}

pub(super) fn durability(level: &str) -> Markup {
    html! {
        // A design may hold several.
        @for level in level.split(LEVELS_BETWEEN) {
            span class={ "durability " (fill(level)) } { (level) } " "
        }
    }
}

/// Adds the level that was asked for, if it is another one.
pub(super) fn given(durability: &crate::results::Durability) -> Markup {
    let differs = !durability.asked.is_empty() && durability.asked != durability.given;
    html! {
        span title=[durability.note.as_deref()] {
            (self::durability(&durability.given))
            @if differs { span.asked { "asked: " (durability.asked) } }
        }
    }
}
