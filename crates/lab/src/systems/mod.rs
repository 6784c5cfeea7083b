//! Systems: how each is started, what its settings are called, and which durability it really gives.
//!
//! - [`stafett`], [`kafka`], [`rabbitmq`]: one file per system
//! - [`process`]: a process that is started, watched and ended
//! - [`durability`]: what was asked for against what there is

pub mod durability;
pub mod kafka;
pub mod process;
pub mod rabbitmq;
pub mod stafett;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::drivers::Driver;
use crate::drivers::lean::Lean;
use crate::drivers::live::Live;
use crate::experiment::{DriverKind, Plan, TopicKind};
use crate::results::Durability;
use process::Process;

/// Where systems live.
#[derive(Debug, Clone)]
pub struct Place {
    /// This machine's address, on which systems listen.
    pub host: String,
    /// This program: Stafett is started with it.
    pub exe: PathBuf,
    /// Of everything that systems store; emptied for each start.
    pub data: PathBuf,
    /// Of what they say.
    pub logs: PathBuf,
    /// The folder of the scripts that fetch and start other systems, where it was found.
    pub peers: Option<PathBuf>,
}

impl Place {
    /// Whether systems are for this machine alone.
    pub fn is_loopback(&self) -> bool {
        let host = self.host.trim_matches(['[', ']']);
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

/// A system that answers.
#[derive(Debug)]
pub struct System {
    pub name: String,
    pub address: String,
    /// Where it speaks live topics, if it does and that is another address.
    pub live_address: Option<String>,
    pub version: String,
    /// What it was told, in its own words.
    pub settings: BTreeMap<String, String>,
    /// From the start of the process to the first answer; `None` for one that was there.
    pub cold_start: Option<Duration>,
    pub process: Option<Process>,
    /// What it was started with: another value needs another start.
    pub key: String,
}

/// Why a system is not there.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StartError {
    /// A program is not there.
    #[error("{0}")]
    Missing(String),
    /// It does not take a setting.
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Failed(String),
}

/// Starts the system of that name, or finds it where the plan says that it is.
pub async fn start(name: &str, plan: &Plan, place: &Place) -> Result<System, StartError> {
    let mut system = match name {
        "stafett" => stafett::start(plan, place).await?,
        "kafka" => kafka::start(plan, place).await?,
        "rabbitmq" => rabbitmq::start(plan, place)?,
        other => return Err(StartError::Missing(format!("`{other}` is no system"))),
    };
    system.key = key(name, plan);
    Ok(system)
}

/// What a system of that name has to be started with for a plan.
pub fn key(name: &str, plan: &Plan) -> String {
    format!(
        "{name} {:?} {:?}",
        plan.system.own(name),
        stafett::rules(name, plan)
    )
}

/// The settings of topics that give a durability, and which it is.
pub fn levels(name: &str, plan: &Plan) -> (Vec<(String, String)>, Durability) {
    let asked = plan.system.durability.as_str();
    match name {
        "stafett" => durability::stafett(asked),
        "kafka" => durability::kafka(asked),
        _ => durability::rabbitmq(asked, plan),
    }
}

/// A driver for a system of that name, or why there is none.
pub fn driver(name: &str, address: &str, plan: &Plan) -> Result<Arc<dyn Driver>, String> {
    if name == "rabbitmq" {
        return Err("there is no driver for AMQP yet".to_owned());
    }
    match plan.run.driver {
        _ if name == "stafett" && is_live(plan) => Ok(Arc::new(Live::new(address))),
        DriverKind::Lean => Ok(Arc::new(Lean::new(address))),
        DriverKind::Client => Err("the driver on librdkafka is not built in".to_owned()),
    }
}

/// Whether a plan is about live topics.
pub fn is_live(plan: &Plan) -> bool {
    plan.topics.values().any(|topics| topics.kind == TopicKind::Live)
}

impl System {
    /// Where the plan's topics are.
    pub fn address(&self, plan: &Plan) -> &str {
        let live = self.live_address.as_deref().filter(|_| is_live(plan));
        live.unwrap_or(&self.address)
    }
}

/// The script that fetches and starts another system.
pub(crate) fn script(place: &Place, name: &str) -> Result<PathBuf, StartError> {
    let script = place.peers.as_ref().map(|folder| folder.join(name));
    script.filter(|script| script.exists()).ok_or_else(|| {
        StartError::Missing(format!(
            "tools/peers/{name} is not there, which fetches and starts it: run the lab inside a checkout, or give \
             the address of one that runs (--address {name}=HOST:PORT)"
        ))
    })
}

/// The folder of those scripts: in one of the folders around `from`.
pub fn find_peers(from: &[&std::path::Path]) -> Option<PathBuf> {
    let mut around = from.iter().flat_map(|path| path.ancestors());
    around.find_map(|folder| {
        let peers = folder.join("tools/peers");
        peers.join("kafka").exists().then_some(peers)
    })
}

/// Asks a system for its topics until it answers.
pub(crate) async fn first_answer(
    address: &str,
    since: Instant,
    patience: Duration,
) -> Result<Duration, StartError> {
    let mut last = "it did not answer".to_owned();
    while since.elapsed() < patience {
        match Lean::new(address).ping().await {
            Ok(()) => return Ok(since.elapsed()),
            Err(error) => last = error.to_string(),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Err(StartError::Failed(last))
}
