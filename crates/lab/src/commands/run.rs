//! `stafett lab run`.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::builder::PossibleValuesParser;
use clap::{Args, value_parser};
use stafett_lab::agents::AgentAddress;
use stafett_lab::experiment::check::SYSTEMS;
use stafett_lab::experiment::{Source, library};
use stafett_lab::results::{self, Status};
use stafett_lab::run::{OVER_AMQP, Request, RunError, Watch};
use tokio_util::sync::CancellationToken;

use super::agent::SecretFile;
use super::progress::Progress;
use crate::failure::Failure;
use crate::signals::until_signal;

/// Run an experiment, or go on with one that was interrupted
#[derive(Debug, Args)]
#[command(
    after_help = "Interrupt it with Ctrl-C; the same command with --out DIR goes on where it was.\n\nExamples:\n  \
        stafett lab run peak --scale 0.1\n  stafett lab run peak --system stafett --system kafka --out peak\n  \
        stafett lab run mine.toml --address kafka=broker:9092"
)]
pub(super) struct Run {
    /// One of `stafett lab list`, or a TOML file; docs/lab/README.md describes them
    #[arg(value_name = "NAME or FILE")]
    experiment: String,
    /// Only these systems; can be given several times
    #[arg(long = "system", value_name = "NAME", value_delimiter = ',', value_parser = PossibleValuesParser::new(SYSTEMS))]
    systems: Option<Vec<String>>,
    /// Factor of durations and totals; below 1 the experiment's [small] holds
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = scale)]
    scale: f64,
    /// The whole grid, with the experiment's [full]; not with a scale below 1
    #[arg(long)]
    full: bool,
    /// How often each point is measured, instead of the experiment's own number
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1000))]
    repetitions: Option<u32>,
    /// Where the results go, and the systems' data while they run [default: ./lab/NAME-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// A system that runs already, instead of one that is started; stafett+amqp=HOST:PORT where it speaks
    /// AMQP
    #[arg(long = "address", value_name = "SYSTEM=HOST:PORT", value_parser = address)]
    addresses: Vec<(String, String)>,
    /// A `stafett lab agent` that runs its share of the load; without any, this program runs all of it
    #[arg(long = "agent", value_name = "[NAME=]HOST:PORT", value_delimiter = ',')]
    agents: Vec<String>,
    #[command(flatten)]
    secret: SecretFile,
    /// The address of this machine at which agents find the systems that are started here
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    #[arg(
        long,
        value_name = "PROGRAM",
        help = "The program with librdkafka and lapin, for driver = \"client\"; `make lab-clients` builds it \
            [default: stafett-lab-clients beside this program]",
        env = "STAFETT_LAB_CLIENTS"
    )]
    clients: Option<PathBuf>,
    /// The broker to start as the system `stafett` [default: stafett beside this program]
    #[arg(long, value_name = "PROGRAM")]
    stafett: Option<PathBuf>,
}

impl Run {
    pub(super) fn run(self) -> Result<(), Failure> {
        let request = self.request()?;
        let runtime = super::runtime()?;
        let out = request.out.clone();
        let progress = Arc::new(Progress::new());
        let stop = CancellationToken::new();
        let watch: Arc<dyn Watch> = Arc::<Progress>::clone(&progress);
        let running = stafett_lab::run::run(request, watch, stop.clone());
        let done = runtime.block_on(until_signal(stop, running));
        progress.end();
        runtime.shutdown_background();
        let run = match done.context("signals cannot be heard")? {
            Ok(run) => run,
            Err(error @ (RunError::Experiment(_) | RunError::Request(_))) => {
                return Err(Failure::Usage(error.to_string()));
            }
            Err(error @ (RunError::Store(_) | RunError::Space(_))) => return Err(Failure::Run(error.into())),
        };
        conclude(&run, &out)
    }

    fn request(self) -> Result<Request, Failure> {
        let (name, mut source) = find(&self.experiment)?;
        if self.full {
            if self.scale < 1.0 {
                return Err(Failure::Usage("--full is for a scale of 1 or more".to_owned()));
            }
            source = source.full().map_err(|error| Failure::Usage(error.to_string()))?;
        }
        let out = self.out.unwrap_or_else(|| {
            let time = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S");
            Path::new("lab").join(format!("{name}-{time}"))
        });
        let command: Vec<String> = std::env::args().skip(1).collect();
        let exe = std::env::current_exe().context("this program's own file is not known")?;
        Ok(Request {
            name,
            source,
            systems: self.systems,
            repetitions: self.repetitions,
            scale: self.scale,
            out,
            addresses: self.addresses.into_iter().collect(),
            agents: AgentAddress::parse_all(&self.agents).map_err(Failure::Usage)?,
            secret: self.secret.read()?,
            host: self.host,
            clients: self.clients,
            stafett: self.stafett.unwrap_or_else(|| exe.with_file_name("stafett")),
            exe,
            command: format!("stafett lab {}", command.join(" ")),
        })
    }
}

/// An experiment by name, or by its file.
fn find(experiment: &str) -> Result<(String, Source), Failure> {
    if let Some(source) = library::find(experiment) {
        return Ok((experiment.to_owned(), source));
    }
    let path = Path::new(experiment);
    if !path.exists() {
        let known: Vec<&str> = library::EXPERIMENTS.iter().map(|(name, _)| *name).collect();
        return Err(Failure::Usage(format!(
            "`{experiment}` is no experiment and no file: expected a TOML file or one of {}",
            known.join(", ")
        )));
    }
    let source = Source::open(path).map_err(|error| Failure::Usage(error.to_string()))?;
    let name = path
        .file_stem()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Ok((name, source))
}

/// Says where the results are and how it goes on.
fn conclude(run: &results::Run, out: &Path) -> Result<(), Failure> {
    let said = match run.status {
        Status::Finished => drawn(out),
        Status::Interrupted | Status::Running => {
            format!("interrupted; to go on: {}", resuming(run, out))
        }
        Status::Stopped => {
            let reason = run.reason.clone().unwrap_or_default();
            return Err(Failure::Run(anyhow::anyhow!(
                "{reason}; what was measured before is in {}; to go on: {}",
                out.display(),
                resuming(run, out)
            )));
        }
    };
    writeln!(io::stdout(), "{said}").context("the end cannot be printed")?;
    Ok(())
}

/// The report of a run that is done; it can be drawn again, so a run without one is still a run.
fn drawn(out: &Path) -> String {
    match stafett_lab::report::report(out, out) {
        Ok(written) => written.html.display().to_string(),
        Err(error) => format!("{}, without a report: {error}", out.display()),
    }
}

fn resuming(run: &results::Run, out: &Path) -> String {
    let has_out = run.command.contains("--out");
    if has_out {
        run.command.clone()
    } else {
        format!("{} --out {}", run.command, out.display())
    }
}

fn scale(text: &str) -> Result<f64, String> {
    let scale: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if (0.001..=1000.0).contains(&scale) {
        Ok(scale)
    } else {
        Err("a scale is 0.001 to 1000".to_owned())
    }
}

fn address(text: &str) -> Result<(String, String), String> {
    let known = |(system, address): &(&str, &str)| {
        let name = system.strip_suffix(OVER_AMQP).unwrap_or(system);
        SYSTEMS.contains(&name) && address.contains(':')
    };
    let found = text.split_once('=').filter(known);
    let (system, address) =
        found.ok_or_else(|| format!("expected SYSTEM=HOST:PORT, with one of {}", SYSTEMS.join(", ")))?;
    Ok((system.to_owned(), address.to_owned()))
}
