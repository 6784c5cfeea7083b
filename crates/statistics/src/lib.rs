//! Statistics of measurements: estimates of a quantity from a few repetitions, ratios of two, and designs of
//! factors, each with its intervals.
//!
//! Everything here is pure arithmetic over finite numbers; it must not know the thing measured. A value that
//! needs more repetitions than there are comes without an interval rather than with a guessed one.
//!
//! - `estimate`: a mean with its interval; `student`: quantiles for it; `compare`: ratios
//! - [`factorial`]: designs of factors

mod compare;
mod estimate;
pub mod factorial;
mod student;

pub use compare::{Ratio, ratio};
pub use estimate::{Estimate, Interval, mean};
pub(crate) use student::quantile;

/// The confidence of every interval unless a caller asks for another.
pub const CONFIDENCE: f64 = 0.95;
