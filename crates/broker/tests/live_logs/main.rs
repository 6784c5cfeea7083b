//! Live topics with a log behind them: whoever was away gets what it missed, once, however it comes and goes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod coming_back;
mod missed;
mod rules;
mod support;
mod takeover;
mod torn;
