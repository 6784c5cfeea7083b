//! What every listener shares: accepting connections, their limits, the bytes of requests in memory, framing
//! by length, writing, and a graceful end.
//!
//! This crate knows sockets, time and bytes. It must not know any protocol, not even by name: what a frame
//! means is the business of the [`Protocol`] that a listener is given.
//!
//! - [`listener`]: binding, and the settings of one listening socket
//! - [`accept`]: the accept loop: limits, backing off, one task per connection
//! - [`connection`]: what a protocol is given per connection
//! - [`handover`]: a connection that goes on under another protocol
//! - [`shutdown`]: drain first, abort later
//! - [`budget`]: the bound on bytes of requests in memory, taken before they are read
//! - [`arrival`]: the memory of a request while it arrives, taken in steps
//! - [`frame`]: length-prefixed frames, read in a way that costs idle connections nothing
//! - [`write`]: vectored writes with a limit for peers that do not read
//! - [`stall`]: the same limit for streams that a library writes to
//! - [`moderation`]: reading less often from who writes all the time in small pieces
//! - [`pace`]: how long a peer may take for a number of bytes
//! - [`turn`]: letting others have their turn on the thread
//! - [`metrics`]: what is counted

pub mod accept;
pub mod arrival;
pub mod budget;
pub mod connection;
pub mod frame;
pub mod handover;
pub mod listener;
pub mod metrics;
pub mod moderation;
pub mod pace;
pub mod shutdown;
pub mod stall;
pub mod turn;
pub mod write;

pub use accept::{Shared, serve};
pub use arrival::Arrival;
pub use budget::{BudgetError, BudgetSettings, ByteBudget, Permit};
pub use connection::{Connection, Protocol};
pub use frame::{Frame, FrameError, FrameLimits, FrameReader, Status};
pub use handover::{Handover, Next};
pub use listener::{BindError, Listener, ListenerSettings, resolve};
pub use metrics::{ListenerMetrics, NetMetrics};
pub use moderation::Moderation;
pub use pace::Pace;
pub use shutdown::Shutdown;
pub use write::{FrameWriter, WriteError, WriteLimits};
