//! Simulation: a seed runs the real journal, broker and front ends on a simulated disk and in simulated time.
//! Random clients record every answer, and a checker compares the stored data with their records.
//!
//! A seed determines everything: settings, steps and faults ([`steps`]), clocks and randomness of the program
//! ([`host`]), and the disk content after a loss of power. Two runs of a seed agree in every event
//! ([`trace`]). A process runs one seed. The program `stafett-simulate` starts a process per seed, and
//! reduces a failing seed to few steps ([`shrink`]).
//!
//! - [`world`]: successive lives of the broker, and the state that outlives them
//! - [`server`]: one start of the broker; [`journal`]: reads without threads; [`wire`]: sockets within the
//!   process
//! - [`kafka`]: producers, readers and topics; [`ledger`]: their answers, and the expected logs;
//!   [`transactions`]: the possible outcomes of transactions
//! - [`amqp`]: publishers, consumers and queues
//! - [`live`]: clients of live topics; [`mail`]: a client of the messages over HTTP; [`jobs`]: workers of an app
//! - [`full`]: a full disk; [`loss`]: lost or damaged files; [`backup`]: a start on a backup
//! - [`seeds`]: runs many seeds, and reduces one that fails
//!
//! It knows every layer of the broker; no layer of the broker knows it.

pub mod amqp;
pub mod backup;
pub mod full;
pub mod host;
pub mod jobs;
pub mod journal;
pub mod kafka;
pub mod ledger;
pub mod live;
pub mod loss;
pub mod mail;
pub mod random;
pub mod seeds;
pub mod server;
pub mod shrink;
pub mod steps;
pub mod trace;
pub mod transactions;
pub mod wire;
pub mod world;
