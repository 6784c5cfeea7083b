//! The tables as others use them, against models that are too simple to be wrong and against another broker's
//! answers.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod naive;
mod peer;
