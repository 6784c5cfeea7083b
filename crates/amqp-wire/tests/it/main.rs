//! The public API of the codec, tested against itself and against another implementation.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod round_trips;
mod vectors;
