//! `/lab/v1/edit`: changes of an experiment's text, by which a form and the text are two views of one
//! document.

use axum::Json;
use axum::extract::{Request, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stafett_http::api::post;
use stafett_http::{Api, Code, Problem, body};

use super::Lab;
use crate::experiment::edit::{self, Change, EditError};

pub(super) fn routes(api: Api<Lab>) -> Api<Lab> {
    api.route(
        post(
            "/lab/v1/edit",
            "Changes settings in the text of an experiment, which keeps its comments and order. Nothing is stored. Without \
             changes it tells what is in the text.",
        )
        .body::<Asked>()
        .answers::<Edited>(200)
        .refuses(&[Code::BadSettings]),
        change,
    )
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Asked {
    toml: String,
    #[serde(default)]
    changes: Vec<Change>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Edited {
    toml: String,
    /// The text as data.
    tree: Value,
}

async fn change(State(_): State<Lab>, request: Request) -> Result<Json<Edited>, Problem> {
    let asked: Asked = body::json(request).await?;
    let toml = edit::changed(&asked.toml, &asked.changes).map_err(|error| refused(&error))?;
    let tree = edit::tree(&toml).map_err(|error| refused(&error))?;
    Ok(Json(Edited { toml, tree }))
}

fn refused(error: &EditError) -> Problem {
    match error {
        EditError::Text(_) => Problem::new(Code::BadSettings, error),
        EditError::Path(_) | EditError::Value(_) => Problem::bad_request(error),
    }
}
