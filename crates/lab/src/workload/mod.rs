//! The load: roles, and their counts.
//!
//! A message carries its sender, its number, and the moment at which it was *intended* to be sent. So latency
//! counts from that moment, and a stall of the system is seen by every message that it held up, those that
//! were still waiting in the client among them.
//!
//! - [`message`]: the lab's own bytes at the front of a message
//! - [`content`]: the bytes behind them; [`size`], `priority`: their sizes and priorities; [`choose`]: topics
//! - [`pace`]: intended moments of sending; [`adaptive`]: the search for the highest rate that holds
//! - [`ledger`]: messages that came, that are missing, and that came twice
//! - `in_flight_limit`: bounds on messages in flight
//! - [`recorder`]: counts and latencies of a role
//! - [`producer`], [`consumer`], [`idle`]: clients of roles; [`relay`]: those that send because they received
//! - [`filter`]: drops duplicates before a system that does not do it itself
//! - [`sessions`]: messages with a key in common, which an app assembles
//! - `poll`: receivers that ask
//! - `clients`: all clients; `derived_numbers`: numbers that follow from their plan; [`client_placement`]:
//!   their hosts; [`together`]: messages between several hosts
//! - `patience`: bounded waits for a system
//! - [`log`]: lines for people
//! - [`load`]: all roles of a point, from the first connection to the last message

pub mod adaptive;
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
mod poll;
mod priority;
pub mod producer;
pub mod recorder;
pub mod relay;
pub mod sessions;
pub mod size;
pub mod together;

pub use ledger::Ledger;
pub(crate) use load::Load;
pub use load::Loaded;
pub use message::{HEADER_BYTES, Message, Received};
pub use recorder::{Recorder, Reports};
