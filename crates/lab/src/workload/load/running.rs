//! A load under way: its seconds, its end, and the steering of rates.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stafett_model::Lock;
use tokio::time::{Instant, sleep_until, timeout};

use super::super::adaptive::Steering;
use super::super::clients::Cast;
use super::super::together::{HostSecond, Progress, RoleSecond, Together};
use super::{Actor, END_WITHIN, LOOK, LOOK_AHEAD, Load, SECOND, Second};
use crate::experiment::Does;
use crate::measure::process::Watched;
use crate::results::ProcessKind;

/// A load that is under way.
pub(super) struct Running<'a> {
    pub(super) load: &'a Load,
    pub(super) cast: &'a Cast,
    /// Time at which everything had come, in nanoseconds.
    pub(super) finished: Lock<Option<u64>>,
    /// Number of samples.
    pub(super) seconds: AtomicU64,
}

impl Running<'_> {
    /// Samples every second until the time is over or nothing is left to do. Returns the lengths of the
    /// warm-up and of the time that counted, in seconds, and the highest rate that held.
    pub(super) async fn sample(&self, watched: &mut Vec<Watched>) -> (f64, f64, Option<f64>) {
        let run = &self.load.plan.run;
        let (warmup, end) = (run.warmup.0, run.warmup.0 + run.duration.0);
        let mut steered = self.steered();
        let mut last = Duration::ZERO;
        // So that a sample ends with the warm-up.
        let mut next = Duration::from_nanos(u64::from(warmup.subsec_nanos()));
        if next.is_zero() {
            next = if warmup.is_zero() { SECOND.min(end) } else { SECOND };
        }
        let mut measured = Duration::ZERO;
        loop {
            let is_over = self.until(next).await;
            let now = if is_over { self.elapsed() } else { next };
            let counts = now > warmup;
            self.take_sample(watched, now, now.saturating_sub(last), counts);
            if counts {
                measured += now.saturating_sub(last.max(warmup));
            }
            self.steer(&mut steered);
            last = now;
            if is_over || now >= end {
                break;
            }
            next = (now + SECOND).min(end);
            if now < warmup {
                next = next.min(warmup);
            }
        }
        let sustainable = steered.iter().find_map(|(_, steering)| steering.sustainable());
        (
            warmup.min(last).as_secs_f64(),
            measured.as_secs_f64(),
            sustainable,
        )
    }

    pub(super) fn elapsed(&self) -> Duration {
        Instant::now().saturating_duration_since(self.cast.started)
    }

    /// Waits for a moment; true if everything was over before.
    async fn until(&self, at: Duration) -> bool {
        let at = self.cast.started + at;
        loop {
            self.tell(false);
            let is_told = self
                .together()
                .is_some_and(|together| together.signals.end.is_cancelled());
            if self.load.stop.is_cancelled() || is_told || self.load.ends_early && self.is_complete() {
                return true;
            }
            if Instant::now() >= at {
                return false;
            }
            sleep_until(at.min(Instant::now() + self.look())).await;
        }
    }

    pub(super) fn together(&self) -> Option<&Together> {
        self.load.together.as_ref()
    }

    /// Clients that wait for receivers have to hear of them soon.
    fn look(&self) -> Duration {
        let mut roles = self.load.plan.roles.values();
        let is_awaited = self.together().is_some() && roles.any(|role| role.ahead.is_some());
        if is_awaited { LOOK_AHEAD } else { LOOK }
    }

    /// Tells the others how far it is, if it is further than it was.
    fn tell(&self, is_sent: bool) {
        let Some(together) = self.together() else { return };
        let roles: Vec<_> = self.cast.actors.iter().map(|actor| actor.progress()).collect();
        together.progress.send_if_modified(|progress| {
            let now = Progress {
                connected: progress.connected,
                is_sent,
                roles,
            };
            let is_new = *progress != now;
            *progress = now;
            is_new
        });
    }

    /// Returns true if everything that was to be sent has come.
    fn is_complete(&self) -> bool {
        if self.together().is_some() {
            // The controller, which sees all hosts, decides.
            return false;
        }
        let actors = &self.cast.actors;
        let mut senders = actors
            .iter()
            .filter(|actor| actor.role.does.sends_first())
            .peekable();
        if senders.peek().is_none() || !senders.all(|actor| actor.ended.is_cancelled()) {
            return false;
        }
        let is_complete = self.is_drained();
        if is_complete {
            let mut finished = self.finished.lock();
            finished.get_or_insert_with(|| u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        is_complete
    }

    /// Returns true if every audience has all acknowledged messages.
    fn is_drained(&self) -> bool {
        if let Some(together) = self.together() {
            return together.signals.stop.is_cancelled();
        }
        let mut consumers = self
            .cast
            .actors
            .iter()
            .filter(|actor| actor.role.does == Does::Consume);
        consumers.all(|consumer| self.cast.has_enough(consumer, &self.load.plan))
    }

    /// Returns true if a fault has cut off a consumer that is not back.
    fn is_cut_off(&self) -> bool {
        let consumers = self.cast.actors.iter();
        let mut consumers = consumers.filter(|actor| actor.role.does == Does::Consume);
        !self.load.plan.faults.is_empty() && consumers.any(|actor| actor.recorder.clients() < actor.clients)
    }

    pub(super) fn drain_seconds(&self) -> Option<f64> {
        let finished = (*self.finished.lock())?;
        let mut readers = self.cast.actors.iter().filter(|actor| actor.role.after.is_some());
        let began = readers.find(|actor| actor.role.does == Does::Consume)?;
        let began = began.began.load(Ordering::Relaxed);
        Some(Duration::from_nanos(finished.checked_sub(began)?).as_secs_f64())
    }

    /// Lets consumers go on until all is there or nothing comes any more; false if it was still coming.
    pub(super) async fn drain(&self, watched: &mut Vec<Watched>, from_s: f64) -> bool {
        let settle = self.load.plan.run.settle.0;
        for actor in &self.cast.actors {
            if actor.role.does.sends_first() {
                actor.tasks.close();
                let _ = timeout(END_WITHIN, actor.tasks.wait()).await;
            }
        }
        let received = || -> u64 {
            self.cast
                .actors
                .iter()
                .map(|actor| actor.recorder.totals().received)
                .sum()
        };
        let started = Instant::now();
        let (mut seen, mut since) = (received(), Instant::now());
        let (mut next, mut last) = (started + SECOND, Duration::from_secs_f64(from_s));
        while !self.is_drained() && !self.load.stop.is_cancelled() {
            self.tell(true);
            if self.is_cut_off() {
                // Messages for a consumer that is not back are not lost.
                since = Instant::now();
            }
            if self.together().is_none() && since.elapsed() >= settle {
                return true;
            }
            if self.together().is_none() && started.elapsed() >= settle * 6 {
                return false;
            }
            tokio::time::sleep(LOOK).await;
            let now = received();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
            if Instant::now() >= next {
                let at = self.elapsed();
                self.take_sample(watched, at, at.saturating_sub(last), false);
                (last, next) = (at, next + SECOND);
            }
        }
        true
    }

    fn take_sample(&self, watched: &mut Vec<Watched>, at: Duration, length: Duration, counts: bool) {
        let (at_s, seconds) = (at.as_secs_f64(), length.as_secs_f64());
        let run = &self.load.plan.run;
        let mut second = Second {
            at_s,
            of_s: (run.warmup.0 + run.duration.0).as_secs_f64(),
            ..Second::default()
        };
        let mut received = 0.0;
        // If the controller is slow, seconds are left out.
        let way = self
            .together()
            .and_then(|together| together.seconds.try_reserve().ok());
        let mut told = Vec::new();
        for actor in &self.cast.actors {
            let (sample, latencies) = actor.recorder.sample(at_s, seconds, counts, way.is_some());
            if way.is_some() {
                told.push(RoleSecond {
                    sample,
                    histogram: latencies.unwrap_or_default(),
                    changes: actor.rate.changes_before(),
                });
            }
            let per_second = |count: u64| count as f64 / seconds.max(1e-9);
            second.rate += per_second(sample.acknowledged);
            received += per_second(sample.received);
            second.take(&sample);
        }
        second.received_rate = received;
        if second.rate == 0.0 {
            second.rate = received;
        }
        for process in watched.iter_mut() {
            process.sample(at_s, seconds);
            if let Some(sample) = process.last_sample(at_s) {
                second.take_process(process.kind(), &sample);
            }
        }
        let fresh = self.load.stage.fresh.lock().split_off(0).into_iter();
        watched.extend(fresh.map(|pid| Watched::new(ProcessKind::Broker, pid)));
        let number = self.seconds.fetch_add(1, Ordering::Relaxed);
        if let Some(way) = way {
            way.send(HostSecond { number, roles: told });
        }
        (self.load.on_second)(&second);
    }

    /// Returns the roles whose rates are searched for here: over several hosts the controller does it.
    fn steered(&self) -> Vec<(&Actor, Steering)> {
        let here = self.cast.actors.iter().filter(|_| self.together().is_none());
        let steered = here.filter_map(|actor| Some((&**actor, Steering::new(actor.role.rate.adaptive()?))));
        steered.collect()
    }

    /// After every sample: a trial may be over. Then the next second begins.
    fn steer(&self, steered: &mut [(&Actor, Steering)]) {
        for (actor, steering) in steered {
            // A role that has sent all that it had to does not follow its rate any more.
            let at_work = !actor.ended.is_cancelled();
            let sample = actor.recorder.last_sample().filter(|_| at_work);
            let next = sample.and_then(|sample| steering.look(&sample, actor.rate.changes_before()));
            if let Some(rate) = next {
                actor.rate.set(rate);
            }
        }
        for actor in &self.cast.actors {
            actor.rate.begin_second();
        }
    }
}
