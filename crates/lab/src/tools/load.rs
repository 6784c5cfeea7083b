//! A load by a tool: its programs from their start to their end, and what they tell as a result.
//!
//! ```text
//! start programs, first lines │ warm-up │ measured … │ the line about the last second, end
//!                             0         W           W+D
//! ```
//!
//! Seconds are the tool's own, or begin when each of its programs has told of messages. Processes are sampled at the same moments as seen from here.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::kafka_perf;
use super::launch::{Both, Ends, Heard, Launch, Reader};
use super::parts::{Parts, Times, Zero};
use super::program::{Program, Said};
use super::told::{Interval, Series};
use crate::agents::crew::Order;
use crate::drivers::DriverError;
use crate::environment;
use crate::measure::process::Watched;
use crate::results::{ProcessKind, ProcessSeries, RoleResult};
use crate::workload::Loaded;
use crate::workload::load::Second;

/// A Java machine on a busy computer may take so long to say something.
const STARTED_WITHIN: Duration = Duration::from_mins(1);
/// Behind its time, a tool that knows it may take so long to end.
const ENDED_WITHIN: Duration = Duration::from_secs(40);
/// Who does not know it is waited for so long: for the line about the last second, or for all that it had to send.
const LAST_LINE_WITHIN: Duration = Duration::from_secs(2);
const ALL_SENT_WITHIN: Duration = Duration::from_secs(2 + kafka_perf::SPARE_S as u64);
const SECOND: Duration = Duration::from_secs(1);
const LINES_WAITING: usize = 256;

/// Programs at work, and what they have told.
pub(super) struct Running<'a> {
    tool: &'static str,
    order: &'a Order,
    parts: Parts<'a>,
    times: Times,
    started: Instant,
    members: Vec<Member>,
    told: mpsc::Receiver<(usize, Said)>,
    /// When the first of them began.
    zero: Option<Instant>,
    brokers: Vec<Watched>,
    clients: Vec<Watched>,
    sampled_s: u32,
}

