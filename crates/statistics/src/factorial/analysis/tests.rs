use serde_json::Value;

use super::{Analysis, analyse};
use crate::factorial::{Design, DesignError, Factor};

fn factors(letters: &str) -> Vec<Factor> {
    let factor = |letter: char| Factor {
        name: letter.to_string(),
        letter,
        low: "-1".into(),
        high: "+1".into(),
    };
    letters.chars().map(factor).collect()
}

fn design(letters: &str) -> Design {
    Design::new(factors(letters)).unwrap()
}

fn analysis(letters: &str, rows: &[&[f64]]) -> Analysis {
    let rows: Vec<_> = rows.iter().map(|row| row.to_vec()).collect();
    analyse(design(letters), &rows).unwrap()
}

fn effect(analysis: &Analysis, name: &str) -> f64 {
    analysis
        .effects
        .iter()
        .find(|effect| effect.name == name)
        .unwrap()
        .value
}

#[track_caller]
fn near(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance, "{found} is not {expected}");
}

/// R. Jain (1991), example 17.1: performance in MIPS by memory and cache.
const MEMORY_CACHE: &[&[f64]] = &[&[15.0], &[45.0], &[25.0], &[75.0]];
/// R. Jain (1991), chapter 17, the design with three factors: memory, cache and processors.
const PROCESSORS: &[&[f64]] = &[
    &[14.0],
    &[22.0],
    &[10.0],
    &[34.0],
    &[46.0],
    &[58.0],
    &[50.0],
    &[86.0],
];
/// R. Jain (1991), example 18.1: memory and cache, three times each.
const REPLICATED: &[&[f64]] = &[
    &[15.0, 18.0, 12.0],
    &[45.0, 48.0, 51.0],
    &[25.0, 28.0, 19.0],
    &[75.0, 75.0, 81.0],
];
/// Paper P3, figure 12: median processing time in ms; d, w, b, c, of which d changes fastest.
const PRIORITY_QUEUES: &[&[f64]] = &[
    &[6.80],
    &[7.46],
    &[6.87],
    &[7.21],
    &[5.11],
    &[7.55],
    &[5.90],
    &[7.60],
    &[14.08],
    &[12.80],
    &[13.42],
    &[13.97],
    &[12.43],
    &[14.85],
    &[12.88],
    &[15.05],
];
const THREE: &[&[f64]] = &[
    &[10.1, 10.9, 9.7, 10.4],
    &[14.2, 13.6, 15.1, 14.4],
    &[9.0, 9.6, 8.8, 9.1],
    &[13.5, 12.9, 14.0, 13.3],
    &[20.3, 21.1, 19.5, 20.8],
    &[31.0, 30.2, 32.1, 30.7],
    &[18.8, 19.9, 19.1, 18.5],
    &[28.1, 29.3, 27.7, 28.8],
];

#[test]
fn two_factors_have_the_published_effects() {
    let found = analysis("ab", MEMORY_CACHE);
    near(found.mean.value, 40.0, 1e-12);
    near(effect(&found, "a"), 20.0, 1e-12);
    near(effect(&found, "b"), 10.0, 1e-12);
    near(effect(&found, "ab"), 5.0, 1e-12);
    let shares: Vec<_> = found
        .effects
        .iter()
        .map(|effect| (effect.share.unwrap() * 100.0).round())
        .collect();
    assert_eq!(shares, [76.0, 19.0, 5.0]);
}

#[test]
fn three_factors_have_the_published_effects_and_variation() {
    let found = analysis("abc", PROCESSORS);
    for (name, value) in [
        ("a", 10.0),
        ("b", 5.0),
        ("c", 20.0),
        ("ab", 5.0),
        ("ac", 2.0),
        ("bc", 3.0),
        ("abc", 1.0),
    ] {
        near(effect(&found, name), value, 1e-12);
    }
    near(found.total, 4512.0, 1e-9);
}

