//! `stafett-simulate SECONDS [SEED]` runs seeds on all processors and prints the first failure;
//! `stafett-simulate one SEED [STEPS] [show]` runs one seed, or some of its steps.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use stafett_simulation::seeds::{Runner, list};
use stafett_simulation::steps::Plan;
use stafett_simulation::{host, world};

const USAGE: &str =
    "usage: stafett-simulate SECONDS [SEED]\n       stafett-simulate one SEED [STEP,STEP,...|none] [show]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["one", seed, rest @ ..] => match plan(seed, rest) {
            Some(plan) => one(plan, rest.contains(&"show")),
            None => usage(),
        },
        [seconds] => match seconds.parse() {
            Ok(seconds) => many(seconds, host::entropy()),
            Err(_) => usage(),
        },
        [seconds, seed] => match (seconds.parse(), seed.parse()) {
            (Ok(seconds), Ok(seed)) => many(seconds, seed),
            _ => usage(),
        },
        _ => usage(),
    }
}

fn plan(seed: &str, rest: &[&str]) -> Option<Plan> {
    let plan = Plan::new(seed.parse().ok()?);
    match rest.iter().find(|word| **word != "show") {
        None => Some(plan),
        Some(&"none") => Some(plan.only(&[])),
        Some(steps) => {
            let kept: Option<Vec<usize>> = steps.split(',').map(|step| step.parse().ok()).collect();
            Some(plan.only(&kept?))
        }
    }
}

fn one(plan: Plan, is_shown: bool) -> ExitCode {
    let steps = plan.steps.len();
    let report = world::run(plan, is_shown);
    match report.finding {
        None => {
            let (lives, faults) = (report.lives, report.faults);
            say(&format!(
                "{steps} steps, {lives} starts, {faults} faults, sum {:016x}",
                report.sum
            ));
            ExitCode::SUCCESS
        }
        Some(finding) => {
            say(&finding.0);
            ExitCode::FAILURE
        }
    }
}

fn many(seconds: u64, seed: u64) -> ExitCode {
    let Ok(program) = std::env::current_exe() else {
        return usage();
    };
    let until = Instant::now() + Duration::from_secs(seconds);
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let runner = Runner::new(&program);
    let failure = runner.run(seed, jobs, &|_| Instant::now() < until);
    say(&format!("from seed {seed} on: {}", runner.totals()));
    let Some(failure) = failure else {
        return ExitCode::SUCCESS;
    };
    say(&format!("found after {} s", failure.after.as_secs()));
    say(&format!("seed {} fails: {}", failure.seed, failure.finding));
    for step in Plan::new(failure.seed).only(&failure.steps).steps {
        say(&format!("  {step:?}"));
    }
    let steps = list(&failure.steps);
    say(&format!(
        "again: {} one {} {steps} show",
        program.display(),
        failure.seed
    ));
    ExitCode::FAILURE
}

fn usage() -> ExitCode {
    say(USAGE);
    ExitCode::from(2)
}

#[expect(clippy::print_stdout, reason = "it is what the program is for")]
fn say(text: &str) {
    println!("{text}");
}
