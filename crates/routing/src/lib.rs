//! Where a publish goes: pure tables, without I/O, locks or time.
//!
//! It must not know who asks: no protocol, no connection, no journal.
//!
//! - [`live`]: subscriptions of clients to live topics

pub mod live;
