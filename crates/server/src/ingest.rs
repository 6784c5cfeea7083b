//! Endpoints of the HTTP listener that take events.

use stafett_http::Router;
use stafett_ingest::{Endpoint, Metrics};

use crate::failure::Failure;
use crate::serve::Process;

/// Returns the routes of the endpoints in the file of the settings.
pub(crate) fn router(process: &Process) -> Result<Router, Failure> {
    let Some(path) = &process.settings.ingest.endpoints else {
        return Ok(Router::new());
    };
    let endpoints = Endpoint::load(path).map_err(|why| Failure::Start(why.into()))?;
    let metrics = Metrics::new(&mut process.registry());
    Ok(stafett_ingest::router(endpoints, &process.admin.broker, &metrics))
}
