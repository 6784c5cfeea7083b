//! `stafett journal …`: checks, dumps, backs up and restores data directories, and asks running brokers.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use stafett_journal::disk::backup::restore;
use stafett_journal::disk::fsck::{DumpedFrame, check, dump};
use stafett_journal::{DiskJournal, Metrics, Settings};

use super::running_journal;
use crate::client::http;
use crate::failure::Failure;

const PATHS: &str = "paths";

pub(super) fn describe() -> Command {
    let directory = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .value_name(name)
            .required(true)
            .value_parser(value_parser!(PathBuf))
            .help(help)
    };
    Command::new("journal")
        .about("Look into, back up and restore data directories")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("check")
                .about("Verify everything in a stopped data directory and say what was found")
                .arg(directory("DATA_DIR", "The data directory")),
        )
        .subcommand(
            Command::new("dump")
                .about("Show the frames of a stopped data directory")
                .arg(directory("DATA_DIR", "The data directory"))
                .arg(
                    Arg::new("from")
                        .long("from")
                        .value_name("SEGMENT:BYTE")
                        .default_value("0:0")
                        .help("Where to start"),
                )
                .arg(
                    Arg::new("limit")
                        .long("limit")
                        .value_name("N")
                        .value_parser(value_parser!(u64))
                        .help("How many frames to show"),
                )
                .arg(
                    Arg::new("json")
                        .long("json")
                        .action(ArgAction::SetTrue)
                        .help("One JSON object per line"),
                ),
        )
        .subcommand(backup())
        .subcommand(
            Command::new("restore")
                .about("Make a data directory of a backup, and verify it")
                .arg(directory("BACKUP", "The backup"))
                .arg(directory(
                    "DATA_DIR",
                    "The data directory to make; must be empty or absent",
                )),
        )
        .subcommands(running_journal::describe())
}

fn backup() -> Command {
    http::command(Command::new("backup"))
        .about("Back up a running broker, or a stopped data directory, without copying segments")
        .override_usage("stafett journal backup [OPTIONS] [DATA_DIR] <TARGET>")
        .arg(
            Arg::new(PATHS)
                .value_names(["DATA_DIR", "TARGET"])
                .num_args(1..=2)
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help(
                    "The stopped data directory, unless a running broker is asked, and the backup: a new \
                     folder on the same file system. For a running broker an absolute path, or a name below \
                     its setting journal.backup_dir",
                ),
        )
        .after_help("Examples:\n  stafett journal backup /backup/monday")
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let result = match matches.subcommand() {
        Some((name @ ("status" | "segments" | "backups" | "scrub"), matches)) => {
            return running_journal::run(name, matches);
        }
        Some(("backup", matches)) => return run_backup(matches),
        Some(("check", matches)) => run_check(matches),
        Some(("dump", matches)) => run_dump(matches),
        Some(("restore", matches)) => run_restore(matches),
        _ => Ok(()),
    };
    match result {
        // The reader of the output has closed it.
        Err(error)
            if error
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) =>
        {
            Ok(())
        }
        other => Ok(other?),
    }
}

fn path(matches: &ArgMatches, name: &str) -> anyhow::Result<PathBuf> {
    matches
        .get_one::<PathBuf>(name)
        .cloned()
        .ok_or_else(|| anyhow!("{name} is missing"))
}

fn run_check(matches: &ArgMatches) -> anyhow::Result<()> {
    let report = check(&path(matches, "DATA_DIR")?)?;
    write!(io::stdout(), "{report}")?;
    if report.is_sound() {
        Ok(())
    } else {
        Err(anyhow!("the data directory is damaged"))
    }
}

fn run_dump(matches: &ArgMatches) -> anyhow::Result<()> {
    let from = matches.get_one::<String>("from").map_or("0:0", String::as_str);
    let from = from
        .split_once(':')
        .and_then(|(segment, byte)| Some((segment.parse().ok()?, byte.parse().ok()?)))
        .ok_or_else(|| anyhow!("--from takes SEGMENT:BYTE, as in 12:4096, not {from:?}"))?;
    let limit = matches.get_one::<u64>("limit").copied().unwrap_or(u64::MAX);
    let json = matches.get_flag("json");
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut shown = 0;
    let mut failed = None;
    if limit > 0 {
        dump(&path(matches, "DATA_DIR")?, from, |frame| {
            shown += 1;
            let written = if json {
                show_json(&mut out, &frame)
            } else {
                show(&mut out, &frame)
            };
            if let Err(error) = written {
                failed = Some(error);
            }
            failed.is_none() && shown < limit
        })?;
    }
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(out.flush()?),
    }
}

fn show(out: &mut impl Write, frame: &DumpedFrame) -> io::Result<()> {
    let DumpedFrame {
        file,
        byte,
        group,
        bytes,
        ..
    } = frame;
    write!(out, "{file}:{byte}  group {group}  {bytes} bytes")?;
    for (name, value) in &frame.fields {
        write!(out, "  {name}={value}")?;
    }
    writeln!(out)
}

fn show_json(out: &mut impl Write, frame: &DumpedFrame) -> io::Result<()> {
    let quoted = |text: &str| format!("{text:?}");
    let DumpedFrame {
        byte,
        group,
        written_at,
        bytes,
        ..
    } = frame;
    let (file, synced) = (quoted(&frame.file), quoted(&frame.synced));
    write!(
        out,
        "{{\"file\":{file},\"byte\":{byte},\"group\":{group},\"written_at\":{written_at},\"synced\":{synced},\
         \"bytes\":{bytes},\"fields\":["
    )?;
    for (index, (name, value)) in frame.fields.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        // Values are ASCII without control characters; Rust and JSON quote these alike.
        write!(out, "{comma}[{},{}]", quoted(name), quoted(value))?;
    }
    writeln!(out, "]}}")
}

fn run_backup(matches: &ArgMatches) -> Result<(), Failure> {
    let mut paths = matches.get_many::<PathBuf>(PATHS).into_iter().flatten();
    match (paths.next(), paths.next()) {
        (Some(source), Some(target)) => Ok(back_up_stopped(source, target)?),
        (Some(target), None) => running_journal::back_up(matches, target),
        (None, _) => Ok(()),
    }
}

fn back_up_stopped(source: &Path, target: &Path) -> anyhow::Result<()> {
    if !source.exists() {
        return Err(anyhow!("{} does not exist", source.display()));
    }
    let journal = DiskJournal::open(source, Settings::default(), Metrics::new()).context(
        "only a stopped data directory can be opened here; ask a running broker with: stafett journal backup TARGET",
    )?;
    let report = journal.backup(target)?;
    writeln!(
        io::stdout(),
        "{} segments, {} bytes",
        report.segments,
        report.bytes
    )?;
    Ok(())
}

fn run_restore(matches: &ArgMatches) -> anyhow::Result<()> {
    let report = restore(&path(matches, "BACKUP")?, &path(matches, "DATA_DIR")?)?;
    write!(io::stdout(), "{report}")?;
    if report.is_sound() {
        Ok(())
    } else {
        Err(anyhow!("the restored data directory is damaged"))
    }
}
