//! Quantiles of Student's t distribution.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Returns the standard errors that a two-sided interval of this confidence reaches to either side.
///
/// `None` where there is no such number: without degrees of freedom, or for a confidence outside (0, 1).
pub(crate) fn quantile(confidence: f64, degrees: f64) -> Option<f64> {
    if !(confidence > 0.0 && confidence < 1.0 && degrees > 0.0) {
        return None;
    }
    let distribution = StudentsT::new(0.0, 1.0, degrees).ok()?;
    Some(distribution.inverse_cdf(f64::midpoint(1.0, confidence)))
}

#[cfg(test)]
mod tests {
    use super::quantile;

    /// NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2, table of upper critical values (0.975).
    #[test]
    fn quantiles_are_those_of_the_published_table() {
        for (degrees, expected) in [
            (1.0, 12.706),
            (2.0, 4.303),
            (3.0, 3.182),
            (4.0, 2.776),
            (6.0, 2.447),
            (9.0, 2.262),
            (30.0, 2.042),
            (100.0, 1.984),
        ] {
            let found = quantile(0.95, degrees).unwrap();
            assert!((found - expected).abs() < 0.0006, "{degrees}: {found}");
        }
    }

    #[test]
    fn there_is_no_quantile_without_degrees_of_freedom() {
        assert_eq!(quantile(0.95, 0.0), None);
        assert_eq!(quantile(1.0, 4.0), None);
        assert_eq!(quantile(f64::NAN, 4.0), None);
    }
}
