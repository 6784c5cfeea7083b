//! The load: roles, and what is counted of them.
//!
//! A message carries who sent it, which of its sender's messages it is, and the moment at which it was
//! *intended* to be sent. So latency counts from that moment, and a stall of the system is seen by every
//! message that it held up, those that were still waiting in the client among them.
//!
//! - [`message`]: the lab's own bytes at the front of a message
//! - [`content`]: what is behind them; [`size`]: how large they are; [`choose`]: which topic they go to
//! - [`pace`]: when messages are intended to be sent; [`adaptive`]: finding the highest rate that holds
//! - [`ledger`]: messages that came, that are missing, and that came twice, in `blocks` of [`runs`]
//! - `in_flight_limit`: how far who sends may be ahead of who receives
//! - [`recorder`]: counts and latencies of a role
//! - [`producer`], [`consumer`], [`idle`]: what the roles do; [`relay`]: those that send because they
//!   received
//! - [`filter`]: what drops duplicates before a system that does not do it itself
//! - `clients`: who takes part; `derived_numbers`: what their plan comes to in numbers; [`client_placement`]:
//!   on which host; [`together`]: what several hosts tell each other
//! - `patience`: for a system, how long at most, and whether it was that
//! - [`log`]: lines for people
//! - [`load`]: all roles of a point, from the first connection to the last message

pub mod adaptive;
mod blocks;
#[cfg(test)]
mod calibration;
pub mod choose;
pub mod client_placement;
pub(crate) mod clients;
pub mod consumer;
pub mod content;
pub(crate) mod derived_numbers;
pub mod filter;
pub mod idle;
mod in_flight_limit;
pub mod ledger;
pub mod load;
pub mod log;
pub mod message;
pub mod pace;
mod patience;
pub mod producer;
pub mod recorder;
pub mod relay;
pub mod runs;
pub mod size;
pub mod together;

pub use ledger::Ledger;
pub use load::{Load, Loaded};
pub use message::{HEADER_BYTES, Message, Received};
pub use recorder::{Recorder, Reports};
