//! Groups as scripts, and held against what must always be true.

mod classic;
mod joining;
mod leaving;
mod moving;
mod random;
mod restart;
mod scale;
mod script;
mod world;
