//! The load of a session: everything that it needs, and its reports.

use std::future::pending;
use std::path::{Component, Path};
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{Means, SECONDS_WAITING};
use crate::agents::protocol::{OfLoad, Preparation};
use crate::drivers::DriverError;
use crate::experiment::{Content, Plan, check};
use crate::run::point::destinations;
use crate::workload::load::{Second, Stage};
use crate::workload::together::Ties;
use crate::workload::{Load, Loaded, filter, together};

/// A load that is under way.
pub(super) struct Work {
    pub(super) number: u64,
    pub(super) abandon: CancellationToken,
    pub(super) ties: Ties,
    /// Of a load that is run alone.
    pub(super) whole: mpsc::Receiver<Second>,
    pub(super) done: oneshot::Receiver<Result<Loaded, DriverError>>,
}

/// Returns the next report of the load, its end last. Safe to drop.
pub(super) async fn next_of(work: &mut Option<Work>) -> OfLoad {
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

pub(super) type Prepared = (Work, Load, oneshot::Sender<Result<Loaded, DriverError>>);

/// Creates everything that a load needs.
pub(super) fn work(preparation: Preparation, means: &Means) -> Result<Prepared, DriverError> {
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
        stage: Stage::default(),
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
