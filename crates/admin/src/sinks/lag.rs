//! Positions and ends of sinks over topics of this broker. The broker has the ends, so the lag is right
//! whatever the runner does; it is told positions, and else knows those of the sink's app.

use std::collections::BTreeMap;

use stafett_apps::{App, TaskId};
use stafett_broker::Broker;

use super::{SinkPlace, SinkState, SinkTerms};

/// Completes the partitions of a state.
pub fn measure(broker: &Broker, terms: &SinkTerms, state: &mut SinkState) {
    if !terms.is_own {
        return;
    }
    let app = broker.apps().named(&terms.app).ok();
    let lost = app.as_ref().map(|app| app.lost_topics()).unwrap_or_default();
    let told = std::mem::take(&mut state.places).into_iter();
    let told: BTreeMap<_, _> = told
        .map(|place| ((place.topic.clone(), place.partition), place))
        .collect();
    for (input, name) in terms.from.iter().enumerate() {
        let Some(topic) = broker.topics().named(name) else {
            continue;
        };
        let is_lost = lost.iter().any(|lost| *lost.name == **name);
        for partition in 0..topic.partitions() {
            let log = topic.log(partition);
            let Some(bounds) = log.and_then(|log| broker.catalog().bounds(log)) else {
                continue;
            };
            let of_app = || {
                let known = app.as_ref()?.known(TaskId::whole(partition))?;
                // Batches that were begun behind it may not be in the target.
                known.position.safe.get(input).copied()
            };
            let told = told.get(&(name.clone(), partition)).filter(|_| !is_lost);
            let next = match told {
                Some(place) => Some(place.next),
                None if is_lost => None,
                None => of_app(),
            };
            state.places.push(SinkPlace {
                topic: name.clone(),
                partition,
                next: next.unwrap_or(bounds.start.0),
                end: bounds.stable.0,
                oldest_ms: told.and_then(|place| place.oldest_ms),
                newest_ms: told.and_then(|place| place.newest_ms),
            });
        }
    }
}

/// Reads the positions of a sink's app, where the runner has told none.
pub(super) async fn read_positions(broker: &Broker, terms: &SinkTerms, state: &SinkState) {
    let app: Option<std::sync::Arc<App>> = broker.apps().named(&terms.app).ok();
    if let Some(app) = app.filter(|_| terms.is_own && state.places.is_empty()) {
        app.know_positions().await;
    }
}
