//! Machines that are prepared over ssh: programs are copied to them, an agent is started there, watched and
//! ended, and its log comes back. The programs `ssh` and `scp` of the machine of the page do it, with the
//! keys and settings of its user; the page keeps no key.

use std::fmt::Write as _;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use stafett_http::api::{get, post};
use stafett_http::{Api, Code, Path, Problem, body};

use super::agents::{Address, AgentState, asked};
use super::jobs::{Job, Program, Steps};
use super::{Lab, checked_name, failed};

/// Folder of machines' work and logs, in that of the runs. Its name is no name of a run.
const FOLDER: &str = ".machines";
const STEPS: &str = "steps.json";
/// Log of an agent that came back.
const LOG: &str = "agent.log";
/// Programs that are copied; the second one if it is beside the first.
const PROGRAMS: [&str; 2] = ["stafett-lab", "stafett-lab-clients"];
/// Program of a machine's broker, beside the first.
const BROKER: &str = "stafett";
const BEFORE_WITHIN: Duration = Duration::from_mins(20);

pub(super) fn routes(api: Api<Lab>) -> Api<Lab> {
    let refusals = [Code::NoSuchAgent, Code::InUse, Code::BadSettings];
    api.route(
        post(
            "/lab/v1/agents/{name}/deploy",
            "Prepares a machine over ssh: starts it where its agent has a command for that, looks at it, copies programs \
             that differ and the secret, and starts the agent.",
        )
        .body::<Deploy>()
        .answers::<Job>(202)
        .refuses(&refusals),
        deploy,
    )
    .route(
        post("/lab/v1/agents/{name}/start", "Starts the agent of a machine that was prepared before.")
            .answers::<Job>(202)
            .refuses(&refusals),
        start,
    )
    .route(
        post(
            "/lab/v1/agents/{name}/stop",
            "Ends the agent of a machine and brings its log; with remove, what was copied goes too.",
        )
        .body::<Stop>()
        .answers::<Job>(202)
        .refuses(&refusals),
        stop,
    )
    .route(
        post("/lab/v1/agents/{name}/collect", "Brings the log of a machine's agent, whole.")
            .answers::<Job>(202)
            .refuses(&refusals),
        collect,
    )
    .route(
        get("/lab/v1/agents/{name}/steps", "Shows the last work at a machine, step by step.")
            .answers::<Job>(200)
            .refuses(&[Code::NoSuchAgent]),
        steps,
    )
    .route(
        get("/lab/v1/agents/{name}/log", "Shows the log of an agent that was brought last.")
            .streams::<String>("text/plain")
            .refuses(&[Code::NoSuchAgent]),
        log,
    )
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Deploy {
    /// Revision that was built before, whose programs are copied; those of the page if it is absent.
    build: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Stop {
    /// Deletes the folder on the machine.
    remove: bool,
}

/// A machine: its agent, and the way to it.
#[derive(Debug, Clone)]
struct Machine {
    agent: Address,
    /// Target of ssh: `USER@HOST`, or a name of its settings.
    ssh: String,
    /// Folder on the machine, below that in which ssh begins.
    folder: String,
}

async fn deploy(
    State(lab): State<Lab>,
    Path(name): Path<String>,
    request: Request,
) -> Result<(StatusCode, Json<Job>), Problem> {
    let Deploy { build } = body::json(request).await?;
    let from = match build {
        Some(revision) => lab.built(&revision)?,
        None => lab.settings.exe.clone(),
    };
    let machine = lab.machine(&name)?;
    let secret = lab.secret_text()?;
    let work = lab.begin(lab.steps_file(&name), "deploy").await?;
    let there = lab.clone();
    lab.do_beside(async move {
        let mut work = work;
        let ended = machine.deploy(&mut work, &from, secret, &there).await;
        work.end(&ended);
    });
    lab.shown_job(&name)
}

async fn start(State(lab): State<Lab>, Path(name): Path<String>) -> Result<(StatusCode, Json<Job>), Problem> {
    let machine = lab.machine(&name)?;
    let has_secret = lab.settings.secret_file.is_some();
    let work = lab.begin(lab.steps_file(&name), "start").await?;
    let there = lab.clone();
    lab.do_beside(async move {
        let mut work = work;
        let ended = machine.start(&mut work, has_secret, &there).await;
        work.end(&ended);
    });
    lab.shown_job(&name)
}

async fn stop(
    State(lab): State<Lab>,
    Path(name): Path<String>,
    request: Request,
) -> Result<(StatusCode, Json<Job>), Problem> {
    let Stop { remove } = body::json(request).await?;
    let machine = lab.machine(&name)?;
    let work = lab.begin(lab.steps_file(&name), "stop").await?;
    let log = lab.log_file(&name);
    lab.do_beside(async move {
        let mut work = work;
        let ended = machine.stop(&mut work, &log, remove).await;
        work.end(&ended);
    });
    lab.shown_job(&name)
}

async fn collect(
    State(lab): State<Lab>,
    Path(name): Path<String>,
) -> Result<(StatusCode, Json<Job>), Problem> {
    let machine = lab.machine(&name)?;
    let work = lab.begin(lab.steps_file(&name), "collect").await?;
    let log = lab.log_file(&name);
    lab.do_beside(async move {
        let mut work = work;
        let ended = work.step("collect", machine.bring(&log)).await.map(drop);
        work.end(&ended);
    });
    lab.shown_job(&name)
}

async fn steps(State(lab): State<Lab>, Path(name): Path<String>) -> Result<Json<Job>, Problem> {
    lab.agents.find(&name)?;
    let job = lab.jobs.read(&lab.steps_file(&name));
    let why = || {
        Problem::new(
            Code::NoSuchAgent,
            format!("nothing was done at the machine of {name:?}"),
        )
    };
    job.map(Json).ok_or_else(why)
}

async fn log(State(lab): State<Lab>, Path(name): Path<String>) -> Result<Response, Problem> {
    lab.agents.find(&name)?;
    let text = tokio::fs::read(lab.log_file(&name)).await;
    let text =
        text.map_err(|_| Problem::new(Code::NoSuchAgent, format!("no log of {name:?} came back yet")))?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response())
}

impl Lab {
    fn machine_folder(&self, name: &str) -> PathBuf {
        self.settings.runs.join(FOLDER).join(name)
    }

    pub(super) fn steps_file(&self, name: &str) -> PathBuf {
        self.machine_folder(name).join(STEPS)
    }

    fn log_file(&self, name: &str) -> PathBuf {
        self.machine_folder(name).join(LOG)
    }

    fn machine(&self, name: &str) -> Result<Machine, Problem> {
        checked_name(name)?;
        let agent = self.agents.find(name)?;
        let Some(ssh) = agent.ssh.clone() else {
            let why = format!("the agent {name:?} has no ssh: it is started by hand");
            return Err(Problem::new(Code::BadSettings, why));
        };
        Ok(Machine {
            folder: format!("stafett-lab-{name}"),
            agent,
            ssh,
        })
    }

    fn secret_text(&self) -> Result<Option<Vec<u8>>, Problem> {
        let path = self.settings.secret_file.as_ref();
        let text = path.map(std::fs::read).transpose();
        text.map_err(|error| failed("the secret cannot be read", &error))
    }

    fn shown_job(&self, name: &str) -> Result<(StatusCode, Json<Job>), Problem> {
        let job = self.jobs.read(&self.steps_file(name));
        let why = || Problem::new(Code::Unreadable, "the steps are not stored");
        Ok((StatusCode::ACCEPTED, Json(job.ok_or_else(why)?)))
    }

    /// Brings the logs of machines whose agents a run had, into its folder. Logs that do not come stay.
    pub(super) async fn gather_logs(&self, arguments: &[String], folder: &FilePath) {
        for agent in self.agents.all() {
            let given = format!("--agent={}={}", agent.name, agent.address);
            if !arguments.contains(&given) {
                continue;
            }
            if let Ok(machine) = self.machine(&agent.name) {
                let log = folder
                    .join("logs")
                    .join("machines")
                    .join(format!("{}.log", agent.name));
                let _ = machine.bring(&log).await;
            }
        }
    }
}

impl Machine {
    /// A command of the machine's shell.
    fn shell(&self, command: &str) -> Program {
        let options = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--"];
        Program::new("ssh", options.into_iter().chain([&*self.ssh, command]))
    }

    fn copy(from: &str, to: &str) -> Program {
        Program::new(
            "scp",
            [
                "-q",
                "-o",
                "BatchMode=yes",
                "-o",
                "ConnectTimeout=10",
                "--",
                from,
                to,
            ],
        )
    }

    async fn deploy(
        &self,
        work: &mut Steps,
        from: &FilePath,
        secret: Option<Vec<u8>>,
        lab: &Lab,
    ) -> Result<(), String> {
        if let Some(before) = self.agent.before.as_deref() {
            let starting = Program::new("sh", ["-c", before]).within(BEFORE_WITHIN);
            work.step("start the machine", starting.run()).await?;
        }
        let reached = self.shell(&format!("mkdir -p {} && echo reached", self.folder));
        work.step("reach", reached.run()).await?;
        let look = "uname -srm; getconf _NPROCESSORS_ONLN; grep MemTotal /proc/meminfo; ulimit -n; df -Pk . | tail -n 1";
        work.step("look", self.shell(look).run()).await?;
        for program in PROGRAMS {
            let path = if program == PROGRAMS[0] {
                from.to_owned()
            } else {
                from.with_file_name(program)
            };
            if path.is_file() {
                work.step(&format!("copy {program}"), self.put(&path, program))
                    .await?;
            }
        }
        if self.agent.broker.is_some() {
            let path = from.with_file_name(BROKER);
            work.step("copy stafett", self.put(&path, BROKER)).await?;
        }
        let has_secret = secret.is_some();
        if let Some(secret) = secret {
            let command = format!("umask 077 && cat > {}/secret", self.folder);
            work.step("copy the secret", self.shell(&command).input(secret).run())
                .await?;
        }
        self.start(work, has_secret, lab).await
    }

    /// Copies a program, unless it is there with the same content.
    async fn put(&self, path: &FilePath, name: &str) -> Result<String, String> {
        let (folder, local) = (&self.folder, path.to_owned());
        let hashed = tokio::task::spawn_blocking(move || std::fs::read(local).map(Sha256::digest));
        let hash = hashed.await.map_err(|error| error.to_string())?;
        let hash = hash.map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        let mut hex = String::new();
        for byte in hash {
            // Writing to memory does not fail.
            let _ = write!(hex, "{byte:02x}");
        }
        let there = format!("sha256sum < {folder}/{name} 2>/dev/null || true");
        if self.shell(&there).run().await?.starts_with(&hex) {
            return Ok("it is there already".to_owned());
        }
        let target = format!("{}:{folder}/{name}.new", self.ssh);
        Self::copy(&path.display().to_string(), &target).run().await?;
        let moved = format!("cd {folder} && chmod 755 {name}.new && mv {name}.new {name} && du -h {name}");
        self.shell(&moved).run().await
    }

    async fn start(&self, work: &mut Steps, has_secret: bool, lab: &Lab) -> Result<(), String> {
        let secret = if has_secret { " --secret-file secret" } else { "" };
        if let Some(broker) = &self.agent.broker {
            let program = format!(
                "./stafett serve --data-dir data --kafka {broker} --amqp 127.0.0.1:0 --http 127.0.0.1:0 \
                 --log-level warn --set allow_unauthenticated=true"
            );
            let begun = self.begun("broker", &program, "^ready");
            work.step("start the broker", self.shell(&begun).run()).await?;
        }
        let address = &self.agent.address;
        let program = format!("./stafett-lab agent --listen {address}{secret}");
        let begun = self.begun("agent", &program, "^agent listening on");
        work.step("start the agent", self.shell(&begun).run()).await?;
        let proving = async {
            let secret = lab.secret().map_err(|problem| problem.to_value().to_string())?;
            let shown = asked(self.agent.clone(), secret).await;
            match shown.state {
                AgentState::Ready => Ok(shown.machine.unwrap_or_else(|| "it takes orders".to_owned())),
                AgentState::Absent | AgentState::NotAsked => Err(shown.reason.unwrap_or_default()),
            }
        };
        work.step("prove the secret", proving).await.map(drop)
    }

    /// Commands that start a program in the folder, in place of the one before, and wait for a line of it.
    fn begun(&self, name: &str, program: &str, line: &str) -> String {
        let (folder, ended) = (&self.folder, self.ended(name));
        format!(
            "{ended}; cd {folder} || exit 1; rm -f {name}.log; \
             (nohup {program} > {name}.log 2>&1 < /dev/null & echo $! > {name}.pid); \
             n=0; until grep -q '{line}' {name}.log 2>/dev/null; do \
             kill -0 $(cat {name}.pid) 2>/dev/null && [ $n -lt 300 ] || {{ cat {name}.log; exit 1; }}; \
             n=$((n + 1)); sleep 0.1; done; cat {name}.log"
        )
    }

    /// Commands that end a program, if it is there.
    fn ended(&self, name: &str) -> String {
        let pid = format!("{}/{name}.pid", self.folder);
        format!(
            "if [ -f {pid} ]; then kill $(cat {pid}) 2>/dev/null; n=0; \
             while kill -0 $(cat {pid}) 2>/dev/null && [ $n -lt 100 ]; do n=$((n + 1)); sleep 0.1; done; rm -f {pid}; fi"
        )
    }

    async fn stop(&self, work: &mut Steps, log: &FilePath, remove: bool) -> Result<(), String> {
        work.step("stop the agent", self.shell(&self.ended("agent")).run())
            .await?;
        if self.agent.broker.is_some() {
            work.step("stop the broker", self.shell(&self.ended("broker")).run())
                .await?;
        }
        // An agent that never began has no log.
        let _ = work.step("collect", self.bring(log)).await;
        if remove {
            let removed = self.shell(&format!("rm -rf {}", self.folder));
            work.step("remove what was copied", removed.run()).await?;
        }
        if let Some(after) = self.agent.after.as_deref() {
            let ending = Program::new("sh", ["-c", after]).within(BEFORE_WITHIN);
            work.step("end the machine", ending.run()).await?;
        }
        Ok(())
    }

    /// Brings the log of the agent into a file.
    async fn bring(&self, log: &FilePath) -> Result<String, String> {
        if let Some(parent) = log.parent() {
            std::fs::create_dir_all(parent).map_err(|error| error.to_string())?;
        }
        let from = format!("{}:{}/agent.log", self.ssh, self.folder);
        Self::copy(&from, &log.display().to_string()).run().await?;
        let bytes = log.metadata().map_or(0, |metadata| metadata.len());
        Ok(format!("{bytes} bytes"))
    }
}

/// Refuses a text that is no address, or that a shell would take for more than a word.
pub(super) fn check_address(text: &str) -> Result<(), Problem> {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '_' | '-' | ':' | '[' | ']');
    let port = text
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse::<u16>().ok());
    if port.is_none() || text.starts_with('-') || !text.chars().all(is_plain) {
        return Err(Problem::bad_request(format!("{text:?} is no HOST:PORT")));
    }
    Ok(())
}

/// Refuses a text that is no target of ssh.
pub(super) fn check_target(text: &str) -> Result<(), Problem> {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '@' | '.' | '_' | '-' | ':');
    if text.is_empty() || text.len() > 255 || text.starts_with('-') || !text.chars().all(is_plain) {
        return Err(Problem::bad_request(
            "ssh is USER@HOST, or a name of the settings of ssh",
        ));
    }
    Ok(())
}
