//! The product, the document of the API, and explanations of codes.

use std::sync::LazyLock;

use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use stafett_http::api::get;
use stafett_http::{Code, Path, Problem};

use crate::{Routes, answer};

/// The product.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Product")]
struct About {
    product: &'static str,
    version: &'static str,
    /// Path of the document.
    openapi: &'static str,
}

/// Explanation of a code.
#[derive(Debug, Serialize, JsonSchema)]
struct Explanation {
    code: &'static str,
    title: String,
    status: u16,
    /// Use of sending the request again: `never`, `later`, or with the `same_key`.
    retry: &'static str,
    text: &'static str,
}

/// Returns the routes about the API itself.
pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            get("/v1", "Shows product and version.")
                .open()
                .answers::<About>(200),
            product,
        )
        .route(
            get("/v1/openapi.json", "Shows this document.")
                .open()
                .answers::<Map<String, Value>>(200),
            document,
        )
        .route(
            get("/v1/problems/{code}", "Explains a code of refusals.")
                .open()
                .answers::<Explanation>(200)
                .refuses(&[Code::NoSuchCode]),
            explain,
        )
}

async fn product() -> Response {
    let about = About {
        product: "Stafett",
        version: env!("CARGO_PKG_VERSION"),
        openapi: "/v1/openapi.json",
    };
    answer(StatusCode::OK, &about)
}

async fn document() -> Response {
    static DOCUMENT: LazyLock<String> = LazyLock::new(crate::document);
    stafett_http::answer::json(StatusCode::OK, DOCUMENT.as_str())
}

async fn explain(Path(word): Path<String>) -> Result<Response, Problem> {
    let code = Code::of(&word).ok_or_else(|| {
        let why = format!("there is no code {word:?}");
        Problem::new(Code::NoSuchCode, why)
    })?;
    let explanation = Explanation {
        code: code.word(),
        title: code.title(),
        status: code.status().as_u16(),
        retry: code.retry().word(),
        text: code.text(),
    };
    Ok(answer(StatusCode::OK, &explanation))
}