/// One of the programs.
struct Member {
    program: Program,
    reader: Reader,
    ends: Ends,
    /// When its first line's time began.
    zero: Option<Instant>,
    sent: Series,
    received: Series,
    whole: Vec<(&'static str, f64)>,
    /// Why it said that it ends.
    reason: Option<String>,
    has_ended: bool,
}

impl<'a> Running<'a> {
    /// # Errors
    /// Where a program cannot be started.
    pub(super) fn start(
        (tool, times): (&'static str, Times),
        script: &Path,
        launches: Vec<Launch>,
        order: &'a Order,
        logs: &Path,
    ) -> Result<Self, DriverError> {
        let parts = Parts::of(&order.plan, tool).map_err(DriverError::Refused)?;
        let brokers = order
            .brokers
            .iter()
            .map(|pid| Watched::new(ProcessKind::Broker, *pid));
        let (tell, told) = mpsc::channel(LINES_WAITING);
        let mut running = Self {
            tool,
            order,
            parts,
            times,
            started: Instant::now(),
            members: Vec::new(),
            told,
            zero: None,
            brokers: brokers.collect(),
            clients: Vec::new(),
            sampled_s: 0,
        };
        for (key, launch) in launches.into_iter().enumerate() {
            let mut command = Command::new(script);
            command.arg(launch.command).args(&launch.args);
            // Numbers with points, and letters beyond ASCII.
            command.env("LC_ALL", "C.UTF-8");
            let name = format!("{}-{}", launch.name, key + 1);
            let program = Program::start(command, &name, logs, key, tell.clone());
            running.members.push(Member {
                program: program.map_err(DriverError::Failed)?,
                reader: launch.reader,
                ends: launch.ends,
                zero: None,
                sent: Series::default(),
                received: Series::default(),
                whole: Vec::new(),
                reason: None,
                has_ended: false,
            });
        }
        Ok(running)
    }

    /// Until the time is over; then nothing of it runs any more.
    pub(super) async fn run(mut self) -> Result<Loaded, DriverError> {
        let came = self.watch().await;
        let loaded = came.map(|()| self.loaded());
        // Who still prints is not listened to any more.
        drop(self.told);
        for member in &self.members {
            member.program.ask();
        }
        for member in self.members {
            member.program.end().await;
        }
        loaded
    }

    async fn watch(&mut self) -> Result<(), DriverError> {
        while !self.is_over() {
            let (wake, is_deadline) = self.wake();
            tokio::select! {
                () = self.order.stop.cancelled() => {
                    return Err(DriverError::Failed(format!("{} was stopped", self.tool)));
                }
                said = self.told.recv() => match said {
                    Some((key, Said::Line(line))) => self.on_line(key, &line)?,
                    Some((key, Said::Ended(status))) => {
                        let status = status.map(|status| (status.success(), status.to_string()));
                        self.on_end(key, status.unwrap_or_else(|error| (false, error)))?;
                    }
                    None => return Ok(()),
                },
                () = sleep_until(wake) => {
                    if is_deadline {
                        return self.late();
                    }
                    self.sample();
                }
            }
        }
        Ok(())
    }

    /// When something has to be done, and whether that is the end.
    fn wake(&self) -> (Instant, bool) {
        let all = Duration::from_secs(self.times.all_s().into());
        let Some(zero) = self.zero else {
            return (self.started + STARTED_WITHIN + all, true);
        };
        let has = |ends| {
            self.members
                .iter()
                .any(|member| !member.has_ended && member.ends == ends)
        };
        let patience = if has(Ends::InTime) {
            ENDED_WITHIN
        } else if has(Ends::ByCount) {
            ALL_SENT_WITHIN
        } else {
            LAST_LINE_WITHIN
        };
        if self.sampled_s < self.times.all_s() {
            return (zero + SECOND * (self.sampled_s + 1), false);
        }
        (zero + all + patience, true)
    }

    /// Nothing more is to be expected.
    fn is_over(&self) -> bool {
        let all_s = f64::from(self.times.all_s());
        self.members.iter().all(|member| {
            let covers = self.zero.is_some() && member.until_s() + self.offset_s(member) >= all_s;
            member.has_ended || member.ends == Ends::WhenTold && covers
        })
    }

    /// The time is over for those that do not end by themselves.
    fn late(&self) -> Result<(), DriverError> {
        let waits = self.zero.is_none() || self.members.iter().any(|member| member.ends == Ends::InTime);
        if !waits {
            return Ok(());
        }
        let how = if self.zero.is_none() {
            "told of no message in its time".to_owned()
        } else {
            "did not come to an end".to_owned()
        };
        let complaint = self
            .members
            .first()
            .map_or_else(String::new, |member| member.program.complaint());
        Err(DriverError::Failed(format!("{} {how}{complaint}", self.tool)))
    }

    fn on_line(&mut self, key: usize, line: &str) -> Result<(), DriverError> {
        let now = Instant::now();
        let of_s = f64::from(self.times.all_s());
        let Some(member) = self.members.get_mut(key) else {
            return Ok(());
        };
        match member.reader.on_line(line).map_err(DriverError::Failed)? {
            Heard::Nothing => {}
            Heard::Whole(whole) => member.whole = whole,
            Heard::Ends(reason) => member.reason = Some(reason),
            Heard::Interval(both) => {
                let Both { sent, received } = *both;
                let main = sent.or(received).unwrap_or_default();
                let began = now.checked_sub(Duration::try_from_secs_f64(main.until_s).unwrap_or_default());
                let zero = *member.zero.get_or_insert_with(|| began.unwrap_or(now));
                member.sent.intervals.extend(sent);
                member.received.intervals.extend(received);
                self.begin(now);
                if key == 0 {
                    let at_s = self.zero.map_or(0.0, |begun| {
                        main.until_s + (zero.saturating_duration_since(begun)).as_secs_f64()
                            - begun.saturating_duration_since(zero).as_secs_f64()
                    });
                    (self.order.on_second)(&second(&main, at_s, of_s));
                }
            }
        }
        Ok(())
    }

    /// Processes are sampled from here on: what their beginning took is warm-up.
    fn begin(&mut self, now: Instant) {
        let have_told = self.members.iter().all(|member| member.zero.is_some());
        if self.zero.is_some() || !have_told {
            return;
        }
        let told = self.members.first().and_then(|member| member.zero);
        let zero = match self.times.zero {
            Zero::Told => told.unwrap_or(now),
            Zero::AllHaveTold => now,
        };
        self.zero = Some(zero);
        let behind = now.saturating_duration_since(zero).as_secs();
        self.sampled_s = u32::try_from(behind).unwrap_or(u32::MAX);
        let since = now.saturating_duration_since(self.started).as_secs_f64();
        for broker in &mut self.brokers {
            broker.sample(f64::from(self.sampled_s), since);
        }
        self.clients = self
            .members
            .iter()
            .filter(|member| !member.has_ended)
            .map(|member| Watched::new(ProcessKind::Client, member.program.pid))
            .collect();
    }

    fn sample(&mut self) {
        self.sampled_s += 1;
        for process in self.brokers.iter_mut().chain(&mut self.clients) {
            process.sample(f64::from(self.sampled_s), 1.0);
        }
    }

    fn on_end(&mut self, key: usize, (is_success, status): (bool, String)) -> Result<(), DriverError> {
        let (tool, all_s) = (self.tool, f64::from(self.times.all_s()));
        let Some(member) = self.members.get_mut(key) else {
            return Ok(());
        };
        member.has_ended = true;
        let complaint = member.program.complaint();
        let failed = |how: String| Err(DriverError::Failed(format!("{tool} ended {how}")));
        let until_s = member.until_s();
        match (is_success, member.ends) {
            (false, _) => failed(format!("with {status}{complaint}")),
            (true, Ends::ByCount) => Ok(()),
            (true, Ends::InTime) => match &member.reason {
                Some(reason) if reason.contains(IN_TIME) => Ok(()),
                Some(reason) => failed(format!("before its time was over: {reason}")),
                None if until_s >= all_s => Ok(()),
                None => failed(format!("after {until_s:.0} s of {all_s:.0} s{complaint}")),
            },
            (true, Ends::WhenTold) => {
                let reason = member
                    .reason
                    .as_ref()
                    .map_or(complaint, |reason| format!(": {reason}"));
                failed(format!("before it was told to{reason}"))
            }
        }
    }

    /// How far a member began behind the first.
    fn offset_s(&self, member: &Member) -> f64 {
        match (self.zero, member.zero) {
            (Some(zero), Some(own)) if own >= zero => (own - zero).as_secs_f64(),
            (Some(zero), Some(own)) => -(zero - own).as_secs_f64(),
            (None, _) | (_, None) => 0.0,
        }
    }

    /// What each program sent, and what it received, in the time of the first.
    fn sides(&self) -> (Vec<Series>, Vec<Series>) {
        let sides = self.members.iter().map(|member| {
            let offset_s = self.offset_s(member);
            (member.sent.moved(offset_s), member.received.moved(offset_s))
        });
        sides.unzip()
    }

    fn loaded(&mut self) -> Loaded {
        let (sent, received) = self.sides();
        let (warmup_s, measured_s) = (f64::from(self.times.warmup_s), f64::from(self.times.measured_s));
        let window = (warmup_s, warmup_s + measured_s);
        let size_bytes = self.parts.size_bytes;
        let mut roles: Vec<RoleResult> = Vec::new();
        let mut figures = BTreeMap::new();
        let sides = [
            (Some(self.parts.senders), &sent, "acknowledged"),
            (self.parts.receivers, &received, "delivery"),
        ];
        for (role, series, latency) in sides {
            let Some((name, role)) = role else { continue };
            let all = Series::together(series);
            let mut put = |figure: &str, value: Option<f64>| {
                if let Some(value) = value {
                    figures.insert(format!("{latency}_{figure}_us"), value.round());
                }
            };
            put("mean", all.mean_us(window));
            put("p50", all.quantile(window, 0.5));
            put("p95", all.quantile(window, 0.95));
            put("p99", all.quantile(window, 0.99));
            let programs = series
                .iter()
                .filter(|series| !series.intervals.is_empty())
                .count();
            let of_each = role.clients / u32::try_from(programs).unwrap_or(1).max(1);
            let rate = all.sum(window, |interval| interval.acknowledged + interval.received) / measured_s;
            roles.push(RoleResult {
                name: name.to_owned(),
                does: role.does.name().to_owned(),
                clients: role.clients,
                counts: all.counts(window, size_bytes),
                totals: all.counts((f64::NEG_INFINITY, f64::INFINITY), size_bytes),
                rate,
                bytes_rate: rate * size_bytes as f64,
                latencies: BTreeMap::new(),
                samples: all.samples(of_each),
            });
        }
        roles.sort_by(|left, right| left.name.cmp(&right.name));
        for (name, value) in self.members.iter().flat_map(|member| &member.whole) {
            figures.insert((*name).to_owned(), *value);
        }
        let watched = self.brokers.drain(..).chain(self.clients.drain(..));
        let processes: Vec<ProcessSeries> = watched.map(Watched::finish).collect();
        Loaded {
            connected: self.zero.map_or(Duration::ZERO, |zero| zero - self.started),
            roles,
            processes,
            warmup_s,
            measured_s,
            drain_s: None,
            sustainable_rate: None,
            error: self
                .zero
                .is_none()
                .then(|| format!("{} told of no message", self.tool)),
            remarks: Vec::new(),
            books: Vec::new(),
            client_cores: environment::cores(),
            told: Some(figures),
        }
    }
}

/// What `PerfTest` says of an end that is its time's.
const IN_TIME: &str = "time limit";

impl Member {
    /// How far it has told.
    fn until_s(&self) -> f64 {
        self.sent.until_s().max(self.received.until_s())
    }
}

fn second(interval: &Interval, at_s: f64, of_s: f64) -> Second {
    let count = interval.acknowledged + interval.received;
    Second {
        at_s: at_s.clamp(0.0, of_s),
        of_s,
        rate: count / interval.seconds.max(1e-9),
        p99_us: interval.p99_us(),
    }
}
