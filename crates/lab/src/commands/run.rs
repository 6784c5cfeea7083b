//! `stafett lab run`.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use stafett_lab::agents::AgentAddress;
use stafett_lab::experiment::check::SYSTEMS;
use stafett_lab::experiment::{Source, library};
use stafett_lab::results::{Run, Status};
use stafett_lab::run::{OVER_AMQP, Request, RunError};
use tokio_util::sync::CancellationToken;

use super::progress::Progress;
use super::{option, path_option};
use crate::failure::Failure;
use crate::signals::StopSignals;

const EXPERIMENT: &str = "experiment";
const SYSTEM: &str = "system";
const SCALE: &str = "scale";
const REPETITIONS: &str = "repetitions";
const OUT: &str = "out";
const ADDRESS: &str = "address";
const AGENT: &str = "agent";
const HOST: &str = "host";
const CLIENTS: &str = "clients";
const STAFETT: &str = "stafett";

pub(super) fn describe() -> Command {
    let command = Command::new("run")
        .about("Run an experiment, or go on with one that was interrupted")
        .arg(
            Arg::new(EXPERIMENT)
                .required(true)
                .value_name("NAME or FILE")
                .help("One of `stafett lab list`, or a TOML file; docs/lab/README.md describes them"),
        )
        .arg(
            option(SYSTEM, "NAME", "Only these systems; can be given several times")
                .action(ArgAction::Append)
                .value_delimiter(',')
                .value_parser(SYSTEMS),
        )
        .arg(
            option(
                SCALE,
                "FACTOR",
                "What durations and totals are multiplied by; below 1 the experiment's [small] holds",
            )
            .default_value("1")
            .value_parser(scale),
        )
        .arg(
            option(
                REPETITIONS,
                "N",
                "How often each point is measured, instead of what the experiment says",
            )
            .value_parser(value_parser!(u32).range(1..=1000)),
        )
        .arg(path_option(
            OUT,
            "DIR",
            "Where the results go, and the systems' data while they run [default: ./lab/NAME-TIME]",
        ))
        .arg(
            option(
                ADDRESS,
                "SYSTEM=HOST:PORT",
                "A system that runs already, instead of one that is started; stafett+amqp=HOST:PORT where it speaks AMQP",
            )
            .action(ArgAction::Append)
            .value_parser(address),
        );
    with_agents(command)
        .arg(path_option(
            STAFETT,
            "PROGRAM",
            "The broker to start as the system `stafett` [default: stafett beside this program]",
        ))
        .after_help(
            "Interrupt it with Ctrl-C; the same command with --out DIR goes on where it was.\n\nExamples:\n  \
             stafett lab run peak --scale 0.1\n  stafett lab run peak --system stafett --system kafka --out peak\n  \
             stafett lab run mine.toml --address kafka=broker:9092",
        )
}

/// Adds the options about where the load runs.
fn with_agents(command: Command) -> Command {
    command
        .arg(
            option(
                AGENT,
                "[NAME=]HOST:PORT",
                "A `stafett lab agent` that runs its share of the load; without any, this program runs all of it",
            )
            .action(ArgAction::Append)
            .value_delimiter(','),
        )
        .arg(super::agent::secret())
        .arg(
            option(
                HOST,
                "HOST",
                "The address of this machine at which agents find the systems that are started here",
            )
            .default_value("127.0.0.1"),
        )
        .arg(
            path_option(
                CLIENTS,
                "PROGRAM",
                "The program with librdkafka and lapin, for driver = \"client\"; `make lab-clients` builds it \
                 [default: stafett-lab-clients beside this program]",
            )
            .env("STAFETT_LAB_CLIENTS"),
        )
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

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let request = request(matches)?;
    let runtime = super::runtime()?;
    let out = request.out.clone();
    let progress = Arc::new(Progress::new());
    let done = runtime.block_on(watched(request, Arc::clone(&progress)));
    progress.end();
    runtime.shutdown_background();
    let run = match done {
        Ok(run) => run,
        Err(error @ (RunError::Experiment(_) | RunError::Request(_))) => {
            return Err(Failure::Usage(error.to_string()));
        }
        Err(error @ (RunError::Store(_) | RunError::Space(_))) => return Err(Failure::Run(error.into())),
    };
    conclude(&run, &out)
}

/// Runs it until it is done or a signal interrupts it.
async fn watched(request: Request, progress: Arc<Progress>) -> Result<Run, RunError> {
    let stop = CancellationToken::new();
    let running = stafett_lab::run::run(request, progress, stop.clone());
    tokio::pin!(running);
    let Ok(mut signals) = StopSignals::listen() else {
        return running.await;
    };
    tokio::select! {
        run = &mut running => return run,
        () = signals.next() => stop.cancel(),
    }
    running.await
}

fn request(matches: &ArgMatches) -> Result<Request, Failure> {
    let experiment = matches.get_one::<String>(EXPERIMENT).map_or("", String::as_str);
    let (name, source) = find(experiment)?;
    let scale = matches.get_one::<f64>(SCALE).copied().unwrap_or(1.0);
    let out = matches.get_one::<PathBuf>(OUT).cloned().unwrap_or_else(|| {
        let time = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S");
        Path::new("lab").join(format!("{name}-{time}"))
    });
    let systems: Option<Vec<String>> = matches
        .get_many::<String>(SYSTEM)
        .map(|systems| systems.cloned().collect());
    let agents: Vec<String> = matches.get_many(AGENT).into_iter().flatten().cloned().collect();
    let agents = AgentAddress::parse_all(&agents).map_err(Failure::Usage)?;
    let host = matches.get_one::<String>(HOST).cloned();
    let addresses: BTreeMap<String, String> =
        matches.get_many(ADDRESS).into_iter().flatten().cloned().collect();
    let command: Vec<String> = std::env::args().skip(1).collect();
    let exe = std::env::current_exe().context("this program's own file is not known")?;
    Ok(Request {
        name,
        source,
        systems,
        repetitions: matches.get_one::<u32>(REPETITIONS).copied(),
        scale,
        out,
        addresses,
        agents,
        secret: super::agent::read_secret(matches)?,
        host: host.unwrap_or_else(|| "127.0.0.1".to_owned()),
        clients: matches.get_one::<PathBuf>(CLIENTS).cloned(),
        stafett: matches
            .get_one::<PathBuf>(STAFETT)
            .cloned()
            .unwrap_or_else(|| exe.with_file_name("stafett")),
        exe,
        command: format!("stafett lab {}", command.join(" ")),
    })
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
fn conclude(run: &Run, out: &Path) -> Result<(), Failure> {
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

fn resuming(run: &Run, out: &Path) -> String {
    let has_out = run.command.contains("--out");
    if has_out {
        run.command.clone()
    } else {
        format!("{} --out {}", run.command, out.display())
    }
}
