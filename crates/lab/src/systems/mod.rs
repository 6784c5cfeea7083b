//! Systems: their start, the names of their settings, and the durability that they really give.
//!
//! - [`stafett`], [`kafka`], [`rabbitmq`]: one file per system; `launch`: their common start
//! - [`process`]: a process that is started, watched and ended; [`data_dir`]: the folder that they store in
//! - [`durability`]: the level that was asked for against those that there are

pub mod data_dir;
pub mod durability;
pub mod kafka;
mod launch;
pub mod process;
pub mod rabbitmq;
pub mod stafett;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::drivers::amqp::Amqp;
use crate::drivers::http::Http;
use crate::drivers::lean::Lean;
use crate::drivers::live::Live;
use crate::drivers::{Driver, DriverError, Drivers};
use crate::experiment::check::speaks;
use crate::experiment::{Does, DriverKind, Own, Plan, Protocol, TopicKind};
use crate::results::Durability;
use process::Process;

/// Places of systems: addresses, programs and folders.
#[derive(Debug, Clone)]
pub struct Place {
    /// This machine's address, on which systems listen.
    pub host: String,
    /// The broker's program.
    pub stafett: PathBuf,
    /// Of everything that systems store, each in a folder of its name, emptied for each start.
    pub data: PathBuf,
    /// Folder of their logs.
    pub logs: PathBuf,
    /// The folder of the scripts that fetch and start other systems, where it was found.
    pub peers: Option<PathBuf>,
    /// Of a system that starts again: its addresses. It keeps them and its stored data.
    pub kept: BTreeMap<Protocol, String>,
}

impl Place {
    /// The same, with a folder of its own for the logs of a point.
    pub(crate) fn of_point(&self, number: &str) -> Self {
        Self {
            logs: self.logs.join(format!("{number:0>4}")),
            ..self.clone()
        }
    }
}

/// A system that answers.
#[derive(Debug)]
pub struct System {
    pub name: String,
    /// Its addresses, by their protocols.
    pub addresses: BTreeMap<Protocol, String>,
    pub version: String,
    /// Its settings, in its own words.
    pub settings: BTreeMap<String, String>,
    /// From the start of the process to the first answer; `None` for one that was there.
    pub cold_start: Option<Duration>,
    pub process: Option<Process>,
    /// Settings that it was started with: other values need another start.
    pub key: String,
}

/// Starts the system of that name, or finds it where the plan says that it is.
pub async fn start(name: &str, plan: &Plan, place: &Place) -> Result<System, DriverError> {
    let there_already = plan.system.own(name).filter(|own| own.is_there());
    let mut system = match (name, there_already) {
        (name, Some(own)) => there(name, plan, own).await?,
        ("stafett", None) => stafett::start(plan, place).await?,
        ("kafka", None) => kafka::start(plan, place).await?,
        ("rabbitmq", None) => rabbitmq::start(plan, place).await?,
        (other, None) => return Err(DriverError::Missing(format!("`{other}` is no system"))),
    };
    system.key = key(name, plan);
    Ok(system)
}

/// Returns the settings that a system has to be started with for a plan.
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
    match (name, protocol(name, plan)) {
        ("stafett", Ok(Protocol::Amqp | Protocol::Http)) => durability::stafett_queues(asked, plan),
        ("stafett", _) => durability::stafett(asked),
        ("kafka", _) => durability::kafka(asked),
        _ => durability::rabbitmq(asked, plan),
    }
}

/// Returns the protocol that is spoken to a system, or the reason why there is none.
pub fn protocol(name: &str, plan: &Plan) -> Result<Protocol, String> {
    let has = |kind| plan.topics.values().any(|topics| topics.kind == kind);
    let own = match name {
        "kafka" => Protocol::Kafka,
        "rabbitmq" => Protocol::Amqp,
        _ if has(TopicKind::Live) => Protocol::Live,
        _ if has(TopicKind::Queue) => Protocol::Amqp,
        _ => Protocol::Kafka,
    };
    let wanted = plan.run.protocol.unwrap_or(own);
    if speaks(name, wanted) {
        Ok(wanted)
    } else {
        Err(format!("it does not speak {}", wanted.name()))
    }
}

fn assembles(plan: &Plan) -> bool {
    plan.roles.values().any(|role| role.does == Does::Assemble)
}

