//! The public codec: whole frames, requests of real clients, and allocation counts.

mod allocations;
mod captured;
mod frames;
