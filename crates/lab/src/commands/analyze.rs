//! `stafett lab analyze`.

use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use stafett_lab::analysis::write::{Quantity, Statistic};
use stafett_lab::analysis::{Action, AnalysisError, Band, Question, analyze, write};
use stafett_lab::experiment::Span;

use crate::failure::Failure;

/// Read performance logs: times and throughput, window by window
#[derive(Debug, Args)]
#[command(
    after_help = "The broker writes such logs into its setting trace.dir.\n\nExamples:\n  \
        stafett lab analyze trace\n  stafett lab analyze trace --action process,store --name 'queues.*' --window 1m --cut 4m\n  \
        stafett lab analyze node1 node2 --of throughput --format svg > throughput.svg"
)]
pub(super) struct Analyze {
    /// Folders with performance logs, of several nodes and runs
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Times to look at: request, its parts receive, process, store and send, append, sync
    #[arg(long, value_name = "ACTION", value_delimiter = ',', default_value = "request")]
    action: Vec<Action>,
    /// Names of requests, with * for any letters
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    name: String,
    /// Length of a window
    #[arg(long, value_name = "TIME", default_value = "10s")]
    window: Span,
    /// Time at the beginning and at the end that does not count
    #[arg(long, value_name = "TIME", default_value = "0s")]
    cut: Span,
    /// Percentiles beside the middle
    #[arg(long, value_name = "LOW..HIGH", default_value = "2.5..97.5")]
    band: Band,
    /// Lines of an SVG: the median with the band, or the mean with the standard deviation
    #[arg(long, value_name = "STATISTIC", default_value = "median")]
    stat: Stat,
    /// Quantity that an SVG draws
    #[arg(long, value_name = "QUANTITY", default_value = "response-time")]
    of: Of,
    #[arg(long, value_name = "FORMAT", default_value = "csv")]
    format: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Stat {
    Median,
    Mean,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Of {
    ResponseTime,
    Throughput,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Csv,
    Json,
    Svg,
}

impl Analyze {
    pub(super) fn run(self) -> Result<(), Failure> {
        let question = Question {
            folders: self.folders,
            actions: self.action,
            name: self.name,
            window: self.window.0,
            cut: self.cut.0,
            band: self.band,
        };
        let analysis = match analyze(&question) {
            Ok(analysis) => analysis,
            Err(error @ (AnalysisError::NoLog { .. } | AnalysisError::Nothing { .. })) => {
                return Err(Failure::Usage(error.to_string()));
            }
            Err(error) => return Err(Failure::Run(error.into())),
        };
        let statistic = match self.stat {
            Stat::Median => Statistic::Median,
            Stat::Mean => Statistic::Mean,
        };
        let quantity = match self.of {
            Of::ResponseTime => Quantity::ResponseTime,
            Of::Throughput => Quantity::Throughput,
        };
        let text = match self.format {
            Format::Csv => write::csv(&analysis),
            Format::Json => write::json(&analysis).context("the analysis cannot be written")?,
            Format::Svg => write::svg(&analysis, quantity, statistic),
        };
        let written = io::stdout().lock().write_all(text.as_bytes());
        written.context("the analysis cannot be printed")?;
        if analysis.unreadable_lines > 0 {
            let said = writeln!(
                io::stderr(),
                "{} lines were not readable",
                analysis.unreadable_lines
            );
            said.context("the end cannot be printed")?;
        }
        Ok(())
    }
}