/// Returns the lean driver for a system, or the reason why there is none. Topics are made with it, even if
/// another client sends and receives.
pub fn driver(name: &str, address: &str, plan: &Plan) -> Result<Arc<dyn Driver>, String> {
    if name != "stafett" && assembles(plan) {
        return Err("it has no apps".to_owned());
    }
    Ok(match protocol(name, plan)? {
        Protocol::Kafka => Arc::new(Lean::new(address)),
        Protocol::Amqp => Arc::new(Amqp::new(address)),
        Protocol::Live => Arc::new(Live::new(address)),
        Protocol::Http => Arc::new(Http::new(address)),
    })
}

/// Returns true if the client that a user would take is to send to that system and receive from it. For live
/// topics that is a browser's WebSocket, which the lean driver has; over HTTP it is the lean driver.
pub fn wants_client(name: &str, plan: &Plan) -> bool {
    let has_client = matches!(protocol(name, plan), Ok(Protocol::Kafka | Protocol::Amqp));
    plan.run.driver == DriverKind::Client && has_client
}

/// The drivers of this program.
pub fn lean_drivers() -> Drivers {
    Arc::new(|name, address, plan| {
        if wants_client(name, plan) {
            return Err(format!(
                "driver = \"client\": this program has lean drivers alone; as an agent, start `{} agent` in its place",
                crate::clients::PROGRAM
            ));
        }
        driver(name, address, plan)
    })
}

/// The script that fetches and starts another system.
pub(crate) fn script(place: &Place, name: &str) -> Result<PathBuf, DriverError> {
    let script = place.peers.as_ref().map(|folder| folder.join(name));
    script.filter(|script| script.exists()).ok_or_else(|| {
        DriverError::Missing(format!(
            "tools/peers/{name} is not there, which fetches and starts it: run the lab inside a checkout, or give \
             the address of one that runs (--address {name}=HOST:PORT)"
        ))
    })
}

/// Programs that systems and their clients are started with, as far as they are there.
#[derive(Debug)]
pub(crate) struct Programs {
    exe: PathBuf,
    place: Place,
}

impl Programs {
    /// Those that a run of this program would find.
    pub(crate) fn beside(exe: &Path) -> Self {
        let here = std::env::current_dir().unwrap_or_default();
        let place = Place {
            host: String::new(),
            stafett: exe.with_file_name("stafett"),
            data: PathBuf::new(),
            logs: PathBuf::new(),
            peers: find_peers(&[&here, exe]),
            kept: BTreeMap::new(),
        };
        let exe = exe.to_owned();
        Self { exe, place }
    }

    /// Returns the reason why a point of a system would be skipped, as far as it is known before a run.
    pub(crate) fn lack(&self, name: &str, plan: &Plan) -> Option<String> {
        let lean = match driver(name, "", plan) {
            Ok(driver) => driver,
            Err(reason) => return Some(reason),
        };
        let missing = if wants_client(name, plan) {
            crate::clients::find(None, &self.exe).err()
        } else {
            lean.lacks(plan)
        };
        if missing.is_some() || plan.system.own(name).is_some_and(Own::is_there) {
            return missing;
        }
        let started = match name {
            "stafett" => stafett::program(&self.place).err(),
            other => script(&self.place, other).err(),
        };
        started.map(|error| error.to_string())
    }
}

/// The folder of those scripts: in one of the folders around `from`.
pub fn find_peers(from: &[&Path]) -> Option<PathBuf> {
    let mut around = from.iter().flat_map(|path| path.ancestors());
    around.find_map(|folder| {
        let peers = folder.join("tools/peers");
        peers.join("kafka").exists().then_some(peers)
    })
}

impl System {
    /// Returns the lean driver for this system at the address of the plan's protocol.
    pub fn driver(&self, address: &str, plan: &Plan) -> Result<Arc<dyn Driver>, String> {
        if !assembles(plan) {
            return driver(&self.name, address, plan);
        }
        let http = self
            .addresses
            .get(&Protocol::Live)
            .ok_or("where it speaks HTTP was not given")?;
        Ok(Arc::new(Lean::new(address).with_apps(http)))
    }

    /// Returns the address for the plan's protocol.
    pub fn address(&self, plan: &Plan) -> Result<&str, String> {
        let protocol = protocol(&self.name, plan)?;
        let address = self.addresses.get(&protocol);
        address.map(String::as_str).ok_or_else(|| {
            let name = &self.name;
            format!("where {name} speaks {} was not given", protocol.name())
        })
    }
}

