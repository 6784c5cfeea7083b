//! Run of a seed: successive lives of the broker, and the clients that outlive them.

mod faults;
mod space;
mod step;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use stafett_journal::Journal as _;
use stafett_journal::simulated::SimulatedDisk;
use tokio::time::Instant;

use crate::amqp::Amqp;
use crate::backup::{self, Backup};
use crate::host;
use crate::jobs::Jobs;
use crate::kafka::Kafka;
use crate::live::Live;
use crate::loss::{Loss, Lost};
use crate::mail::Mail;
use crate::server::Server;
use crate::steps::{DiskFault, Plan, Shape, Step};
use crate::trace::Trace;

/// A violation that the checker found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding(pub String);

/// Kind of end of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// After a request to stop.
    Stopped,
    Killed,
    Power(u64),
    /// The journal failed: the process starts again on the same files.
    Failed,
}

/// Reason why a life of the broker is over.
#[derive(Debug)]
pub enum Broken {
    Died(Death),
    Found(Finding),
    /// The run ends here: the broker does not start on damaged files.
    Over,
}

impl From<Finding> for Broken {
    fn from(finding: Finding) -> Self {
        Self::Found(finding)
    }
}

/// Result of a run.
#[derive(Debug)]
pub struct Report {
    pub finding: Option<Finding>,
    pub sum: u64,
    pub lives: u32,
    pub changes: u64,
    pub faults: u32,
}

/// End of a life whose journal has failed, while the broker still answers from memory.
#[derive(Debug, Default)]
struct Failing {
    /// True during an action that the broker may serve then.
    is_served: bool,
    /// Time at which the broker ends, once the journal has failed.
    ends_ms: Option<i64>,
    /// Actions of clients, until the journal fails.
    asked: Vec<Step>,
    /// True once clients have repeated some of them.
    has_asked_again: bool,
}

/// Everything that outlives the broker.
#[derive(Debug)]
pub struct World {
    disk: SimulatedDisk,
    shape: Shape,
    boots: u8,
    /// Milliseconds since the simulation began.
    steady_ms: i64,
    /// Wall clock minus `steady_ms`.
    wall_offset_ms: i64,
    /// `wall_offset_ms` when this life began; queues use it until the life ends.
    began_offset_ms: i64,
    /// Start of this life, in the runtime's time and in milliseconds since the simulation began.
    life: Option<(Instant, i64)>,
    pub pump_every: u32,
    ticks: u32,
    fault: Option<(u64, DiskFault)>,
    faults: u32,
    lives: u32,
    /// True while the disk is or may be full.
    pub may_refuse: bool,
    /// True if there is no space for settlements either.
    settlements_wait: bool,
    full_from_ms: i64,
    full_until_ms: Option<i64>,
    /// Time from which the journal must have noticed free space.
    spacious_from_ms: i64,
    failing: Failing,
    /// Loss to apply after the end of the program.
    loss: Option<Loss>,
    /// True if there was a loss in this run. There is only one: a second one could bring back data that was
    /// deleted after the first.
    pub has_lost: bool,
    /// The loss until it is checked.
    pub lost: Option<Lost>,
    /// The last backup.
    pub backup: Option<Backup>,
    pub kafka: Kafka,
    pub amqp: Amqp,
    pub live: Live,
    pub mail: Mail,
    pub jobs: Jobs,
    pub trace: Trace,
}

/// True if a task of the broker panicked.
static PANICKED: AtomicBool = AtomicBool::new(false);
const LIVES_MAX: u32 = 200;
/// Actions that clients repeat at a broker whose journal has failed.
const ASKED_AGAIN: usize = 6;
/// Runs a plan. A process can run only one.
pub fn run(plan: Plan, is_shown: bool) -> Report {
    std::panic::set_hook(Box::new(move |info| {
        PANICKED.store(true, Relaxed);
        #[expect(clippy::print_stderr, reason = "a panic is told")]
        {
            eprintln!("{info}");
        }
    }));
    if is_shown {
        // The log is not part of the checksum; its times are simulated.
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .init();
    }
    host::begin(plan.seed);
    let mut world = World::new(plan.shape, Trace::new(is_shown));
    let finding = world.run(plan.steps.into()).err();
    Report {
        finding,
        sum: world.trace.sum(),
        lives: world.lives,
        changes: world.disk.changes(),
        faults: world.faults,
    }
}

impl World {
    fn new(shape: Shape, trace: Trace) -> Self {
        Self {
            disk: SimulatedDisk::new(),
            shape,
            boots: 1,
            steady_ms: 10_000,
            wall_offset_ms: 1_790_000_000_000,
            began_offset_ms: 1_790_000_000_000,
            life: None,
            pump_every: 1,
            ticks: 0,
            fault: None,
            faults: 0,
            lives: 0,
            may_refuse: false,
            settlements_wait: false,
            full_from_ms: 0,
            full_until_ms: None,
            spacious_from_ms: 0,
            failing: Failing::default(),
            loss: None,
            has_lost: false,
            lost: None,
            backup: None,
            kafka: Kafka::new(),
            amqp: Amqp::new(),
            live: Live::new(),
            mail: Mail::default(),
            jobs: Jobs::default(),
            trace,
        }
    }

