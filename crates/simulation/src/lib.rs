//! One seed runs the broker: the real journal, the real broker and the real front ends, on a simulated disk
//! and in simulated time, driven by random clients that remember every answer; and a checker that compares
//! what is there with what they know.
//!
//! A seed says everything: settings, steps and faults ([`steps`]), what the program reads of clocks and
//! randomness ([`host`]), what a loss of power leaves on the disk. Two runs of a seed agree in every event
//! ([`trace`]). A process runs one seed; the program `stafett-simulate` starts one for each, and leaves out
//! steps of a seed that fails until few are left ([`shrink`]).
//!
//! - [`world`]: the lives of the broker, one after the other, and what outlives them
//! - [`server`]: one start of the broker; [`journal`]: reads without threads; [`wire`]: sockets within the
//!   process
//! - [`kafka`]: producers, readers and topics; [`ledger`]: what they were told, and what has to be there
//! - [`amqp`]: publishers, consumers and queues
//! - [`live`]: clients of live topics
//! - [`full`]: a full disk; [`loss`]: files that are lost or damaged
//! - [`seeds`]: many seeds, and what is left of one that fails
//!
//! It knows every layer of the broker, and nothing of the broker knows it.

pub mod amqp;
pub mod full;
pub mod host;
pub mod journal;
pub mod kafka;
pub mod ledger;
pub mod live;
pub mod loss;
pub mod random;
pub mod seeds;
pub mod server;
pub mod shrink;
pub mod steps;
pub mod trace;
pub mod wire;
pub mod world;
