//! RabbitMQ: one node, built and started by `tools/peers/rabbitmq`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::process::Command;

use super::process::{Process, last_words};
use super::stafett::{empty, plain};
use super::{Place, StartError, System, answer_of, there};
use crate::experiment::{Plan, Protocol};

/// Debian's packages are fetched the first time.
const BUILT_WITHIN: Duration = Duration::from_mins(15);
const READY_WITHIN: Duration = Duration::from_mins(3);

pub(super) async fn start(plan: &Plan, place: &Place) -> Result<System, StartError> {
    let own = &plan.system.rabbitmq;
    if own.is_there() {
        return there("rabbitmq", plan, own).await;
    }
    let script = super::script(place, "rabbitmq")?;
    build(&script).await?;
    let data = place.data.join("rabbitmq");
    empty(&data)?;
    let mut command = Command::new(script);
    command.arg("serve").arg("--data-dir").arg(&data);
    command.args(["--amqp", &format!("{}:0", place.host)]);
    let mut settings = BTreeMap::new();
    for (name, value) in &own.set {
        let value = plain(value);
        command.arg("--set").arg(format!("{name}={value}"));
        settings.insert(name.clone(), value);
    }
    let started = Instant::now();
    let mut address = None;
    let is_ready = |line: &str| {
        if let Some(at) = line.strip_prefix("amqp listening on ") {
            address = Some(at.to_owned());
        }
        (line == "ready").then(|| address.clone().unwrap_or_default())
    };
    let launched = Process::start(command, "rabbitmq", &place.logs, READY_WITHIN, is_ready).await;
    let (process, address) = match launched {
        Err(StartError::Failed(_)) if !own.set.is_empty() => {
            // Its own settings are the likeliest reason: what it says about them is a refusal.
            let said = last_words(&place.logs.join("rabbitmq.err"));
            return Err(StartError::Refused(format!("rabbitmq did not start{said}")));
        }
        other => other?,
    };
    let answered = answer_of(&process, (Protocol::Amqp, &address), started, READY_WITHIN).await?;
    Ok(System {
        name: "rabbitmq".to_owned(),
        addresses: BTreeMap::from([(Protocol::Amqp, address)]),
        version: answered.version,
        settings,
        cold_start: Some(answered.after),
        process: Some(process),
        key: String::new(),
    })
}

/// Has the folder of packages built, unless it is there. Whoever may not do that is told how it is done.
async fn build(script: &Path) -> Result<(), StartError> {
    let missing = |why: &str| {
        StartError::Missing(format!(
            "{why}; or give the address of one that runs (--address rabbitmq=HOST:PORT)"
        ))
    };
    let mut command = Command::new(script);
    command.arg("build").kill_on_drop(true);
    let built = match tokio::time::timeout(BUILT_WITHIN, command.output()).await {
        Ok(Ok(built)) => built,
        Ok(Err(error)) => return Err(missing(&format!("{} cannot be run: {error}", script.display()))),
        Err(_) => return Err(missing("its packages could not be fetched in time")),
    };
    if built.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&built.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    Err(missing(last.unwrap_or("tools/peers/rabbitmq build failed")))
}
