//! Points of a grid: every combination, or the fraction of them that `run.fraction` names by its generators.

use serde_json::Value;

use super::path;
use crate::factorial::{Design, DesignError, Factor, letters};
use crate::grid::{self, Grid, Parameters};

/// Returns the factors of a grid in the order of its paths, those with two values; `shown` writes a value.
pub fn factors(grid: &Grid, shown: fn(&Value) -> String) -> Vec<(String, Factor)> {
    let paths: Vec<String> = grid.keys().cloned().collect();
    let two = grid.iter().filter(|(_, values)| values.len() == 2);
    let two: Vec<_> = two
        .map(|(path, values)| (path, path::short(path, &paths), values))
        .collect();
    let letters = letters(two.iter().map(|(_, name, _)| name.as_str()));
    let factors = two
        .into_iter()
        .zip(letters)
        .map(|((path, name, values), letter)| {
            let level = |value: Option<&Value>| value.map(shown).unwrap_or_default();
            let factor = Factor {
                name,
                letter,
                low: level(values.first()),
                high: level(values.last()),
            };
            (path.clone(), factor)
        });
    factors.collect()
}

/// Returns the parameters of all points.
pub(super) fn points(grid: &Grid, fraction: Option<&str>) -> Result<Vec<Parameters>, DesignError> {
    let all = grid::combinations(grid);
    let Some(text) = fraction else {
        return Ok(all);
    };
    let factors = factors(grid, Value::to_string)
        .into_iter()
        .map(|(_, factor)| factor);
    let design = Design::fraction(factors.collect(), text)?;
    let levels = |parameters: &Parameters| {
        let two = grid.iter().filter(|(_, values)| values.len() == 2);
        let high = two
            .enumerate()
            .filter(|(_, (path, values))| parameters.get(*path) == values.last());
        high.fold(0, |levels, (factor, _)| levels | 1 << factor)
    };
    Ok(all
        .into_iter()
        .filter(|parameters| design.has(levels(parameters)))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(paths: &[&str]) -> Grid {
        let values = || vec![1.into(), 2.into()];
        paths.iter().map(|path| ((*path).to_owned(), values())).collect()
    }

    #[test]
    fn a_fraction_has_as_many_points_as_its_free_factors_make() {
        let all = grid(&[
            "roles.a.size",
            "roles.a.window",
            "run.seed",
            "topics.main.partitions",
        ]);
        let letters: String = factors(&all, Value::to_string)
            .iter()
            .map(|(_, factor)| factor.letter)
            .collect();
        assert_eq!(letters, "swep", "of size, window, seed, partitions");
        assert_eq!(points(&all, None).unwrap().len(), 16);
        let half = points(&all, Some("p = swe")).unwrap();
        assert_eq!(half.len(), 8);
        for point in &half {
            let low = point.values().filter(|value| **value == 1).count();
            assert!(low.is_multiple_of(2), "the product of all four is +1: {point:?}");
        }
        assert_eq!(points(&all, Some("e = sw, p = sw")).unwrap().len(), 4);
    }

    #[test]
    fn generators_that_make_no_fraction_are_refused() {
        let all = grid(&["roles.a.size", "roles.a.window", "run.seed"]);
        for (text, said) in [
            ("", "is none"),
            ("e", "is none"),
            ("e = s", "is none"),
            ("es = w", "is none"),
            ("e = sx", "x is no factor"),
            ("e = se", "e is no factor"),
            ("e = sw, e = sw", "e is no factor"),
            ("x = sw", "x is no factor"),
            ("e = sw, s = we", "no factor"),
        ] {
            let refused = points(&all, Some(text)).unwrap_err().to_string();
            assert!(refused.contains(said), "{text}: {refused}");
        }
    }
}
