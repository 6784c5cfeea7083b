//! The binary `stafett`.
//!
//! This crate reads settings, starts and stops the process, and is the only place where front ends and core
//! are put together. What they do is not its business.
//!
//! - [`commands`]: one file per command of the command line
//! - [`config`]: the settings: one table, from which everything about them is made
//! - [`serve`]: the process, from its start to its end
//! - [`client`]: what the commands that talk to a broker share
//! - [`announce`]: what is said on standard output
//! - [`failure`]: why the process ends with an error, and with which code
//! - [`core`], [`front_ends`], [`journal_routes`]: what the process is put together from
//! - [`limits`]: what the operating system allows
//! - [`logging`]: structured logs, to standard error
//! - [`reload`]: settings that are changed while the broker runs
//! - [`signals`]: when to stop
//! - [`usage`]: metrics of what the process takes

mod announce;
mod client;
mod commands;
mod config;
mod core;
mod failure;
mod front_ends;
mod journal_routes;
mod limits;
mod live;
mod logging;
mod reload;
mod serve;
mod signals;
mod usage;

use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    match commands::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // With standard error closed there is nobody left to tell.
            let _ = writeln!(io::stderr(), "stafett: {failure}");
            failure.exit_code()
        }
    }
}
