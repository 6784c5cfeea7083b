//! Agents on other machines, in `agents.json` beside the runs: whether they are there and take orders.

use std::fs;
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stafett_http::api::{delete, get, post};
use stafett_http::{Api, Code, Path, Problem, body};
use stafett_model::Lock;

use super::jobs::Job;
use super::{Lab, failed, machines, notes};
use crate::agents::proof::Secret;
use crate::agents::{AgentAddress, Crew};

/// File of the agents, in the folder of the runs.
pub(super) const FILE: &str = "agents.json";
const AGENTS_MAX: usize = 64;
/// Wait for an agent that another look has not left yet.
const FREE_WITHIN: Duration = Duration::from_secs(2);

pub(super) fn routes(api: Api<Lab>) -> Api<Lab> {
    api.route(
        get(
            "/lab/v1/agents",
            "Lists agents, each with its machine if it takes orders from here, or the reason why not. While a run is under \
             way none is asked.",
        )
        .answers::<Agents>(200),
        list,
    )
    .route(
        post("/lab/v1/agents", "Adds an agent to the list, in place of another of its name.")
            .body::<Address>()
            .answers::<Value>(201)
            .refuses(&[Code::Overloaded]),
        add,
    )
    .route(
        delete("/lab/v1/agents/{name}", "Takes an agent off the list. Its program goes on.")
            .refuses(&[Code::NoSuchAgent]),
        remove,
    )
}

/// Name and place of an agent, and the way to prepare its machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "as requests name it")]
pub(super) struct Address {
    pub(super) name: String,
    /// `HOST:PORT`, at which the agent listens.
    pub(super) address: String,
    /// Target of ssh, `USER@HOST` or a name of its settings. Without one the agent is started by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ssh: Option<String>,
    /// `HOST:PORT` at which a Stafett is started there for Kafka's clients: a system for runs. It stores in
    /// its folder, and asks for no login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) broker: Option<String>,
    /// Command of a shell of this machine that starts the other one; it ends once ssh reaches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) before: Option<String>,
    /// Command that ends the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Agents {
    items: Vec<Shown>,
    /// True if runs give agents a secret.
    has_secret: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Agent")]
pub(super) struct Shown {
    name: String,
    address: String,
    ssh: Option<String>,
    broker: Option<String>,
    before: Option<String>,
    after: Option<String>,
    pub(super) state: AgentState,
    /// The last work at its machine.
    job: Option<Job>,
    /// Cores, processor, memory and kernel.
    pub(super) machine: Option<String>,
    /// Median time of a byte there and back.
    round_trip_us: Option<u64>,
    bytes_per_second: Option<f64>,
    /// Reason why it takes no orders.
    pub(super) reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum AgentState {
    Ready,
    /// It does not answer, or takes no orders from here.
    Absent,
    /// A run is under way, which a question would disturb.
    NotAsked,
}

/// The list of agents.
#[derive(Debug)]
pub(super) struct List {
    path: PathBuf,
    known: Lock<Vec<Address>>,
}

impl List {
    pub(super) fn open(runs: &FilePath) -> io::Result<Self> {
        let path = runs.join(FILE);
        let known = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(Self {
            path,
            known: Lock::new(known),
        })
    }

    pub(super) fn all(&self) -> Vec<Address> {
        self.known.lock().clone()
    }

    pub(super) fn find(&self, name: &str) -> Result<Address, Problem> {
        let found = self.known.lock().iter().find(|it| it.name == name).cloned();
        found.ok_or_else(|| Problem::new(Code::NoSuchAgent, format!("there is no agent {name:?}")))
    }

