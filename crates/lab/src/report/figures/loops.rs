//! Meaning of a latency, by the way in which messages were sent: a curve of an open loop sees a stall as a
//! user would, one of a closed loop does not.

use crate::experiment::{Does, Plan, Rate, Role, Source};
use crate::report::cells::Cell;
use crate::report::load::Recorded;

/// Ways in which the messages of a figure's curves were sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loops {
    has_open: bool,
    has_closed: bool,
    /// Messages of a client that may be unanswered, in a closed loop.
    window: Window,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Window {
    #[default]
    Unseen,
    AtMost(u32),
    /// Some role does not say.
    Unsaid,
}

impl Loops {
    /// Takes a cell's senders into account.
    pub(super) fn look(&mut self, latency: &str, recorded: &Recorded, cell: &Cell<'_>) {
        let run = &recorded.run;
        let source = Source::new(run.name.clone(), run.source.clone());
        // Roles after the grid and the scale; those of an older program are taken as they stand.
        let plan: Option<Plan> = source.plan(run.scale, &cell.parameters).ok();
        let roles = plan.as_ref().map_or(&run.experiment.roles, |plan| &plan.roles);
        for role in roles.values().filter(|role| sends(role, latency)) {
            // A relay sends messages on, at a rate or at once.
            if role.rate == Rate::Closed || role.does == Does::Relay {
                self.has_closed = true;
                self.window = match (self.window, role.window) {
                    (Window::Unseen, Some(window)) => Window::AtMost(window),
                    (Window::AtMost(most), Some(window)) => Window::AtMost(most.max(window)),
                    (Window::Unsaid, _) | (_, None) => Window::Unsaid,
                };
            } else {
                self.has_open = true;
            }
        }
    }

    /// Returns notes for readers.
    pub(super) fn describe(&self) -> Vec<String> {
        const OPEN: &str =
            "Taken from the intended moment of sending, so that a stall counts for everything it held up.";
        let bound = match self.window {
            Window::AtMost(window) => format!(", at most {window} of each client,"),
            Window::Unseen | Window::Unsaid => String::new(),
        };
        let closed = format!(
            "In a closed loop a client sends when it has its answers: a stall is seen by the messages that were under \
             way{bound} and not by those that it held up."
        );
        match (self.has_open, self.has_closed) {
            (true, false) => vec![OPEN.to_owned()],
            (true, true) => vec![format!("Where a rate is given: {}", lower(OPEN)), closed],
            (false, true) => vec![closed],
            (false, false) => Vec::new(),
        }
    }
}

fn lower(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// Returns true if a role sends messages that the latency is of.
fn sends(role: &Role, latency: &str) -> bool {
    match latency {
        "acknowledged" => role.does == Does::Produce,
        "round_trip" => role.does == Does::Request,
        _ => role.does.sends_first(),
    }
}