/// A system that runs already.
async fn there(name: &str, plan: &Plan, own: &Own) -> Result<System, DriverError> {
    let spoken = protocol(name, plan).map_err(DriverError::Missing)?;
    let address = own.address(spoken).unwrap_or_default();
    if assembles(plan) {
        // Its HTTP listener is not known.
        return Err(DriverError::Missing(
            "sessions are assembled on a broker that the lab starts itself: not with --address".to_owned(),
        ));
    }
    if !own.set.is_empty() {
        return Err(DriverError::Refused(format!(
            "{name} at {address} runs already: its own settings cannot be set from here"
        )));
    }
    let (version, _) = first_answer(spoken, address, Instant::now(), Duration::from_secs(10)).await?;
    Ok(System {
        name: name.to_owned(),
        addresses: Protocol::ALL
            .into_iter()
            .filter_map(|protocol| Some((protocol, own.address(protocol)?.to_owned())))
            .collect(),
        version,
        settings: BTreeMap::new(),
        cold_start: None,
        process: None,
        key: String::new(),
    })
}

/// Asks a system until it answers. Returns its version, if its protocol has a place for it, and how long it
/// took.
async fn first_answer(
    protocol: Protocol,
    address: &str,
    since: Instant,
    patience: Duration,
) -> Result<(String, Duration), DriverError> {
    let mut last = "it did not answer".to_owned();
    while let Some(left) = patience.checked_sub(since.elapsed()) {
        match tokio::time::timeout(left, ask(protocol, address)).await {
            Err(_) => break,
            Ok(Ok(version)) => return Ok((version, since.elapsed())),
            Ok(Err(error)) => last = error.to_string(),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Err(DriverError::Failed(last))
}

/// Asks once; returns the system's version, if its protocol has a place for it.
async fn ask(protocol: Protocol, address: &str) -> Result<String, DriverError> {
    match protocol {
        Protocol::Kafka => Lean::new(address).ping().await.map(|()| String::new()),
        Protocol::Amqp => Amqp::new(address).ping().await.map(|server| server.version),
        Protocol::Live => Live::new(address).ping().await.map(|()| String::new()),
        Protocol::Http => Http::new(address).ping().await.map(|()| String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Source;

    fn plan(settings: &str) -> Plan {
        let source = Source::new(
            "x",
            format!("question = \"?\"\nsystems = [\"stafett\"]\n{settings}\n[roles.p]\ndoes = \"produce\""),
        );
        source.plan(1.0, &BTreeMap::new()).unwrap()
    }

    #[test]
    fn queues_are_spoken_to_over_amqp_and_topics_over_kafkas_protocol() {
        let topics = plan("");
        assert_eq!(protocol("stafett", &topics), Ok(Protocol::Kafka));
        assert_eq!(protocol("rabbitmq", &topics), Ok(Protocol::Amqp));
        let queues = plan("[topics.main]\nkind = \"queue\"");
        assert_eq!(protocol("stafett", &queues), Ok(Protocol::Amqp));
        let amqp = plan("[run]\nprotocol = \"amqp\"");
        assert_eq!(protocol("stafett", &amqp), Ok(Protocol::Amqp));
        assert_eq!(driver("kafka", "", &amqp).unwrap_err(), "it does not speak AMQP");
        assert_eq!(driver("stafett", "", &amqp).unwrap().name(), "lean-amqp");
        assert_eq!(driver("stafett", "", &topics).unwrap().name(), "lean");
    }

    #[tokio::test]
    async fn sessions_are_not_assembled_where_only_one_address_is_known() {
        let text = "question = \"?\"\nsystems = [\"stafett\"]\n[topics.t]\n[topics.u]\n[roles.p]\ndoes = \"produce\"\n\
                    topics = \"t\"\n[roles.w]\ndoes = \"assemble\"\ntopics = \"t\"\nto = \"u\"";
        let source = Source::new("x", text.to_owned());
        let assembling = source.plan(1.0, &BTreeMap::new()).unwrap();
        let own = Own {
            address: Some("localhost:1".to_owned()),
            ..Own::default()
        };
        let refused = there("stafett", &assembling, &own).await.unwrap_err();
        assert!(refused.to_string().contains("--address"), "{refused}");
    }
}
