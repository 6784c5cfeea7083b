//! `stafett lab agent`: runs load for a controller on another machine.

use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Arg, ArgMatches, Command};
use stafett_lab::agents::Agent;
use stafett_lab::agents::proof::Secret;
use stafett_lab::systems;
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::signals::StopSignals;

const LISTEN: &str = "listen";
const SECRET: &str = "secret-file";

pub(super) fn describe() -> Command {
    Command::new("agent")
        .about("Run load for `stafett lab run --agent` on another machine")
        .arg(
            super::option(
                LISTEN,
                "HOST:PORT",
                "Where the controller connects; what other machines can reach needs a secret",
            )
            .default_value("127.0.0.1:7071"),
        )
        .arg(secret())
        .after_help(
            "An agent sends load to whatever system its controller names. What controller and agent say to each other is\n\
             neither encrypted nor signed once they know each other: use it on networks that you trust.\n\nExample:\n  \
             stafett lab agent --listen 10.0.0.2:7071 --secret-file secret\n  \
             stafett lab run peak --agent 10.0.0.2:7071 --secret-file secret --host 10.0.0.1",
        )
}

/// Option that names the file with the secret.
pub(super) fn secret() -> Arg {
    let help = "A file with what controller and agents both know, at least 8 bytes";
    super::path_option(SECRET, "FILE", help).env("STAFETT_LAB_SECRET_FILE")
}

/// Reads the secret from its file, if one is named.
pub(super) fn read_secret(matches: &ArgMatches) -> Result<Option<Secret>, Failure> {
    let Some(path) = matches.get_one::<PathBuf>(SECRET) else {
        return Ok(None);
    };
    let about = |what: &str| Failure::Usage(format!("{}: {what}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| about(&error.to_string()))?;
    Secret::new(&text).map(Some).map_err(|wrong| about(&wrong))
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let address = matches
        .get_one::<String>(LISTEN)
        .map_or("127.0.0.1:7071", String::as_str);
    let secret = read_secret(matches)?;
    let runtime = super::runtime()?;
    let done: Result<(), Failure> = runtime.block_on(async {
        // Standard error may be closed.
        let say = |line: &str| drop(writeln!(io::stderr(), "{line}"));
        let agent = Agent::bind(address, secret, systems::lean_drivers(), say)
            .await
            .map_err(|error| Failure::Usage(error.to_string()))?;
        let mut signals = StopSignals::listen().context("signals cannot be heard")?;
        let at = agent.address().context("the agent has no address")?;
        writeln!(io::stdout(), "agent listening on {at}").context("nobody hears where the agent is")?;
        let stop = CancellationToken::new();
        let serving = agent.serve(stop.clone());
        tokio::pin!(serving);
        tokio::select! {
            () = &mut serving => {}
            () = signals.next() => {
                stop.cancel();
                serving.await;
            }
        }
        Ok(())
    });
    runtime.shutdown_background();
    done
}