    /// Changes the list, and stores it; one that cannot be stored stays as it is.
    fn change(&self, change: impl FnOnce(&mut Vec<Address>) -> Result<(), Problem>) -> Result<(), Problem> {
        let mut known = self.known.lock();
        let mut items = known.clone();
        change(&mut items)?;
        let text = serde_json::to_vec_pretty(&items).map_err(io::Error::from);
        text.and_then(|text| notes::put(&self.path, &text))
            .map_err(|error| failed("the list of agents is not stored", &error))?;
        *known = items;
        Ok(())
    }
}

async fn list(State(lab): State<Lab>) -> Result<Json<Agents>, Problem> {
    let known = lab.agents.all();
    let secret = lab.secret()?;
    let has_secret = secret.is_some();
    let is_quiet = !lab.queue.has_started() && lab.under_way().await.is_none();
    let mut items = Vec::with_capacity(known.len());
    for agent in known {
        let job = lab.jobs.read(&lab.steps_file(&agent.name));
        let shown = if is_quiet {
            asked(agent, secret.clone()).await
        } else {
            shown(agent, AgentState::NotAsked)
        };
        items.push(Shown { job, ..shown });
    }
    Ok(Json(Agents { items, has_secret }))
}

fn shown(agent: Address, state: AgentState) -> Shown {
    Shown {
        name: agent.name,
        address: agent.address,
        ssh: agent.ssh,
        broker: agent.broker,
        before: agent.before,
        after: agent.after,
        state,
        job: None,
        machine: None,
        round_trip_us: None,
        bytes_per_second: None,
        reason: None,
    }
}

/// Connects to an agent as a run does, and leaves it.
pub(super) async fn asked(address: Address, secret: Option<Secret>) -> Shown {
    let agent = AgentAddress {
        name: address.name.clone(),
        address: address.address.clone(),
    };
    match Crew::gather(vec![agent], secret, FREE_WITHIN).await {
        Ok(crew) => {
            let network = crew.network();
            let machine = crew.describe().into_iter().next();
            Shown {
                machine: machine.and_then(|text| Some(text.split_once("): ")?.1.to_owned())),
                round_trip_us: network.as_ref().map(|network| network.round_trip.p50_us),
                bytes_per_second: network.map(|network| network.bytes_per_second),
                ..shown(address, AgentState::Ready)
            }
        }
        Err(reason) => Shown {
            reason: Some(reason),
            ..shown(address, AgentState::Absent)
        },
    }
}

async fn add(State(lab): State<Lab>, request: Request) -> Result<(StatusCode, Json<Address>), Problem> {
    let wanted: Address = body::json(request).await?;
    let text = format!("{}={}", wanted.name, wanted.address);
    AgentAddress::parse(&text, 1).map_err(Problem::bad_request)?;
    if let Some(target) = &wanted.ssh {
        machines::check_target(target)?;
        machines::check_address(&wanted.address)?;
        wanted.broker.as_deref().map_or(Ok(()), machines::check_address)?;
    }
    lab.agents.change(|known| {
        known.retain(|it| it.name != wanted.name);
        if known.len() >= AGENTS_MAX {
            return Err(Problem::new(
                Code::Overloaded,
                format!("{AGENTS_MAX} agents are known already"),
            ));
        }
        known.push(wanted.clone());
        Ok(())
    })?;
    Ok((StatusCode::CREATED, Json(wanted)))
}

async fn remove(State(lab): State<Lab>, Path(name): Path<String>) -> Result<StatusCode, Problem> {
    lab.agents.change(|known| {
        let before = known.len();
        known.retain(|it| it.name != name);
        let why = || Problem::new(Code::NoSuchAgent, format!("there is no agent {name:?}"));
        (known.len() < before).then_some(()).ok_or_else(why)
    })?;
    Ok(StatusCode::NO_CONTENT)
}

impl Lab {
    /// Reads the secret of agents, if a file is named.
    pub(super) fn secret(&self) -> Result<Option<Secret>, Problem> {
        let Some(path) = &self.settings.secret_file else {
            return Ok(None);
        };
        let text = fs::read_to_string(path).map_err(|error| failed("the secret cannot be read", &error))?;
        Secret::new(&text)
            .map(Some)
            .map_err(|why| Problem::new(Code::Unreadable, why))
    }
}
