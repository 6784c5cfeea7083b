//! Parts that every listener shares: accepting connections, their limits, the bound on request bytes in
//! memory, length-prefixed framing, writing, and graceful shutdown.
//!
//! This crate knows sockets, time and bytes. It must not know any protocol, not even by name: frames are
//! interpreted by the [`Protocol`] that a listener is given.
//!
//! - [`listener`]: binding, and the settings of one listening socket
//! - [`accept`]: the accept loop: limits, back-off, one task per connection
//! - [`connection`]: one accepted connection and the trait that protocols implement
//! - [`stream`]: its bytes; [`tls`]: encrypted ones, with certificates and handshakes
//! - [`to_cell`]: connections to the owners of a cluster's cells
//! - [`registry`]: all open connections, listed and ended
//! - [`handover`]: switching a connection to another protocol
//! - [`shutdown`]: drain first, abort later
//! - [`budget`]: the bound on request bytes in memory, reserved before they are read
//! - [`arrival`]: the memory of a request while it arrives, reserved in steps
//! - [`frame`]: length-prefixed frames; idle connections own no read buffer
//! - [`output`]: vectored writes, with a time limit for peers that do not read
//! - [`stall`]: the same limit around streams that a library writes to
//! - [`shedding`]: refusals of a listener that is asked for more than it can do
//! - [`moderation`]: less frequent reads from peers that send many small pieces
//! - [`pace`]: time limits for transfers
//! - [`trace`]: the performance log
//! - [`turn`]: cooperative yielding after some work
//! - [`lock`]: locks that outlive a panic
//! - [`metrics`]: counters and gauges of connections

pub mod accept;
pub mod arrival;
pub mod budget;
pub mod connection;
pub mod frame;
pub mod handover;
pub mod listener;
pub mod lock;
pub mod metrics;
pub mod moderation;
pub mod output;
pub mod pace;
pub mod registry;
pub mod shedding;
pub mod shutdown;
pub mod stall;
pub mod stream;
pub mod tls;
pub mod to_cell;
pub mod trace;
mod turn;

pub use accept::{Handed, Shared, serve, serve_handed};
pub use arrival::Arrival;
pub use budget::{BudgetError, BudgetSettings, ByteBudget, Permit};
pub use connection::{Connection, Protocol};
pub use frame::{Frame, FrameError, FrameLimits, FrameReader, Status};
pub use handover::{Handover, Next};
pub use listener::{BindError, Listener, ListenerSettings, Security, resolve};
pub use metrics::{ListenerMetrics, NetMetrics};
pub use moderation::Moderation;
pub use output::{Output, WRITE_PACE, WriteError};
pub use pace::Pace;
pub use registry::{Client, ClientWords, ConnectionEntry, Connections, TrafficRates};
pub use shedding::{Intake, Overload, Shedding, SheddingSettings};
pub use shutdown::Shutdown;
pub use stream::{Duplex, ReadHalf, Stream, WriteHalf};
pub use tls::{ClientCertificate, ClientCertificates, ClientName, Tls, TlsError, TlsSession, TlsSettings};
pub use to_cell::{Reached, ToCell};

/// Target of log lines that are events as well: they have a `kind`, the `name` of its object, and their
/// origin: `by`, `from`, `via`, `request`.
pub const EVENTS: &str = "events";
pub use trace::{Line, Parts, Trace, TraceSettings};
pub use turn::Turn;
