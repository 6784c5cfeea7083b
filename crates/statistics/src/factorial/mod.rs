//! 2^k·r designs: k factors at two levels each, every combination, or a fraction of them (2^(k-p)), measured
//! r times.
//!
//! The words and the arithmetic are those of R. Jain, *The Art of Computer Systems Performance Analysis*
//! (1991), chapters 17 to 19. An *effect* is half of the change in the response as a factor goes from its
//! low to its high level, on average over all levels of the others; the *allocation of variation* is the
//! share of all differences that each effect explains. Without repetitions there is no experimental error, so
//! there are no confidence intervals, and no effect can be told from chance.

mod analysis;
mod design;

pub use analysis::{Analysis, Effect, ExperimentalError, analyse};
pub use design::{Design, DesignError, FACTORS_MAX, Factor, letters};
