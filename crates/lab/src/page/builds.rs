//! Programs of other revisions: each is built once, from a work tree of its own of the checkout that the
//! page was given.

use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_http::api::{get, post};
use stafett_http::{Api, Code, Problem, body};

use super::jobs::{Job, Program, Steps};
use super::{Lab, checked_name};

/// Folder of the builds, in that of the runs. Its name is no name of a run.
const FOLDER: &str = ".builds";
const STEPS: &str = "steps.json";
const PROGRAMS: [&str; 2] = ["stafett", "stafett-lab"];
const BUILT_WITHIN: Duration = Duration::from_hours(2);

pub(super) fn routes(api: Api<Lab>) -> Api<Lab> {
    api.route(
        get("/lab/v1/builds", "Lists revisions that were built, or are being built.").answers::<Builds>(200),
        list,
    )
    .route(
        post(
            "/lab/v1/builds",
            "Builds the programs of a revision, in a work tree of its own. Runs take its broker, and machines its agent.",
        )
        .body::<Asked>()
        .answers::<Build>(202)
        .refuses(&[Code::InUse, Code::BadSettings]),
        build,
    )
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Asked {
    /// Commit, branch or tag.
    revision: String,
}

/// A revision.
#[derive(Debug, Serialize, JsonSchema)]
struct Build {
    revision: String,
    /// True if its programs are there.
    ready: bool,
    job: Option<Job>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Builds {
    items: Vec<Build>,
    /// Checkout of which revisions are built.
    source: String,
}

async fn list(State(lab): State<Lab>) -> Json<Builds> {
    let entries = std::fs::read_dir(lab.settings.runs.join(FOLDER))
        .into_iter()
        .flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| checked_name(name).is_ok()).collect();
    names.sort();
    Json(Builds {
        items: names.into_iter().map(|name| lab.shown_build(name)).collect(),
        source: lab.settings.source.display().to_string(),
    })
}

async fn build(State(lab): State<Lab>, request: Request) -> Result<(StatusCode, Json<Build>), Problem> {
    let Asked { revision } = body::json(request).await?;
    checked_name(&revision)?;
    if revision.starts_with('-') {
        return Err(Problem::bad_request("a revision is a commit, a branch or a tag"));
    }
    let folder = lab.build_folder(&revision);
    let mut work = lab.begin(folder.join(STEPS), "build").await?;
    let (source, there) = (lab.settings.source.clone(), folder.clone());
    let (name, target) = (revision.clone(), lab.settings.runs.join(FOLDER).join(".target"));
    lab.do_beside(async move {
        let ended = built(&mut work, &source, &there, (&name, &target)).await;
        work.end(&ended);
    });
    Ok((StatusCode::ACCEPTED, Json(lab.shown_build(revision))))
}

/// Builds a revision into a folder; `target` is shared by all builds.
async fn built(
    work: &mut Steps,
    source: &FilePath,
    folder: &FilePath,
    (revision, target): (&str, &FilePath),
) -> Result<(), String> {
    let text = |path: &FilePath| path.display().to_string();
    let git = |arguments: &[&str]| {
        let all = ["-C".to_owned(), text(source)].into_iter();
        Program::new("git", all.chain(arguments.iter().map(|&it| it.to_owned())))
    };
    let commit = format!("{revision}^{{commit}}");
    let found = git(&["rev-parse", "--verify", "--end-of-options", &commit]);
    let commit = work.step("find the revision", found.run()).await?;
    let tree = folder.join("tree");
    let made = git(&[
        "worktree",
        "add",
        "--force",
        "--detach",
        &text(&tree),
        commit.trim(),
    ]);
    work.step("make a work tree", made.run()).await?;
    let manifest = text(&tree.join("Cargo.toml"));
    let mut arguments = vec!["build", "--release", "--locked", "--manifest-path", &manifest];
    arguments.extend(PROGRAMS.iter().flat_map(|&program| ["--bin", program]));
    let target_text = text(target);
    arguments.extend(["--target-dir", &target_text]);
    let building = Program::new("cargo", arguments).within(BUILT_WITHIN);
    let ended = work.step("build", building.run()).await;
    if ended.is_ok() {
        work.step("keep the programs", async { kept(target, folder) })
            .await?;
    }
    let removed = git(&["worktree", "remove", "--force", &text(&tree)]);
    work.step("remove the work tree", removed.run()).await?;
    ended.map(drop)
}

fn kept(target: &FilePath, folder: &FilePath) -> Result<String, String> {
    for program in PROGRAMS {
        let (from, to) = (target.join("release").join(program), folder.join(program));
        std::fs::copy(&from, &to).map_err(|error| format!("{}: {error}", from.display()))?;
    }
    Ok(folder.display().to_string())
}

impl Lab {
    fn build_folder(&self, revision: &str) -> PathBuf {
        self.settings.runs.join(FOLDER).join(revision)
    }

    fn shown_build(&self, revision: String) -> Build {
        let folder = self.build_folder(&revision);
        Build {
            ready: PROGRAMS.iter().all(|program| folder.join(program).is_file()),
            job: self.jobs.read(&folder.join(STEPS)),
            revision,
        }
    }

    /// Returns the agent's program of a revision that was built.
    pub(super) fn built(&self, revision: &str) -> Result<PathBuf, Problem> {
        checked_name(revision)?;
        let program = self.build_folder(revision).join(PROGRAMS[1]);
        if program.is_file() {
            return Ok(program);
        }
        let why = format!("the revision {revision:?} is not built; POST /lab/v1/builds does it");
        Err(Problem::new(Code::BadSettings, why))
    }

    /// Returns the option of a run that takes the broker of a revision.
    pub(super) fn broker_of(&self, revision: Option<&str>) -> Result<Option<String>, Problem> {
        let Some(revision) = revision else { return Ok(None) };
        self.built(revision)?;
        let program = self.build_folder(revision).join(PROGRAMS[0]);
        let program = std::path::absolute(&program).unwrap_or(program);
        Ok(Some(format!("--stafett={}", program.display())))
    }
}
