//! What a tool is started with, and what it says.

use super::kafka_perf;
use super::perf_test;
use super::told::Interval;

/// Where the load goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) address: &'a str,
    /// Of the topics or queues of the set that is used.
    pub(super) names: &'a [String],
    /// In the system's own words.
    pub(super) settings: &'a [(String, String)],
}

impl Target<'_> {
    /// Whether messages over AMQP are persistent.
    pub(super) fn is_persistent(&self) -> bool {
        let mut modes = self.settings.iter().filter(|(name, _)| name == "delivery_mode");
        modes.next_back().is_some_and(|(_, mode)| mode == "2")
    }
}

/// A program to be started by a script of `tools/peers`.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    /// What its logs are called.
    pub(super) name: &'static str,
    /// What the script is told to run.
    pub(super) command: &'static str,
    pub(super) args: Vec<String>,
    pub(super) reader: Reader,
    pub(super) ends: Ends,
}

/// How a program comes to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// When its time is over.
    InTime,
    /// When it has sent what it was to send; if that takes longer than the time, it is ended.
    ByCount,
    /// It is ended.
    WhenTold,
}

/// What understands a program's lines.
#[derive(Debug, Clone)]
pub(super) enum Reader {
    PerfTest(perf_test::Lines),
    KafkaProducer(kafka_perf::ProducerLines),
    KafkaConsumer(kafka_perf::ConsumerLines),
}

/// What a line says.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Heard {
    /// No figures.
    Nothing,
    /// What was done since the line before.
    Interval(Box<Both>),
    /// Figures of all that counts together, by their names.
    Whole(Vec<(&'static str, f64)>),
    /// Why it ends, in its own words.
    Ends(String),
}

/// What either side did in the same while.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Both {
    pub(super) sent: Option<Interval>,
    pub(super) received: Option<Interval>,
}

impl Heard {
    pub(super) fn interval(sent: Option<Interval>, received: Option<Interval>) -> Self {
        Self::Interval(Box::new(Both { sent, received }))
    }
}

impl Reader {
    /// # Errors
    /// Where a line looks like figures and is none.
    pub(super) fn on_line(&mut self, line: &str) -> Result<Heard, String> {
        match self {
            Self::PerfTest(lines) => lines.on_line(line),
            Self::KafkaProducer(lines) => lines.on_line(line),
            Self::KafkaConsumer(lines) => lines.on_line(line),
        }
    }
}
