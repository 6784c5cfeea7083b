//! `stafett lab serve`.

use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use stafett_lab::page::{self, Logins, PageError, Settings};
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::signals::until_signal;

/// Serve the lab as a web page: experiments, runs that are watched live, and their analysis
#[derive(Debug, Args)]
#[command(
    after_help = "Without logins it listens on this machine's loopback only, since it starts programs. Runs go on when it ends, and are found again.\n\n\
        Examples:\n  stafett lab serve\n  stafett lab serve --runs /var/lab --listen 127.0.0.1:7072"
)]
pub(super) struct Serve {
    /// Where the page is served, on loopback
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7072")]
    listen: String,
    /// Folder of the runs
    #[arg(long, value_name = "DIR", default_value = "./lab")]
    runs: PathBuf,
    /// Folder of own experiments
    #[arg(long, value_name = "DIR", default_value = "./lab-experiments")]
    experiments: PathBuf,
    /// File with the secret of agents, for runs that have some
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// File with NAME:PASSWORD in each line, the logins that may run experiments
    #[arg(long, value_name = "FILE")]
    login_file: Option<PathBuf>,
    /// The same, of logins that may look
    #[arg(long, value_name = "FILE")]
    look_file: Option<PathBuf>,
    /// Checkout of which the page builds revisions
    #[arg(long, value_name = "DIR", default_value = ".")]
    source: PathBuf,
}

impl Serve {
    pub(super) fn run(self) -> Result<(), Failure> {
        let exe = std::env::current_exe().context("this program's own file is not known")?;
        let login = Logins::read_all(self.login_file.as_deref(), self.look_file.as_deref());
        let settings = Settings {
            login: login.context("a file of logins cannot be used")?,
            source: self.source,
            listen: self.listen,
            runs: self.runs,
            experiments: self.experiments,
            exe,
            secret_file: self.secret_file,
        };
        let runtime = super::runtime()?;
        let ready = |address| {
            // Standard output may be closed.
            let _ = writeln!(io::stdout(), "the lab is at http://{address}/lab/");
            let _ = io::stdout().flush();
        };
        let stop = CancellationToken::new();
        let serving = page::serve(settings, ready, stop.clone());
        let served = runtime.block_on(until_signal(stop, serving));
        match served.context("signals cannot be heard")? {
            Err(error @ PageError::NotLoopback(_)) => Err(Failure::Usage(error.to_string())),
            Err(error) => Err(Failure::Run(error.into())),
            Ok(()) => Ok(()),
        }
    }
}
