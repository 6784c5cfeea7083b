//! AMQP 0-9-1, as RabbitMQ's clients speak it: a front end of the broker.
//!
//! [`Amqp`] is served by a listener.
//!
//! ```text
//! socket ─ input ─▶ frames ─ handshake ─▶ session ──▶ one publish per exchange and batch of frames
//!                                          │  ▲             │ tickets ─▶ confirms
//!                                          │  └ outbox ◀────┴ queues
//!                                          ▼
//!                                        output ──▶ one vectored write for many frames
//! ```
//!
//! - `connection`: the asynchronous shell: reads, waits, writes
//! - `input`, `output`: received bytes and bytes to send
//! - `handshake`, `auth`: opening of a connection
//! - `homes`: virtual hosts that another broker of the cluster keeps; `passing`: bytes of their connections
//! - `session`: an open connection; one file per class of methods
//! - `operation`: waits of a session, performed by the connection
//! - `content`: conversion between messages of AMQP and messages of the core
//! - `arguments`, `stream_arguments`, `exchange_kinds`: queues, streams and exchanges as AMQP describes them;
//!   `known_arguments`: arguments per queue type; `equivalence`: comparison with the existing queue
//! - `message_attributes`: properties that decide the route of a message when it is routed again
//! - `exception`: reasons for closing a channel or a connection; `error`: from errors of the core to
//!   exceptions
//! - `management`: RabbitMQ's management HTTP API
//! - `metrics`, `settings`; `churn`: rates of connections and the like that come and go
//!
//! This crate must not know files, other protocols or how the broker stores anything. It keeps no state
//! beyond connections and the addresses of direct replies: everything else is in the broker.

mod arguments;
mod auth;
mod churn;
mod client;
mod connection;
mod content;
mod context;
mod equivalence;
mod error;
mod exception;
mod exchange_kinds;
mod front_end;
mod handshake;
mod homes;
mod input;
mod known_arguments;
mod limits;
mod management;
mod message_attributes;
mod metrics;
mod opening;
mod operation;
mod output;
mod passing;
mod session;
mod settings;
mod stream_arguments;
mod traced;

pub use front_end::{Amqp, add_hooks};
pub use homes::{AccessVersion, Home, Homes, PassedConnections, Reached};
pub use management::{ManagedNode, Management, NodeFacts, PASSED_OVER, definitions_of, passed_over_header};
pub use settings::AmqpSettings;
