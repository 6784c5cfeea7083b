//! `stafett lab agent`: runs load for a controller on another machine.

use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use stafett_lab::agents;
use stafett_lab::agents::proof::Secret;
use stafett_lab::systems;
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::signals::until_signal;

/// Run load for `stafett lab run --agent` on another machine
#[derive(Debug, Args)]
#[command(
    after_help = "An agent sends load to whatever system its controller names. What controller and agent say to each other is\n\
        neither encrypted nor signed once they know each other: use it on networks that you trust.\n\nExample:\n  \
        stafett lab agent --listen 10.0.0.2:7071 --secret-file secret\n  \
        stafett lab run peak --agent 10.0.0.2:7071 --secret-file secret --host 10.0.0.1"
)]
pub(super) struct Agent {
    /// Where the controller connects; an address that other machines can reach needs a secret
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7071")]
    listen: String,
    #[command(flatten)]
    secret: SecretFile,
}

/// Option that names the file with the secret.
#[derive(Debug, Args)]
pub(super) struct SecretFile {
    /// A file with a secret of controller and agents, at least 8 bytes
    #[arg(long = "secret-file", value_name = "FILE", env = "STAFETT_LAB_SECRET_FILE")]
    path: Option<PathBuf>,
}

impl SecretFile {
    /// Reads the secret, if a file is named.
    pub(super) fn read(&self) -> Result<Option<Secret>, Failure> {
        let Some(path) = &self.path else { return Ok(None) };
        let about = |what: &str| Failure::Usage(format!("{}: {what}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| about(&error.to_string()))?;
        Secret::new(&text).map(Some).map_err(|wrong| about(&wrong))
    }
}

impl Agent {
    pub(super) fn run(self) -> Result<(), Failure> {
        let secret = self.secret.read()?;
        let runtime = super::runtime()?;
        let done = runtime.block_on(serve(&self.listen, secret));
        runtime.shutdown_background();
        done
    }
}

/// Serves controllers until a signal ends it.
async fn serve(address: &str, secret: Option<Secret>) -> Result<(), Failure> {
    // Standard error may be closed.
    let say = |line: &str| drop(writeln!(io::stderr(), "{line}"));
    let agent = agents::Agent::bind(address, secret, systems::lean_drivers(), say)
        .await
        .map_err(|error| Failure::Usage(error.to_string()))?;
    let at = agent.address().context("the agent has no address")?;
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let serving = async {
        writeln!(io::stdout(), "agent listening on {at}").context("nobody hears where the agent is")?;
        agent.serve(stopped).await;
        anyhow::Ok(())
    };
    let served = until_signal(stop, serving).await;
    Ok(served.context("signals cannot be heard")??)
}
