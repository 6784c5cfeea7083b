//! Estimates of a quantity from a few repetitions, with their intervals.
//!
//! Everything here is pure arithmetic over finite numbers. A value that needs more repetitions than there are
//! comes without an interval rather than with a guessed one; the report says so.

mod compare;
mod estimate;
mod student;

pub use compare::{Ratio, ratio};
pub use estimate::{Estimate, Interval, mean};
pub(crate) use student::quantile;

/// The confidence of every interval that the lab prints, unless a caller asks for another.
pub const CONFIDENCE: f64 = 0.95;