    /// Runs lives until the steps are used up and the broker has stopped and started once more.
    fn run(&mut self, mut steps: VecDeque<Step>) -> Result<(), Finding> {
        let mut died = None;
        while self.lives < LIVES_MAX {
            self.lives += 1;
            let is_last = steps.is_empty() && died == Some(Death::Stopped);
            match self.live(&mut steps, died) {
                Ok(()) if is_last => return Ok(()),
                Ok(()) => died = Some(Death::Stopped),
                Err(Broken::Found(finding)) => return Err(finding),
                Err(Broken::Over) => return Ok(()),
                Err(Broken::Died(death)) => died = Some(death),
            }
            if PANICKED.load(Relaxed) {
                return Err(Finding("a task panicked".to_owned()));
            }
            self.kafka.on_end();
            self.live.on_end(died, self.amqp.is_stopping);
            self.jobs.on_end();
            self.mail.on_end(died, self.may_refuse, self.steady_ms);
            self.amqp.on_end(self.steady_ms);
            if let Some(death) = died {
                let uncertain = self.amqp.on_death(death, self.steady_ms);
                self.kafka.ledger.doubt_messages(uncertain);
            }
        }
        Err(Finding("it does not come to its end".to_owned()))
    }

    fn live(&mut self, steps: &mut VecDeque<Step>, mut died: Option<Death>) -> Result<(), Broken> {
        self.life = None;
        self.failing = Failing::default();
        if self.restore()? {
            self.jobs.forget();
            died = Some(backup::LIKE);
        }
        self.began_offset_ms = self.wall_offset_ms;
        self.set_time();
        if let Some(loss) = self.loss.take() {
            self.lose(loss, died);
        }
        let began_ms = self.steady_ms;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .map_err(|error| Finding(error.to_string()))?;
        let result = runtime.block_on(async {
            let began = Instant::now();
            let result = self.live_in(began, began_ms, steps, died).await;
            // Nothing of this life may reach the disk from here on.
            match result {
                Err(Broken::Died(Death::Power(seed))) => {
                    self.disk.lose_power(seed);
                    self.boots = self.boots.wrapping_add(1);
                }
                Ok(()) | Err(_) => self.disk.kill(),
            }
            result
        });
        // A pending kill or loss of power stays armed for the next start.
        let is_ahead = |(change, fault): &(u64, DiskFault)| {
            matches!(fault, DiskFault::Kill(_) | DiskFault::Power(_)) && *change > self.disk.changes()
        };
        self.fault = self.fault.filter(is_ahead);
        self.disk
            .set_fault(self.fault.map(|(change, fault)| fault.at(change)));
        result
    }

    async fn live_in(
        &mut self,
        began: Instant,
        began_ms: i64,
        steps: &mut VecDeque<Step>,
        died: Option<Death>,
    ) -> Result<(), Broken> {
        self.life = Some((began, began_ms));
        self.trace.note(|| format!("the broker starts after {died:?}"));
        let opened = Server::open(&self.disk, self.boots, &self.shape).await;
        let mut server = match opened {
            Ok(server) => server,
            Err(failed) => {
                if let Some(lost) = &mut self.lost {
                    lost.on_end_of_start();
                }
                self.fired()?;
                if self
                    .lost
                    .as_ref()
                    .is_some_and(|lost| lost.hides_replacement(&failed))
                {
                    return Err(Broken::Over);
                }
                return Err(Finding(failed.0).into());
            }
        };
        let server = &mut server;
        let report = server.journal.report();
        if report.is_damaged() && !self.has_lost {
            return Err(Finding(format!("it starts with damage: {report:?}")).into());
        }
        self.check_start(server, died, steps.is_empty()).await?;
        while let Some(step) = steps.pop_front() {
            self.failing.is_served = step.action.may_meet_failure();
            if let Err(broken) = self.look(server) {
                // The failed broker ends before this step.
                steps.push_front(step);
                return Err(broken);
            }
            if self.failing.is_served && !self.failing.has_asked_again {
                self.failing.asked.push(step.clone());
            }
            self.step(server, step).await?;
            if server.journal.failure().is_some() && !self.failing.has_asked_again {
                self.failing.has_asked_again = true;
                for step in self.failing.asked.drain(..).rev().take(ASKED_AGAIN) {
                    steps.push_front(step.again());
                }
            }
        }
        self.failing.is_served = false;
        self.empty_groups(server).await?;
        // Data that waits for space is stored before the last stop.
        while self.may_refuse {
            self.rest(server, 200).await?;
        }
        self.rest(server, 200).await?;
        self.stop(server).await
    }

