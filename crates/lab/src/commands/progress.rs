//! Progress of a run: on a terminal one line that changes, elsewhere a line per point.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use stafett_lab::grid::Parameters;
use stafett_lab::results::{OutcomeKind, Planned, Point, Run};
use stafett_lab::run::Watch;
use stafett_lab::workload::load::Second;
use stafett_model::Lock;

/// Says how a run goes, on standard error.
pub(super) struct Progress {
    bar: ProgressBar,
    is_terminal: bool,
    at: Lock<At>,
}

#[derive(Default)]
struct At {
    total: usize,
    done: usize,
    what: String,
    /// Level that acknowledged messages survive: it stands beside every number.
    durability: String,
    left: Duration,
}

impl At {
    /// Describes the progress of a point.
    fn line(&self, second: &Second) -> String {
        let p99 = second
            .p99_us
            .map_or_else(String::new, |p99| format!(", p99 {}", latency(p99 as f64)));
        format!(
            "{}/{} {}  {:.0}/{:.0} s  [{}] {}/s{p99}, {} left",
            self.done + 1,
            self.total,
            self.what,
            second.at_s,
            second.of_s,
            self.durability,
            rate(second.rate),
            rough(self.left),
        )
    }
}

impl Progress {
    pub(super) fn new() -> Self {
        let is_terminal = io::stderr().is_terminal();
        let bar = ProgressBar::with_draw_target(
            None,
            if is_terminal {
                ProgressDrawTarget::stderr()
            } else {
                ProgressDrawTarget::hidden()
            },
        );
        bar.set_style(
            ProgressStyle::with_template("{spinner} {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        bar.enable_steady_tick(Duration::from_millis(250));
        Self {
            bar,
            is_terminal,
            at: Lock::default(),
        }
    }

    fn say(&self, line: &str) {
        if self.is_terminal {
            self.bar.println(line);
        } else {
            // Standard error may be closed.
            let _ = writeln!(io::stderr(), "{line}");
        }
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn at(&self) -> stafett_model::LockGuard<'_, At> {
        self.at.lock()
    }
}

impl Watch for Progress {
    fn begins(&self, run: &Run, done: usize) {
        self.at().total = run.order.len();
        let points = run.order.len();
        let before = if done > 0 {
            format!(", {done} of them measured before")
        } else {
            String::new()
        };
        self.say(&format!("{}: {points} points{before}", run.name));
    }

    fn does(&self, what: &str) {
        self.bar.set_message(what.to_owned());
        if !self.is_terminal {
            self.say(&format!("  {what}"));
        }
    }

    fn point(&self, planned: &Planned, durability: &str, done: usize, left: Duration) {
        let mut at = self.at();
        at.done = done;
        at.left = left;
        durability.clone_into(&mut at.durability);
        at.what = about(&planned.system, &planned.parameters, planned.repetition);
        self.bar.set_message(format!(
            "{}/{} {}, {} left",
            done + 1,
            at.total,
            at.what,
            rough(left)
        ));
    }

    fn second(&self, second: &Second) {
        let line = self.at().line(second);
        self.bar.set_message(line);
    }

    fn ended(&self, point: &Point) {
        let what = about(&point.system, &point.parameters, point.repetition);
        let outcome = match (point.outcome.kind, &point.outcome.reason) {
            (OutcomeKind::Done, _) => String::new(),
            (kind, reason) => format!("  {kind:?}: {}", reason.as_deref().unwrap_or("")).to_lowercase(),
        };
        let mut figures = Vec::new();
        let figure = |name: &str| point.metrics.get(name).copied();
        if let Some(produced) = figure("produce_rate") {
            figures.push(format!("in {}/s", rate(produced)));
        }
        if let Some(consumed) = figure("consume_rate") {
            figures.push(format!("out {}/s", rate(consumed)));
        }
        for name in ["delivery", "acknowledged", "round_trip"] {
            if let Some(p99) = figure(&format!("{name}_p99_us")) {
                figures.push(format!("{} p99 {}", name.replace('_', " "), latency(p99)));
                break;
            }
        }
        if let Some(cpu) = figure("broker_cpu_per_million") {
            figures.push(format!("{cpu:.2} broker CPU-s per million"));
        }
        self.say(&format!(
            "  {what} [{}]: {}{outcome}",
            point.durability.given,
            figures.join(", ")
        ));
    }
}

/// System, parameters and repetition in short.
fn about(system: &str, parameters: &Parameters, repetition: u32) -> String {
    let values = parameters.iter().map(|(path, value)| {
        let name = path.rsplit('.').next().unwrap_or(path);
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!(" {name}={value}")
    });
    format!("{system}{} #{repetition}", values.collect::<String>())
}

fn rate(rate: f64) -> String {
    if rate >= 1e6 {
        format!("{:.2} M", rate / 1e6)
    } else if rate >= 1e4 {
        format!("{:.0} k", rate / 1e3)
    } else {
        format!("{rate:.0} ")
    }
}

fn latency(micros: f64) -> String {
    let places = if micros >= 10_000.0 { 0 } else { 2 };
    format!("{:.places$} ms", micros / 1e3)
}

fn rough(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_durability_stands_beside_the_numbers_of_a_point_that_is_under_way() {
        let at = At {
            total: 4,
            done: 1,
            what: "kafka #1".to_owned(),
            durability: "os".to_owned(),
            left: Duration::from_secs(30),
        };
        let second = Second {
            at_s: 3.0,
            of_s: 10.0,
            rate: 120_000.0,
            p99_us: Some(1500),
            ..Second::default()
        };
        assert_eq!(
            at.line(&second),
            "2/4 kafka #1  3/10 s  [os] 120 k/s, p99 1.50 ms, 30 s left"
        );
    }
}
