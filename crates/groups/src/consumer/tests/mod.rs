//! Groups tested with scripts and against invariants.

mod joining;
mod leaving;
mod moving;
mod random;
pub(crate) mod restart;
mod scale;
mod script;
mod sharing;
pub(crate) mod world;