    /// Compares everything with the clients' knowledge after a start. `is_last`: no steps are left.
    async fn check_start(
        &mut self,
        server: &mut Server,
        died: Option<Death>,
        is_last: bool,
    ) -> Result<(), Broken> {
        self.check_loss(server).await?;
        let is_clean = died == Some(Death::Stopped) && !self.may_refuse;
        self.kafka.on_death(died, is_clean);
        self.settle_topics(server).await?;
        self.kafka.resume_readers(server, &mut self.trace)?;
        self.configure_shares(server).await?;
        self.check_logs(server, died).await?;
        self.check_transactions(server).await?;
        self.check_groups(server).await?;
        self.kafka.forget_lost();
        self.declare(server).await?;
        if is_last {
            self.await_delayed(server).await?;
        }
        self.check_queues(server).await?;
        self.check_space(server).await?;
        self.check_definitions(server)?;
        self.check_view(server).await?;
        self.check_mail(server).await?;
        self.check_jobs(server).await?;
        if !server.open_live().await.is_ok_and(|is_open| is_open) {
            self.tick(server).await?;
            return Err(Finding("live topics have no log".to_owned()).into());
        }
        self.check_lives(server).await
    }

    pub fn disk(&self) -> &SimulatedDisk {
        &self.disk
    }

    /// Advances time by a millisecond: the journal works if it is due, and clients process their input.
    pub async fn tick(&mut self, server: &mut Server) -> Result<(), Broken> {
        self.tick_ms(server, 1).await
    }

    async fn tick_ms(&mut self, server: &mut Server, ms: u64) -> Result<(), Broken> {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        self.set_time();
        self.look_at_space();
        self.ticks += 1;
        if self.ticks.is_multiple_of(self.pump_every) {
            server.journal.pump();
        }
        // Output of a dead program is not processed.
        self.fired()?;
        self.hear(self.may_refuse || self.has_failed())?;
        self.look(server)
    }

    /// Lets all clients process their input.
    fn hear(&mut self, may_refuse: bool) -> Result<(), Finding> {
        let mut notes = self.kafka.turn(may_refuse, self.steady_ms)?;
        notes.extend(self.live.turn(may_refuse)?);
        notes.extend(self.mail.turn(may_refuse, self.may_refuse, self.steady_ms)?);
        notes.extend(self.jobs.turn());
        notes.extend(self.amqp.turn(may_refuse, self.steady_ms)?);
        self.check_received()?;
        self.apply_outcomes()?;
        for note in notes {
            self.trace.note(|| note);
        }
        Ok(())
    }

    /// Returns the wall clock minus the milliseconds since the simulation began.
    pub fn wall_offset_ms(&self) -> i64 {
        self.wall_offset_ms
    }

    /// Returns milliseconds since the simulation began.
    pub fn now_ms(&self) -> i64 {
        self.steady_ms
    }

    /// Checks that the broker can continue.
    fn look(&mut self, server: &Server) -> Result<(), Broken> {
        self.fired()?;
        if PANICKED.load(Relaxed) {
            return Err(Finding("a task panicked".to_owned()).into());
        }
        if let Some(failure) = server.journal.failure() {
            if !self.has_failed() {
                return Err(Finding(format!("the journal failed by itself: {failure}")).into());
            }
            if !self.serves_on() {
                self.trace.note(|| format!("the journal failed: {failure}"));
                return Err(Broken::Died(Death::Failed));
            }
        }
        Ok(())
    }

    /// Returns true while a broker whose journal has failed still answers from memory.
    fn serves_on(&mut self) -> bool {
        // Between 0 and 600 ms, and the same for a seed.
        let some_ms = self.steady_ms.wrapping_mul(7919).rem_euclid(7) * 100;
        let ends_ms = *self.failing.ends_ms.get_or_insert(self.steady_ms + some_ms);
        self.failing.is_served && self.steady_ms < ends_ms
    }

    /// Advances time, in steps of a millisecond at first.
    pub async fn rest(&mut self, server: &mut Server, ms: u64) -> Result<(), Broken> {
        let fine = ms.min(300);
        for _ in 0..fine {
            self.tick(server).await?;
        }
        for _ in 0..(ms - fine) / 50 {
            self.tick_ms(server, 50).await?;
        }
        Ok(())
    }

    /// Stops the program as on request.
    async fn stop(&mut self, server: &mut Server) -> Result<(), Broken> {
        self.amqp.begin_stop(self.steady_ms);
        self.kafka.begin_stop();
        // The program waits for its connections, and ends the others, before the broker stops.
        self.mail.leave();
        self.jobs.leave();
        let mut heard = Ok(());
        let stopped = server
            .stop(|| {
                if heard.is_ok() {
                    heard = self.hear(true);
                }
            })
            .await;
        self.set_time();
        self.fired()?;
        heard?;
        // Answers that were sent last.
        self.hear(true)?;
        match stopped {
            Err(_) if server.journal.failure().is_some() && self.fault.is_some() => {
                Err(Broken::Died(Death::Failed))
            }
            Err(failed) => Err(Finding(format!("it does not stop: {}", failed.0)).into()),
            Ok(()) => self.look(server),
        }
    }

    fn set_time(&mut self) {
        if let Some((began, began_ms)) = self.life {
            let since = i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX);
            self.steady_ms = began_ms + since;
        }
        self.amqp.copies.clock_ms = self.steady_ms + self.began_offset_ms;
        host::set_time(self.steady_ms + self.wall_offset_ms, self.steady_ms);
    }
}
