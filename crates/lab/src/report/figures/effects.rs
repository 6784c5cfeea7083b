//! 2^k·r designs: effects as bars, with their intervals and shares of the variation.

use super::{Analysed, Drawn, capital};
use crate::experiment::{Experiment, Figure, fraction};
use crate::factorial::{Analysis, Design, DesignError, Factor, analyse};
use crate::report::cells::Cell;
use crate::report::chart::{Axis, Row, RowChart};
use crate::report::load::Recorded;
use crate::report::page::LEVELS_BETWEEN;
use crate::report::{names, numbers};
use crate::results::{Metric, metric};
use crate::statistics::Interval;

pub(super) fn draw(figure: &Figure, recorded: &Recorded, cells: &[Cell<'_>]) -> Drawn {
    let mut drawn = Drawn::new(figure);
    let experiment = &recorded.run.experiment;
    let factors = fraction::factors(&experiment.grid, names::value);
    for analysed in analyses(figure, recorded, cells) {
        if let Ok(analysis) = &analysed.result {
            let colour = u8::try_from(names::colour(&analysed.system, &experiment.systems)).unwrap_or(0);
            let chart = chart(analysis, analysed.metric, colour, figure);
            let heading = format!("{}: {}", names::system(&analysed.system), analysed.metric.label);
            drawn.push_rows(Some(heading), &chart);
        }
        drawn.analyses.push(analysed);
    }
    drawn.is_explained = !drawn.analyses.is_empty();
    let letters = factors.iter().map(|(_, factor)| {
        format!(
            "{} = {} ({} → {})",
            factor.letter, factor.name, factor.low, factor.high
        )
    });
    drawn
        .notes
        .push(format!("{}.", letters.collect::<Vec<_>>().join(", ")));
    let analyses = drawn
        .analyses
        .iter()
        .filter_map(|analysed| analysed.result.as_ref().ok());
    let replicated = analyses.clone().any(|analysis| analysis.error.is_some());
    if let Some(text) = &experiment.run.fraction {
        drawn.notes.push(format!(
            "A fraction of all combinations was measured ({text}): an effect is the sum of those that fall together with \
             it."
        ));
    }
    drawn.notes.push(if replicated {
        "An effect is half of what the change from the low to the high level does, on average over the other factors. \
         The percentage is the share of all variation that it explains. Bars are 95 % confidence intervals: an effect \
         whose interval holds 0 is not told from chance."
            .to_owned()
    } else {
        "An effect is half of what the change from the low to the high level does. The percentage is the share of all \
         variation that it explains. Without replication there is no confidence interval, so no effect here is told from \
         chance."
            .to_owned()
    });
    drawn
}

/// One for every metric and every system that has it.
pub(super) fn analyses(figure: &Figure, recorded: &Recorded, cells: &[Cell<'_>]) -> Vec<Analysed> {
    let experiment = &recorded.run.experiment;
    let factors = fraction::factors(&experiment.grid, names::value);
    let mut all = Vec::new();
    for metric in figure.y.iter().filter_map(|name| metric(name)) {
        for system in &experiment.systems {
            let of_system: Vec<&Cell<'_>> = cells.iter().filter(|cell| cell.system == *system).collect();
            if of_system.iter().all(|cell| cell.values(metric.name).is_empty()) {
                continue;
            }
            let result = design(experiment, &factors).and_then(|design| {
                let rows = rows(&design, &factors, &of_system, metric.name);
                analyse(design, &rows)
            });
            all.push(Analysed {
                system: system.clone(),
                durability: durability(&of_system),
                metric,
                result,
            });
        }
    }
    all
}

fn design(experiment: &Experiment, factors: &[(String, Factor)]) -> Result<Design, DesignError> {
    let factors = factors.iter().map(|(_, factor)| factor.clone()).collect();
    match &experiment.run.fraction {
        Some(text) => Design::fraction(factors, text),
        None => Design::new(factors),
    }
}

/// Two different levels of durability in one design are said as such.
fn durability(cells: &[&Cell<'_>]) -> String {
    let mut levels: Vec<&str> = cells.iter().map(|cell| cell.durability()).collect();
    levels.sort_unstable();
    levels.dedup();
    levels.join(LEVELS_BETWEEN)
}

fn rows(design: &Design, factors: &[(String, Factor)], cells: &[&Cell<'_>], metric: &str) -> Vec<Vec<f64>> {
    let of_row = |row: usize| {
        let fits = |cell: &&&Cell<'_>| {
            factors.iter().enumerate().all(|(index, (path, factor))| {
                let level = if design.is_high(row, index) {
                    &factor.high
                } else {
                    &factor.low
                };
                cell.parameters
                    .get(path)
                    .is_some_and(|value| names::value(value) == *level)
            })
        };
        cells
            .iter()
            .find(fits)
            .map(|cell| cell.values(metric))
            .unwrap_or_default()
    };
    (0..design.rows()).map(of_row).collect()
}

fn chart(analysis: &Analysis, metric: &'static Metric, colour: u8, figure: &Figure) -> RowChart {
    let effects = analysis.by_share();
    // One scale for all, that of the largest: small effects may read as nothing.
    let largest = effects.first().map_or(0.0, |effect| effect.value);
    let scale = numbers::Scale::alone(metric.unit, largest);
    let rows: Vec<Row> = effects
        .iter()
        .map(|effect| {
            let share = effect
                .share
                .map(|share| format!(" · {}", numbers::percent(share)))
                .unwrap_or_default();
            Row {
                heading: None,
                name: capital(&factor_names(analysis, effect.set)),
                colour: if effect.significant() == Some(false) {
                    7
                } else {
                    colour
                },
                value: effect.value,
                interval: effect.interval.map(Interval::ends),
                says: format!("{}{share}", scale.with_unit(effect.value)),
            }
        })
        .collect();
    let ends = rows.iter().flat_map(|row| {
        let (low, high) = row.interval.unwrap_or_default();
        [row.value, low, high]
    });
    let axis = Axis::linear(&format!("Effect on {}", metric.label), metric.unit, ends);
    RowChart {
        title: format!("{}: effects on {}", figure.title, metric.label),
        axis,
        rows,
        from: 0.0,
    }
}

/// Returns the names of the factors of an effect: `clients × payload`.
pub(crate) fn factor_names(analysis: &Analysis, set: usize) -> String {
    let factors = analysis.design.factors().iter().enumerate();
    let taking_part = factors.filter(|(index, _)| set >> index & 1 == 1);
    let names: Vec<&str> = taking_part.map(|(_, factor)| factor.name.as_str()).collect();
    names.join(" × ")
}
