//! One controller at an agent: its orders, and the reports of its loads, which run one after the other.

use std::future::pending;
use std::path::{Component, Path};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::protocol::{
    Described, FromAgent, OfLoad, Preparation, ProtocolError, Question, Reader, ToAgent, send_within,
};
use crate::drivers::{DriverError, Drivers};
use crate::experiment::{Content, Plan, check};
use crate::run::point::destinations;
use crate::workload::load::Second;
use crate::workload::together::{self, Ties};
use crate::workload::{Load, Loaded, filter};

/// A controller that says nothing for so long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Seconds of a load that is run alone and may wait to be told.
const SECONDS_WAITING: usize = 64;
/// Time that a load may take to end after its controller went away.
const END_WITHIN: Duration = Duration::from_mins(2);

/// Means of running loads.
#[derive(Clone)]
pub(super) struct Means {
    pub(super) drivers: Drivers,
    /// Content may be read wherever this program may read.
    pub(super) reads_anywhere: bool,
    /// The kernel's timers, rather than simulated time.
    pub(super) precise: bool,
}

/// One controller.
pub(super) struct Session<R, W> {
    reader: Reader<R>,
    writer: W,
    means: Means,
    work: Option<Work>,
    /// Begins when the load that was abandoned has ended.
    next: Option<Box<Preparation>>,
    tasks: TaskTracker,
}

