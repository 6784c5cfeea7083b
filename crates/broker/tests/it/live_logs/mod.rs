//! Live topics with a log behind them: whoever was away gets what it missed, once, however it comes and goes.

mod coming_back;
mod missed;
mod rules;
mod support;
mod takeover;
mod torn;