#[test]
fn repetitions_give_the_published_error_and_intervals() {
    let found = analysis("ab", REPLICATED);
    let error = found.error.unwrap();
    near(found.mean.value, 41.0, 1e-12);
    near(effect(&found, "a"), 21.5, 1e-12);
    near(error.sum_of_squares, 102.0, 1e-9);
    near(error.deviation, 3.57, 0.005);
    near(found.total, 7032.0, 1e-9);
    assert_eq!(error.degrees, 8);
    // The book's intervals are at 90 %, with t = 1.86: 21.5 ± 1.92. The same standard error at 95 % is ±
    // 2.38.
    near(
        found.mean.interval.unwrap().half_width() / 2.306 * 1.86,
        1.92,
        0.005,
    );
    assert!(
        found
            .effects
            .iter()
            .all(|effect| effect.significant() == Some(true))
    );
}

#[test]
fn figure_12_of_p3_has_the_effects_that_its_sign_table_misprints() {
    let found = analysis("dwbc", PRIORITY_QUEUES);
    near(found.mean.value, 10.249, 0.0005);
    near(effect(&found, "c"), 3.436, 0.0005);
    near(effect(&found, "d"), 0.562, 0.0006);
    near(effect(&found, "db"), 0.529, 0.0005);
}

#[test]
fn without_repetitions_there_is_no_interval() {
    let found = analysis("dwbc", PRIORITY_QUEUES);
    assert_eq!(found.error, None);
    assert!(
        found
            .effects
            .iter()
            .all(|effect| effect.interval.is_none() && effect.significant().is_none())
    );
}

#[test]
fn all_numbers_are_those_of_the_second_implementation() {
    let expected: Value =
        serde_json::from_str(include_str!("../../../tests/reference/expected.json")).unwrap();
    for (case, letters, rows) in [
        ("jain_17_1", "ab", MEMORY_CACHE),
        ("jain_17_3", "abc", PROCESSORS),
        ("jain_18_1", "ab", REPLICATED),
        ("p3", "dwbc", PRIORITY_QUEUES),
        ("three", "abc", THREE),
    ] {
        let found = analysis(letters, rows);
        let expected = &expected[case];
        let number = |value: &Value| value.as_f64().unwrap();
        near(found.total, number(&expected["total"]), 1e-9);
        near(found.mean.value, number(&expected["effects"]["I"]), 1e-9);
        assert_eq!(
            found.effects.len() + 1,
            expected["effects"].as_object().unwrap().len()
        );
        for effect in &found.effects {
            near(effect.value, number(&expected["effects"][&effect.name]), 1e-9);
            near(
                effect.share.unwrap(),
                number(&expected["shares"][&effect.name]),
                1e-9,
            );
            if let Some(interval) = effect.interval {
                near(
                    interval.low,
                    number(&expected["intervals"][&effect.name][0]),
                    1e-8,
                );
                near(
                    interval.high,
                    number(&expected["intervals"][&effect.name][1]),
                    1e-8,
                );
            }
        }
        if let Some(error) = found.error {
            near(error.share.unwrap(), number(&expected["error_share"]), 1e-9);
            near(error.sum_of_squares, number(&expected["error_sum"]), 1e-9);
        }
    }
}

#[test]
fn sign_table_is_in_the_order_of_the_books() {
    let design = design("abc");
    let names: Vec<_> = design
        .effect_sets()
        .into_iter()
        .map(|set| design.effect_name(set))
        .collect();
    assert_eq!(names, ["a", "b", "c", "ab", "ac", "bc", "abc"]);
    let signs: Vec<_> = (0..4).map(|row| design.sign(0b11, row)).collect();
    assert_eq!(signs, [1, -1, -1, 1]);
}

