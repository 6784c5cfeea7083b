//! Agents on other machines, in `agents.json` beside the runs: whether they are there and take orders.

use std::fs;
use std::io;
use std::path::{Path as FilePath, PathBuf};

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_http::api::{delete, get, post};
use stafett_http::{Api, Code, Path, Problem, body};
use stafett_model::Lock;

use super::{Lab, failed, notes};
use crate::agents::proof::Secret;
use crate::agents::{AgentAddress, Crew};

/// File of the agents, in the folder of the runs.
pub(super) const FILE: &str = "agents.json";
const AGENTS_MAX: usize = 64;

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
            .answers::<Address>(201)
            .refuses(&[Code::Overloaded]),
        add,
    )
    .route(
        delete("/lab/v1/agents/{name}", "Takes an agent off the list. Its program goes on.")
            .refuses(&[Code::NoSuchAgent]),
        remove,
    )
}

/// Name and place of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Address {
    name: String,
    /// `HOST:PORT`.
    address: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Agents {
    items: Vec<Shown>,
    /// True if runs give agents a secret.
    has_secret: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Agent")]
struct Shown {
    name: String,
    address: String,
    state: AgentState,
    /// Cores, processor, memory and kernel.
    machine: Option<String>,
    /// Median time of a byte there and back.
    round_trip_us: Option<u64>,
    bytes_per_second: Option<f64>,
    /// Reason why it takes no orders.
    reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum AgentState {
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
    let known = lab.agents.known.lock().clone();
    let secret = lab.secret()?;
    let has_secret = secret.is_some();
    let is_quiet = !lab.queue.has_started() && lab.under_way().await.is_none();
    let mut items = Vec::with_capacity(known.len());
    for address in known {
        items.push(if is_quiet {
            asked(address, secret.clone()).await
        } else {
            shown(address, AgentState::NotAsked)
        });
    }
    Ok(Json(Agents { items, has_secret }))
}

fn shown(Address { name, address }: Address, state: AgentState) -> Shown {
    Shown {
        name,
        address,
        state,
        machine: None,
        round_trip_us: None,
        bytes_per_second: None,
        reason: None,
    }
}

/// Connects to an agent as a run does, and leaves it.
async fn asked(address: Address, secret: Option<Secret>) -> Shown {
    let agent = AgentAddress {
        name: address.name.clone(),
        address: address.address.clone(),
    };
    match Crew::gather(vec![agent], secret).await {
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
    fn secret(&self) -> Result<Option<Secret>, Problem> {
        let Some(path) = &self.settings.secret_file else {
            return Ok(None);
        };
        let text = fs::read_to_string(path).map_err(|error| failed("the secret cannot be read", &error))?;
        Secret::new(&text)
            .map(Some)
            .map_err(|why| Problem::new(Code::Unreadable, why))
    }
}
