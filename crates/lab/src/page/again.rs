//! A point that is measured again. Its former result is kept aside, and the new one has a remark.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use stafett_http::api::post;
use stafett_http::{Api, Code, Path, Problem};

use super::queue::Waiting;
use super::{Lab, failed};
use crate::run::live;

pub(super) fn routes(api: Api<Lab>) -> Api<Lab> {
    api.route(
        post(
            "/lab/v1/runs/{id}/points/{number}/again",
            "Measures a point again. Its former result is kept aside, in points/aside.",
        )
        .answers::<Waiting>(202)
        .refuses(&[Code::NoSuchRun, Code::InUse, Code::Overloaded, Code::BadSettings]),
        again,
    )
}

async fn again(
    State(lab): State<Lab>,
    Path((id, number)): Path<(String, u32)>,
) -> Result<(StatusCode, Json<Waiting>), Problem> {
    let (run, folder) = lab.run_of(&id)?;
    let path = lab.known_run(&id)?;
    if live::is_alive(&path).await || lab.queue.is_started(&id) {
        return Err(Problem::new(Code::InUse, "the run is under way"));
    }
    if lab.queue.waiting().iter().any(|it| it.id == id) {
        return Err(Problem::new(Code::InUse, "the run waits already"));
    }
    if !folder.has_point(number) {
        let why = format!("run {id:?} has no point {number}, or it is not measured yet");
        return Err(Problem::new(Code::NoSuchRun, why));
    }
    folder
        .put_aside(number)
        .map_err(|error| failed("the point cannot be put aside", &error))?;
    lab.go_on(id, &path, &run)
}
