//! This node in a cluster: it is listed with the other nodes, waits until it owns the cell, and opens the
//! journal over the database.
//!
//! ```text
//!              StandingBy ── claim ──▶ Opening ── listeners serve ──▶ Serving
//!                  ▲                      │                              │
//!                  └────── the lease is lost, or the cell is let go ─────┘
//! ```
//!
//! While it stands by, its listeners accept all the same: connections are relayed to the owner, and wait for
//! one if there is none.
//!
//! - `member`: the node, from the start to the end of the process
//! - `opening`: the wait for a claim, and the journal; `folder`: the local folder
//! - `relay`: connections of clients while this node stands by; `doors`: the way to a listener for
//!   connections that came elsewhere
//! - `link`: connections to other nodes; `peers`: those of other nodes, with `strangers` before they have
//!   proven that; `watch`: this node's connection to the owner
//! - `cells`: several cells, and the way to the owner of another one; `copies`: users, rights and topics in
//!   all of them
//! - `report`: the cluster for operators; `audit`: its object store compared with its database; `metrics`

mod audit;
mod cells;
mod copies;
mod doors;
mod folder;
mod link;
mod member;
mod metrics;
mod opening;
mod peers;
mod relay;
mod report;
mod strangers;
mod watch;

pub(crate) use self::audit::compare;
pub(crate) use self::cells::{OtherCells, TheFirst, ToCells, home};
pub(crate) use self::copies::{Follower, Part, Version, follow};
pub(crate) use self::doors::Doors;
pub(crate) use self::member::{Member, Move};
pub(crate) use self::opening::{Ownership, open, storage_settings};
pub(crate) use self::relay::Relay;