#[test]
fn shorter_row_decides_how_many_values_are_taken() {
    let rows = vec![vec![1.0, 1.0, 9.0], vec![2.0, 2.0]];
    let found = analyse(design("a"), &rows).unwrap();
    assert_eq!((found.repetitions, found.left_out), (2, 1));
    near(found.mean.value, 1.5, 1e-12);
}

#[test]
fn missing_combination_is_named() {
    let rows = vec![vec![1.0], vec![]];
    assert_eq!(
        analyse(design("a"), &rows),
        Err(DesignError::Missing("a +1".into()))
    );
    assert_eq!(
        analyse(design("a"), &rows[..1]),
        Err(DesignError::Rows { found: 1, wanted: 2 })
    );
}

#[test]
fn equal_responses_have_no_variation_to_share() {
    let found = analysis("ab", &[&[3.0], &[3.0], &[3.0], &[3.0]]);
    assert!(found.effects.iter().all(|effect| effect.share.is_none()));
}

#[test]
fn designs_of_no_factor_of_too_many_or_of_twins_are_refused() {
    assert_eq!(Design::new(Vec::new()), Err(DesignError::Factors(0)));
    assert_eq!(Design::new(factors("abcdefg")), Err(DesignError::Factors(7)));
    assert_eq!(Design::new(factors("aba")), Err(DesignError::Letter('a')));
}

/// R. Jain (1991), chapter 19: 2^(7-4), of which four factors follow the other three.
#[test]
fn effects_of_a_saturated_fraction_are_those_of_the_worked_example() {
    let design = Design::fraction(factors("abcdefg"), "d = ab, e = ac, f = bc, g = abc").unwrap();
    assert_eq!((design.rows(), design.resolution()), (8, Some(3)));
    let rows: Vec<Vec<f64>> = [20.0, 35.0, 7.0, 42.0, 36.0, 50.0, 45.0, 82.0]
        .map(|it| vec![it])
        .into();
    let analysis = analyse(design, &rows).unwrap();
    near(analysis.mean.value, 39.625, 0.001);
    for (name, value, share) in [
        ("a", 12.625, 0.3726),
        ("b", 4.375, 0.0474),
        ("c", 13.625, 0.4340),
        ("d", 5.375, 0.0675),
        ("e", 0.125, 0.0),
        ("f", 5.875, 0.0806),
        ("g", 0.375, 0.0003),
    ] {
        near(effect(&analysis, name), value, 0.001);
        let found = analysis
            .effects
            .iter()
            .find(|effect| effect.name == name)
            .unwrap();
        near(found.share.unwrap(), share, 0.0002);
        assert_eq!(found.aliases.len(), 15, "{name}");
    }
    assert_eq!(analysis.effects.len(), 7, "one for each row but the mean");
    let of_a = &analysis.effects[0];
    assert_eq!(
        of_a.aliases[..3],
        ["bd", "ce", "fg"],
        "main effects fall together with interactions of two"
    );
}

#[test]
fn a_half_fraction_of_a_model_finds_the_sums_of_what_falls_together() {
    let design = Design::fraction(factors("abcd"), "d = abc").unwrap();
    assert_eq!(design.resolution(), Some(4));
    let level = |row, factor| if design.is_high(row, factor) { 1.0 } else { -1.0 };
    let model = |row| {
        10.0 + 3.0 * level(row, 0) + 2.0 * level(row, 0) * level(row, 1) + 1.5 * level(row, 2) * level(row, 3)
    };
    let rows: Vec<Vec<f64>> = (0..8).map(|row| vec![model(row)]).collect();
    let analysis = analyse(design, &rows).unwrap();
    near(effect(&analysis, "a"), 3.0, 1e-9);
    near(effect(&analysis, "ab"), 3.5, 1e-9);
    near(effect(&analysis, "d"), 0.0, 1e-9);
    let ab = analysis
        .effects
        .iter()
        .find(|effect| effect.name == "ab")
        .unwrap();
    assert_eq!(ab.aliases, ["cd"]);
}
