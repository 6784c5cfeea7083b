//! Runs seeds, each in a process of its own, several at a time.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use stafett_model::Lock;

use crate::shrink::shrink;
use crate::steps::Plan;

/// Limit on the processor time of a seed. A seed that takes longer hangs.
const BUSY: Duration = Duration::from_mins(2);
/// The same in clock ticks.
const TICKS_MAX: u64 = BUSY.as_secs() * 100;
/// Limit on its time on a busy machine, where it may get little of a processor.
const PATIENCE: Duration = Duration::from_mins(20);
const LOOK_EVERY: Duration = Duration::from_millis(5);
const SHRINK_TRIES: usize = 300;

/// Runner of seeds.
#[derive(Debug)]
pub struct Runner {
    /// The program `stafett-simulate`.
    program: PathBuf,
    totals: [AtomicU64; 4],
}

/// A failing seed, with a sufficient set of its steps.
#[derive(Debug)]
pub struct Failure {
    pub seed: u64,
    pub steps: Vec<usize>,
    pub finding: String,
    /// Time until it was found.
    pub after: Duration,
}

/// Output of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub is_good: bool,
    pub text: String,
}

impl Runner {
    pub fn new(program: &Path) -> Self {
        Self {
            program: program.to_owned(),
            totals: Default::default(),
        }
    }

    /// Runs seeds from `first` on until `goes_on` returns false or one fails. Returns the failure with a
    /// reduced set of steps.
    pub fn run(&self, first: u64, jobs: usize, goes_on: &(dyn Fn(u64) -> bool + Sync)) -> Option<Failure> {
        let began = Instant::now();
        let next = AtomicU64::new(first);
        let is_over = AtomicBool::new(false);
        let failed: Lock<Option<(u64, String)>> = Lock::new(None);
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    while !is_over.load(Relaxed) {
                        let seed = next.fetch_add(1, Relaxed);
                        if !goes_on(seed) {
                            break;
                        }
                        let answer = self.one(seed, None);
                        if !answer.is_good {
                            is_over.store(true, Relaxed);
                            let mut failed = failed.lock();
                            if failed.as_ref().is_none_or(|(before, _)| seed < *before) {
                                *failed = Some((seed, answer.text));
                            }
                        }
                    }
                });
            }
        });
        let (seed, text) = failed.into_inner()?;
        let after = began.elapsed();
        Some(self.shrunk(seed, text, after))
    }

    fn shrunk(&self, seed: u64, text: String, after: Duration) -> Failure {
        let all: Vec<usize> = (0..Plan::new(seed).steps.len()).collect();
        let mut finding = text;
        let steps = shrink(all, SHRINK_TRIES, |kept| {
            let answer = self.one(seed, Some(kept));
            if !answer.is_good {
                finding = answer.text;
            }
            !answer.is_good
        });
        Failure {
            seed,
            steps,
            finding,
            after,
        }
    }

    /// Runs one seed, or some of its steps.
    pub fn one(&self, seed: u64, steps: Option<&[usize]>) -> Answer {
        let mut command = Command::new(&self.program);
        command.arg("one").arg(seed.to_string());
        if let Some(steps) = steps {
            command.arg(list(steps));
        }
        match run(&mut command) {
            Ok((text, is_good)) => {
                if steps.is_none() {
                    // A finding is no count.
                    self.count(if is_good { &text } else { "" });
                }
                Answer { is_good, text }
            }
            Err(error) => Answer {
                is_good: false,
                text: format!("it did not end: {error}"),
            },
        }
    }

    fn count(&self, text: &str) {
        let numbers = text
            .split_whitespace()
            .filter_map(|word| word.parse::<u64>().ok());
        for (total, number) in self.totals.iter().skip(1).zip(numbers) {
            total.fetch_add(number, Relaxed);
        }
        if let Some(seeds) = self.totals.first() {
            seeds.fetch_add(1, Relaxed);
        }
    }

    /// Describes the totals of all runs.
    pub fn totals(&self) -> String {
        let [seeds, steps, lives, faults] = self.totals.each_ref().map(|total| total.load(Relaxed));
        format!("{seeds} seeds, {steps} steps, {lives} starts of the broker, {faults} faults of the disk")
    }
}

/// Formats steps as an argument of the program.
pub fn list(steps: &[usize]) -> String {
    let numbers: Vec<_> = steps.iter().map(usize::to_string).collect();
    if numbers.is_empty() {
        "none".to_owned()
    } else {
        numbers.join(",")
    }
}

fn run(command: &mut Command) -> std::io::Result<(String, bool)> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let since = Instant::now();
    loop {
        if child.try_wait()?.is_some() {
            let output = child.wait_with_output()?;
            let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
            if !output.status.success() {
                text.push_str(&String::from_utf8_lossy(&output.stderr));
            }
            return Ok((text, output.status.success()));
        }
        let elapsed = since.elapsed();
        if elapsed > PATIENCE || elapsed > BUSY && ticks_of(child.id()) > TICKS_MAX {
            child.kill()?;
            child.wait()?;
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Returns the processor time of a process so far, in clock ticks.
fn ticks_of(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Fields 14 and 15; the name before them may have spaces.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let fields = after_name.split_whitespace().skip(11).take(2);
    fields.filter_map(|field| field.parse::<u64>().ok()).sum()
}
