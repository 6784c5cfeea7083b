//! RabbitMQ's clients as a front end of the broker: AMQP 0-9-1.
//!
//! [`Amqp`] is what a listener serves.
//!
//! ```text
//! socket ─ input ─▶ frames ─ handshake ─▶ session ──▶ one publish per exchange for all that was read together
//!                                          │  ▲             │ tickets ─▶ confirms
//!                                          │  └ outbox ◀────┴ queues
//!                                          ▼
//!                                        output ──▶ one vectored write for all that is ready
//! ```
//!
//! - `connection`: the asynchronous shell: reads, waits, writes
//! - `input`, `output`: bytes that came and bytes that go
//! - `handshake`, `auth`: how a connection begins
//! - `session`: what an open connection does; one file per class of methods
//! - `content`: messages of AMQP as messages of the core, and back
//! - `arguments`, `stream_arguments`, `exchange_kinds`: queues, streams and exchanges as AMQP describes them;
//!   `known_arguments`: which argument is for which type; `equivalence`: whether a declaration means what is
//!   there
//! - `facts`: what of a message decides its way when it is routed again
//! - `exception`: what ends a channel or a connection; `error`: from every error of the core to that
//! - `metrics`, `settings`
//!
//! This crate must not know files, other protocols or how the broker stores anything. It keeps no state of
//! its own beyond connections and the addresses of direct replies: all else is the broker's.

mod amqp;
mod arguments;
mod auth;
mod clock;
mod connection;
mod content;
mod equivalence;
mod error;
mod exception;
mod exchange_kinds;
mod facts;
mod handshake;
mod input;
mod known_arguments;
mod metrics;
mod output;
mod session;
mod settings;
mod stream_arguments;

pub use amqp::Amqp;
pub use settings::AmqpSettings;
