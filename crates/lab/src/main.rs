//! The binary `stafett-lab`, the program behind `stafett lab`.
//!
//! - [`commands`]: one file per command of the command line
//! - [`failure`]: errors that end the process, with their exit codes
//! - [`signals`]: SIGTERM and SIGINT

mod commands;
mod failure;
mod signals;

use std::io::{self, Write as _};
use std::process::ExitCode;

fn main() -> ExitCode {
    match commands::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Standard error may be closed; the exit code is left.
            let _ = writeln!(io::stderr(), "stafett: {failure}");
            failure.exit_code()
        }
    }
}
