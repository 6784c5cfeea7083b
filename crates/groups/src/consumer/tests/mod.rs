//! Groups tested with scripts and against invariants.

mod classic;
mod joining;
mod leaving;
mod moving;
mod random;
mod restart;
mod scale;
mod script;
mod world;
