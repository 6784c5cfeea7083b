//! Live topics with logs: a client that was away gets the missed messages once, however it returns.

mod coming_back;
mod missed;
mod rules;
mod support;
mod takeover;
