//! Confirmation of deletions.

use std::io::{self, IsTerminal, Write};

use anyhow::ensure;
use clap::{Arg, ArgAction, ArgMatches};

const YES: &str = "yes";

/// Returns the option that skips the confirmation.
pub(super) fn yes() -> Arg {
    Arg::new(YES)
        .long(YES)
        .short('y')
        .action(ArgAction::SetTrue)
        .help("Do not ask, as happens on a terminal")
}

pub(super) fn is_agreed(matches: &ArgMatches) -> bool {
    matches.get_flag(YES)
}

/// Asks for confirmation on a terminal. Fails unless the answer is yes.
pub(super) fn confirm(question: &str) -> anyhow::Result<()> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(());
    }
    write!(io::stderr(), "{question} [y/N] ")?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    ensure!(matches!(answer.trim(), "y" | "Y" | "yes"), "nothing was done");
    Ok(())
}