/// A load that is under way.
struct Work {
    number: u64,
    abandon: CancellationToken,
    ties: Ties,
    /// Of a load that is run alone.
    whole: mpsc::Receiver<Second>,
    done: oneshot::Receiver<Result<Loaded, DriverError>>,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Session<R, W> {
    pub(super) fn new(reader: Reader<R>, writer: W, means: Means) -> Self {
        Self {
            reader,
            writer,
            means,
            work: None,
            next: None,
            tasks: TaskTracker::new(),
        }
    }

    /// Until the controller goes or `stop`; returns why. Nothing of its loads runs any more then.
    pub(super) async fn run(mut self, stop: CancellationToken) -> String {
        let why = tokio::select! {
            () = stop.cancelled() => "the agent ends".to_owned(),
            error = self.obey() => error.to_string(),
        };
        if let Some(work) = self.work.take() {
            work.abandon.cancel();
        }
        self.tasks.close();
        let _ = timeout(END_WITHIN, self.tasks.wait()).await;
        why
    }

    async fn obey(&mut self) -> ProtocolError {
        loop {
            let heard = self.reader.heard();
            let done = tokio::select! {
                // Data that is there already is read before a controller counts as silent.
                biased;
                order = self.reader.next::<ToAgent>() => match order {
                    Ok(order) => self.on_order(order).await,
                    Err(error) => Err(error),
                },
                said = next_of(&mut self.work) => self.on_load(said).await,
                () = sleep_until(heard + SILENCE_MAX) => {
                    Err(ProtocolError::Malformed("nothing, for half a minute".to_owned()))
                }
            };
            if let Err(error) = done {
                return error;
            }
        }
    }

    async fn on_order(&mut self, order: ToAgent) -> Result<(), ProtocolError> {
        match order {
            ToAgent::Ping(number) => self.tell(&FromAgent::Pong(number)).await?,
            ToAgent::Describe(question) => {
                let described = FromAgent::Driver(self.describe(&question));
                self.tell(&described).await?;
            }
            ToAgent::Prepare(preparation) => {
                if let Some(old) = &self.work {
                    old.abandon.cancel();
                    self.next = Some(preparation);
                } else {
                    self.prepare(*preparation).await?;
                }
            }
            ToAgent::Begin => self.with_work(|work| work.ties.signals.begin.cancel()),
            ToAgent::End => self.with_work(|work| work.ties.signals.end.cancel()),
            ToAgent::Stop => self.with_work(|work| work.ties.signals.stop.cancel()),
            ToAgent::Over(role) => self.with_work(|work| {
                if let Some(over) = work.ties.signals.over.get(&role) {
                    over.cancel();
                }
            }),
            ToAgent::Rate { role, rate } => {
                if !check::is_rate(rate) {
                    return Err(ProtocolError::Malformed(format!("a rate of {rate} for `{role}`")));
                }
                self.with_work(|work| {
                    if let Some(shared) = work.ties.signals.rates.get(&role) {
                        shared.set(rate);
                    }
                });
            }
            ToAgent::Allow { load, made } => self.with_work(|work| {
                for (role, made) in made.into_iter().filter(|_| work.number == load) {
                    if let Some(allowed) = work.ties.signals.allowed.get(&role) {
                        allowed.store(made, Ordering::Relaxed);
                    }
                }
            }),
            ToAgent::Abandon => {
                self.next = None;
                self.with_work(|work| work.abandon.cancel());
            }
        }
        Ok(())
    }

    /// A controller that takes nothing is gone as one that says nothing is.
    async fn tell(&mut self, said: &FromAgent) -> Result<(), ProtocolError> {
        Ok(send_within(SILENCE_MAX, &mut self.writer, said).await?)
    }

    fn describe(&self, question: &Question) -> Described {
        let plan = filter::before(&question.plan, &question.system);
        match (self.means.drivers)(&question.system, "", &plan) {
            Ok(driver) => Described {
                name: driver.name().to_owned(),
                version: driver.version(),
                lacks: driver.lacks(&plan),
            },
            Err(reason) => Described {
                lacks: Some(reason),
                ..Described::default()
            },
        }
    }

    fn with_work(&self, change: impl FnOnce(&Work)) {
        if let Some(work) = &self.work {
            change(work);
        }
    }

    async fn prepare(&mut self, preparation: Preparation) -> Result<(), ProtocolError> {
        let load = preparation.load;
        match work(preparation, &self.means) {
            Ok((work, load, done)) => {
                self.work = Some(work);
                self.tasks.spawn(async move {
                    // Fails if the controller is gone.
                    let _ = done.send(load.run().await);
                });
            }
            Err(error) => {
                let said = OfLoad::Failed(error);
                self.tell(&FromAgent::Load { load, said }).await?;
            }
        }
        Ok(())
    }

    async fn on_load(&mut self, said: OfLoad) -> Result<(), ProtocolError> {
        let Some(work) = &self.work else { return Ok(()) };
        let load = work.number;
        let is_last = matches!(said, OfLoad::Done(_) | OfLoad::Failed { .. });
        self.tell(&FromAgent::Load { load, said }).await?;
        if is_last {
            self.work = None;
            if let Some(next) = self.next.take() {
                self.prepare(*next).await?;
            }
        }
        Ok(())
    }
}

/// Returns the next report of the load, its end last. Safe to drop.
async fn next_of(work: &mut Option<Work>) -> OfLoad {
    let Some(work) = work else {
        return pending().await;
    };
    let ties = &mut work.ties;
    let done = tokio::select! {
        biased;
        Some(second) = ties.seconds.recv() => return OfLoad::Seconds(second),
        Some(second) = work.whole.recv() => return OfLoad::Second(second),
        Ok(()) = ties.progress.changed() => {
            return OfLoad::Progress(ties.progress.borrow_and_update().clone());
        }
        done = &mut work.done => done,
    };
    match done {
        Ok(Ok(loaded)) => OfLoad::Done(Box::new(loaded)),
        Ok(Err(error)) => OfLoad::Failed(error),
        Err(_) => OfLoad::Failed(DriverError::Failed("the load broke down".to_owned())),
    }
}

type Prepared = (Work, Load, oneshot::Sender<Result<Loaded, DriverError>>);

/// Creates everything that a load needs.
fn work(preparation: Preparation, means: &Means) -> Result<Prepared, DriverError> {
    let Preparation {
        load: number,
        plan,
        seating,
        system,
        address,
        tag,
        topic_settings,
        alone,
    } = preparation;
    check::plan(&plan).map_err(|wrong| DriverError::Refused(format!("{}: {}", wrong.path, wrong.message)))?;
    if !means.reads_anywhere {
        check_files(&plan).map_err(DriverError::Refused)?;
    }
    let plan = filter::before(&plan, &system);
    let driver = (means.drivers)(&system, &address, &plan).map_err(DriverError::Refused)?;
    if let Some(reason) = driver.lacks(&plan) {
        return Err(DriverError::Refused(reason));
    }
    let contents = Load::contents(&plan).map_err(DriverError::Refused)?;
    let (ties, together) = together::tied(&plan);
    let (whole, of_whole) = mpsc::channel(SECONDS_WAITING);
    let (done, of_done) = oneshot::channel();
    let abandon = CancellationToken::new();
    let is_alone = alone.is_some();
    let load = Load {
        destinations: destinations(&plan, &topic_settings, &tag),
        plan: Arc::new(plan),
        driver,
        contents,
        seating: Arc::new(seating),
        together: (!is_alone).then_some(together),
        ends_early: alone.as_ref().is_some_and(|alone| alone.ends_early),
        brokers: alone.map(|alone| alone.brokers).unwrap_or_default(),
        precise: means.precise,
        stop: abandon.clone(),
        on_second: Box::new(move |second| {
            if is_alone {
                // With the way full it is not told, and the next one is.
                let _ = whole.try_send(*second);
            }
        }),
    };
    let work = Work {
        number,
        abandon,
        ties,
        whole: of_whole,
        done: of_done,
    };
    Ok((work, load, done))
}

/// A controller has content read from the folder that the agent was started in, and from nowhere else.
fn check_files(plan: &Plan) -> Result<(), String> {
    for role in plan.roles.values() {
        let Content::File(path) = &role.content else {
            continue;
        };
        let is_below = Path::new(path)
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !is_below {
            return Err(format!(
                "{path}: an agent reads content below the folder that it was started in, and nowhere else"
            ));
        }
    }
    Ok(())
}
