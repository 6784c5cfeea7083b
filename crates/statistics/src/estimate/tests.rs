use super::{mean, mean_at};

/// Student's data on two sleeping drugs, as R has it (`sleep`); `t.test` gives 0.7001142 to 2.4598858 for the
/// mean of the ten differences.
const SLEEP: [f64; 10] = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4];

/// R. Jain, The Art of Computer Systems Performance Analysis (1991), example 13.3: at 99 % the mean of these
/// differences of processor time lies in (-1.21, 3.27), with rounding on the way.
const DIFFERENCES: [f64; 7] = [1.5, 2.6, -1.8, 1.3, -0.5, 1.7, 2.4];

#[track_caller]
fn near(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance, "{found} is not {expected}");
}

#[test]
fn mean_of_students_sleep_data_has_the_published_interval() {
    let estimate = mean(&SLEEP).unwrap();
    let interval = estimate.interval.unwrap();
    near(estimate.value, 1.58, 1e-12);
    near(interval.low, 0.700_114_2, 5e-8);
    near(interval.high, 2.459_885_8, 5e-8);
}

#[test]
fn mean_of_jains_example_has_the_published_interval() {
    let interval = mean_at(&DIFFERENCES, 0.99).unwrap().interval.unwrap();
    near(interval.low, -1.21, 0.01);
    near(interval.high, 3.27, 0.01);
}

#[test]
fn one_value_has_no_interval_and_no_deviation() {
    let estimate = mean(&[7.0]).unwrap();
    near(estimate.value, 7.0, 0.0);
    assert_eq!(estimate.interval, None);
    assert_eq!(estimate.deviation, None);
}

#[test]
fn no_values_and_values_that_are_no_numbers_give_no_estimate() {
    assert_eq!(mean(&[]), None);
    assert_eq!(mean(&[1.0, f64::NAN]), None);
    assert_eq!(mean(&[1.0, f64::INFINITY]), None);
}
