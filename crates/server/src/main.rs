//! The binary `stafett`.
//!
//! This crate reads settings, starts and stops the process, and is the only place that connects front ends
//! and core. It must not implement either of them.
//!
//! - [`commands`]: one file per command of the command line
//! - [`config`]: the settings: one table, from which everything about them is generated
//! - [`serve`]: the process, from start to end; [`standby`]: while another node of a cluster serves
//! - [`client`]: shared parts of the commands that talk to a broker
//! - [`announce`]: lines on standard output
//! - [`cluster`]: this node in a cluster; [`brokers`]: its nodes, for clients of Kafka's protocol
//! - [`failure`]: errors that end the process, and their exit codes
//! - [`core`], [`front_ends`], [`http_listeners`]: parts of the process; [`endpoints`]: its listening
//!   sockets; [`tls`]: its certificates
//! - [`ingest`]: endpoints that take events
//! - [`limits`]: limits of the operating system
//! - [`logging`]: structured logs, to standard error
//! - [`node`], [`threads`]: the process as the HTTP API shows it
//! - [`reload`]: settings that change while the broker runs
//! - [`machine`]: readings of the machine; [`sampling`]: samples of it and of the broker, every 5 s
//! - [`signals`]: signals and requests that stop the process
//! - [`usage`]: metrics of the process's resources

mod announce;
mod brokers;
mod cells;
mod client;
mod cluster;
mod commands;
mod config;
mod console;
mod core;
mod endpoints;
mod failure;
mod feeds;
mod forward;
mod front_ends;
mod http_listeners;
mod ingest;
mod limits;
mod listeners;
mod live;
mod logging;
mod machine;
mod node;
mod oauth;
mod overload;
mod reload;
mod sampling;
mod serve;
mod signals;
mod sinks;
mod standby;
mod threads;
mod tls;
mod trace;
mod usage;

use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    // One provider for every part that encrypts; it is the only one in the program.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match commands::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // If standard error is closed, the message is lost.
            let _ = writeln!(io::stderr(), "stafett: {failure}");
            failure.exit_code()
        }
    }
}
