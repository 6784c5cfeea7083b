//! Files of a run: logs, its report, its points as data, and everything in one archive.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Seek as _, SeekFrom};
use std::path::{Path as FilePath, PathBuf};

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use stafett_http::api::{Endpoint, get};
use stafett_http::{Api, Code, Path, Problem};
use tokio_util::io::ReaderStream;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::queue::OUTPUT;
use super::{Lab, failed};
use crate::report;
use crate::run::live::CONTROL;

/// Folder of the logs of systems and agents.
const LOGS: &str = "logs";

pub(super) fn routes(api: Api<Lab>) -> Api<Lab> {
    let text = |path, about, kind: &'static str| -> Endpoint {
        get(path, about)
            .streams::<String>(kind)
            .refuses(&[Code::NoSuchRun])
    };
    api.route(
        get("/lab/v1/runs/{id}/logs", "Lists the logs of a run.")
            .answers::<Logs>(200)
            .refuses(&[Code::NoSuchRun]),
        logs,
    )
    .route(
        text("/lab/v1/runs/{id}/logs/{*path}", "Shows a log.", "text/plain"),
        log,
    )
    .route(
        text(
            "/lab/v1/runs/{id}/report.html",
            "Draws the report of a run.",
            "text/html",
        ),
        html,
    )
    .route(
        get(
            "/lab/v1/runs/{id}/report.json",
            "Shows estimates by cell, with effects of designs.",
        )
        .answers::<Value>(200)
        .refuses(&[Code::NoSuchRun]),
        json,
    )
    .route(
        text(
            "/lab/v1/runs/{id}/points.csv",
            "Returns the points as CSV.",
            "text/csv",
        ),
        csv,
    )
    .route(
        text(
            "/lab/v1/runs/{id}/points.ndjson",
            "Returns the points as JSON lines.",
            "application/x-ndjson",
        ),
        ndjson,
    )
    .route(
        text(
            "/lab/v1/runs/{id}/download.zip",
            "Returns all files of a run.",
            "application/zip",
        ),
        archive,
    )
}

/// Logs of a run.
#[derive(Debug, Serialize, JsonSchema)]
struct Logs {
    items: Vec<Log>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Log {
    path: String,
    bytes: u64,
}

/// Returns all files below a folder, by their paths from there; links and sockets are left out.
fn files(folder: &FilePath) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_file()
                && let Ok(below) = path.strip_prefix(folder)
            {
                let bytes = entry.metadata().map_or(0, |metadata| metadata.len());
                found.push((below.to_owned(), bytes));
            }
        }
    }
    found.sort();
    found
}

async fn logs(State(lab): State<Lab>, Path(id): Path<String>) -> Result<Json<Logs>, Problem> {
    let folder = lab.known_run(&id)?;
    let mut items: Vec<Log> = files(&folder.join(LOGS))
        .into_iter()
        .map(|(path, bytes)| Log {
            path: path.display().to_string(),
            bytes,
        })
        .collect();
    if let Ok(metadata) = folder.join(OUTPUT).metadata() {
        items.push(Log {
            path: OUTPUT.to_owned(),
            bytes: metadata.len(),
        });
    }
    Ok(Json(Logs { items }))
}

async fn log(State(lab): State<Lab>, Path((id, path)): Path<(String, String)>) -> Result<Response, Problem> {
    let folder = lab.known_run(&id)?;
    let absent = || Problem::new(Code::NoSuchRun, format!("run {id:?} has no log {path:?}"));
    let found = if path == OUTPUT {
        folder.join(OUTPUT)
    } else {
        // Only paths of the list, so none leads out of the folder.
        let known = files(&folder.join(LOGS));
        let is_known = known.iter().any(|(below, _)| below == FilePath::new(&path));
        folder
            .join(LOGS)
            .join(is_known.then_some(&path).ok_or_else(absent)?)
    };
    let file = tokio::fs::File::open(found).await.map_err(|_| absent())?;
    Ok(stream(file, "text/plain; charset=utf-8", None))
}

fn stream(file: tokio::fs::File, kind: &'static str, name: Option<&str>) -> Response {
    let body = Body::from_stream(ReaderStream::new(file));
    let mut response = ([(header::CONTENT_TYPE, kind)], body).into_response();
    let named = name.map(|name| format!("attachment; filename=\"{name}\""));
    if let Some(Ok(value)) = named.map(TryInto::try_into) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
    }
    response
}

/// Draws a report, which takes a while, on a thread for it.
async fn drawn(
    lab: Lab,
    id: String,
    kind: &'static str,
    draw: fn(&FilePath) -> Result<String, report::ReportError>,
) -> Result<Response, Problem> {
    let folder = lab.known_run(&id)?;
    let drawn = tokio::task::spawn_blocking(move || draw(&folder)).await;
    let text = drawn
        .map_err(|error| Problem::new(Code::Unreadable, error))?
        .map_err(|error| Problem::new(Code::NoSuchRun, error))?;
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

async fn html(State(lab): State<Lab>, Path(id): Path<String>) -> Result<Response, Problem> {
    drawn(lab, id, "text/html; charset=utf-8", report::html).await
}

async fn json(State(lab): State<Lab>, Path(id): Path<String>) -> Result<Response, Problem> {
    drawn(lab, id, "application/json", report::json).await
}

async fn csv(State(lab): State<Lab>, Path(id): Path<String>) -> Result<Response, Problem> {
    drawn(lab, id, "text/csv; charset=utf-8", report::csv).await
}

async fn ndjson(State(lab): State<Lab>, Path(id): Path<String>) -> Result<Response, Problem> {
    let (run, folder) = lab.run_of(&id)?;
    let points = folder
        .read_points(&run)
        .map_err(|error| Problem::new(Code::Unreadable, error))?;
    let lines = points
        .iter()
        .filter_map(|point| serde_json::to_string(point).ok());
    let text: String = lines.map(|line| line + "\n").collect();
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], text).into_response())
}

async fn archive(State(lab): State<Lab>, Path(id): Path<String>) -> Result<Response, Problem> {
    let folder = lab.known_run(&id)?;
    let name = id.clone();
    let packed = tokio::task::spawn_blocking(move || packed(&folder, &name)).await;
    let file = packed
        .map_err(|error| Problem::new(Code::Unreadable, error))?
        .map_err(|error| failed("the archive cannot be made", &error))?;
    let file = tokio::fs::File::from_std(file);
    Ok(stream(file, "application/zip", Some(&format!("{id}.zip"))))
}

/// Packs all files of a run into a file without a name, at its beginning.
fn packed(folder: &FilePath, name: &str) -> io::Result<File> {
    let mut zip = ZipWriter::new(BufWriter::new(tempfile::tempfile()?));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    for (path, bytes) in files(folder) {
        if path == FilePath::new(CONTROL) {
            continue;
        }
        let large = options.large_file(bytes > u64::from(u32::MAX / 2));
        zip.start_file(format!("{name}/{}", path.display()), large)?;
        io::copy(&mut BufReader::new(File::open(folder.join(&path))?), &mut zip)?;
    }
    let mut file = zip
        .finish()?
        .into_inner()
        .map_err(io::IntoInnerError::into_error)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}
